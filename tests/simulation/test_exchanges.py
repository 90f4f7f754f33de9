"""Exchanges on a simulated cluster: each message once in its topics, through crashes and splits."""

from __future__ import annotations

import pytest

from tests.kit.broker import exchange_cluster
from tests.kit.slices import pick, seeds


@pytest.mark.parametrize("seed", seeds("exchanges", test=1, nightly=40))
def test_three_brokers_route_and_reject_in_a_storm(seed: int) -> None:
    """I242, I243, I244: also when a member dies between a request and its answer."""
    world = exchange_cluster.run(seed, seconds=pick(3.0, 8.0))
    assert world.compared > 50
    assert len(world.confirmed) > 20
    assert len(world.rejected) > 3
    assert world.dropped > 20
    assert all(len(owners) > 1 for owners in world.owners.values()), "the owner of a topic does not change"
