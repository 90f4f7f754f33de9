"""A simulated Corosync below the `cpg` engine: rings that give lists and messages.

Lists change as in Corosync. After a split a process first gets the list of those that came with it. Then the
others join, one by one or together. Messages that were not ordered in the
old ring are ordered in the new one. The carrier is busy at times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from holdfast.group.cpg import CpgGroup
from holdfast.group.cpg.carrier import Carrier, CarrierLost, Item, Listed, Message, Process
from holdfast.group.cpg.outbox import Outbox
from holdfast.group.interface import WINDOW_BYTES, Group, Member, View
from tests.kit.sim.loop import CURRENT, Life
from tests.kit.sim.network import Endpoint, Entry, Network, Ring
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.world import Sim, SimNode

BUSY = 0.02
"""Share of sends that the carrier refuses for now."""


class Totem(Network):
    """Rings that promise what Corosync promises."""

    def _drop_discontinued(self, side: list[Endpoint], last: Ring | None) -> list[Endpoint]:
        return side

    def _open(self, side: list[Endpoint], last: Ring | None) -> None:
        self._views += 1
        members = tuple(end.member for end in side)
        ring = Ring(View(self._views, members, (), (), quorate=False), side)
        self._trace.add("net", "ring", self._views, *members)
        came_with = {end: [each for each in side if each.ring is end.ring or each is end] for end in side}
        for end in side:
            listed = [each.member for each in came_with[end]] if end.ring is not None else [end.member]
            joining = [each.member for each in side if each.member not in listed]
            if end.ring is not None and set(listed) != getattr(end, "listed", set()):
                self._list(end, listed)
            if joining and self._chance.happens(0.5):
                listed += joining[:-1]
                self._list(end, listed)
            if joining or end.ring is None:
                self._list(end, [each.member for each in side])
        for end in side:
            end.ring, end.received, end.handed_up = ring, set(), 0

    def _list(self, end: Endpoint, members: list[Member]) -> None:
        end.listed = set(members)  # type: ignore[attr-defined]
        end.push(Listed(frozenset(Process(*member) for member in members)))  # type: ignore[arg-type]


class SimCarrier(Carrier):
    """A connection to the simulated Corosync."""

    def __init__(self, member: Member, network: Totem, chance: SeededRandomness, context: Context) -> None:
        self.endpoint = Endpoint(member, self._arrived)
        self._network = network
        self._chance = chance
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._notify: Callable[[], None] | None = None
        self._due = False

    async def join(self, arrived: Callable[[], None]) -> Process:
        self._notify = arrived
        self._network.join(self.endpoint)
        return Process(*self.endpoint.member)

    def take(self) -> Item | None:
        while self.endpoint.inbox:
            item = self.endpoint.inbox.popleft()
            if isinstance(item, Entry):
                self.endpoint.inbox_bytes -= len(item.event)
                return Message(Process(*item.sender.member), item.event)
            if isinstance(item, Listed):
                return item
        return None

    def send(self, data: bytes) -> bool:
        if not self.endpoint.up:
            raise CarrierLost("the connection to Corosync is closed")
        if self._chance.happens(BUSY):
            return False
        self._network.submit(self.endpoint, data)
        return True

    async def leave(self) -> None:
        self._notify = None
        if self.endpoint.up:
            self._network.leave(self.endpoint)
        while self.endpoint in self._network.endpoints:
            await asyncio.sleep(0.001)

    def close(self) -> None:
        self._notify = None
        if self.endpoint.up and not self.endpoint.leaving:
            self.endpoint.up = False
            self._network._changed(self._network.weather.change_s)

    def _arrived(self) -> None:
        if self._notify is not None and not self._due:
            self._due = True
            self._loop.call_later(self._chance.between(0, 100e-6), self._call, context=self._context)

    def _call(self) -> None:
        self._due = False
        if self._notify is not None:
            self._notify()


class TotemNode(SimNode):
    """A node whose groups are members of the `cpg` engine."""

    _world: TotemSim

    def group(  # type: ignore[override]
        self,
        explicit_holds: bool = False,
        window_bytes: int = WINDOW_BYTES,
        incarnation: int | None = None,
        view_floor: int = 0,
    ) -> Group:
        world = self._world
        member = world.new_member(self.number, incarnation)
        chance = SeededRandomness(world.seed, f"group {member}")
        context = copy_context()
        context.run(CURRENT.set, self.life)
        carrier = SimCarrier(member, world.totem, chance, context)
        self._endpoint = carrier.endpoint
        return world.engine(
            name="sim",
            node=self.number,
            nodes=world.nodes,
            incarnation=member.incarnation,
            view_floor=max(view_floor, world.view_floor(self.number)),
            explicit_holds=explicit_holds,
            window_bytes=window_bytes,
            carrier=carrier,
        )


class Hasty(CpgGroup):
    """An engine with short waits, a small window and small frames."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "window_bytes": 300, "answer_s": 0.4, "evict_s": 0.6})
        self._outbox = Outbox(batch_bytes=12, fragment_bytes=7)


class Small(CpgGroup):
    """An engine for whole brokers, with small frames and short waits."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "window_bytes": 4000, "answer_s": 0.4, "evict_s": 0.6})
        self._outbox = Outbox(batch_bytes=600, fragment_bytes=150)


class TotemSim(Sim):
    """A simulation whose nodes run the `cpg` engine on a simulated Corosync."""

    def __init__(self, seed: int, nodes: int) -> None:
        super().__init__(seed, nodes)
        self.engine: type[CpgGroup] = CpgGroup
        self.totem = Totem(self.loop, SeededRandomness(seed, "network"), nodes, self.trace)
        self.network = self.totem
        self.view_floor: Callable[[int], int] = lambda node: 0
        """The highest view id that a node has stored."""

    def _new_node(self, number: int, life: Life) -> SimNode:
        node = TotemNode(self, number, life)
        node._world = self
        return node


class SmallTotemSim(TotemSim):
    """A simulated Corosync whose members are quick to leave others out."""

    def __init__(self, seed: int, nodes: int) -> None:
        super().__init__(seed, nodes)
        self.engine = Small
