"""Mutants of HTTP: each is put in, and a test of HTTP must fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker.api.compaction_admin import CompactionAdmin
from holdfast.broker.compaction.worker import Compactions
from holdfast.broker.telemetry import metrics
from holdfast.broker.telemetry.traffic import Rates
from holdfast.broker.topic import Topic
from holdfast.broker.topic_policies import Policies
from holdfast.server.http import positions, pulsar_stats, refusals
from tests.kit.server import compaction_checks
from tests.kit.server import http_effects_checks as effects
from tests.kit.server import http_metrics_checks as texts
from tests.kit.server.http_world import HttpWorld, http

__all__ = ["http"]


def any_position_will_do(patch: pytest.MonkeyPatch) -> None:
    """A reset moves to the nearest position instead of refusing."""
    place = Topic.place

    async def nearest(topic: Topic, to: Any, *, exact: bool = False, after: bool = False) -> int:
        return await place(topic, to, after=after)

    patch.setattr(Topic, "place", nearest)


def busy_is_a_conflict(patch: pytest.MonkeyPatch) -> None:
    """An error of a route has another's status."""
    original = refusals.refusal_of
    patch.setattr("holdfast.server.http.server.refusal_of", lambda error, special=None: original(error))


def labels_as_they_are(patch: pytest.MonkeyPatch) -> None:
    """Labels are not escaped."""
    patch.setattr(metrics, "label", lambda name, value: f'{name}="{value}"')


def holes_from_their_first(patch: pytest.MonkeyPatch) -> None:
    """Ranges are closed where Pulsar's are open below."""
    original = positions.holes
    patch.setattr(
        pulsar_stats,
        "holes",
        lambda *given: ((a._replace(entry=a.entry + 1), b) async for a, b in original(*given)),
    )


def no_rates(patch: pytest.MonkeyPatch) -> None:
    """No rate ever changes."""
    patch.setattr(Rates, "per_second", lambda self, key, counts: tuple(0.0 for _ in counts))


def compaction_answers_early(patch: pytest.MonkeyPatch) -> None:
    """A request of a compaction is answered before it is durable."""
    compact = CompactionAdmin.compact

    async def begin(self: CompactionAdmin, topic: str, *, wait: bool = False) -> None:
        asyncio.ensure_future(compact(self, topic))  # noqa: RUF006  # the mistake

    patch.setattr(CompactionAdmin, "compact", begin)


def compaction_keeps_running(patch: pytest.MonkeyPatch) -> None:
    """A compaction that failed is told as running for ever."""

    async def nothing(self: Compactions, topic: Topic, token: bytes, error: str) -> None:
        self._count(topic, done=False)

    patch.setattr(Compactions, "_fail", nothing)


def namespaces_threshold_first(patch: pytest.MonkeyPatch) -> None:
    """The policy of a namespace wins over the topic's."""
    over = Policies.over
    patch.setattr(Policies, "over", lambda self, inherited: over(inherited, self))


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[HttpWorld], None]]] = [
    (any_position_will_do, effects.a_reset_to_a_position),
    (busy_is_a_conflict, effects.a_subscription_in_use_is_deleted_by_force_alone),
    (labels_as_they_are, lambda http: quoted_page(http)),
    (holes_from_their_first, effects.peeking_leaves_out_what_is_acknowledged),
    (no_rates, effects.stats_tell_who_is_there_and_how_fast),
    (compaction_answers_early, compaction_checks.a_request_is_answered_when_it_is_durable),
    (compaction_keeps_running, compaction_checks.a_failure_is_told_and_does_not_stay),
    (namespaces_threshold_first, compaction_checks.the_nearest_threshold_decides),
]


def quoted_page(http: HttpWorld) -> None:
    http.ask("PUT", "/admin/v2/persistent/public/default/%22quoted%22/subscription/s")
    texts.page_of(http)


@pytest.mark.parametrize(("broken", "check"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_mistakes_are_noticed(
    http: HttpWorld,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[HttpWorld], None],
) -> None:
    check(http)
    broken(monkeypatch)
    monkeypatch.setattr(compaction_checks, "PATIENCE_S", 0.5)
    with pytest.raises((AssertionError, ValueError, TimeoutError)):
        check(http)
