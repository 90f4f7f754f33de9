"""Check that every HTTP path and every command refuses anonymous clients and unprivileged roles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.http.routing import Route
from holdfast.server.pulsar.extensions import HANDLERS
from holdfast.server.pulsar.requests import REQUESTS
from tests.kit.served import Served
from tests.kit.server import auth_everywhere
from tests.kit.server.auth_everywhere import (
    ASKING,
    CLOSED,
    NAMING,
    OWN,
    TOPIC,
    TOPICS,
    answers,
    command,
    producer,
    reason,
)
from tests.kit.server.auth_world import ask, bearer, frame

B = pb.BaseCommand


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with auth_everywhere.granting(tmp_path_factory.mktemp("everywhere")) as server:
        yield server


# -- HTTP ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", CLOSED, ids=lambda route: f"{route.method} {route.path}")
def test_every_path_asks(route: Route, server: Served) -> None:
    auth_everywhere.path_asks(route, server)


@pytest.mark.parametrize("route", NAMING, ids=lambda route: f"{route.method} {route.path}")
def test_who_is_nobody_is_not_told_what_is_wrong(route: Route, server: Served) -> None:
    auth_everywhere.stranger_is_not_told_what_is_wrong(route, server)


def test_nothing_of_it_changed_anything(server: Served) -> None:
    """After all of the above, and with the topic still there."""
    assert ask(server, "GET", TOPICS, bearer("root"))[:2] == (200, f'["{TOPIC}"]')
    assert ask(server, "GET", f"{TOPICS}/orders/subscriptions", bearer("root"))[:2] == (200, '["s"]')


# -- commands ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", B.Type.values(), ids=B.Type.keys())
def test_every_command_asks(kind: int, server: Served) -> None:
    auth_everywhere.command_asks(kind, server)


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


def test_a_subscription_is_not_a_producers_to_make(server: Served) -> None:
    """It would keep everything forever, of a topic that the role cannot read."""
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
    auth_everywhere.proxy_is_asked(behind, server)


def test_a_proxy_is_asked_for_whom_it_speaks_over_http(server: Served) -> None:
    auth_everywhere.proxy_is_asked_over_http(server)


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
