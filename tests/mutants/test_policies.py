"""Broken limits: the scenes of tests/kit/broker/*_checks.py must notice each."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable

import pytest

from holdfast.broker import limiting
from holdfast.broker.dispatch.pacing import Bucket, Pace
from holdfast.broker.events import maximums, quotas, sessions
from holdfast.broker.limiting import Limiting
from holdfast.broker.log_time import LogClock
from holdfast.broker.state import BrokerState
from holdfast.broker.topic import Topic
from holdfast.broker.topic_policies import Policies
from tests.kit.broker import backlog_checks, maximum_checks, rate_checks

_over, _check, _wait = Policies.over, Limiting.check, Pace.wait
_shared: dict[int, Bucket] = {}


def nothing(*_: object, **__: object) -> None:
    """Replace a function by one without effect."""


def namespace_first(self: Policies, inherited: Policies) -> Policies:
    return _over(inherited, self)


async def never_lifted(self: Limiting, topic: Topic, now_ns: int | None = None) -> None:
    if not any(topic.state.over):
        await _check(self, topic, now_ns)


def one_bucket(self: Limiting, topic: Topic) -> Bucket:
    """Return one bucket for all topics of a broker."""
    clock = self._broker.clock
    return _shared.setdefault(id(clock), Bucket(clock, 10, 0))


async def waits_for_others(self: Pace, messages: int, size: int) -> None:
    """Let a whole read of one topic hold the loop's other readers up."""
    await _wait(self, messages, size)
    await asyncio.sleep(5)


def keeps_on(self: Bucket) -> None:
    self.retired = True


def counts_anew(self: BrokerState, namespace: str) -> int:
    if self.topic_counts is None:
        self.topic_counts = Counter()
    return self.topic_counts[namespace]


def all_of_it(*_: object) -> tuple[float, float]:
    return math.inf, math.inf


def wall_clock(self: LogClock) -> int:
    return self._clock.now_ns()


def oldest_goes_on(*_: object) -> int:
    return 0


MUTANTS: dict[str, tuple[object, str, object, Callable[[], None]]] = {
    "a quota never lifts": (Limiting, "check", never_lifted, backlog_checks.holds_and_lifts),
    "a quota never lifts when it is removed": (
        *(Limiting, "check", never_lifted),
        backlog_checks.every_way_lifts,
    ),
    "producers of a held topic go on": (
        *(quotas, "end_producers", nothing),
        backlog_checks.owner_dies_during_a_hold,
    ),
    "a held topic admits producers": (maximums, "require_quota", nothing, backlog_checks.excepts),
    "an eviction evicts nothing": (quotas, "ring_floor", oldest_goes_on, backlog_checks.evicts),
    "the wall clock judges ages": (LogClock, "now_ns", wall_clock, backlog_checks.clock_is_ahead),
    "a rate starves another topic": (
        *(Limiting, "publish_bucket", one_bucket),
        rate_checks.publishes_are_paced,
    ),
    "a rate of deliveries starves": (Pace, "wait", waits_for_others, rate_checks.deliveries_are_paced),
    "a long list starves other producers": (
        *(Limiting, "run_most", all_of_it),
        rate_checks.long_lists_leave_room,
    ),
    "a lifted rate delays on": (Bucket, "retire", keeps_on, rate_checks.lifted_rates_end_waits),
    "rates are forgotten at a restart": (
        *(limiting, "replaced", nothing),
        rate_checks.publishes_are_paced_after_a_restart,
    ),
    "the namespace's maximum wins": (Policies, "over", namespace_first, maximum_checks.nearest_decides),
    "the namespace's rate wins": (Policies, "over", namespace_first, rate_checks.nearest_rate_decides),
    "the namespace's quota wins": (Policies, "over", namespace_first, backlog_checks.nearest_quota_decides),
    "topics of before a restart do not count": (
        *(BrokerState, "count_topics", counts_anew),
        maximum_checks.subscriptions_and_topics_are_counted,
    ),
    "two members let the last client in": (
        *(maximums, "require_producers", nothing),
        maximum_checks.last_place_goes_to_one,
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_limit_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, what, check = MUTANTS[mutant]
    monkeypatch.setattr(where, name, what)
    if where is maximums:  # the events have imported it
        monkeypatch.setattr(sessions, name, what)
    _shared.clear()
    with pytest.raises(AssertionError):
        check()
