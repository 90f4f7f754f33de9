"""Clocks whose wall time can be wrong, while their monotonic time is right."""

from __future__ import annotations

from holdfast.system import Clock

SECOND = 1_000_000_000
YEAR = 365 * 24 * 3600 * SECOND


class WrongClock:
    """A clock whose wall time can be set. It stands still while `stopped_ns` is set."""

    def __init__(self, right: Clock) -> None:
        self.right = right
        self.ahead_ns = 0
        self.stopped_ns: int | None = None

    def now_ns(self) -> int:
        if self.stopped_ns is not None:
            return self.stopped_ns
        return max(0, self.right.now_ns() + self.ahead_ns)

    def monotonic_ns(self) -> int:
        return self.right.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await self.right.sleep(seconds)
