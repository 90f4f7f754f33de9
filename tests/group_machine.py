"""A toy broker: counters by name, changed only by events, in a group of three or five, under faults.

Run as a program it prints the trace of one seed: `python group_machine.py SEED`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections import deque
from collections.abc import Iterable
from functools import cache

from group_checker import Broken, Checker, Recorder
from holdfast.errors import Closed
from holdfast.group import Listener, Member, NoQuorum, Position, View
from holdfast.group.sim import Sim, SimNode, Weather, storm

NAMES = [f"counter-{number}" for number in range(12)]


def seeds(count: int) -> list[int]:
    """Those of a test: the first ones, or the one that HOLDFAST_SEED names."""
    chosen = os.environ.get("HOLDFAST_SEED")
    return [int(chosen)] if chosen else list(range(1, count + 1))


class Counters(Listener):
    """The state. Most events change one counter; `fold` halves all and takes their names into the chain."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.chain = b""
        self.at = Position(0, 0)

    def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        name, amount = json.loads(event)
        if name == "fold":
            for key in self.order():
                self.counters[key] //= 2
                self.chain = hashlib.sha256(self.chain + key.encode()).digest()
        else:
            self.counters[name] = self.counters.get(name, 0) + amount
        self.step(pos, event)

    def on_view(self, view: View) -> None:
        if view.quorate:
            self.step(view.position, repr(view).encode())

    def order(self) -> Iterable[str]:
        return sorted(self.counters)

    def step(self, pos: Position, what: bytes) -> None:
        self.at = pos
        self.chain = hashlib.sha256(self.chain + what).digest()

    def state(self) -> str:
        sums = " ".join(f"{name}={self.counters[name]}" for name in sorted(self.counters))
        return f"{self.chain.hex()[:16]} {sums}"

    def copy_of(self, other: Counters) -> None:
        self.counters, self.chain, self.at = dict(other.counters), other.chain, other.at


class World:
    """Members that apply the same events; a joiner takes over the state of a member at the joiner's cut."""

    def __init__(self, sim: Sim, machine: type[Counters] = Counters, gap_s: float = 0.004) -> None:
        self.sim = sim
        self.checker = Checker(len(sim.nodes))
        self.machine = machine
        self.gap_s = gap_s
        self.at_cut: dict[int, Counters] = {}
        """By view: the state of one who was there before, at the view."""
        self.states: dict[Position, str] = {}
        """After what was gone through together, at a view; and at every position that is stable."""
        self.compared = 0

    async def program(self, node: SimNode) -> None:
        while True:
            replica = Replica(self, node)
            try:
                await replica.recorder.group.start(replica.recorder)
                await replica.work()
            except (Closed, NoQuorum):
                await node.clock.sleep(0.05 + 0.2 * node.random.fraction())

    def check_history(self) -> None:
        """I26: what was stable to anybody is in the history that a member coming back is fed."""
        history = {entry.pos: (entry.member, entry.event) for entry in self.sim.network.history}
        last = max((pos.view for pos in history), default=0)
        for pos, event in self.checker.stable.items():
            if pos.view <= last and history.get(pos) != event:
                raise Broken(f"I26: {pos} was stable, and the history has {history.get(pos)} there")

    def note(self, pos: Position, state: str) -> None:
        """I27: states at equal positions are equal."""
        self.compared += pos in self.states
        if self.states.setdefault(pos, state) != state:
            raise Broken(f"I27: two states at {pos}:\n{self.states[pos]}\n{state}")


