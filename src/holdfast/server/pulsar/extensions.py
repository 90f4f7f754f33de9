"""Serve our own commands on the binary port: stages, sinks, progress, ports of HTTP.

All are idempotent: a client without an answer repeats the request. Refusals begin with the name of the error,
so that `holdfast.client` can raise the same one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holdfast._core import parse_entry
from holdfast.broker import Topic
from holdfast.errors import Closed, HoldfastError, Misuse, NotFound
from holdfast.protocol import COMMIT_PARTS_MAX, ENTRY_PADDING_BYTES, framed
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar import commands, lookup
from holdfast.server.pulsar.commands import Refused, refusal
from holdfast.server.pulsar.requests import Request
from holdfast.server.steps import Steps

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection

UNDER_WAY_BYTES = 8 << 20
"""Bytes of such requests in progress on one connection; above it the connection is not read."""

LISTED = 0.3
"""Items of a step (see `Steps`) for each entry of an append, and each part of a commit."""

_PAUSE = "stages"
_under_way: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
_Handle = Callable[["Connection", Any], Awaitable[bytes]]


def _named(handle: _Handle) -> _Handle:
    """Count the request's bytes, and refuse with the name of the error in front."""

    async def carry_out(connection: Connection, command: Any) -> bytes:
        size = command.ByteSize()
        took(connection, size)
        try:
            return await handle(connection, command)
        except HoldfastError as error:
            refused = refusal(error)
            raise Refused(refused.code, f"{type(error).__name__}: {refused}") from error
        finally:
            took(connection, -size)

    return carry_out


def took(connection: Connection, size: int) -> None:
    """Count bytes in progress; above the limit, stop reading the connection."""
    before = _under_way.get(connection, 0)
    _under_way[connection] = after = before + size
    if after > UNDER_WAY_BYTES:
        connection.pause(_PAUSE)
    elif before > UNDER_WAY_BYTES:
        connection.go_on(_PAUSE)


# -- stages -------------------------------------------------------------------------------------------


async def stage_open(connection: Connection, command: pb.CommandStageOpen) -> bytes:
    """STAGE_OPEN: create a stage."""
    connection.authorize("stage", "")
    await connection.broker.stages.open(command.stage)
    return commands.success(command.request_id)


async def stage_append(connection: Connection, command: pb.CommandStageAppend) -> bytes:
    """STAGE_APPEND: append entries for a topic; answer when they are durable."""
    topic = await lookup.topic_for(connection, command.topic, "produce")
    entries, steps = list(command.entries), Steps()
    most = connection.options.message_bytes + ENTRY_PADDING_BYTES
    for entry in entries:
        if len(entry) > most:
            raise Misuse(
                f"an entry has {len(entry)} bytes; at most {most} are allowed (limits.message_bytes)"
            )
        parse_entry(entry)
        await steps.did(LISTED)
    stages, size = connection.broker.stages, command.ByteSize()
    staged = await stages.append(command.stage, topic, command.at, entries, size)
    return framed(
        pb.CommandStageAppended(
            request_id=command.request_id, topic_id=topic.id, count=staged.count, digest=staged.digest
        )
    )


async def stage_close(connection: Connection, command: pb.CommandStageClose) -> bytes:
    """STAGE_CLOSE: return the stage's receipt; a commit refuses entries appended later."""
    connection.authorize("stage", "")
    receipt = await connection.broker.stages.receipt(command.stage)
    answer = pb.CommandStageReceipt(request_id=command.request_id)
    for stage, topic, count, digest in receipt.encode():
        answer.parts.add(stage=stage, topic_id=topic, count=count, digest=digest)
    return framed(answer)


async def stage_drop(connection: Connection, command: pb.CommandStageDrop) -> bytes:
    """STAGE_DROP: delete a stage."""
    connection.authorize("stage", "")
    await connection.broker.stages.drop(command.stage)
    return commands.success(command.request_id)


