"""Run several brokers on the simulated group; all apply the same events.

A message that one broker confirms exists on every broker.

Run as a program it prints the trace of one seed: `python kit/broker/cluster.py SEED`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

import holdfast.broker.broker as broker_module
from holdfast.broker.broker import Broker
from holdfast.broker.machine import Applied, Machine
from holdfast.broker.options import BrokerOptions
from holdfast.cluster import ClusterMember, MemberStatus
from holdfast.errors import Closed, HoldfastError, NoQuorum, NoSpace
from holdfast.group import Group, GroupStats, Listener, Member, Position, View
from tests.kit.broker.judge import Account, Judge
from tests.kit.broker.work import Work
from tests.kit.cluster.link import Wires
from tests.kit.cluster.simulated import sim_member
from tests.kit.group.checker import Broken, Checker, Recorder
from tests.kit.sim import EVERYTHING, Sim, SimNode, Trouble, Weather, storm
from tests.kit.sim.loop import CURRENT, Life

OPTIONS = BrokerOptions(
    roll_entries=30, snapshot_bytes=40_000, snapshot_s=2.0, housekeeping_s=0.5, reserve_bytes=4096
)


class RecordedGroup(Group):
    """A group that reports the calls and notices of its member to the group's checker."""

    def __init__(self, replica: Replica, group: Group) -> None:
        self._replica = replica
        self._group = group
        self._recorder: Recorder | None = None

    @property
    def member(self) -> Member:
        return self._group.member

    async def start(self, listener: Listener) -> None:
        behind = Stable(self._replica, listener)
        self._recorder = Recorder(self._replica.world.checker, self._group, behind)
        self._recorder.holds_by_itself = False
        await self._group.start(self._recorder)

    async def leave(self) -> None:
        await self._group.leave()

    def mcast(self, event: bytes) -> None:
        assert self._recorder is not None
        self._recorder.send(event)

    @property
    def blocked(self) -> bool:
        return self._group.blocked

    async def drain(self) -> None:
        await self._group.drain()

    def hold(self, pos: Position) -> None:
        assert self._recorder is not None
        self._recorder.hold(pos)

    def stats(self) -> GroupStats:
        return self._group.stats()


class Stable(Listener):
    """A listener that compares states at stable positions."""

    def __init__(self, replica: Replica, behind: Listener) -> None:
        self._replica = replica
        self._behind = behind

    def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        self._behind.on_deliver(pos, member, event)

    def on_view(self, view: View) -> None:
        self._behind.on_view(view)

    def on_stable(self, pos: Position) -> None:
        self._behind.on_stable(pos)
        unstable = self._replica.unstable
        while unstable and unstable[0][0] <= pos:
            self._replica.world.compare(*unstable.popleft())

    def on_lost(self, reason: str) -> None:
        self._behind.on_lost(reason)


class WatchedMachine(Machine):
    """A machine that gives the world its state after every frame and view."""

    def apply(self, view: int, index: int, member: Member, frame: bytes) -> Applied:
        applied = super().apply(view, index, member, frame)
        self._tell(Position(view, index))
        return applied

    def view(self, view: View, unclean: bool = False) -> Applied:
        applied = super().view(view, unclean)
        self._tell(view.position)
        return applied

    def _tell(self, pos: Position) -> None:
        life = CURRENT.get()
        assert life is not None
        REPLICAS[life.name].unstable.append((pos, self.digest().hex()))


REPLICAS: dict[str, Replica] = {}
"""The replicas by their life."""


class World:
    """The brokers' world, and facts about it that no broker knows."""

    options = OPTIONS

    def __init__(self, sim: Sim, pause_s: float) -> None:
        self.sim = sim
        self.pause_s = pause_s
        self.checker = Checker(len(sim.nodes))
        self.account = Account("sim", sim.seed)
        self.judge = Judge(self.account)
        self.states: dict[Position, object] = {}
        self.compared = 0
        self.lives = 0
        self._serving: dict[int, tuple[Life, Broker]] = {}
        self.wires = Wires(sim)
        self.members: dict[int, ClusterMember] = {}
        self.transfers: list[MemberStatus] = []
        self.ending = False

    def compare(self, pos: Position, state: object) -> None:
        """I27: require equal states at equal positions."""
        self.compared += pos in self.states
        if self.states.setdefault(pos, state) != state:
            raise Broken(f"I27: two states at {pos}:\n{self.states[pos]}\n{state}")

    def replica(self, node: SimNode) -> Replica:
        """Return the clients of a node's broker."""
        return Replica(self, node, 0)

    async def program(self, node: SimNode) -> None:
        replica = self.replica(node)
        REPLICAS[node.life.name] = replica
        member = sim_member(self.wires, node, self.sim.nodes, self.options, replica.group)
        self.members[node.number] = member
        while True:
            broker = await member.join()
            self.lives += 1
            self.transfers.append(member.status())
            with suppress(Closed, NoQuorum):
                await replica.live(broker, self.lives)
            await node.clock.sleep(0.05 + 0.2 * node.random.fraction())

    @property
    def brokers(self) -> dict[int, Broker]:
        """The brokers that serve, by node; those of crashed lives do not."""
        return {number: each for number, (life, each) in sorted(self._serving.items()) if life.alive}

    def serves(self, node: SimNode, broker: Broker | None) -> None:
        """Note the broker of a node, or that it has none."""
        if broker is None:
            self._serving.pop(node.number, None)
        else:
            self._serving[node.number] = (node.life, broker)

    def at_rest(self) -> bool:
        """Return whether all replicas serve, and are at one position."""
        ends = {(broker.engine.position, broker.engine.stable) for broker in self.brokers.values()}
        return sorted(self.brokers) == self.sim.nodes and len(ends) == 1

    def finish(self) -> None:
        """Check after the storm that every confirmed message exists on every broker."""
        self.ending = True
        self.sim.run(3)
        self.sim.run_until(self.at_rest)
        digests = {number: broker.machine.digest().hex() for number, broker in self.brokers.items()}
        if len(set(digests.values())) != 1:
            raise Broken(f"I27: the states differ in the end: {digests}")
        for number, broker in self.brokers.items():
            seen = self.sim.loop.run_until_complete(Replica(self, None, number).look(broker))
            self.judge.look(seen)
        if self.account.faults:
            raise Broken("\n".join(self.account.faults[:5]))


