"""Members join under storms: power cuts, splits, lost disks, disks and connections that fail."""

from __future__ import annotations

import pytest

from tests.kit.cluster import storm
from tests.kit.slices import pick, seeds

SEEDS = seeds("joining", test=100, nightly=2000)
FIVE = seeds("joining of five", test=4, nightly=200)


@pytest.mark.parametrize("seed", SEEDS)
def test_three_members_in_a_storm(seed: int) -> None:
    """I232, I231: states are equal, nothing confirmed is lost, and all serve again."""
    world = storm.run(seed, seconds=pick(test=1.5, nightly=5.0))
    assert world.compared
    assert world.counts["copied"] >= 2


@pytest.mark.parametrize("seed", FIVE)
def test_five_members_in_a_storm(seed: int) -> None:
    """I232: with a larger majority."""
    world = storm.run(seed, nodes=5, seconds=pick(test=1.5, nightly=5.0))
    assert world.counts["copied"] >= 4
