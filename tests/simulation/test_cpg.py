"""The `cpg` engine on a simulated Corosync loses nothing that was stable."""

from __future__ import annotations

from functools import cache

import pytest

from tests.kit.group.cluster import flood_a_paused_receiver, start_one_by_one
from tests.kit.group.totem import TotemWorld, run_on_totem
from tests.kit.sim.totem import TotemSim
from tests.kit.slices import seeds


@cache
def first_run(seed: int) -> tuple[TotemWorld, bytes]:
    return run_on_totem(seed)


@pytest.mark.parametrize("seed", seeds("cpg", test=3, nightly=200))
def test_storm(seed: int) -> None:
    """I20 to I27, for a toy broker under splits, crashes and pauses."""
    world, _ = first_run(int(seed))
    assert world.compared > 100
    assert len(world.checker.stable) > 100


def test_a_seed_repeats_byte_by_byte() -> None:
    """I29: the engine adds nothing that the seed does not decide."""
    assert first_run(1)[1] == run_on_totem(1)[1]


def test_storms_reach_the_rare_ends() -> None:
    """Some members are lost without a majority, some do not answer, and some are evicted."""
    reasons = [
        str(story.ended)
        for seed in (1, 2, 3)
        for story in first_run(seed)[0].checker.stories.values()
        if story.ended is not None
    ]
    for words in ("no majority", "did not answer", "evicted"):
        assert any(words in reason for reason in reasons), (words, sorted(set(reasons)))


def test_members_that_start_one_by_one() -> None:
    """I23."""
    start_one_by_one(TotemSim)


def test_a_slow_receiver_holds_the_sender_back() -> None:
    """I28: a member that is paused is not flooded with events."""
    waiting, _ = flood_a_paused_receiver(TotemSim)
    assert 0 < waiting <= (1 << 16) + (24 << 10)
