"""Time as an interface, so that a simulation can own it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The wall clock, a monotonic clock, and a sleep.

    Example:
        >>> clock: Clock = SystemClock()
        >>> clock.monotonic_ns() <= clock.monotonic_ns()
        True
    """

    def now_ns(self) -> int:
        """Return the wall clock in ns since the epoch. It may jump."""

    def monotonic_ns(self) -> int:
        """Return ns since some moment of this process; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Sleep at least this long."""


class SystemClock:
    """The machine's clocks."""

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