async def sink_commit(connection: Connection, command: pb.CommandSinkCommit) -> bytes:
    """SINK_COMMIT: publish stages once, in all their topics at the same time."""
    broker = connection.broker
    connection.authorize("stage", "")
    if len(command.parts) > COMMIT_PARTS_MAX:
        raise Misuse(f"a commit has {len(command.parts)} parts; at most {COMMIT_PARTS_MAX} are allowed")
    if not command.key:
        raise Misuse("the key of the sink is empty; give it a name")
    parts, allowed, steps = [], set(), Steps()
    for part in command.parts:
        parts.append((part.stage, part.topic_id, part.count, part.digest))
        if part.topic_id not in allowed:
            topic = broker.topics.get(part.topic_id)
            if topic is not None:  # else the event refuses it
                connection.authorize("produce", topic.name)
            allowed.add(part.topic_id)
        await steps.did(LISTED)
    # Keys belong to a role: no other role can mark its batches as committed.
    role = connection.role.replace("%", "%25").replace(":", "%3A")
    key = f"{role}:{command.key}" if role else command.key
    done = await broker.stages.commit(key, command.batch, parts)
    return framed(
        pb.CommandSinkCommitted(request_id=command.request_id, committed=done.committed, batch=done.batch)
    )


# -- progress -----------------------------------------------------------------------------------------


async def progress(connection: Connection, command: pb.CommandProgress) -> bytes:
    """PROGRESS: return the progress of a subscription, which can be created."""
    make = command.create and not command.incarnation  # with an incarnation, only that topic will do
    topic = await lookup.topic_for(connection, command.topic, "consume", command.subscription, create=make)
    _require_incarnation(topic, command.incarnation)
    if command.create:
        start: Any = "earliest" if command.earliest else "latest"
        await connection.broker.ensure_subscription(topic, command.subscription, start)
    subscription = topic.subscription(command.subscription)
    number, acked_to = subscription.reset_number, subscription.acks.acked_to
    await connection.broker.settle()  # the answer is durable
    return _response(connection, command.request_id, topic, number, acked_to)


async def progress_advance(connection: Connection, command: pb.CommandProgressAdvance) -> bytes:
    """PROGRESS_ADVANCE: acknowledge all below a position, unless a reset came before."""
    topic = await lookup.topic_for(connection, command.topic, "consume", command.subscription, create=False)
    _require_incarnation(topic, command.incarnation)
    subscription = topic.subscription(command.subscription)
    if command.to > topic.visible:
        raise Misuse(f"position {command.to} of {topic.name} does not exist yet; the end is {topic.visible}")
    revised = await connection.broker.advance(subscription, command.reset_number, command.to)
    return _response(connection, command.request_id, topic, revised.reset_number, revised.target)


def _require_incarnation(topic: Topic, wanted: bytes) -> None:
    """Refuse positions of a deleted topic of the same name."""
    if wanted and wanted != topic.incarnation:
        raise NotFound(
            f"{topic.name} was deleted and created again, and the position is of the old topic; ask for the "
            "progress again"
        )


def _response(connection: Connection, request: int, topic: Topic, reset_number: int, acked_to: int) -> bytes:
    return framed(
        pb.CommandProgressResponse(
            request_id=request,
            incarnation=topic.incarnation,
            reset_number=reset_number,
            acked_to=acked_to,
            first=topic.first,
            visible=topic.visible,
            log_time=connection.broker.log_time_now(),
        )
    )


# -- HTTP ---------------------------------------------------------------------------------------------


async def http_ports(connection: Connection, command: pb.CommandHttpPorts) -> bytes:
    """HTTP_PORTS: for clients that know only the binary address and read over Flight."""
    connection.authorize("read", "")
    ports = connection.server.http_ports
    if ports is None:
        raise Closed("the server has not opened HTTP yet; try again")
    return framed(
        pb.CommandHttpPortsResponse(request_id=command.request_id, http_port=ports[0], https_port=ports[1])
    )


HANDLERS: dict[int, Request] = {
    pb.BaseCommand.STAGE_OPEN: Request("stage_open", _named(stage_open)),
    pb.BaseCommand.STAGE_APPEND: Request("stage_append", _named(stage_append)),
    pb.BaseCommand.STAGE_CLOSE: Request("stage_close", _named(stage_close)),
    pb.BaseCommand.STAGE_DROP: Request("stage_drop", _named(stage_drop)),
    pb.BaseCommand.SINK_COMMIT: Request("sink_commit", _named(sink_commit)),
    pb.BaseCommand.PROGRESS: Request("progress", _named(progress)),
    pb.BaseCommand.PROGRESS_ADVANCE: Request("progress_advance", _named(progress_advance)),
    pb.BaseCommand.HTTP_PORTS: Request("http_ports", _named(http_ports)),
}
"""By the type of the command."""
