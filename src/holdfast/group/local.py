"""The group of a single broker: events are stable once its one member holds them."""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.errors import Closed
from holdfast.group.interface import GroupStats, Listener, Member, View
from holdfast.group.member import BaseGroup

FRAME_BYTES = 1 << 20
"""Size from which on a frame is sent: no network has to carry it."""


class LocalGroup(BaseGroup):
    """A group of one member. Events of one turn of the loop are delivered together.

    `view_id` is the id of its only view. A broker that stores positions passes one above the last id, so that
    positions rise across restarts.

    Example:
        >>> import asyncio
        >>> async def main() -> None:
        ...     group = LocalGroup(view_id=7)
        ...     await group.start(Listener())
        ...     group.mcast(b"event")
        ...     await group.drain()
        ...     print(group.stats().stable)
        >>> asyncio.run(main())
        7:1
    """

    alone = True
    frame_bytes = FRAME_BYTES

    def __init__(self, node: int = 1, view_id: int = 1, explicit_holds: bool = False) -> None:
        super().__init__(Member(node, view_id), explicit_holds)
        self._view_id = view_id
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._turn: asyncio.Future[None] | None = None

    async def start(self, listener: Listener) -> None:
        self._begin(listener)
        me = (self._member,)
        self._install(View(self._view_id, members=me, joined=me, left=(), quorate=True))

    async def leave(self) -> None:
        await self._delivered_all()
        if self._ended is None:
            self._ended = "it left"

    def mcast(self, event: bytes) -> None:
        self._require_ready(event)
        self._waiting.append(bytes(event))
        self._waiting_bytes += len(event)
        if self._turn is None:
            loop = asyncio.get_running_loop()
            self._turn = loop.create_future()
            loop.call_soon(self._take_turn, self._turn)

    async def drain(self) -> None:
        await self._delivered_all()
        if self._ended is not None and self._ended != "it left":
            raise Closed(f"member {self._member} is out of the group: {self._ended}")

    def stats(self) -> GroupStats:
        waiting = self._waiting_bytes
        return GroupStats(
            self._member, self._view, self._delivered, self._held, self._stable, waiting, waiting
        )

    async def _delivered_all(self) -> None:
        while self._turn is not None:
            await asyncio.shield(self._turn)

    def _take_turn(self, turn: asyncio.Future[None]) -> None:
        """Deliver the events submitted before this turn. Events submitted meanwhile wait for the next."""
        try:
            for _ in range(len(self._waiting)):
                event = self._waiting.popleft()
                self._waiting_bytes -= len(event)
                self._deliver(self._member, event)
        finally:
            self._turn = None
            if self._waiting:
                self._turn = turn.get_loop().create_future()
                turn.get_loop().call_soon(self._take_turn, self._turn)
            if not turn.done():
                turn.set_result(None)

    def _holds_changed(self) -> None:
        self._tell_stable(self._held)

    def _end(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
