"""Compute long answers in small steps: other tasks have the loop after each.

A step is counted in items, not timed, so that a test can bound its work. An item is about 10 µs of work: a
consumer or producer in an answer, or ten acknowledged ranges. In each turn of the loop only one answer takes
a step, however many are computed at the same time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

STEP_ITEMS = 50
"""Items between two turns of the loop: about half a millisecond."""


class Line:
    """Queues the work of one loop that waits for its next step."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    def wait(self) -> asyncio.Future[None]:
        """Wait at the end of the line."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._next)
        return turn

    def _next(self) -> None:
        self._scheduled = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # not cancelled
                turn.set_result(None)
                break
        if self._waiting:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)


_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, Line] = WeakKeyDictionary()
"""A line has no reference to its loop, which would otherwise stay here for ever."""


class Steps:
    """Counts the work of one answer.

    Example:
        >>> steps = Steps()
        >>> async def answer() -> int:
        ...     for _ in range(3 * STEP_ITEMS):
        ...         await steps.did()
        ...     return steps.pauses
        >>> asyncio.run(answer())
        3
    """

    __slots__ = ("_items", "pauses")

    def __init__(self) -> None:
        self._items = 0.0
        self.pauses = 0
        """Turns that other tasks were given."""

    async def did(self, items: float = 1) -> None:
        """Count items; pause when the step is complete."""
        self._items += items
        if self._items >= STEP_ITEMS:
            await self.pause()

    async def pause(self) -> None:
        """Give other tasks a turn."""
        self._items = 0.0
        self.pauses += 1
        loop = asyncio.get_running_loop()
        line = _lines.get(loop)
        if line is None:
            line = _lines[loop] = Line()
        await line.wait()
