"""Kill processes of a service at random: nothing leaks, and no sample is altered.

`python -m tests.kit.service.storm` does the same for as long as you like; HOLDFAST_SEED repeats its choices.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.service import storm
from tests.kit.slices import Seed, pick, seeds

KILLS = pick(test=30, nightly=10_000)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", seeds("service storm", test=1, nightly=2))
def test_storm(seed: Seed, counts: Callable[[str], None]) -> None:
    account = storm.run(storm.Plan(KILLS, int(seed)))
    counts(account.words())
    assert account.faults == []
    assert account.kills >= KILLS
    assert account.taken > KILLS
    assert account.reused > 0


def test_a_torn_or_wrong_sample_is_seen() -> None:
    good = storm.payload(5)
    storm.require_payload(good, 5)
    with pytest.raises(AssertionError, match="has the bytes of 5"):
        storm.require_payload(good, 6)
    with pytest.raises(AssertionError, match="torn"):
        storm.require_payload(good[:-1] + bytes([good[-1] ^ 1]), 5)
