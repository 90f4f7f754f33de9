"""The engines of a group behind one interface, for one suite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.group import Group, Listener, LocalGroup
from holdfast.system import Clock, SystemClock
from tests.kit.group.checker import Checker, Recorder
from tests.kit.sim import Sim, SimNode
from tests.kit.slices import seeds


@dataclass
class Shared:
    """State that the members of one play share."""

    checker: Checker
    members: int
    arrivals: int = 0


class Site:
    """The place of one member of a play."""

    def __init__(self, shared: Shared, number: int, clock: Clock, node: SimNode | None) -> None:
        self.number = number
        self.clock = clock
        self.members = shared.members
        self._shared = shared
        self._node = node
        self._meetings = 0

    def group(self, explicit_holds: bool = False, window_bytes: int = 1 << 16) -> Group:
        if self._node is None:
            return LocalGroup(explicit_holds=explicit_holds)
        return self._node.group(explicit_holds, window_bytes)

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


@dataclass(frozen=True)
class Engine:
    """A way to run a play with `members` members."""

    name: str
    members: int

    def __str__(self) -> str:
        return f"{self.name}-{self.members}"

    def run(self, play: Play) -> Checker:
        """Let each member run the play, and check their calls. `make nightly` draws the seed."""
        for seed in seeds("plays", test=1, nightly=1):
            shared = Shared(Checker(self.members), self.members)
            if self.name == "local":
                asyncio.run(self._local(play, shared))
            else:
                self._sim(play, shared, seed)
            shared.checker.check()
        return shared.checker

    async def _local(self, play: Play, shared: Shared) -> None:
        await play(Site(shared, 1, SystemClock(), None))

    def _sim(self, play: Play, shared: Shared, seed: int) -> None:
        ended: list[int] = []

        async def program(node: SimNode) -> None:
            await play(Site(shared, node.number, node.clock, node))
            ended.append(node.number)

        with Sim(seed, self.members) as sim:
            sim.boot(program)
            sim.run_until(lambda: len(ended) == self.members)


ENGINES = [Engine("local", 1), Engine("sim", 1), Engine("sim", 3), Engine("sim", 7)]
