"""Storms over joining: crashes, power cuts, splits, wiped and failing disks, broken links.

Small brokers with one topic, so that many seeds fit into a run. Members' states are compared at equal stable
positions; in the end each confirmed message is on every member once.
"""

from __future__ import annotations

import errno
import sys
from collections import Counter
from contextlib import suppress

from holdfast.broker import Broker, BrokerOptions
from holdfast.cluster import ClusterMember
from holdfast.errors import Closed, HoldfastError, NoQuorum
from tests.kit.broker.cluster import REPLICAS, Replica, World, watched
from tests.kit.cluster.link import SimLink
from tests.kit.group.checker import Broken
from tests.kit.ledger.sim_store import SimFiles
from tests.kit.sim import Sim, SimNode, Weather, strike
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.totem import TotemSim

OPTIONS = BrokerOptions(
    roll_entries=8,
    retention_bytes=-1,
    snapshot_bytes=20_000,
    snapshot_s=0.7,
    housekeeping_s=0.5,
    reserve_bytes=4096,
    journal_bytes=1 << 15,
)
ALL = 1 << 30
TOPIC = "kept"
KINDS = (
    *("crash", "crash", "split", "one_way", "heal", "pause", "power", "disk", "wipe"),
    *("donor", "joiner"),  # a crash of one
)
"""The faults of a storm, as likely as they are here."""


