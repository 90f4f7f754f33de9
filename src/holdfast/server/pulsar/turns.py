"""Start requests in their order, a few per turn, while answers can be written.

Promises upward: no answers are computed for a client that does not read them. Connections take turns, so a
connection with many requests does not delay those of others. Needs from below: a connection that reports
whether its client keeps up with reading.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection
    from holdfast.server.pulsar.requests import Request

TURN_REQUESTS = 4
"""Requests of all connections that begin in one turn of the loop; of large ones, one."""

LARGE_BYTES = 8 << 10
"""A request of more bytes is large: its cost grows with them."""

REQUESTS_BYTES = 8 << 20
"""Bytes of a connection's waiting and running requests, above which it is not read."""


class Turns:
    """The connections with requests that can begin: each begins one in its turn."""

    def __init__(self) -> None:
        self._ring: deque[Pending] = deque()
        self._scheduled = False

    def wait(self, pending: Pending) -> None:
        """Queue a connection that has a request to begin."""
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
        self._waiting: deque[tuple[Request, Any, int]] = deque()
        self._under_way: dict[asyncio.Task[None], tuple[Request, int, int]] = {}
        self.bytes = 0
        """The received bytes of all requests."""
        self._large: asyncio.Task[None] | None = None
        """A running request whose answer can be large: no other begins meanwhile."""
        self.in_turn = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    @property
    def ready(self) -> bool:
        """Whether a request can begin."""
        return bool(self._waiting) and self._large is None and not self._on.stalled

    def add(self, request: Request, message: Any, size: int) -> None:
        self._waiting.append((request, message, size))
        self._count(size)
        self.look()

    @property
    def room(self) -> int:
        """Requests that may be added now."""
        left = self._on.options.requests_in_flight - len(self)
        return 0 if self.bytes >= REQUESTS_BYTES else max(0, left)

    @property
    def few(self) -> bool:
        """Whether at least half of the limits is free."""
        return 2 * len(self) <= self._on.options.requests_in_flight and 2 * self.bytes <= REQUESTS_BYTES

    def look(self) -> None:
        """Queue the connection, if a request can begin."""
        if self.ready:
            self._on.server.turns.wait(self)

    def begin(self) -> bool:
        """Begin the first request, if it can; return whether it is large."""
        if not self.ready:
            return False
        request, message, size = self._waiting.popleft()
        task = self._on.loop.create_task(self._carry_out(request, message), name=request.name)
        self._under_way[task] = (request, message.request_id, size)
        if request.large:
            self._large = task
        task.add_done_callback(self._done)
        return request.large or size > LARGE_BYTES

    def _done(self, task: asyncio.Task[None]) -> None:
        _, _, size = self._under_way.pop(task)
        self._count(-size)
        if self._large is task:
            self._large = None
        self._ended()
        self.look()

    def _count(self, size: int) -> None:
        """Count bytes; only a sum above `LARGE_BYTES` counts in the budget."""
        before, self.bytes = self.bytes, self.bytes + size
        if max(before, self.bytes) > LARGE_BYTES:
            held = self.bytes if self.bytes > LARGE_BYTES else 0
            self._on.server.budget.hold((self._on, "requests"), held, self._on.crowded_out)

    def cancel(self) -> None:
        """Cancel all requests at the end of the connection."""
        self._count(-self.bytes)
        self._waiting.clear()
        for task, (request, number, _) in self._under_way.items():
            self._under_way[task] = (request, number, 0)
            task.cancel()

    def abandon(self, refuse: Callable[[Request, int], None]) -> list[asyncio.Task[None]]:
        """Refuse all requests when the server stops; return the tasks to wait for."""
        while self._waiting:
            request, message, size = self._waiting.popleft()
            self._count(-size)
            refuse(request, message.request_id)
        tasks = dict(self._under_way)
        for task, (request, number, _) in tasks.items():
            if task.cancel():
                refuse(request, number)
        return [*tasks]
