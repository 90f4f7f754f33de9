"""Measure the cost of each command and route per byte that a client sends.

Three figures are counted while a client sends and does not read. They are steps of the interpreter on the
server's loop, bytes of answers, and bytes that are held. Then the client reads; the steps until all is
answered count, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol
from unittest import mock

from holdfast._core import encode_messages
from holdfast.broker.events import SchemaAdd
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar.connection import Connection
from tests.kit.server.cost_world import CostWorld, held
from tests.kit.server.definitions import definition
from tests.kit.server.wire_raw import Raw, Type, frame_of, full

PIPELINED = 60
"""Requests that are sent at once."""
QUIET_S = 0.015
"""If no step happens for this time, the server has done all that it can."""
PATIENCE_S = 20.0


@dataclass(frozen=True)
class Cost:
    """The cost of a client, counted."""

    requests: int
    received: int
    """Bytes that the server was sent."""
    steps: int
    answered: int
    """Bytes of answers."""
    held: int
    """Bytes in memory for this client, at most, while it did not read."""


class Meter:
    """Counts the steps of one thread."""

    def __init__(self) -> None:
        self.steps = 0

    def called(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self.stepped

    def stepped(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.steps += 1
        return self.stepped


class Population:
    """A world with `size` topics, consumers, producers, stages."""

    def __init__(self, size: int) -> None:
        self.size = size
        rests = {"housekeeping_s": 3600.0, "snapshot_s": 3600.0, "snapshot_bytes": 1 << 40}
        self.world = CostWorld(topics=size, name_bytes=60, frame_s=120.0, keepalive_s=3600.0, broker=rests)
        self._still = contextlib.ExitStack()
        # The store's work of every second is left out.
        self._still.enter_context(mock.patch("holdfast.ledger.running.TICK_S", 3600.0))
        self.world.__enter__()
        self.ids: list[Any] = []
        """The ids of messages in the topic `t`."""
        world = self.world
        world.run(world.create(["t"], ("s", "other")))
        world.run(self._fill())
        crowd = self.crowd = world.raw()
        for number in range(size):
            crowd.subscribe("t", number, sub_type=1)
            crowd.produce("t", number)
            crowd.subscribe("t", 10_000 + number, subscription=f"r{number}", durable=False)
            crowd.ask(Type.STAGE_OPEN, stage=number.to_bytes(16, "big"))
        crowd.subscribe("t", 20_000, subscription="ids")
        crowd.flow(500, 20_000)
        self.ids = [each.message_id for each in crowd.messages(500)]
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        """Let the crowd answer the server's keep-alive."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                if self.crowd.hear(3600.0)[0] == Type.PING:
                    self.crowd.tell(Type.PONG)

    async def _fill(self) -> None:
        broker = self.world.broker
        async with broker.producer("t") as producer:
            await producer.send_many([b"x" * 50] * 500)
        schema = pb.Schema(name="s", schema_data=definition(100_000), type=pb.Schema.Json)
        await broker.engine.submit(SchemaAdd(broker.topic(full("t")).state.id, schema.SerializeToString()))

    def rest(self) -> None:
        """Wait until the clients of earlier rows, and all that they held, are gone."""
        limit = time.monotonic() + PATIENCE_S
        while len(self.world.server.connections) > 2 or len(self.world.http.connections) > 1:
            assert time.monotonic() < limit, "a connection stays"
            time.sleep(0.005)
        self.world.idle()

    def crowd_lives(self) -> bool:
        """Return whether every client of the crowd is still connected."""
        return self.world.connection(self.crowd)._transport is not None

    def end(self) -> None:
        self.world.__exit__()
        self._still.close()


# -- measuring -----------------------------------------------------------------------------------------


class Counting:
    """Counts steps on the loop of a world, as a context."""

    def __init__(self, world: CostWorld) -> None:
        self._world = world
        self.meter = Meter()

    def __enter__(self) -> Meter:
        self._world.run(self._trace(self.meter.called))
        return self.meter

    def __exit__(self, *_: object) -> None:
        self._world.run(self._trace(None))

    @staticmethod
    async def _trace(tracer: Any) -> None:
        sys.settrace(tracer)


