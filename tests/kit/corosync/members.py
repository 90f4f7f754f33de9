"""Members on Corosync daemons in namespaces: three of them on one loop of this process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.demo.cluster.nodes import Nodes
from holdfast.group import Group, View
from holdfast.group.cpg import CpgGroup
from holdfast.group.cpg.library import Cpg
from holdfast.system import SystemClock
from tests.kit.group.checker import Checker, Recorder
from tests.kit.group.engines import Engine, Play, Shared, Site

T = TypeVar("T")

NAMES = itertools.count(1)
INCARNATIONS = itertools.count(1)
LIMIT_S = 30.0


class Inside(Cpg):
    """A connection to the Corosync of a node, from this process."""

    def __init__(self, name: str, nodes: Nodes, number: int) -> None:
        super().__init__(name)
        self._nodes = nodes
        self._number = number

    def _place(self, call: Callable[[], T]) -> T:
        return self._nodes.inside(self._number, call)


@dataclass
class CpgEngine(Engine):
    """Runs plays with one member on each node."""

    nodes: Nodes = field(default=None, kw_only=True)  # type: ignore[assignment]

    async def _real(self, play: Play, shared: Shared) -> None:
        name = f"play-{next(NAMES)}"
        groups: list[CpgGroup] = []

        def making(number: int) -> Callable[[bool, int], Group]:
            def make(explicit_holds: bool, window_bytes: int) -> Group:
                groups.append(
                    member(self.nodes, name, number, explicit_holds=explicit_holds, window_bytes=window_bytes)
                )
                return groups[-1]

            return make

        try:
            async with asyncio.timeout(LIMIT_S):
                await asyncio.gather(
                    *(
                        play(Site(shared, number, SystemClock(), making(number)))
                        for number in self.nodes.numbers
                    )
                )
        finally:
            for group in groups:
                group._stop()
                group._carrier.close()


def member(nodes: Nodes, name: str, number: int, view_floor: int = 0, **options: Any) -> CpgGroup:
    """Return a new member on a node."""
    return CpgGroup(
        name=name,
        node=number,
        nodes=nodes.numbers,
        incarnation=next(INCARNATIONS),
        view_floor=view_floor,
        carrier=options.pop("carrier", None) or Inside(name, nodes, number),
        **options,
    )


class Band:
    """Recording members on the nodes, and their checker."""

    def __init__(self, nodes: Nodes, **options: Any) -> None:
        self.nodes = nodes
        self.name = f"band-{next(NAMES)}"
        self.checker = Checker(len(nodes.numbers), uniform=True)
        self.at: dict[int, Recorder] = {}
        self.options: dict[str, Any] = {"explicit_holds": False, **options}

    async def join(self, *numbers: int) -> None:
        """Start members on these nodes, or on all; wait for their common view."""
        wanted = numbers or tuple(self.nodes.numbers)
        for number in wanted:
            floor = max(
                (view.id for story in self.checker.stories.values() for view in story.views), default=0
            )
            group = member(self.nodes, self.name, number, floor, **self.options)
            self.at[number] = Recorder(self.checker, group)
        await asyncio.gather(*(self.at[number].group.start(self.at[number]) for number in wanted))
        await self.until(lambda: self.together(*self.at))

    def group(self, number: int) -> CpgGroup:
        group = self.at[number].group
        assert isinstance(group, CpgGroup)
        return group

    def view(self, number: int) -> View:
        return self.at[number].story.views[-1]

    def together(self, *numbers: int) -> bool:
        """Return whether exactly these nodes have living members, all in one view."""
        alive = [number for number in self.at if self.at[number].story.ended is None]
        views = {self.view(number).id for number in alive if self.at[number].story.views}
        return (
            sorted(alive) == sorted(numbers)
            and len(views) == 1
            and all(self.at[number].story.views for number in alive)
            and [each.node for each in self.view(alive[0]).members] == sorted(numbers)
        )

    async def until(self, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        end = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"it does not hold after {limit_s} s: {self.words()}")
            await asyncio.sleep(0.002)

    def words(self) -> str:
        return "; ".join(
            f"{story.member}: at {story.last}, stable {story.stable}, {story.views[-1:]}, ended {story.ended}"
            for story in self.checker.stories.values()
        )

    async def close(self) -> None:
        for recorder in self.at.values():
            if recorder.story.ended is None:
                recorder.story.ended = "closed"
                assert isinstance(recorder.group, CpgGroup)
                recorder.group._ended = "closed"
                recorder.group._end()


@contextlib.asynccontextmanager
async def band(nodes: Nodes, *at: int, **options: Any) -> AsyncIterator[Band]:
    """Give members of one view; check the calls to them at the end."""
    made = Band(nodes, **options)
    try:
        await made.join(*at)
        yield made
        made.checker.check()
    finally:
        await made.close()
