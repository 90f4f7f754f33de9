"""A toy broker in a group under faults: counters that only events change.

Run as a program it prints the trace of one seed: `python kit/group/machine.py SEED`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from holdfast.errors import Closed, NoQuorum
from holdfast.group import BEGINNING, Listener, Member, Position, View
from holdfast.system import File
from tests.kit import module_command
from tests.kit.group.checker import Broken, Checker, Recorder
from tests.kit.sim import Delivered, Sim, SimNode, Trouble, Weather, storm

RECORD = struct.Struct(">QQ")
"""Size of a journal record, a position. A sector holds whole records, so no write tears one."""
NAMES = [f"counter-{number}" for number in range(12)]


class Counters(Listener):
    """The state: counters by name.

    Most events change one counter; `fold` halves all and takes their names into the chain.
    """

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


class World:
    """Members that apply the same events; a new member is fed those before it."""

    def __init__(self, sim: Sim, machine: type[Counters] = Counters, gap_s: float = 0.004) -> None:
        self.sim = sim
        self.checker = Checker(len(sim.nodes))
        self.machine = machine
        self.gap_s = gap_s
        self.states: dict[Position, str] = {}
        """Compare states at every primary view, and at every stable position."""
        self.compared = 0
        self.quiet = False
        """Whether members send nothing more."""

    async def program(self, node: SimNode) -> None:
        journal = await self.open_journal(node)
        while True:
            replica = Replica(self, node, journal)
            try:
                await replica.recorder.group.start(replica.recorder)
                await replica.work()
            except (Closed, NoQuorum):
                await node.clock.sleep(0.05 + 0.2 * node.random.fraction())

    async def open_journal(self, node: SimNode) -> File:
        """Check that the disk has all that this node said it holds."""
        if "journal" not in await node.disk.list(""):
            journal = await node.disk.open("journal", create=True)
            await node.disk.sync_directory("")
        else:
            journal = await node.disk.open("journal")
        data = await journal.read(0, await journal.size())
        found = [Position(*RECORD.unpack_from(data, at)) for at in range(0, len(data) - 15, RECORD.size)]
        said = [story.held for member, story in self.checker.stories.items() if member.node == node.number]
        if max(said, default=BEGINNING) > max(found, default=BEGINNING):
            raise Broken(f"node {node.number} said it holds {max(said)}; its disk has {max(found)}")
        return journal

    def missed(self, cut: View) -> list[View | Delivered] | None:
        """Return the views and events before a cut, or None while they are not known."""
        return self.sim.missed(BEGINNING, cut)

    def check_history(self) -> None:
        """I26: check that the history has every event that was stable for a member."""
        history = {
            item.position: (item.member, item.event)
            for item in self.sim.network.history
            if isinstance(item, Delivered)
        }
        last = max((pos.view for pos in history), default=0)
        for pos, event in self.checker.stable.items():
            if pos.view <= last and history.get(pos) != event:
                raise Broken(f"I26: {pos} was stable, and the history has {history.get(pos)} there")

    def note(self, pos: Position, state: str) -> None:
        """I27: check that states at equal positions are equal."""
        self.compared += pos in self.states
        if self.states.setdefault(pos, state) != state:
            raise Broken(f"I27: two states at {pos}:\n{self.states[pos]}\n{state}")


class Replica(Listener):
    """One member with its machine.

    Until it has the state of its cut, it keeps events to apply later.
    """

    def __init__(self, world: World, node: SimNode, journal: File) -> None:
        self.world = world
        self.node = node
        self.journal = journal
        self.machine = world.machine()
        self.ready = False
        self.waiting: list[tuple[Position, Member, bytes] | View] = []
        self.unstable: deque[tuple[Position, str]] = deque()
        group = node.group(explicit_holds=True, window_bytes=1 << 16)
        self.recorder = Recorder(world.checker, group, self)
        self.recorder.holds_by_itself = False
        self.lost = asyncio.Event()

    def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        if self.ready:
            self.apply(pos, member, event)
        else:
            self.waiting.append((pos, member, event))

    def on_view(self, view: View) -> None:
        if view.quorate and self.ready:
            self.apply_view(view)
        elif view.quorate:
            self.waiting.append(view)

    def on_stable(self, pos: Position) -> None:
        while self.unstable and self.unstable[0][0] <= pos:
            self.world.note(*self.unstable.popleft())

    def on_lost(self, reason: str) -> None:
        self.lost.set()

    def apply(self, pos: Position, member: Member, event: bytes) -> None:
        self.machine.on_deliver(pos, member, event)
        self.unstable.append((pos, self.machine.state()))

    def apply_view(self, view: View) -> None:
        # A member with this view has applied the same events before it, or was fed them.
        self.machine.on_view(view)
        self.world.note(view.position, self.machine.state())

    async def work(self) -> None:
        """Get the state of the cut, change counters, and hold events that are on disk."""
        chance, group = self.node.random, self.recorder.group
        while not self.lost.is_set():
            await self.node.clock.sleep(self.world.gap_s * chance.fraction())
            if not self.ready:
                self.catch_up()
                continue
            held = self.machine.at
            await self.journal.write(await self.journal.size(), RECORD.pack(*held))
            await self.journal.sync()
            if self.lost.is_set():
                break
            self.recorder.hold(held)
            for _ in range(0 if self.world.quiet else 1 + chance.integer(6)):
                name = "fold" if chance.integer(20) == 0 else NAMES[chance.integer(len(NAMES))]
                self.recorder.send(json.dumps([name, 1 + chance.integer(100)]).encode())
            await group.drain()

    def catch_up(self) -> None:
        """Get the state from the history of the simulation: there is no state transfer yet."""
        story = self.recorder.story
        cut = next((view for view in story.views if view.is_cut_of(story.member)), None)
        if cut is None:
            return
        past = self.world.missed(cut)
        if past is None:
            return
        for missed in past:
            if isinstance(missed, View):
                self.machine.on_view(missed)
            else:
                self.machine.on_deliver(*missed)
        self.ready = True
        for item in self.waiting:
            if isinstance(item, View):
                self.apply_view(item)
            else:
                self.apply(*item)
        self.waiting.clear()
        self.node.trace("caught up", self.machine.at)


@cache
def first_run(seed: int) -> tuple[World, bytes]:
    """Return the storm of a seed, for all tests that use it."""
    return run(seed)


def run(
    seed: int, machine: type[Counters] = Counters, seconds: float = 10.0, trouble: Trouble | None = None
) -> tuple[World, bytes]:
    """Run a storm over three or five nodes, and check it; return world and trace."""
    with Sim(seed, nodes=3 if seed % 2 else 5) as sim:
        world = World(sim, machine, gap_s=0.008 * len(sim.nodes) ** 2)
        # Slow, so that a fault mostly finds events under way, and noticed early, so that they stay so.
        sim.network.weather = Weather(delay_s=(1e-4, 25e-3), loss=0.05, detection_s=(0.005, 0.3))
        sim.boot(world.program)
        storm(sim, seconds, every_s=(0.02, 1.0), trouble=trouble)
        for node in sorted(world.checker.stories):
            sim.trace.add(node, "story", len(world.checker.stories[node].events))
        for key in sorted(world.states):
            sim.trace.add("state", key, world.states[key])
        world.checker.check()
        world.check_history()
        return world, bytes(sim.trace)


def traces_of_two_processes(file: str | Path) -> int:
    """Count the different traces of two processes that hash strings differently."""
    running = [
        subprocess.Popen(
            [*module_command(file), "7"],
            env=os.environ | {"PYTHONHASHSEED": salt},
            stdout=subprocess.PIPE,
        )
        for salt in ("1", "2")
    ]
    traces = [process.communicate(timeout=60)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    assert all(traces)
    return len(set(traces))


if __name__ == "__main__":
    sys.stdout.buffer.write(run(int(sys.argv[1]))[1])