def quiet(meter: Meter, look: Callable[[], object]) -> None:
    """Wait until the server makes no more steps."""
    limit, since, before = time.monotonic() + PATIENCE_S, time.monotonic(), -1
    while time.monotonic() - since < QUIET_S:
        assert time.monotonic() < limit, "the server does not come to rest"
        look()
        if meter.steps != before:
            before, since = meter.steps, time.monotonic()
        time.sleep(0.002)


def cost_of(population: Population, raw: Raw, frames: list[bytes]) -> Cost:
    """Return the cost of these frames, sent at once by a client that reads later."""
    world = population.world
    connection = world.connection(raw)
    answered = most = 0
    send = connection.send

    def counted(data: bytes) -> None:
        nonlocal answered
        answered += len(data)
        send(data)

    connection.send = counted  # type: ignore[method-assign]

    def look() -> None:
        nonlocal most
        most = max(most, held(connection))

    data = b"".join(frames)
    with Counting(world) as meter:
        sending = threading.Thread(target=send_all, args=(raw.socket, data), daemon=True)
        sending.start()
        quiet(meter, look)
        raw.socket.settimeout(0.05)
        limit = time.monotonic() + PATIENCE_S
        while _busy(connection) or sending.is_alive():
            assert time.monotonic() < limit, "not everything is answered"
            read_some(raw.socket)
        quiet(meter, lambda: read_some(raw.socket))
    return Cost(len(frames), len(data), meter.steps, answered, most)


def _busy(connection: Connection) -> bool:
    return (
        connection._transport is not None
        and not connection._closing
        and bool(len(connection._requests) or held(connection))
    )


