"""The engines of a group behind one interface, for one suite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.group import Group, Listener, LocalGroup
from holdfast.system import Clock, SystemClock
from tests.kit.group.checker import Checker, Recorder
from tests.kit.sim import Sim, SimNode
from tests.kit.sim.totem import TotemSim
from tests.kit.slices import seeds


@dataclass
class Shared:
    """State that the members of one play share."""

    checker: Checker
    members: int
    arrivals: int = 0


class Site:
    """The place of one member of a play."""

    def __init__(self, shared: Shared, number: int, clock: Clock, make: Callable[[bool, int], Group]) -> None:
        self.number = number
        self.clock = clock
        self.members = shared.members
        self._shared = shared
        self._make = make
        self._meetings = 0

    def group(self, explicit_holds: bool = False, window_bytes: int = 1 << 16) -> Group:
        return self._make(explicit_holds, window_bytes)

    async def start(self, group: Group, behind: Listener | None = None, told: bool = False) -> Recorder:
        """Start, and wait until all members are in one view. `told`: with explicit holds."""
        recorder = Recorder(self._shared.checker, group, behind)
        recorder.holds_by_itself = not told
        await group.start(recorder)
        await self.until(lambda: len(recorder.story.views[-1].members) == self.members)
        await self.meet()
        return recorder

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.clock.sleep(0.001)

    async def meet(self) -> None:
        """Wait until all members of the play have made the same call."""
        self._meetings += 1
        self._shared.arrivals += 1
        await self.until(lambda: self._shared.arrivals >= self._meetings * self.members)


Play = Callable[[Site], Awaitable[None]]


@dataclass
class Engine:
    """A way to run a play with `members` members."""

    name: str
    members: int
    runs: int = 0

    @property
    def simulated(self) -> bool:
        """Whether a run raises errors of callbacks, as the simulation does."""
        return self.name in ("sim", "totem")

    def __str__(self) -> str:
        return f"{self.name}-{self.members}"

    def run(self, play: Play) -> Checker:
        """Let each member run the play, and check their calls. `make nightly` draws the seed."""
        self.runs += 1
        for seed in seeds("plays", test=1, nightly=1):
            shared = Shared(Checker(self.members), self.members)
            if self.simulated:
                self._sim(play, shared, seed)
            else:
                asyncio.run(self._real(play, shared))
            shared.checker.check()
        return shared.checker

    async def _real(self, play: Play, shared: Shared) -> None:
        def make(explicit_holds: bool, window_bytes: int) -> Group:
            return LocalGroup(explicit_holds=explicit_holds)

        await play(Site(shared, 1, SystemClock(), make))

    def _sim(self, play: Play, shared: Shared, seed: int) -> None:
        ended: list[int] = []

        async def program(node: SimNode) -> None:
            await play(Site(shared, node.number, node.clock, node.group))
            ended.append(node.number)

        with (TotemSim if self.name == "totem" else Sim)(seed, self.members) as sim:
            sim.boot(program)
            sim.run_until(lambda: len(ended) == self.members)


ENGINES = [
    Engine("local", 1),
    Engine("sim", 1),
    Engine("sim", 3),
    Engine("sim", 7),
    Engine("totem", 1),
    Engine("totem", 3),
]
