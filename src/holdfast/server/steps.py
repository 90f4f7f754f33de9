"""Long answers in small steps: other tasks have the loop after each.

A step is counted in items, not timed, so that a test can say how much is done at once. An item is about
10 µs of work: a consumer or a producer that is shown, or ten acknowledged ranges.
"""

from __future__ import annotations

import asyncio

STEP_ITEMS = 50
"""Items between two turns of the loop: about half a millisecond."""


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
        await asyncio.sleep(0)