def send_all(channel: socket.socket, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[channel.send(rest) :]
        except TimeoutError:
            continue
        except OSError:
            return


def read_some(channel: socket.socket) -> int:
    """Read the bytes that are there; wait at most a millisecond for some."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([channel], [], [], 0.001)[0]:
            got = len(channel.recv(1 << 20, socket.MSG_DONTWAIT))
            # Else the kernel acknowledges each segment of the loopback 40 ms later.
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            return got
    return 0


# -- commands ------------------------------------------------------------------------------------------


class Known(Protocol):
    """Values that requests are made from."""

    ids: list[Any]
    """The ids of messages in the topic `t`."""


Make = Callable[[Known, int], bytes]
"""The frame of the request with this number."""


@dataclass(frozen=True)
class Row:
    """One way to use a command."""

    kind: int
    make: Make
    prepare: Callable[[Raw], None] | None = None
    pipelined: int = PIPELINED
    words: str = ""
    per_head: int = 0
    """Steps that it may take for each client of the same topic: it is about all of them."""
    per_byte: int = 30
    """Steps that it may take for each byte received. Bytes of answers are copied, and take no steps."""
    before: Make | None = None
    """A request that makes this one possible once more ..."""
    after: Make | None = None
    """... or takes its effect back: for clients that repeat it without end."""

    def __str__(self) -> str:
        return f"{Type.Type.Name(self.kind)}{' ' if self.words else ''}{self.words}"


def plain(kind: int, **fields: Any) -> Row:
    """Return a row with the same fields each time, and the request's number."""
    return Row(kind, lambda at, n: frame_of(kind, b"", request_id=n, **fields))


def joined(raw: Raw) -> None:
    raw.subscribe("t", 1, sub_type=1)


def alone(raw: Raw) -> None:
    raw.subscribe("t", 1, subscription="other")


def producing(raw: Raw) -> None:
    raw.produce("t")


def many(raw: Raw) -> None:
    for number in range(PIPELINED):
        raw.subscribe("t", number, subscription=f"m{number}-{os.getpid()}-{id(raw)}", durable=False)
        raw.produce("t", number)


def sent(number: int, size: int = 10) -> bytes:
    entry = encode_messages([bytes(size)], "raw", number, 1)[0]
    return frame_of(Type.SEND, entry, producer_id=1, sequence_id=number)


def acked(at: Known, ids: list[Any], **more: Any) -> bytes:
    return frame_of(Type.ACK, b"", consumer_id=1, ack_type=0, message_id=ids, **more)


def stage(number: int) -> bytes:
    return (1 << 64 | number).to_bytes(16, "big")


def produced(at: Known, n: int) -> bytes:
    return frame_of(Type.PRODUCER, b"", request_id=n, topic=full("t"), producer_id=n)


def producer_closed(at: Known, n: int) -> bytes:
    return frame_of(Type.CLOSE_PRODUCER, b"", request_id=n, producer_id=n)


def read(at: Known, n: int) -> bytes:
    """Return the request for a reader, as `many` opens them."""
    more: dict[str, Any] = {"subscription": f"m{n}-{os.getpid()}", "subType": 0, "durable": False}
    return frame_of(Type.SUBSCRIBE, b"", request_id=n, topic=full("t"), consumer_id=n, **more)


def consumer_closed(at: Known, n: int) -> bytes:
    return frame_of(Type.CLOSE_CONSUMER, b"", request_id=n, consumer_id=n)


def unwatched(at: Known, n: int) -> bytes:
    return frame_of(Type.WATCH_TOPIC_LIST_CLOSE, b"", request_id=n, watcher_id=n)


def staged(at: Known, n: int) -> bytes:
    return frame_of(Type.STAGE_OPEN, b"", request_id=n, stage=stage(n))


def unstaged(at: Known, n: int) -> bytes:
    return frame_of(Type.STAGE_DROP, b"", request_id=n, stage=stage(n))


NAMESPACE = {"namespace": "public/default"}
ENTRY = encode_messages([b"x"], "raw", 0, 1)[0]

COMMANDS: list[Row] = [
    plain(Type.LOOKUP, topic=full("t")),
    plain(Type.PARTITIONED_METADATA, topic=full("t")),
    plain(Type.GET_TOPICS_OF_NAMESPACE, **NAMESPACE),
    Row(
        Type.GET_TOPICS_OF_NAMESPACE,
        lambda at, n: frame_of(
            Type.GET_TOPICS_OF_NAMESPACE,
            b"",
            request_id=n,
            topics_pattern=f"public/default/.*{n}",
            **NAMESPACE,
        ),
        words="by a pattern",
    ),
    Row(
        Type.WATCH_TOPIC_LIST,
        lambda at, n: frame_of(
            Type.WATCH_TOPIC_LIST, b"", request_id=n, watcher_id=n, topics_pattern=f".*{n}", **NAMESPACE
        ),
        after=unwatched,
    ),
    plain(Type.WATCH_TOPIC_LIST_CLOSE, watcher_id=1),
    Row(Type.PRODUCER, produced, after=producer_closed),
    Row(
        Type.PRODUCER,
        lambda at, n: frame_of(
            Type.PRODUCER, b"", request_id=n, topic=full("t"), producer_id=n, producer_access_mode=1
        ),
        words="that wants it alone",
        per_head=150,
    ),
    Row(Type.CLOSE_PRODUCER, producer_closed, many, before=produced),
    Row(
        Type.SUBSCRIBE,
        lambda at, n: frame_of(
            Type.SUBSCRIBE, b"", request_id=n, topic=full("t"), consumer_id=n, subscription="s", subType=1
        ),
        after=consumer_closed,
    ),
    Row(
        Type.SUBSCRIBE,
        lambda at, n: frame_of(
            Type.SUBSCRIBE,
            b"",
            request_id=n,
            topic=full("t"),
            consumer_id=n,
            subscription=f"v{n}",
            subType=0,
            durable=False,
        ),
        words="of readers",
        after=consumer_closed,
    ),
    Row(Type.CLOSE_CONSUMER, consumer_closed, many, before=read),
    Row(
        Type.UNSUBSCRIBE,
        lambda at, n: frame_of(Type.UNSUBSCRIBE, b"", request_id=n, consumer_id=n),
        many,
        before=read,
    ),
    Row(
        Type.SEEK,
        lambda at, n: frame_of(Type.SEEK, b"", request_id=n, consumer_id=n, message_publish_time=1),
        many,
        before=read,
    ),
    Row(
        Type.GET_LAST_MESSAGE_ID,
        lambda at, n: frame_of(Type.GET_LAST_MESSAGE_ID, b"", request_id=n, consumer_id=1),
        joined,
    ),
    Row(
        Type.CONSUMER_STATS,
        lambda at, n: frame_of(Type.CONSUMER_STATS, b"", request_id=n, consumer_id=1),
        joined,
    ),
    plain(Type.GET_SCHEMA, topic=full("t")),
    plain(
        Type.GET_OR_CREATE_SCHEMA,
        topic=full("t"),
        schema={"name": "x", "schema_data": definition(), "type": 2},
    ),
    Row(Type.SEND, lambda at, n: sent(n), producing, per_head=50),
    Row(Type.SEND, lambda at, n: sent(n), words="of no producer"),
    Row(Type.ACK, lambda at, n: acked(at, [at.ids[n]]), joined),
    Row(Type.ACK, lambda at, n: acked(at, [at.ids[n]], request_id=n), joined, words="with a receipt"),
    Row(Type.FLOW, lambda at, n: frame_of(Type.FLOW, b"", consumer_id=n, messagePermits=1), many),
    Row(
        Type.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        lambda at, n: frame_of(
            Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, b"", consumer_id=1, message_ids=[at.ids[n]]
        ),
        joined,
    ),
    Row(Type.PING, lambda at, n: frame_of(Type.PING)),
    Row(Type.PONG, lambda at, n: frame_of(Type.PONG)),
    Row(Type.AUTH_RESPONSE, lambda at, n: frame_of(Type.AUTH_RESPONSE, b"", response={})),
    Row(Type.CONNECT, lambda at, n: frame_of(Type.CONNECT, b"", client_version="x")),
    Row(Type.STAGE_OPEN, staged, after=unstaged),
    Row(
        Type.STAGE_APPEND,
        lambda at, n: frame_of(
            Type.STAGE_APPEND, b"", request_id=n, stage=stage(n), topic=full("t"), at=0, entries=[ENTRY]
        ),
        before=staged,
    ),
    Row(
        Type.STAGE_CLOSE,
        lambda at, n: frame_of(Type.STAGE_CLOSE, b"", request_id=n, stage=stage(n)),
        before=staged,
    ),
    Row(Type.STAGE_DROP, unstaged, before=staged),
    Row(Type.SINK_COMMIT, lambda at, n: frame_of(Type.SINK_COMMIT, b"", request_id=n, key="k", batch=n)),
    plain(Type.PROGRESS, topic=full("t"), subscription="s"),
    plain(Type.PROGRESS_ADVANCE, topic=full("t"), subscription="s", to=0, reset_number=0),
    plain(Type.HTTP_PORTS),
]
"""Every command that is served, in ordinary and in hostile use."""

MIB = 1 << 20

BODIES = {field.number: field for field in pb.BaseCommand.DESCRIPTOR.fields}
"""By the type of the command, which is its field's number."""


def texts_of(kind: int) -> list[str]:
    """Return the text fields of a command: names, patterns, roles."""
    body = BODIES[kind].message_type
    assert body is not None
    fields = body.fields
    return [each.name for each in fields if each.type == each.TYPE_STRING and not each.is_repeated]


LONG_TEXTS = ("!/" * 30_000, "a" * 30_000 + "/" + "b" * 30_000 + "/c", "x" * 60_000 + "://t")
"""Names that could be costly to refuse."""


def with_long_texts(row: Row) -> Row:
    """Return the same command with a long text in one of its fields.

    Each request has it in another field, or has another text.
    """
    ways = [(field, text) for field in texts_of(row.kind) for text in LONG_TEXTS]

    def make(at: Known, number: int) -> bytes:
        field, text = ways[number % len(ways)]
        command = pb.BaseCommand.FromString(command_of(row.make(at, number)))
        setattr(getattr(command, BODIES[row.kind].name), field, text)
        return framed(command)

    return Row(row.kind, make, row.prepare, len(ways), "with long texts", row.per_head)


def command_of(frame: bytes) -> bytes:
    """Return the command in a frame."""
    return frame[8 : 8 + int.from_bytes(frame[4:8], "big")]


def framed(command: pb.BaseCommand) -> bytes:
    body = command.SerializeToString()
    return (4 + len(body)).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body


def crowded(kind: int, field: str, count: int, **fields: Any) -> Row:
    """Return a row with very many small properties."""
    pairs = [{"key": "k", "value": ""}] * count
    return Row(
        kind,
        lambda at, n: frame_of(kind, b"", request_id=n, topic=full("t"), **{field: pairs}, **fields),
        words=f"with {count} {field}",
    )


def spread(at: Known, count: int) -> list[Any]:
    """Return ids of entries that do not exist, without neighbours."""
    ledger = at.ids[0].ledgerId
    return [pb.MessageIdData(ledgerId=ledger, entryId=2 * number) for number in range(count)]


def committed(parts: int) -> Row:
    """Return a commit of stages that do not exist."""
    part = {"stage": stage(1), "topic_id": 1, "count": 1, "digest": 1}
    return Row(
        Type.SINK_COMMIT,
        lambda at, n: frame_of(Type.SINK_COMMIT, b"", request_id=n, key="k", batch=1, parts=[part] * parts),
        words=f"of {parts} parts",
    )


LARGEST: list[Row] = [
    crowded(Type.SUBSCRIBE, "metadata", 60_000, consumer_id=1, subscription="s", subType=1),
    crowded(Type.SUBSCRIBE, "metadata", 1000, consumer_id=1, subscription="s", subType=1),
    crowded(Type.PRODUCER, "metadata", 60_000, producer_id=1),
    Row(
        Type.GET_OR_CREATE_SCHEMA,
        lambda at, n: frame_of(
            Type.GET_OR_CREATE_SCHEMA,
            b"",
            request_id=n,
            topic=full("t"),
            schema={"name": "x", "schema_data": definition(MIB - 200), "type": 2},
        ),
        words="of a megabyte",
    ),
    Row(
        Type.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        lambda at, n: frame_of(
            Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, b"", consumer_id=1, message_ids=spread(at, 60_000)
        ),
        joined,
        words="of 60000",
    ),
    Row(Type.ACK, lambda at, n: acked(at, spread(at, 60_000)), joined, words="of 60000"),
    Row(
        Type.ACK,
        lambda at, n: acked(
            at,
            [pb.MessageIdData(ledgerId=each.ledgerId, entryId=each.entryId, ack_set=[6]) for each in at.ids],
        ),
        joined,
        words="of parts",
        per_byte=60,  # a part has nine bytes and changes one batch
    ),
    Row(
        Type.ACK,
        lambda at, n: acked(
            at,
            [pb.MessageIdData(ledgerId=at.ids[0].ledgerId, entryId=at.ids[0].entryId, ack_set=[-1] * 80_000)],
        ),
        joined,
        words="with a false mask",
    ),
    Row(
        Type.SEEK,
        lambda at, n: frame_of(
            Type.SEEK,
            b"",
            request_id=n,
            consumer_id=1,
            message_id=pb.MessageIdData(
                ledgerId=at.ids[0].ledgerId, entryId=at.ids[0].entryId, ack_set=[-1] * 80_000
            ),
        ),
        alone,
        words="with a false mask",
    ),
    Row(Type.SEND, lambda at, n: sent(n, 5 * MIB - 1000), producing, words="of 5 MB"),
    Row(
        Type.STAGE_APPEND,
        lambda at, n: frame_of(
            Type.STAGE_APPEND,
            b"",
            request_id=n,
            stage=stage(1),
            topic=full("t"),
            at=0,
            entries=[ENTRY] * 10_000,
        ),
        words="of 10000",
    ),
    committed(20_000),
    committed(100_000),
]
"""Commands at the largest size, made as expensive as possible. Every command is also stuffed."""
