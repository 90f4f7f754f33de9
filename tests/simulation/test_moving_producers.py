"""A producer that moves between simulated brokers: the topic has each number once, in order."""

from __future__ import annotations

import pytest

from tests.kit.broker import movers
from tests.kit.sim.totem import TotemSim
from tests.kit.slices import pick, seeds


@pytest.mark.parametrize("seed", seeds("moving producers", test=6, nightly=300))
def test_a_producer_moves_in_a_storm(seed: int) -> None:
    """I27: with one name, or with exclusive access that fences; faults of every kind."""
    world = movers.run(seed, seconds=pick(test=3.0, nightly=6.0))
    assert world.compared > 50
    assert world.confirmed > 10
    assert world.moves > 2
    assert world.fenced


@pytest.mark.parametrize("seed", seeds("moving producers on cpg", test=2, nightly=100))
def test_a_producer_moves_on_cpg(seed: int) -> None:
    world = movers.run(seed, seconds=pick(test=2.0, nightly=6.0), simulation=TotemSim)
    assert world.confirmed > 10
    assert world.moves > 2
