"""Nobody forgets to ask: every path of HTTP and every command, for who is nobody and for who may nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import Message

from holdfast.wire.http.routing import PATH, Route
from holdfast.wire.http.server import ROUTES
from holdfast.wire.private import HANDLERS
from holdfast.wire.proto import pulsar_pb2 as pb
from holdfast.wire.requests import REQUESTS
from tests.kit.served import Served, served
from tests.process.server.test_auth_http import ask, bearer
from tests.process.server.test_auth_wire import World, commands, connect, frame, greeting, make_world, token

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


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("everywhere"))


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Served]:
    arguments = ["--config", world.configure(extra=GRANTS), "--tls-port", "0", "--log-level", "debug"]
    with served(world.directory / "data", *arguments, http=True) as server:
        for path in (f"{TOPICS}/orders", f"{TOPICS}/orders/subscription/s"):
            assert ask(server, "PUT", path, bearer("root"))[0] == 204
        yield server


# -- HTTP ----------------------------------------------------------------------------------------------

KNOWN = {"/openapi.json", "/admin/v2/brokers/version", "/admin/v2/clusters"}
"""For everybody who has shown who it is: they tell nothing of what is stored."""
SOMEWHERE = {"/holdfast/v1/flight"}
"""For everybody who may consume from some topic, wherever."""

NAMING = [route for route in ROUTES if "{" in route.path]


def path_of(route: Route, **parts: str) -> str:
    values = {"tenant": "public", "namespace": "default", "topic": "orders", "subscription": "s"}
    path = route.path
    for name, parameter in PATH.items():
        value = (values | parts).get(name, "1" if parameter.type == "integer" else "standalone")
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path
    return path


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_path_asks(route: Route, server: Served) -> None:
    """I113: who is nobody gets 401; who has no grant here gets 403, whatever it has elsewhere."""
    if route.action == "health":
        return  # open, and `test_what_is_open_can_be_chosen` closes it
    path = path_of(route)
    assert ask(server, route.method, path, body=b"{")[0] == 401
    for role in ("stranger", "neighbour"):
        found = ask(server, route.method, path, bearer(role), b"{")[0]
        may = route.path in KNOWN or (route.path in SOMEWHERE and role == "neighbour")
        assert (found != 403) == may, (role, found)
    if route.action != "lookup" and route.path not in KNOWN:
        assert ask(server, route.method, path, bearer("writer"), b"{")[0] == 403


@pytest.mark.parametrize("route", NAMING, ids=lambda route: f"{route.method} {route.path}")
def test_who_is_nobody_is_not_told_what_is_wrong(route: Route, server: Served) -> None:
    bad = path_of(route, tenant="a%20b", topic="a%00b") + "?force=perhaps&applied=perhaps"
    if route.action != "health":
        assert ask(server, route.method, bad)[0] == 401


def test_nothing_of_it_changed_anything(server: Served) -> None:
    """After all of the above, and with the topic still there."""
    assert ask(server, "GET", TOPICS, bearer("root"))[:2] == (200, f'["{TOPIC}"]')
    assert ask(server, "GET", f"{TOPICS}/orders/subscriptions", bearer("root"))[:2] == (200, '["s"]')


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
"""About something that the same connection has opened, and was asked for then."""
SILENT = {B.PING, B.PONG, B.ACK, B.FLOW, B.REDELIVER_UNACKNOWLEDGED_MESSAGES, B.SEND}
"""About a producer or consumer, too; without one there is nothing to say, or an error."""
ASKING = (REQUESTS.keys() | HANDLERS.keys()) - OWN


def filled(message: Message) -> None:
    """Give every field that must be there a value that makes sense, and some that may be."""
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
    """Where the message of a command stands."""
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
    """The error that an answer tells; None: it is none."""
    told = getattr(answer, part_of(answer.type))
    for name in ("error", "error_code"):
        if name in told.DESCRIPTOR.fields_by_name and told.HasField(name):
            return int(getattr(told, name))
    return None


def answers(server: Served, role: str, *frames: bytes, wait: bool, **more: Any) -> list[pb.BaseCommand]:
    """What is told behind CONNECTED, until there is an answer (or, without `wait`, a PONG), or the end."""
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
    """The commands that are there in full."""
    end = 0
    while len(data) >= (more := end + 4 + int.from_bytes(data[end : end + 4], "big")):
        end = more
    return commands(data[:end])


@pytest.mark.parametrize("kind", B.Type.values(), ids=B.Type.keys())
def test_every_command_asks(kind: int, server: Served) -> None:
    """A role without grants gets no command through; those that are none of a client's end its connection."""
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


