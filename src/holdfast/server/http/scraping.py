"""Make metrics pages in small steps, one for all requests of about the same time.

Promises upward: one page is being made at a time, and all requests wait for it. At most two pages are in
memory. Making one blocks the loop for a few milliseconds at a time. Needs from below: `Broker.collect`, which
pauses after each topic and each subscription.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.broker import Page

if TYPE_CHECKING:
    from holdfast.broker import Broker
    from holdfast.server.budget import Budget

STEP_S = 0.0005
"""Time of a step; then other tasks have the loop."""
SMALL_S = 0.02
"""A page that takes less time is made for each request. A larger one is reused for three times that time: at
most a quarter of the loop's time is spent on pages."""
PAGES_MAX = 2
"""Pages in memory: the newest, and one that slow clients still read."""


class Sheet:
    """A finished page."""

    def __init__(self, chunks: list[memoryview], took_s: float) -> None:
        self.chunks = chunks
        self.size = sum(map(len, chunks))
        self.fresh_s = 0.0 if took_s < SMALL_S else 3 * took_s


class Scrapes:
    """The metrics pages of one broker."""

    def __init__(self, broker: Broker, budget: Budget, finish: Callable[[Page], None], page: Page) -> None:
        self._broker = broker
        self._budget = budget
        self._finish = finish
        self._empty = page
        self._fresh: Sheet | None = None
        self._newest: weakref.ref[Sheet] = weakref.ref(Sheet([], 0.0))
        """The last page, while a client reads it."""
        self._alive: weakref.WeakSet[Sheet] = weakref.WeakSet()
        self._making: asyncio.Task[Sheet] | None = None
        self.made = 0
        """Pages made since the start."""

    async def sheet(self) -> Sheet:
        """Return a page that is fresh enough, perhaps one of another request."""
        newest = self._newest()
        if self._fresh is not None:
            return self._fresh
        if newest is not None and len(self._alive) >= PAGES_MAX:
            return newest
        if self._making is None:
            self._budget.require(0 if newest is None else newest.size, "a page of metrics")
            self._making = asyncio.get_running_loop().create_task(self._make(), name="metrics")
            self._making.add_done_callback(self._ended)
        return await asyncio.shield(self._making)

    def _ended(self, task: asyncio.Task[Sheet]) -> None:
        self._making = None  # with its page
        if not task.cancelled():
            task.exception()  # retrieved; the waiting requests get it, too

    async def _make(self) -> Sheet:
        loop = asyncio.get_running_loop()
        page, worked_s, step = Page(self._empty.help), 0.0, loop.time()
        for _ in self._broker.collect(page):
            if loop.time() - step >= STEP_S:
                worked_s += loop.time() - step
                await asyncio.sleep(0)
                step = loop.time()
        self._finish(page)
        sheet = Sheet([*page.chunks()], worked_s + loop.time() - step)
        self.made += 1
        self._newest = weakref.ref(sheet)
        self._alive.add(sheet)
        key = id(sheet)
        self._budget.hold(("metrics", key), sheet.size)
        weakref.finalize(sheet, self._budget.hold, ("metrics", key), 0)
        if sheet.fresh_s:
            self._fresh = sheet
            loop.call_later(sheet.fresh_s, self._forget, weakref.ref(sheet))
        return sheet

    def _forget(self, sheet: weakref.ref[Sheet]) -> None:
        """Stop reusing an old page; it is freed after its last reader."""
        if self._fresh is sheet():
            self._fresh = None

    def stop(self) -> None:
        if self._making is not None:
            self._making.cancel()


def pieces(chunks: list[memoryview], size: int) -> Iterator[memoryview]:
    """Cut the chunks into pieces of at most this size.

    Example:
        >>> [bytes(each) for each in pieces([memoryview(b"abcde")], 2)]
        [b'ab', b'cd', b'e']
    """
    for chunk in chunks:
        for at in range(0, len(chunk), size):
            yield chunk[at : at + size]
