"""Check that a server authorizes every path, every command, and clients behind a proxy.

A good server passes (`tests/process/server/test_auth_everywhere.py`). A server that forgets one check fails
(`tests/mutants/test_auth_forgetting.py`).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.http.routing import PATH, Route
from holdfast.server.http.server import ROUTES
from holdfast.server.pulsar.extensions import HANDLERS
from holdfast.server.pulsar.requests import REQUESTS
from tests.kit.served import Served, served
from tests.kit.server.auth_world import ask, bearer, commands, connect, frame, greeting, make_world, token

GRANTS = """
[[authorization.grants]]
roles = ["writer"]
on = "public/default"
allow = ["produce"]

[[authorization.grants]]
roles = ["neighbour"]
on = "elsewhere"
allow = ["produce", "consume", "admin"]

[[authorization.grants]]
roles = ["some"]
on = "public/*-open"
allow = ["consume"]

[[authorization.grants]]
roles = ["team", "team:etl"]
on = "public/default/staged"
allow = ["produce"]
"""
TOPIC = "persistent://public/default/orders"
TOPICS = "/admin/v2/persistent/public/default"
B = pb.BaseCommand
STAGE = b"sixteen bytes !!"


@contextlib.contextmanager
def granting(directory: Path) -> Iterator[Served]:
    """Serve with GRANTS a topic `orders` that has a subscription `s`."""
    arguments = ["--config", make_world(directory).configure(extra=GRANTS), "--tls-port", "0"]
    with served(directory / "data", *arguments, "--log-level", "debug", http=True) as server:
        for path in (f"{TOPICS}/orders", f"{TOPICS}/orders/subscription/s"):
            assert ask(server, "PUT", path, bearer("root"))[0] == 204
        yield server


# -- HTTP ----------------------------------------------------------------------------------------------

KNOWN = {"/openapi.json", "/admin/v2/brokers/version", "/admin/v2/clusters"}
"""Routes for every authenticated client: they return nothing that is stored."""
SOMEWHERE = {"/holdfast/v1/flight"}
"""Routes for every client that may consume from any topic."""

CLOSED = [route for route in ROUTES if route.action != "health"]
"""All routes but one, which `test_what_is_open_can_be_chosen` closes."""
NAMING = [route for route in CLOSED if "{" in route.path]


def path_of(route: Route, **parts: str) -> str:
    values = {"tenant": "public", "namespace": "default", "topic": "orders", "subscription": "s"}
    values |= {"exchange": "orders"}
    path = route.path
    for name, parameter in PATH.items():
        other = "1" if parameter.type == "integer" else next(iter(parameter.choices), "standalone")
        value = (values | parts).get(name, other)
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path
    return path


def path_asks(route: Route, server: Served) -> None:
    """I113: a client without credentials gets 401; a role without a grant here gets 403."""
    path = path_of(route)
    assert ask(server, route.method, path, body=b"{")[0] == 401
    for role in ("stranger", "neighbour"):
        found = ask(server, route.method, path, bearer(role), b"{")[0]
        may = route.path in KNOWN or (route.path in SOMEWHERE and role == "neighbour")
        assert (found != 403) == may, (role, found)
    if route.action != "lookup" and route.path not in KNOWN:
        assert ask(server, route.method, path, bearer("writer"), b"{")[0] == 403


def stranger_is_not_told_what_is_wrong(route: Route, server: Served) -> None:
    bad = path_of(route, tenant="a%20b", topic="a%00b") + "?force=perhaps&applied=perhaps"
    assert ask(server, route.method, bad)[0] == 401


# -- commands ------------------------------------------------------------------------------------------

OWN = {
    B.CLOSE_PRODUCER,
    B.CLOSE_CONSUMER,
    B.UNSUBSCRIBE,
    B.SEEK,
    B.GET_LAST_MESSAGE_ID,
    B.CONSUMER_STATS,
    B.WATCH_TOPIC_LIST_CLOSE,
}
"""Commands about an object that the connection has opened, and was authorized for then."""
SILENT = {B.PING, B.PONG, B.ACK, B.FLOW, B.REDELIVER_UNACKNOWLEDGED_MESSAGES, B.SEND}
"""Also about a producer or consumer; without one the server sends nothing, or an error."""
ASKING = (REQUESTS.keys() | HANDLERS.keys()) - OWN


def filled(message: Message) -> None:
    """Give every required field, and some optional ones, a plausible value."""
    texts = {"topic": TOPIC, "namespace": "public/default", "subscription": "s"}
    for each in message.DESCRIPTOR.fields:
        if each.name == "parts":
            getattr(message, each.name).add(stage=STAGE, topic_id=1, count=0, digest=0)
        elif each.name == "message_id" and each.is_repeated:
            filled(getattr(message, each.name).add())
        elif not each.is_required:
            continue
        elif each.type == each.TYPE_MESSAGE:
            filled(getattr(message, each.name))
        elif each.type == each.TYPE_STRING:
            setattr(message, each.name, texts.get(each.name, "x"))
        elif each.type == each.TYPE_BYTES:
            setattr(message, each.name, STAGE)
        elif each.type == each.TYPE_ENUM:
            assert each.enum_type is not None
            setattr(message, each.name, each.enum_type.values[0].number)
        else:
            setattr(message, each.name, 1)


def part_of(kind: int) -> str:
    """Return the field of a command's message."""
    plain = B.Type.Name(kind).replace("_", "").lower()
    aliases = {"partitionedmetadata": "partitionmetadata", "lookup": "lookuptopic"}
    for response in list(aliases):
        aliases[f"{response}response"] = f"{aliases[response]}response"
    wanted = aliases.get(plain, plain)
    (found,) = [each.name for each in B.DESCRIPTOR.fields if each.name.replace("_", "").lower() == wanted]
    return found


