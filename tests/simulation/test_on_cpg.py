"""Whole brokers on the `cpg` engine, on a simulated Corosync (`tests/kit/cluster/on_corosync.py`)."""

from __future__ import annotations

import pytest

from tests.kit.cluster import on_corosync, storm
from tests.kit.sim.totem import SmallTotemSim
from tests.kit.slices import pick, seeds


@pytest.mark.parametrize("seed", seeds("joining on cpg", test=10, nightly=1000))
def test_members_join_in_a_storm(seed: int) -> None:
    world = on_corosync.joins(seed, pick(test=1.5, nightly=4.0))
    assert world.compared
    assert world.counts["copied"] >= 2


@pytest.mark.parametrize("seed", seeds("owners on cpg", test=4, nightly=300))
def test_members_share_subscriptions(seed: int) -> None:
    assert on_corosync.owners_of(seed, pick(test=0.0, nightly=4.0)).delivered


@pytest.mark.parametrize("seed", seeds("brokers on cpg", test=2, nightly=200))
def test_brokers_under_faults_of_every_kind(seed: int) -> None:
    world = on_corosync.brokers(seed, pick(test=2.0, nightly=4.0))
    assert world.compared
    assert world.account.confirmed


def test_a_storm_repeats() -> None:
    """I29: also with the engine's timers."""
    first, again = (storm.run(3, 3, 1.5, SmallTotemSim) for _ in range(2))
    assert first.confirmed == again.confirmed
    assert first.states == again.states
