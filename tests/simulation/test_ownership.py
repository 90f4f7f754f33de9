"""Consumers of several brokers share subscriptions, in squalls: one member dispatches at a time.

Every delivery is compared with the tables of all members of the view (`tests/kit/broker/owners.py`). In the
end everything is acknowledged. A failure prints its seed and the end of its trace.
"""

from __future__ import annotations

import pytest

from tests.kit.broker import owners, takers
from tests.kit.slices import pick, seeds

SEEDS = seeds("owners", test=32, nightly=1500)
PARTS = pick(test=8, nightly=100)


@pytest.mark.parametrize("part", range(PARTS))
def test_three_brokers_share_subscriptions(part: int) -> None:
    """I68, I69: all types of subscriptions; crashes, splits, pauses and resets of any member."""
    delivered, turns = 0, set[int]()
    for seed in SEEDS[part::PARTS]:
        world, _ = owners.run(seed)
        found = world.owners["all" if "all" in world.served else "keys"]
        assert len(found) > 1, "no turn ends"
        turns |= found
        delivered += world.delivered
    assert turns == {1, 2, 3}, "a member takes no turn"
    assert delivered > 50


def test_a_longer_storm() -> None:
    for seed in seeds("owners in storms", test=1, nightly=60):
        world, _ = owners.run(seed, seconds=pick(test=1.0, nightly=6.0))
        assert world.resets > 0
        assert world.delivered > 100


def test_a_squall_repeats_byte_by_byte() -> None:
    """I29: also with owners that take turns."""
    assert owners.run(2)[1] == owners.run(2)[1]


@pytest.mark.parametrize("seed", seeds("everything", test=4, nightly=400))
def test_faults_of_every_kind(seed: int) -> None:
    """I27, I68: also with links in one direction, circles, disk faults and clocks that jump."""
    world = owners.everything(seed)
    assert world.delivered > 50
    assert world.compared > 50


TAKERS = seeds("takers", test=12, nightly=400)


@pytest.mark.parametrize("part", range(pick(test=4, nightly=40)))
def test_messages_are_taken_beside_deliveries(part: int) -> None:
    """I243, I68: takes, moves and rejects at all members, also of parts of batches."""
    delivered = out = 0
    for seed in TAKERS[part :: pick(test=4, nightly=40)]:
        world = takers.run(seed)
        delivered += world.delivered
        out += world.moved + sum(world.taken.values())
    assert delivered > 50
    assert out > 10
