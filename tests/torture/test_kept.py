"""What nights have found in storms of real processes, with as few kills as they needed, stays away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.nightly import PROCESSES, replay


@pytest.mark.timeout(1200)
def test_kept_failures_stay_away(counts: Callable[[str], None]) -> None:
    replayed = list(replay(PROCESSES))
    assert [each for each in replayed if each[-1]] == []
    counts(f"{len(replayed)} kept failures replayed")
