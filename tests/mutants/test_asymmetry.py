"""Mutants of costs per request: each exceeds a row of the table of asymmetry."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from holdfast.server.http.server import ROUTES
from tests.kit.server import asymmetry
from tests.kit.server import asymmetry_checks as tests
from tests.kit.server import cost_mutants as cost
from tests.kit.server.asymmetry import COMMANDS, LARGEST, Population
from tests.kit.server.asymmetry_checks import large as large
from tests.kit.server.asymmetry_checks import small as small

Patch = pytest.MonkeyPatch


def parts_one_by_one(patch: Patch) -> None:
    """Each part of a batch is handled by itself, five times."""
    from holdfast.broker.dispatch.dispatcher import Dispatcher

    def each(self: Dispatcher, parts: list[tuple[int, int]], number: int, receipt: bool = False) -> None:
        for ordinal, mask in parts:
            for _ in range(5):
                self.ack_all_but(ordinal, mask, number, receipt)

    patch.setattr(Dispatcher, "ack_all_but_many", each)


def stats_look_for_readers(patch: Patch) -> None:
    """Each reader's stats look at twenty others."""
    from holdfast.broker.dispatch.dispatcher import Dispatcher
    from holdfast.server.http.pulsar_stats import Looks

    real = Looks._volatile

    async def volatile(self: Looks, dispatcher: Dispatcher) -> object:
        others = dispatcher._topic.dispatchers.values()  # type: ignore[attr-defined]
        for each in itertools.islice(others, 20):
            assert each.stats() is not None
        return await real(self, dispatcher)

    patch.setattr(Looks, "_volatile", volatile)


def producers_are_compared(patch: Patch) -> None:
    """As it was: a producer's name is compared with all of its topic."""
    from holdfast.broker.events import ProducerOpen
    from holdfast.broker.state import Producer, TopicState

    def replaced(self: ProducerOpen, topic: TopicState, name: str) -> Producer | None:
        for each in (*topic.producers.values(), *topic.waiting.values()):
            if each.name.casefold() == name.casefold():
                return each
        return None

    patch.setattr(ProducerOpen, "_replaced", replaced)


def reasons_repeat_names(patch: Patch) -> None:
    """An answer repeats the whole name that was refused."""
    patch.setattr("holdfast.names.SHOWN_LENGTH_MAX", 1 << 30)
    patch.setattr("holdfast.server.pulsar.commands.REASON_LENGTH_MAX", 1 << 30)


MUTANTS: list[tuple[Callable[[Patch], None], str, int]] = [
    (cost.stats_of_all, "CONSUMER_STATS", 0),
    (cost.a_list_each_time, "GET_TOPICS_OF_NAMESPACE", 0),
    (cost.a_list_each_time, "WATCH_TOPIC_LIST", 0),
    (producers_are_compared, "PRODUCER", 0),
    (cost.answers_without_a_reader, "GET_SCHEMA", 0),
    (reasons_repeat_names, "LOOKUP with long texts", 1),
    (parts_one_by_one, "ACK of parts", 1),
    (stats_look_for_readers, "GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/stats", 1),
]


@pytest.mark.parametrize(("mutant", "name", "count"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_it_is_noticed(
    mutant: Callable[[Patch], None],
    name: str,
    count: int,
    small: Population,
    large: Population,
    monkeypatch: Patch,
) -> None:
    """The row holds without the mutant, and fails with it."""
    rows = [row for row in COMMANDS if str(row) == name]
    largest = [row for row in LARGEST if str(row) == name]
    long = [row for row in COMMANDS if f"{row} with long texts" == name]
    routes = [route for route in ROUTES if f"{route.method} {route.path}" == name]

    def check() -> None:
        for row in rows:
            tests.a_command(row, count, small, large)
        for row in largest:
            tests.a_command_of_the_largest_size(row, large)
        for row in long:
            tests.a_command_with_a_long_text(row, large)
        for route in routes:
            tests.a_route(route, count, large)

    assert len(rows + largest + long) + len(routes) == 1
    check()
    mutant(monkeypatch)
    monkeypatch.setattr(tests, "TRIES", 1)
    monkeypatch.setattr(asymmetry, "QUIET_S", 0.1)  # on a busy machine the server starts later
    with pytest.raises(AssertionError):
        check()
