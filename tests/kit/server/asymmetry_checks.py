"""Check that no command and no route costs much more than it sends (I89, I91).

Each is tried alone and pipelined.

Costs are counted, so that they do not depend on the machine: see tests/kit/server/asymmetry.py. The bounds
below are what this server promises; each is at least twice of what was counted when they were written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.http.routing import Route
from holdfast.server.pulsar.extensions import HANDLERS
from holdfast.server.pulsar.requests import REQUESTS
from tests.kit import slices
from tests.kit.server.asymmetry import (
    COMMANDS,
    Cost,
    Population,
    Row,
    cost_of,
    with_long_texts,
)
from tests.kit.server.asymmetry_routes import cost_of_route, route_request
from tests.kit.server.wire_raw import stuffed

STEPS_PER_REQUEST = 12_000
"""Instructions of Python for a request, however small."""
ANSWER_BYTES = 1000
"""Bytes of an answer that does not list contents of the broker."""
TELLING = {
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE,
    pb.BaseCommand.WATCH_TOPIC_LIST,
    pb.BaseCommand.GET_SCHEMA,
}
"""Requests whose answers are as large as the contents that they list."""
HELD_BYTES = 1 << 20
"""Bytes held for a client that does not read: the write buffer, and what the turn has collected."""
HELD_PER_BYTE = 2
"""Further bytes held, for each byte that it has sent."""
GROWTH, GROWTH_STEPS = 1.15, 300
"""How much more a request may cost with thirty times as many topics, consumers and producers."""

SMALL, LARGE = 5, 150

TRIES = 3


def measured(population: Population, row: Row, count: int) -> Cost:
    with population.world.raw() as raw:
        if row.prepare is not None:
            row.prepare(raw)
        population.rest()
        return cost_of(population, raw, [row.make(population, number) for number in range(count)])


def required(check: Callable[[], None]) -> None:
    """Require that the check holds in one of a few tries.

    The server's own periodic steps count, too, and may spoil a try.
    """
    for _ in range(TRIES - 1):
        with contextlib.suppress(AssertionError):
            check()
            return
    check()


def require_modest(row: Row, cost: Cost) -> None:
    per_request = STEPS_PER_REQUEST + row.per_head * LARGE
    assert cost.steps <= per_request * cost.requests + row.per_byte * cost.received, cost
    assert cost.held <= HELD_BYTES + HELD_PER_BYTE * cost.received, cost
    if row.kind not in TELLING:
        assert cost.answered <= ANSWER_BYTES * cost.requests + cost.received, cost


def every_command_is_in_the_table() -> None:
    served = {*REQUESTS, *HANDLERS}
    others = {"CONNECT", "AUTH_RESPONSE", "PING", "PONG", "SEND", "ACK", "FLOW"}
    others |= {"REDELIVER_UNACKNOWLEDGED_MESSAGES"}
    assert {row.kind for row in COMMANDS} == served | {pb.BaseCommand.Type.Value(name) for name in others}


def a_command(row: Row, count: int, small: Population, large: Population) -> None:
    def check() -> None:
        few = measured(small, row, count or row.pipelined)
        require_modest(row, few)
        many = measured(large, row, count or row.pipelined)
        require_modest(row, many)
        more = (GROWTH_STEPS + row.per_head * (LARGE - SMALL)) * few.requests
        assert many.steps <= GROWTH * few.steps + more, (few, many)

    required(check)
    assert large.crowd_lives()


def a_command_of_the_largest_size(row: Row, large: Population) -> None:
    required(lambda: require_modest(row, measured(large, row, 1)))


def a_command_stuffed_with_nothing(row: Row, size: int, large: Population) -> None:
    """Bytes without a meaning cost only their transport, in each command."""
    made = Row(row.kind, lambda at, n: stuffed(row.make(at, n), size), row.prepare, per_head=row.per_head)
    required(lambda: require_modest(made, measured(large, made, 1)))


REASON_BYTES = 1500
"""Bytes of an answer that refuses: it repeats only the beginning of a client's text."""


