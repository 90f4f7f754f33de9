"""When requests begin: in the order of their arrival, while their answers can be written, a few per turn.

Promises upward: for a client that does not read its answers no more of them are computed; however many
requests a connection sends at once, those of the others begin in between. Needs from below: a connection that
says whether its client keeps up with reading.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.wire.connection import Connection
    from holdfast.wire.requests import Request

TURN_REQUESTS = 4
"""Requests of all connections that begin in one turn of the loop; of large ones, one."""


class Turns:
    """All connections that have requests which can begin: each begins one, then it is the next one's turn."""

    def __init__(self) -> None:
        self._ring: deque[Pending] = deque()
        self._scheduled = False

    def wait(self, pending: Pending) -> None:
        """It has something to begin."""
        if not pending.in_turn:
            pending.in_turn = True
            self._ring.append(pending)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        for _ in range(TURN_REQUESTS):
            if not self._ring:
                return
            pending = self._ring.popleft()
            pending.in_turn = False
            large = pending.begin()
            if pending.ready:
                self.wait(pending)
            if large:
                break
        if self._ring and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)


class Pending:
    """The requests of one connection: those that wait, and those under way."""

    def __init__(
        self,
        connection: Connection,
        carry_out: Callable[[Request, Any], Any],
        ended: Callable[[], None],
    ) -> None:
        self._on = connection
        self._carry_out = carry_out
        self._ended = ended
        self._waiting: deque[tuple[Request, Any]] = deque()
        self._under_way: dict[asyncio.Task[None], tuple[Request, int]] = {}
        self._large: asyncio.Task[None] | None = None
        """One whose answer can be large: nothing begins beside it."""
        self.in_turn = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    @property
    def ready(self) -> bool:
        """Is there one that can begin?"""
        return bool(self._waiting) and self._large is None and not self._on.stalled

    def add(self, request: Request, message: Any) -> None:
        self._waiting.append((request, message))
        self.look()

    def look(self) -> None:
        """Something changed: perhaps one can begin."""
        if self.ready:
            self._on.server.turns.wait(self)

    def begin(self) -> bool:
        """Begin the first, if it can; answers whether it is a large one."""
        if not self.ready:
            return False
        request, message = self._waiting.popleft()
        task = self._on.loop.create_task(self._carry_out(request, message), name=request.name)
        self._under_way[task] = (request, message.request_id)
        if request.large:
            self._large = task
        task.add_done_callback(self._done)
        return request.large

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        if self._large is task:
            self._large = None
        self._ended()
        self.look()

    def cancel(self) -> None:
        """The connection has gone."""
        self._waiting.clear()
        for task in self._under_way:
            task.cancel()

    def abandon(self, refuse: Callable[[Request, int], None]) -> list[asyncio.Task[None]]:
        """The server stops: all are refused. Answers those whose end is to be waited for."""
        while self._waiting:
            request, message = self._waiting.popleft()
            refuse(request, message.request_id)
        tasks = dict(self._under_way)
        for task, (request, number) in tasks.items():
            if task.cancel():
                refuse(request, number)
        return [*tasks]