def test_every_command_is_known_to_ask_or_not_to_need_to() -> None:
    opening = {B.LOOKUP, B.PRODUCER, B.SUBSCRIBE, B.STAGE_OPEN, B.SINK_COMMIT, B.PROGRESS, B.WATCH_TOPIC_LIST}
    assert opening <= ASKING
    assert len(ASKING) + len(OWN) == len(REQUESTS) + len(HANDLERS)


def test_whoever_may_gets_them_through(server: Served) -> None:
    """The frames above are good ones: it is the role that they are refused for."""
    for kind in (B.LOOKUP, B.PARTITIONED_METADATA, B.PRODUCER, B.SUBSCRIBE, B.STAGE_OPEN, B.PROGRESS):
        (told,) = answers(server, "root", command(kind), wait=True)
        assert reason(told) is None, told


# -- what would be easy to forget ----------------------------------------------------------------------


def producer(topic: str, **more: Any) -> bytes:
    made = pb.CommandProducer(topic=topic, producer_id=1, request_id=1, **more)
    return frame(B.PRODUCER, producer=made)


def test_a_subscription_is_not_a_producers_to_make(server: Served) -> None:
    """It would keep everything for ever, of a topic that the role may not even read."""
    named = f"{TOPIC}-first"
    (refused,) = answers(server, "writer", producer(named, initial_subscription_name="hog"), wait=True)
    assert reason(refused) == pb.AuthorizationError
    (opened,) = answers(server, "billing", producer(named, initial_subscription_name="dlq"), wait=True)
    assert opened.type == B.PRODUCER_SUCCESS
    found = ask(server, "GET", f"{TOPICS}/orders-first/subscriptions", bearer("root"))
    assert found[:2] == (200, '["dlq"]')


def test_a_topics_name_does_not_pass_for_a_namespace(server: Served) -> None:
    """`public/*-open` is granted; `public/default/a-open` only looks like it."""
    assert ask(server, "PUT", f"{TOPICS}/a-open%2Fhidden", bearer("root"))[0] == 204
    asked = pb.CommandGetTopicsOfNamespace(request_id=1, namespace="public/default/a-open")
    told = frame(B.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked)
    (refused,) = answers(server, "some", told, wait=True)
    assert reason(refused) is not None
    assert b"hidden" not in refused.SerializeToString()


@pytest.mark.parametrize("behind", ["stranger", "billing"])
def test_a_proxy_is_asked_for_whom_it_speaks(behind: str, server: Served) -> None:
    """Both must be allowed: the proxy's own rights are not for everybody behind it."""
    refused = pb.AuthorizationError if behind == "stranger" else None
    for each in (command(B.LOOKUP), producer(f"{TOPIC}-proxied"), command(B.STAGE_OPEN)):
        (told,) = answers(server, "root", each, wait=True, original_principal=behind)
        assert reason(told) == refused
    one = pb.CommandLookupTopic(topic=TOPIC, request_id=1, original_principal=behind)
    (told,) = answers(server, "root", frame(B.LOOKUP, lookupTopic=one), wait=True)
    assert reason(told) == refused
    (told,) = answers(server, "stranger", command(B.LOOKUP), wait=True, original_principal="root")
    assert reason(told) == pb.AuthorizationError


def test_a_proxy_is_asked_for_whom_it_speaks_over_http(server: Served) -> None:
    def status(role: str, behind: str) -> int:
        with socket.create_connection(("127.0.0.1", server.ready["http_port"]), timeout=10) as channel:
            lines = [f"GET {TOPICS}/orders/lastMessageId HTTP/1.1", "Host: x", "Connection: close"]
            lines += [f"Authorization: {bearer(role)}", f"X-Original-Principal: {behind}"]
            channel.sendall("\r\n".join([*lines, "", ""]).encode())
            return int(channel.recv(65536).split()[1])

    assert status("root", "billing") == 200
    assert status("root", "stranger") == 403
    assert status("stranger", "root") == 403


def test_no_role_can_name_the_sinks_of_another(server: Served) -> None:
    """team's key `etl:job` is not team:etl's key `job`."""

    def commit(role: str, key: str, batch: int) -> bool:
        made = pb.CommandSinkCommit(request_id=1, key=key, batch=batch)
        (told,) = answers(server, role, frame(B.SINK_COMMIT, sink_commit=made), wait=True)
        return told.sink_committed.committed

    assert commit("team", "etl:job", 5)
    assert commit("team:etl", "job", 1)
    assert not commit("team", "etl:job", 4)
    assert not commit("team:etl", "job", 1)