def a_command_with_a_long_text(row: Row, large: Population) -> None:
    """A text of 60 KB is refused or not found, in few steps and bytes."""
    made = with_long_texts(row)

    def check() -> None:
        cost = measured(large, made, made.pipelined)
        require_modest(made, cost)
        if made.kind not in TELLING:
            assert cost.answered <= REASON_BYTES * cost.requests, cost

    required(check)


# -- routes --------------------------------------------------------------------------------------------

ROUTE_STEPS = 40_000
"""Instructions of Python for a request over HTTP, at most."""
ROUTE_BYTE_STEPS = 30
"""Further instructions for each byte that is received."""
ROUTE_HEAD_STEPS = 6_000
"""Further instructions for each topic, consumer or subscription in the answer; half is their text."""
ROUTE_ANSWER_BYTES = 2_000
"""Bytes of an answer that is not a list."""
ROUTE_HEAD_BYTES = 16_000
"""Further bytes for each item of the answer; a topic with its metrics has about forty lines."""


def require_modest_route(cost: Cost, heads: int) -> None:
    steps = (ROUTE_STEPS + ROUTE_HEAD_STEPS * heads) * cost.requests + ROUTE_BYTE_STEPS * cost.received
    assert cost.steps <= steps, cost
    answer = cost.answered // cost.requests  # the last one is complete, however many were requested
    assert cost.held <= HELD_BYTES + HELD_PER_BYTE * cost.received + answer, cost
    assert cost.answered <= (ROUTE_ANSWER_BYTES + ROUTE_HEAD_BYTES * heads) * cost.requests, cost


def heads(route: Route) -> int:
    """Return how many items an answer may list: the population, all policies, or nothing."""
    if route.path.endswith("/policies"):
        return 1
    if route.path in EVERYTHING:
        return 2 * LARGE
    return LARGE if any(route.path.endswith(word) for word in LISTS) else 0


EVERYTHING = ("/admin/v2/broker-stats/topics", "/admin/v2/broker-stats/destinations")
"""Routes that list all topics, and all clients of each."""
LISTS: tuple[str, ...] = (
    "/topics",
    "/{namespace}",
    "/partitioned",
    "/stats",
    "/internalStats",
    "/metrics",
    "/metrics/",
)
LISTS += ("/internal-info", "/backlog", "/subscriptions", "/openapi.json", "/destinations", "/load-report")
LISTS += ("/schema", "/schema/{version}", "/schemas")  # as large as the definitions that were sent


def a_route(route: Route, count: int, large: Population) -> None:
    request = route_request(route, b"" if route.body is None or route.body_optional else b"{}")
    required(lambda: require_modest_route(cost_of_route(large, request, count), heads(route)))


def a_route_with_the_largest_body(route: Route, large: Population) -> None:
    """Send a large body, also to routes that take none."""
    request = route_request(route, b"{" + b" " * ((1 << 20) - 2) + b"}")
    required(lambda: require_modest_route(cost_of_route(large, request, 1), heads(route)))


def slice_of(routes: Sequence[Route]) -> list[Route]:
    """Return a route of each family; at night all of them.

    Routes of a family are in one module, have one method, and take or list as much as the others. They share
    the connection, the parser and the answer, which decide the cost of many requests and of large bodies.
    """
    families: dict[object, Route] = {}
    for each in routes:
        families.setdefault((each.handle.__module__, each.method, each.body is None, heads(each)), each)
    return slices.pick(test=[*families.values()], nightly=[*routes])


# -- populations ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> Iterator[Population]:
    population = Population(SMALL)
    yield population
    population.end()


@pytest.fixture(scope="module")
def large() -> Iterator[Population]:
    population = Population(LARGE)
    yield population
    population.end()