class JoinWorld(World):
    """Members that join, publish a little, and are disturbed."""

    def __init__(self, sim: Sim) -> None:
        super().__init__(sim, pause_s=0.05)
        self.confirmed: list[bytes] = []
        self.asked = 0
        self.nodes = list(sim.nodes)
        self.counts: Counter[str] = Counter()
        """How often each kind of fault struck, and each way to the state was gone."""

    def configure(self, nodes: list[int]) -> None:
        """Set `cluster.nodes`, for members that start from now on."""
        self.nodes = nodes
        self.sim.network.configure(nodes)
        self.checker.majority = self.sim.network.majority

    def member(self, node: SimNode, replica: Replica) -> ClusterMember:
        return ClusterMember(
            OPTIONS,
            node=node.number,
            nodes=self.nodes,
            make_group=replica.group,
            link=SimLink(self.wires, node),
            disk=node.disk,
            files=SimFiles(node.disk, node.clock),
            clock=node.clock,
            random=node.random,
        )

    async def program(self, node: SimNode) -> None:
        replica = Replica(self, node, 0)
        REPLICAS[node.life.name] = replica
        member = self.members[node.number] = self.member(node, replica)
        while self.members[node.number] is member and member.status().state != "closed":
            broker = await member.join()
            self.lives += 1
            self.counts[("copied" if member.status().total else "elected")] += 1
            if member.status().lacking:
                self.counts["served early"] += 1
            self.serves(node, broker)
            try:
                with suppress(Closed, NoQuorum):
                    await self.publish(node, broker)
                await member.lost()
            finally:
                self.serves(node, None)

    async def publish(self, node: SimNode, broker: Broker) -> None:
        async with broker.producer(TOPIC) as producer:
            while not self.ending:
                self.asked += 1
                data = b"%d of %d " % (self.asked, node.number) + bytes(self.asked * 37 % 400)
                await producer.send(data)
                self.confirmed.append(data)
                await node.clock.sleep(0.05 * node.random.fraction())

    # -- faults ----------------------------------------------------------------------------------------

    def disturb(self, seconds: float) -> None:
        sim, chance = self.sim, SeededRandomness(self.sim.seed, "joining")
        self.wires.cut = 0.05 if chance.happens(0.3) else 0.0
        end, wiped = sim.now_s + seconds, False
        back: dict[int, float] = {}
        while sim.now_s < end:
            sim.run(chance.between(0.05, 0.4))
            for number in [number for number in sorted(back) if back[number] <= sim.now_s]:
                del back[number]
                sim.restart(number)
            kind = KINDS[chance.integer(len(KINDS))]
            running = sorted(sim.running)
            if kind in ("donor", "joiner"):
                running = self.in_transfer(kind)
            if kind == "wipe" and (wiped or not self.all_hold()):
                continue
            if kind == "split":
                alone = sim.nodes[chance.integer(len(sim.nodes))]
                sim.split([alone])
            elif kind == "one_way":
                strike(sim, kind, chance, back)
            elif kind == "heal":
                sim.heal()
            elif kind == "power":
                for number in running:
                    sim.crash(number)
                    back[number] = sim.now_s + chance.between(0, 0.5)
            elif not running:
                continue
            else:
                number = running[chance.integer(len(running))]
                if kind == "pause":
                    sim.pause(number, chance.between(0.01, 0.6))
                elif kind == "disk":
                    operation = ("write", "sync", "open", "unlink", "sync_directory")[chance.integer(5)]
                    sim.platter(number).fail(1 + chance.integer(20), errno.EIO, operation)
                else:
                    sim.crash(number)
                    back[number] = sim.now_s + chance.between(0, 0.5)
                    if kind == "wipe":
                        wiped = True
                        sim.platter(number).wipe()
            self.counts[kind] += 1
        sim.heal()
        self.wires.cut = 0.0
        for number in sim.nodes:
            sim.platter(number).mend()
        for number in sorted(back):
            sim.restart(number)

    def all_hold(self) -> bool:
        """Return whether every node has the state: then one disk may be lost."""
        if isinstance(self.sim, TotemSim):
            views = {broker.engine.position.view for broker in self.brokers.values()}
            return self.all_whole() and len(views) == 1
        ends = [end for end in self.sim.network.endpoints if end.up and end.complete]
        views = {end.ring.view.id for end in ends if end.ring is not None}
        return len(ends) == len(self.sim.nodes) and len(views) == 1

    def all_whole(self) -> bool:
        """Return whether every member serves, and lacks no ledger."""
        lacking = any(each.status().lacking for each in self.members.values())
        return sorted(self.brokers) == self.sim.nodes and not lacking

    def in_transfer(self, kind: str) -> list[int]:
        """Return the donors, or the joiners, of copies that are under way."""
        found = set()
        for number in self.sim.running:
            member = self.members.get(number)
            status = None if member is None else member.status()
            if status is not None and (status.state == "transferring" or status.lacking):
                found.add(number if kind == "joiner" else status.donor)
        return sorted(found & set(self.sim.running))

    # -- the end ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Require that all members serve, with the same contents and every confirmed message."""
        sim = self.sim
        try:
            sim.run_until(self.all_whole, 90.0)
        except TimeoutError:
            told = {number: member.status() for number, member in sorted(self.members.items())}
            raise Broken(f"liveness: not all members serve: {told}") from None
        self.ending = True
        sim.run(0.5)
        try:
            sim.run_until(self.at_rest, 90.0)
        except TimeoutError:
            ends = {number: str(broker.engine.position) for number, broker in sorted(self.brokers.items())}
            raise Broken(f"liveness: members do not come to rest: {ends}") from None
        digests = {number: broker.machine.digest().hex() for number, broker in self.brokers.items()}
        if len(set(digests.values())) != 1:
            raise Broken(f"I232: the states differ in the end: {digests}")
        for number, broker in sorted(self.brokers.items()):
            found = Counter(sim.loop.run_until_complete(contents(broker)))
            lost = [data[:20] for data in self.confirmed if not found[data]]
            twice = [data[:20] for data, count in found.items() if count > 1]
            if lost or twice:
                raise Broken(f"node {number}: confirmed and lost {lost[:5]}, twice {twice[:5]}")


async def contents(broker: Broker) -> list[bytes]:
    with suppress(HoldfastError):
        return [bytes(m.data) for m in await broker.admin.examine(TOPIC, "earliest", ALL)]
    return []


def run(seed: int, nodes: int = 3, seconds: float = 4.0, simulation: type[Sim] = Sim) -> JoinWorld:
    """Run a storm over members that join, and check it."""
    with watched(), simulation(seed, nodes) as sim:
        world = JoinWorld(sim)
        sim.network.weather = Weather(delay_s=(1e-4, 10e-3), loss=0.03, detection_s=(0.005, 0.2))
        sim.boot(world.program)
        sim.run(0.4)
        world.disturb(seconds)
        world.settle()
        world.checker.check()
        return world


if __name__ == "__main__":
    print(run(int(sys.argv[1])).counts)