class Replica(Work):
    """One member's broker, and its clients."""

    def __init__(self, world: World, node: SimNode | None, life: int) -> None:
        super().__init__(0 if node is None else node.number, life, random.Random(life), world.pause_s)
        self.rests = 1.0
        self.world = world
        self.sim_node = node
        self.unstable: deque[tuple[Position, object]] = deque()
        if node is None:
            numbers = world.sim.nodes
            self.subscriptions = [each for number in numbers for each in self.of(number)]
        else:
            self.random = random.Random(node.random.integer(1 << 32))
            self.subscriptions = self.of(node.number)

    @staticmethod
    def of(number: int) -> list[tuple[str, str]]:
        return [("kept", f"each{number}"), ("kept", f"line{number}"), ("plain", f"each{number}")]

    def note(self, *record: object) -> None:
        self.world.judge.take(list(record))

    def group(self, incarnation: int, view_floor: int) -> Group:
        assert self.sim_node is not None
        self.unstable = deque()
        group = self.sim_node.group(
            explicit_holds=True, window_bytes=1 << 16, incarnation=incarnation, view_floor=view_floor
        )
        return RecordedGroup(self, group)

    async def live(self, broker: Broker, life: int) -> None:
        node, world, self.life = self.sim_node, self.world, life
        assert node is not None
        try:
            await self.until_quorate(broker)
            seen = await self.look(broker)
            for sub in self.subscriptions:
                world.judge.look_at_cursor(sub, set(seen.left[sub]), seen)
            world.serves(node, broker)
            watch = asyncio.get_running_loop().create_task(self.until_the_end())
            await self.work(broker)
            await watch
            await node.clock.sleep(3600)
        except* (Closed, NoQuorum, NoSpace):  # a disk fault may be a full disk
            pass
        finally:
            world.serves(node, None)
            with suppress(HoldfastError):
                await broker.close()

    async def until_the_end(self) -> None:
        assert self.sim_node is not None
        while not self.world.ending:
            await self.sim_node.clock.sleep(0.05)
        self.ending = True

    async def until_quorate(self, broker: Broker) -> None:
        """Wait for a quorum, so that later events follow all that this node has missed."""
        assert self.sim_node is not None
        while True:
            try:
                await self.prepare(broker)
                await broker.admin.set_policies("kept", roll_entries=20 + self.life % 20)
                return
            except NoQuorum:
                await self.sim_node.clock.sleep(0.1)


@contextmanager
def watched() -> Iterator[None]:
    """Let brokers that are created inside have machines that report their states."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_module, "Machine", WatchedMachine)
        yield
    REPLICAS.clear()


def run(
    seed: int,
    nodes: int = 3,
    seconds: float = 12.0,
    trouble: Trouble | None = None,
    simulation: type[Sim] = Sim,
) -> tuple[World, bytes]:
    """Run a storm over brokers, and check it; return the world and the trace."""
    with watched(), simulation(seed, nodes) as sim:
        world = World(sim, pause_s=0.4)
        sim.network.weather = Weather(delay_s=(1e-4, 40e-3), loss=0.05, detection_s=(0.005, 0.3))
        sim.boot(world.program)
        storm(sim, seconds, every_s=(0.05, 0.8), trouble=trouble)
        world.finish()
        for key in sorted(world.states):
            sim.trace.add("state", key, world.states[key])
        world.checker.check()
        if world.account.faults:
            raise Broken("\n".join(world.account.faults[:5]))
        return world, bytes(sim.trace)


def everything(seed: int, seconds: float = 4.0) -> tuple[World, bytes]:
    """Run a storm with faults of every kind, over three or five brokers."""
    return run(seed, 3 if seed % 3 else 5, seconds, EVERYTHING)


if __name__ == "__main__":
    sys.stdout.buffer.write(run(int(sys.argv[1]), seconds=3.0)[1])
