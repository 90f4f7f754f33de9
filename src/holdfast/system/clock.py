"""Time as an interface, so that a simulation can own it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks and a sleep, in the place of the operating system's.

    Example:
        >>> clock: Clock = SystemClock()
        >>> clock.monotonic_ns() <= clock.monotonic_ns()
        True
    """

    def now_ns(self) -> int:
        """Return ns since the epoch; the wall clock may jump, and nodes differ."""

    def monotonic_ns(self) -> int:
        """Since some moment of this life of the node; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """At least that long."""


class SystemClock:
    """The machine's clocks."""

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
