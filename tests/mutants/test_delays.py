"""Broken delays and counts: the scenes of tests/kit/broker/delay_checks.py must notice each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.broker.dispatch.ownership import Tenure
from holdfast.broker.dispatch.schedule import AT_ONCE, Scheduling
from holdfast.broker.events import cursors
from holdfast.broker.log_time import LogClock
from tests.kit.broker import delay_checks as checks


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