def command(kind: int) -> bytes:
    made = B(type=kind)  # type: ignore[arg-type]
    filled(getattr(made, part_of(kind)))
    getattr(made, part_of(kind)).SetInParent()
    return frame(kind, **{part_of(kind): getattr(made, part_of(kind))})


def reason(answer: pb.BaseCommand) -> int | None:
    """Return the error of an answer, or None."""
    told = getattr(answer, part_of(answer.type))
    for name in ("error", "error_code"):
        if name in told.DESCRIPTOR.fields_by_name and told.HasField(name):
            return int(getattr(told, name))
    return None


def answers(server: Served, role: str, *frames: bytes, wait: bool, **more: Any) -> list[pb.BaseCommand]:
    """Send frames; return the answers after CONNECTED.

    Stop at the first answer, without `wait` at a PONG, or when the connection ends.
    """
    with connect(server) as channel:
        channel.sendall(greeting("token", token(role).encode(), **more))
        data = b""
        while not commands(data):
            data += channel.recv(65536)
        for each in (*frames, frame(B.PING, ping=pb.CommandPing())):
            channel.sendall(each)
        ended = False
        while not ended:
            try:
                part = channel.recv(65536)
            except ConnectionResetError:
                part = b""
            data += part
            found = [each.type for each in whole(data)[1:]]
            ended = not part or (B.PONG in found if not wait else len(set(found) - {B.PONG}) > 0)
    return [each for each in whole(data)[1:] if each.type != B.PONG]


def whole(data: bytes) -> list[pb.BaseCommand]:
    """Return the commands that have arrived in full."""
    end = 0
    while len(data) >= (more := end + 4 + int.from_bytes(data[end : end + 4], "big")):
        end = more
    return commands(data[:end])


def command_asks(kind: int, server: Served) -> None:
    """Require that a role without grants gets no command through.

    A command that a client must not send ends its connection.
    """
    try:
        told = answers(server, "stranger", command(kind), wait=kind not in SILENT)
    except (ConnectionResetError, BrokenPipeError):
        told = []
    if kind in ASKING:
        (refused,) = told
        assert reason(refused) == pb.AuthorizationError, refused
    elif kind not in OWN:
        assert all(reason(each) is not None for each in told), told
    else:
        assert all(reason(each) is not None or each.type == B.SUCCESS for each in told), told


def producer(topic: str, **more: Any) -> bytes:
    made = pb.CommandProducer(topic=topic, producer_id=1, request_id=1, **more)
    return frame(B.PRODUCER, producer=made)


# -- proxies -------------------------------------------------------------------------------------------


def proxy_is_asked(behind: str, server: Served) -> None:
    """Require that both proxy and client are authorized: the proxy's rights are not its clients'."""
    refused = pb.AuthorizationError if behind == "stranger" else None
    for each in (command(B.LOOKUP), producer(f"{TOPIC}-proxied"), command(B.STAGE_OPEN)):
        (told,) = answers(server, "root", each, wait=True, original_principal=behind)
        assert reason(told) == refused
    one = pb.CommandLookupTopic(topic=TOPIC, request_id=1, original_principal=behind)
    (told,) = answers(server, "root", frame(B.LOOKUP, lookupTopic=one), wait=True)
    assert reason(told) == refused
    (told,) = answers(server, "stranger", command(B.LOOKUP), wait=True, original_principal="root")
    assert reason(told) == pb.AuthorizationError


def proxy_is_asked_over_http(server: Served) -> None:
    def status(role: str, behind: str) -> int:
        with socket.create_connection(("127.0.0.1", server.ready["http_port"]), timeout=10) as channel:
            lines = [f"GET {TOPICS}/orders/lastMessageId HTTP/1.1", "Host: x", "Connection: close"]
            lines += [f"Authorization: {bearer(role)}", f"X-Original-Principal: {behind}"]
            channel.sendall("\r\n".join([*lines, "", ""]).encode())
            return int(channel.recv(65536).split()[1])

    assert status("root", "billing") == 200
    assert status("root", "stranger") == 403
    assert status("stranger", "root") == 403
