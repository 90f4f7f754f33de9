"""Full disks of simulated members; tests and mutants share them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.broker import Broker
from holdfast.cluster.fullness import FULL_S
from holdfast.errors import NoSpace
from tests.kit.broker.cluster import watched
from tests.kit.cluster.storm import JoinWorld
from tests.kit.sim import Sim, SimNode

LEAVES_S = 3 * FULL_S
"""Virtual time in which a member with a full disk has left, or never will."""


class FullWorld(JoinWorld):
    """Its publishers try again when the disk is full."""

    async def publish(self, node: SimNode, broker: Broker) -> None:
        while not self.ending:
            try:
                await super().publish(node, broker)
            except NoSpace:
                await node.clock.sleep(0.1)


@contextmanager
def filled(*numbers: int) -> Iterator[JoinWorld]:
    """Three members that publish; the disks of some have no room from now on."""
    with watched(), Sim(1, 3) as sim:
        world = FullWorld(sim)
        sim.boot(world.program)
        sim.run_until(lambda: sorted(world.brokers) == sim.nodes)
        sim.run(0.8)
        for number in numbers:
            platter = world.sim.platter(number)
            platter.capacity_bytes = platter.used_bytes()
        yield world


def full_member_leaves_and_comes_back() -> None:
    """The others confirm, its status says why, and it is back when there is room."""
    with filled(3) as world:
        sim, member = world.sim, world.members[3]
        sim.run_until(lambda: 3 not in world.brokers, LEAVES_S)
        confirmed = len(world.confirmed)
        reasons = set()
        for _ in range(8):
            sim.run(0.5)
            status = member.status()
            assert status.state != "serving", status
            reasons.add(status.reason)
        assert any("disk is full" in each or "No space left" in each for each in reasons), reasons
        assert len(world.confirmed) > confirmed + 20, "the others do not go on"
        sim.platter(3).capacity_bytes = None
        sim.run_until(lambda: 3 in world.brokers, 60.0)
        world.settle()


def closes_on_a_full_disk() -> None:
    """A close has an end, although events still wait for room."""
    with filled(3) as world:
        sim, member, broker = world.sim, world.members[3], world.brokers[3]
        sim.run_until(lambda: broker.store.stalled_s > 1, LEAVES_S)
        began_s = sim.now_s
        sim.loop.run_until_complete(member.close(8.0))
        assert sim.now_s - began_s < 2.0, f"it took {sim.now_s - began_s} s"


def stays_where_it_is_needed() -> None:
    """It stays where the others lack a majority, and says so."""
    with filled(3) as world:
        sim, member = world.sim, world.members[3]
        sim.crash(1)
        sim.run(LEAVES_S)
        status = member.status()
        assert status.state == "serving"
        assert "disk is full" in status.reason
        confirmed = len(world.confirmed)
        sim.platter(3).capacity_bytes = None
        sim.run(5)
        assert len(world.confirmed) > confirmed
        assert member.status().reason != status.reason
        sim.restart(1)
        world.settle()
