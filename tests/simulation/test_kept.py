"""Replay failures that nightly storms have found, in their shortest form."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.nightly import SIMULATED, replay


def test_kept_failures_stay_away(counts: Callable[[str], None]) -> None:
    replayed = list(replay(SIMULATED))
    assert [each for each in replayed if each[-1]] == []
    counts(f"{len(replayed)} kept failures replayed")
