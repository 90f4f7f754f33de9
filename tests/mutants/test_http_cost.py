"""Mutants of HTTP clients' costs: each restores an old fault, and a check notices."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.broker.broker import Broker
from holdfast.broker.telemetry import metrics
from holdfast.server.http import scraping
from holdfast.server.http.pulsar_stats import Looks
from holdfast.server.http.routing import Call, Route
from holdfast.server.http.scraping import Scrapes
from holdfast.server.http.server import HttpServer
from tests.kit.server import http_cost_checks as tests
from tests.kit.server.cost_mutants import (
    Patch,
    any_pace_will_do,
    nobody_is_refused,
    refusals_are_silent,
    require_noticed,
)


def bodies_take_places(patch: Patch) -> None:
    """A request takes its slot while its body arrives."""
    real = Call.read_body

    async def read_body(self: Call) -> None:
        self.server._working += 1
        try:
            await real(self)
        finally:
            self.server._working -= 1

    patch.setattr(Call, "read_body", read_body)


def health_waits_in_line(patch: Patch) -> None:
    """A request for health is refused when too many requests run."""
    real = HttpServer._place.__wrapped__  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def place(self: HttpServer, route: Route) -> Iterator[None]:
        yield from real(self, dataclasses.replace(route, action="admin"))

    patch.setattr(HttpServer, "_place", place)


def bodies_have_all_the_time(patch: Patch) -> None:
    patch.setattr("holdfast.server.http.routing.SLOWEST_BYTES_S", 1e-9)
    real = Call._read

    async def read(self: Call) -> bytes:
        object.__setattr__(self.server.options, "frame_s", 1e9)
        return await real(self)

    patch.setattr(Call, "_read", read)


def a_page_each(patch: Patch) -> None:
    """Every scrape makes its own page."""
    patch.setattr(Scrapes, "sheet", lambda self: self._make())


def pages_without_end(patch: Patch) -> None:
    patch.setattr(scraping, "PAGES_MAX", 1000)


def a_page_in_one_go(patch: Patch) -> None:
    def collect(*arguments: Any) -> Iterator[None]:
        for _ in metrics.collect(*arguments):
            pass
        yield

    patch.setattr(Broker, "collect", collect)


def answers_at_once(patch: Patch) -> None:
    """A large answer is handed over as a whole, and counts for no client."""
    patch.setattr("holdfast.server.http.server.PIECE_BYTES", 1 << 40)


def a_look_in_one_go(patch: Patch) -> None:
    """Stats of a topic hold the loop until they are complete."""
    patch.setattr("holdfast.server.steps.STEP_ITEMS", 1 << 40)


def counted_when_all_is_shown(patch: Patch) -> None:
    """As it was: the log is read last, when the topic may be deleted."""
    real = Looks.internal

    async def internal(self: Looks, topic: Any) -> Any:
        found = await real(self, topic)
        found.entries_added_counter = self._broker.rates.published(topic).entries
        return found

    patch.setattr(Looks, "internal", internal)


NOTICED: list[tuple[Callable[[Patch], None], Callable[..., None], dict[str, Any]]] = [
    (bodies_take_places, tests.open_bodies_take_nobodys_place, {}),
    (health_waits_in_line, tests.health_has_a_place_in_any_crowd, {}),
    (bodies_have_all_the_time, tests.a_body_has_its_time, {}),
    (nobody_is_refused, tests.bodies_count_for_what_is_held, {}),
    (nobody_is_refused, tests.answers_that_are_too_much_for_all_are_refused, {}),
    (a_page_each, tests.scrapes_at_the_same_time_share_a_page, {}),
    (pages_without_end, tests.slow_scrapers_keep_two_pages_in_memory, {}),
    (a_page_in_one_go, tests.making_a_page_lets_others_work, {}),
    (
        answers_at_once,
        tests.large_answers_leave_as_they_are_read,
        {"path": "persistent/public/default"},
    ),
    (counted_when_all_is_shown, tests.a_topic_may_be_deleted_while_it_is_shown, {}),
    (a_look_in_one_go, tests.a_look_at_a_crowd_takes_small_steps, {}),
    (any_pace_will_do, tests.a_client_that_reads_its_answer_byte_by_byte_is_closed, {}),
    (refusals_are_silent, tests.refusals_of_http_are_logged_with_their_reason_and_throttled, {}),
]


@pytest.mark.parametrize(("mutant", "test", "given"), NOTICED, ids=lambda each: getattr(each, "__name__", ""))
def test_it_is_noticed(
    mutant: Callable[[Patch], None],
    test: Callable[..., None],
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tests, "PATIENCE_S", 1.0)
    mutant(monkeypatch)
    require_noticed(test, given, monkeypatch, caplog)