class Replica(Listener):
    """One member: its machine, or, until it has the state of its cut, what it has to apply later."""

    def __init__(self, world: World, node: SimNode) -> None:
        self.world = world
        self.node = node
        self.machine = world.machine()
        self.ready = False
        self.waiting: list[tuple[Position, Member, bytes] | View] = []
        self.unstable: deque[tuple[Position, str]] = deque()
        self.view: View | None = None
        group = node.group(explicit_holds=True, window_bytes=1 << 16)
        self.recorder = Recorder(world.checker, group, self)
        self.recorder.holds_by_itself = False
        self.lost = asyncio.Event()

    def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        if self.ready:
            self.apply(pos, member, event)
        else:
            self.waiting.append((pos, member, event))

    def apply(self, pos: Position, member: Member, event: bytes) -> None:
        self.machine.on_deliver(pos, member, event)
        self.unstable.append((pos, self.machine.state()))

    def on_stable(self, pos: Position) -> None:
        while self.unstable and self.unstable[0][0] <= pos:
            self.world.note(*self.unstable.popleft())

    def on_view(self, view: View) -> None:
        me = self.recorder.story.member
        before, self.view = self.view, view
        if not view.quorate:
            return
        if self.ready:
            # Whoever is told the same view here has gone through the same events: so must the states be.
            self.machine.on_view(view)
            self.world.note(view.position, self.machine.state())
            if view.joined and view.id not in self.world.at_cut:
                donated = self.world.machine()
                donated.copy_of(self.machine)
                self.world.at_cut[view.id] = donated
        elif view.is_cut_of(me):
            self.waiting.clear()
        else:
            assert before is not None
            self.waiting.append(view)

    def on_lost(self, reason: str) -> None:
        self.lost.set()

    async def work(self) -> None:
        """Get the state of the cut, then change counters, and hold what was applied after a slow write."""
        chance, group = self.node.random, self.recorder.group
        while not self.lost.is_set():
            await self.node.clock.sleep(self.world.gap_s * chance.fraction())
            if not self.ready:
                self.catch_up()
                continue
            held = self.machine.at
            if chance.integer(4) == 0:
                await self.node.clock.sleep(0.002 * chance.fraction())  # as a sync would take
            if self.lost.is_set():
                break
            self.recorder.hold(held)
            for _ in range(1 + chance.integer(6)):
                name = "fold" if chance.integer(20) == 0 else NAMES[chance.integer(len(NAMES))]
                self.recorder.send(json.dumps([name, 1 + chance.integer(100)]).encode())
            await group.drain()

    def catch_up(self) -> None:
        story = self.recorder.story
        cuts = [view for view in story.views if view.is_cut_of(story.member)]
        if not cuts:
            return
        cut = cuts[-1]
        if not [member for member in cut.members if member not in cut.joined]:
            # Nobody was there before. A broker compares stores here; the toy begins anew.
            donated = self.world.machine()
            donated.step(cut.position, repr(cut).encode())
        elif cut.id in self.world.at_cut:
            donated = self.world.at_cut[cut.id]
        else:
            return  # the donor has not seen this view yet
        self.machine.copy_of(donated)
        self.ready = True
        waiting, self.waiting = self.waiting, []
        for item in waiting:
            if isinstance(item, View):
                self.machine.on_view(item)
                self.world.note(item.position, self.machine.state())
            else:
                self.apply(*item)
        self.node.trace("caught up", self.machine.at)


@cache
def first_run(seed: int) -> tuple[World, bytes]:
    """The storm of a seed, for all tests that look at it."""
    return run(seed)


def run(seed: int, machine: type[Counters] = Counters, seconds: float = 10.0) -> tuple[World, bytes]:
    """A storm over three or five nodes, checked; the world, and the trace."""
    with Sim(seed, nodes=3 if seed % 2 else 5) as sim:
        world = World(sim, machine, gap_s=0.008 * len(sim.nodes) ** 2)
        # So slow that a fault mostly finds something under way, and noticed so soon that it stays so.
        sim.network.weather = Weather(delay_s=(1e-4, 25e-3), loss=0.05, detection_s=(0.005, 0.3))
        sim.boot(world.program)
        storm(sim, seconds, every_s=(0.02, 1.0))
        for node in sorted(world.checker.stories):
            sim.trace.add(node, "story", len(world.checker.stories[node].events))
        for key in sorted(world.states):
            sim.trace.add("state", key, world.states[key])
        world.checker.check()
        world.check_history()
        return world, bytes(sim.trace)


if __name__ == "__main__":
    sys.stdout.buffer.write(run(int(sys.argv[1]))[1])
