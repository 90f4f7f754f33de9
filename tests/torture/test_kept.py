"""Replay failures that nightly storms of real processes found, with the fewest kills."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.nightly import PROCESSES, WITH_SPARK, replay


@pytest.mark.timeout(1200)
def test_kept_failures_stay_away(counts: Callable[[str], None]) -> None:
    replayed = list(replay(PROCESSES))
    assert [each for each in replayed if each[-1]] == []
    counts(f"{len(replayed)} kept failures replayed")


@pytest.mark.nightly  # each starts a Java; tests/process/pipeline has the same storms without Spark
@pytest.mark.timeout(3600)
def test_kept_failures_with_spark_stay_away(counts: Callable[[str], None]) -> None:
    replayed = list(replay(WITH_SPARK))
    assert [each for each in replayed if each[-1]] == []
    counts(f"{len(replayed)} kept failures replayed")
