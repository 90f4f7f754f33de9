"""A simulated member: passes the network's items to its listener in the node's time."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context

from holdfast.errors import Closed
from holdfast.group.cpg.progress import HELD_WINDOWS
from holdfast.group.interface import WINDOW_BYTES, GroupStats, Listener, Member, Position, View
from holdfast.group.member import BaseGroup
from tests.kit.sim.network import Endpoint, Entry, Network
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.trace import Trace, digest

LEFT = "it left"


class SimGroup(BaseGroup):
    """The `sim` engine. Created by `SimNode.group`."""

    def __init__(
        self,
        member: Member,
        network: Network,
        chance: SeededRandomness,
        trace: Trace,
        context: Context,
        explicit_holds: bool = False,
        window_bytes: int = WINDOW_BYTES,
        view_floor: int = 0,
    ) -> None:
        super().__init__(member, explicit_holds)
        self.endpoint = Endpoint(member, self._arrived)
        self._network = network
        self._chance = chance
        self._trace = trace
        self._context = context
        self._window_bytes = window_bytes
        self._view_floor = view_floor
        self._loop = asyncio.get_running_loop()
        self._pump_due = False
        self._unplaced: deque[int] = deque()
        """Sizes of own events that this member has not delivered yet."""
        self._placed: deque[tuple[Position, int]] = deque()
        """Own events that this member has delivered, and another may not have."""
        self._in_flight_bytes = 0
        self._unheld: deque[tuple[Position, int]] = deque()
        """Own events that this member has delivered, and another may not hold."""
        self._unheld_bytes = 0
        self._changed: asyncio.Future[None] = self._loop.create_future()

    # -- the interface ---------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> None:
        self._begin(listener)
        self._network.join(self.endpoint, self._view_floor)
        while self._view is None and self._ended is None:
            await self._change()
        if self._view is None:
            raise Closed(f"member {self._member} is out of the group: {self._ended}")

    async def leave(self) -> None:
        while self._unplaced and self._ended is None:
            await self._change()
        if self._view is None and self._ended is None:
            self._ended = LEFT
            self._network.kill(self.endpoint)
        if self._ended is None:
            self._network.leave(self.endpoint)
        while self._ended is None:
            await self._change()

    def mcast(self, event: bytes) -> None:
        self._require_ready(event)
        self._unplaced.append(len(event))
        self._in_flight_bytes += len(event)
        self._unheld_bytes += len(event)
        self._network.submit(self.endpoint, bytes(event))

    @property
    def blocked(self) -> bool:
        full = self._in_flight_bytes > self._window_bytes
        return (full or self._unheld_bytes > HELD_WINDOWS * self._window_bytes) and self._ended is None

    async def drain(self) -> None:
        while self.blocked:
            await self._change()
        if self._ended is not None and self._ended != LEFT:
            raise Closed(f"member {self._member} is out of the group: {self._ended}")

    def stats(self) -> GroupStats:
        return GroupStats(
            self._member,
            self._view,
            self._delivered,
            self._held,
            self._stable,
            self._in_flight_bytes,
            self.endpoint.inbox_bytes,
        )

    # -- from the network ------------------------------------------------------------------------------

    def _arrived(self) -> None:
        if not self._pump_due and self._ended is None:
            self._pump_due = True
            self._loop.call_later(self._chance.between(0, 100e-6), self._pump, context=self._context)

    def _pump(self) -> None:
        """Call the listener once, so that other work of the node is not starved."""
        self._pump_due = False
        if self._ended is not None:
            return
        if self.endpoint.inbox:
            self._take(self.endpoint.inbox.popleft())
        if self._ended is None:
            self._tell_stable(self._majority_holds())
            self._settle_own()
            self._wake()
        if self.endpoint.inbox:
            self._arrived()

    def _take(self, item: Entry | View | str) -> None:
        if isinstance(item, Entry):
            self.endpoint.inbox_bytes -= len(item.event)
            if self._view is not None and self._view.quorate:
                own = item.sender is self.endpoint
                if own:
                    pos = Position(self._view.id, self._delivered.index + 1)
                    self._placed.append((pos, self._unplaced.popleft()))
                    self._unheld.append(self._placed[-1])
                self._deliver(item.sender.member, item.event)
                self._trace.add(
                    self._member, "deliver", self._delivered, item.sender.member, digest(item.event)
                )
        elif isinstance(item, View):
            self._trace.add(self._member, "view", item.id)
            self._install(item)
        elif item == LEFT:
            self._trace.add(self._member, "left")
            self._ended = LEFT
            self._wake()
        else:
            self._lose(item)

    def _majority_holds(self) -> Position:
        """Return the highest position that a majority holds, by words of the current view.

        A word about an earlier view does not count, nor any word once the ring of the view is broken.
        An event that a member delivered on its way out may be another one elsewhere.
        """
        ring = self.endpoint.ring
        if ring is None or self._view is None or ring.view.id != self._view.id:
            return self._stable
        words = (word[1] for word in self.endpoint.known.values())
        held = sorted((held for held in words if held.view == ring.view.id), reverse=True)
        needed = self._network.majority
        return held[needed - 1] if len(held) >= needed else self._stable

    def _settle_own(self) -> None:
        """Remove own events from the window when every member of the view has them."""
        if self._view is None:
            return
        known = self.endpoint.known
        words = [known[member][0] if member in known else Position(0, 0) for member in self._view.members]
        while self._placed and self._placed[0][0] <= min(words):
            self._in_flight_bytes -= self._placed.popleft()[1]
        view = self._view.id
        holders = [
            known[each][1] for each in self._view.members if each in known and known[each][1].view == view
        ]
        while holders and self._unheld and self._unheld[0][0] <= min(holders):
            self._unheld_bytes -= self._unheld.popleft()[1]

    # -- what BaseGroup asks for -----------------------------------------------------------------------

    def _tell_stable(self, pos: Position) -> None:
        before = self._stable
        super()._tell_stable(pos)
        if self._stable > before:
            self._trace.add(self._member, "stable", self._stable)

    def _holds_changed(self) -> None:
        self._network.say(self.endpoint, self._delivered, self._held)

    def _end(self) -> None:
        self._trace.add(self._member, "lost", self._ended)
        self.endpoint.inbox.clear()
        self.endpoint.inbox_bytes = 0
        if self.endpoint.up:
            self._network.kill(self.endpoint)
        self._wake()

    async def _change(self) -> None:
        await asyncio.shield(self._changed)

    def _wake(self) -> None:
        done, self._changed = self._changed, self._loop.create_future()
        done.set_result(None)
