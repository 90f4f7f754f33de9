"""Storms over whole brokers on the `cpg` engine, on a simulated Corosync.

Other storms over brokers use a group that the simulator orders. Here views, exclusion, eviction and stability
are those of the engine. Every second seed has an engine with short waits.
"""

from __future__ import annotations

from tests.kit.broker import cluster, owners
from tests.kit.cluster import storm
from tests.kit.cluster.storm import JoinWorld
from tests.kit.sim import EVERYTHING
from tests.kit.sim.totem import SmallTotemSim, TotemSim


def _simulation(seed: int) -> type[TotemSim]:
    return SmallTotemSim if seed % 2 else TotemSim


def _nodes(seed: int) -> int:
    return 3 if seed % 3 else 5


def joins(seed: int, seconds: float) -> JoinWorld:
    """I231, I232: members join, and are disturbed by crashes, splits, lost disks and broken links."""
    return storm.run(seed, _nodes(seed), seconds, _simulation(seed))


def owners_of(seed: int, seconds: float = 0.0) -> owners.Owners:
    """I68, I69: members share subscriptions; without `seconds` in a squall."""
    trouble = EVERYTHING if seconds else None
    return owners.run(seed, seconds=seconds, trouble=trouble, simulation=_simulation(seed))[0]


def brokers(seed: int, seconds: float) -> cluster.World:
    """I27, I60: confirmed messages and equal states under faults of every kind."""
    return cluster.run(seed, _nodes(seed), seconds, EVERYTHING, _simulation(seed))[0]
