"""Several brokers on the simulated group: equal states, and no confirmed message lost.

Crashes, splits, pauses and slow disks; a member that comes back copies the state of another.
A failure prints its seed and the end of its trace.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.kit.broker import cluster as broker_cluster
from tests.kit.broker.cluster import World
from tests.kit.broker.judge import Account, Judge
from tests.kit.sim import Sim
from tests.kit.slices import pick, seeds

SEEDS = seeds("brokers", test=1, nightly=60)
"""Under faults of every kind: tests/torture/test_cluster.py."""


@cache
def first_run(seed: int, nodes: int = 3) -> tuple[World, bytes]:
    return broker_cluster.run(seed, nodes)


@pytest.mark.parametrize("seed", SEEDS)
def test_three_brokers_in_a_storm(seed: int) -> None:
    """I27, I60: states of stable members are compared, and confirmed messages counted."""
    world, _ = first_run(seed)
    assert world.compared > 100
    assert world.account.confirmed > 100
    assert world.account.receipted > 20


@pytest.mark.parametrize("seed", SEEDS)
def test_one_broker_alone(seed: int) -> None:
    world, _ = first_run(seed, nodes=1)
    assert world.account.confirmed > 100


@pytest.mark.parametrize("seed", SEEDS[: pick(test=1, nightly=20)])
def test_a_seed_repeats_byte_by_byte(seed: int) -> None:
    """I29: also with a broker. Three brokers repeat in tests/process/simulation/test_repeat.py."""
    nodes = pick(test=1, nightly=3)
    assert first_run(seed, nodes)[1] == broker_cluster.run(seed, nodes)[1]


def test_a_member_with_a_slow_disk() -> None:
    """Events that the others hold are stable, but visible here only when readable here."""
    with broker_cluster.watched(), Sim(1, 3) as sim:
        world = World(sim, pause_s=0.2)
        sim.platter(3).slow(30)
        sim.boot(world.program)
        sim.run(3)
        world.finish()
    assert world.account.confirmed > 100
    assert world.compared > 100


def test_the_judge_can_see() -> None:
    """A confirmed message that was not sent is reported as missing."""
    judge = Judge(Account("", 0))
    judge.take(["p", "kept", 1, 0, 1])
    judge.take(["P", "kept", 1, 0, 1, [[1, 0]], []])
    judge.look_for_lost("kept", [])
    assert judge.account.faults
