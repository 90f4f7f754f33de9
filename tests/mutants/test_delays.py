"""Broken delays and counts: scenes (tests/kit/broker/delay_checks.py) and squalls must notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.ownership import Tenure
from holdfast.broker.dispatch.schedule import AT_ONCE, Scheduling
from holdfast.broker.events import cursors
from holdfast.broker.log_time import LogClock
from tests.kit.broker import delay_checks as checks
from tests.kit.broker import owners


def nothing(*_: object, **__: object) -> None:
    """Replace a function by one without effect."""


def wall_clock(self: LogClock) -> int:
    return self._clock.now_ns()


MUTANTS: dict[str, tuple[object, str, object, Callable[[], None]]] = {
    "a delayed message comes at once": (Scheduling, "now_ms", AT_ONCE, checks.delays_survive),
    "never after a restart": (Scheduling, "arm", nothing, checks.delays_survive),
    "never after the owner's death": (Scheduling, "arm", nothing, checks.delays_move_with_the_owner),
    "the wall clock decides": (LogClock, "now_ns", wall_clock, checks.an_owner_with_a_clock_ahead),
    "counts are not noted": (Tenure, "_note_counts", nothing, checks.counts_survive),
    "counts are forgotten at a restart": (Tenure, "_learn", nothing, checks.counts_survive),
    "counts die with the owner": (Tenure, "_learn", nothing, checks.counts_of_a_dead_owner),
    "counts outlive acknowledgements": (cursors, "forget_counts", nothing, checks.counts_survive),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_broker_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, what, check = MUTANTS[mutant]
    monkeypatch.setattr(where, name, what)
    with pytest.raises(AssertionError):
        check()


def sets_no_timer(take: Callable[..., None]) -> Callable[..., None]:
    """Return a member's step to become the owner, without a timer for delivery times."""

    def taken(self: Any, *given: object) -> None:
        arm, self._scheduling.arm = self._scheduling.arm, nothing
        take(self, *given)
        self._scheduling.arm = arm

    return taken


IN_SQUALLS: dict[str, tuple[int, tuple[int, ...], object, str, object]] = {
    "a delayed message comes at once": (1, (2,), Scheduling, "now_ms", AT_ONCE),
    "none comes at its time": (1, (2, 4, 5), Scheduling, "arm", nothing),
    "at once at one of three": (3, (2,), Scheduling, "now_ms", AT_ONCE),
    "none comes at one of three": (3, (2, 4, 5), Scheduling, "arm", nothing),
    "never after a turn": (3, (1, 26, 40), Dispatcher, "take", sets_no_timer(Dispatcher.take)),
}


def squalls(numbers: tuple[int, ...], nodes: int) -> None:
    for seed in numbers:
        owners.run(seed, nodes)


@pytest.mark.parametrize("mutant", IN_SQUALLS)
def test_squalls_notice_it(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, numbers, where, name, what = IN_SQUALLS[mutant]
    monkeypatch.setattr(where, name, what)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        squalls(numbers, nodes)
