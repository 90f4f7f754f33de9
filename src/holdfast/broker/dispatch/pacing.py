"""Rates: how many messages and bytes may pass in a time.

A bucket fills at its rate up to a burst. Takers may overdraw it: each waits until its own debt is paid. So
they pass in the order in which they took, and none waits for ever (**I322**). Waits are of the monotonic
clock, and need no look before their end. A change of the rate ends all waits at once.
"""

from __future__ import annotations

import asyncio

from holdfast.system import Clock

STEPS_S = 20
"""Reads per second at most of a subscription with a rate."""

RATE_MOST = 1e18
"""Tokens per second: more is the same. A period may be the smallest number above 0."""

READ_MOST = 1000
"""Entries of one read, at any rate."""


class Bucket:
    """Tokens for messages and for bytes.

    Example:
        >>> from holdfast.system import SystemClock
        >>> bucket = Bucket(SystemClock(), messages=10, size=0)
        >>> bucket.take(10, 5000) <= 0, 0.9 < bucket.take(10, 5000) <= 1.0
        (True, True)
    """

    __slots__ = ("_burst_ns", "_clock", "_full_ns", "rates", "retired", "sleeps", "waits")  # there are many

    def __init__(self, clock: Clock, messages: float, size: float, period_s: float = 1.0) -> None:
        """`messages` and `size` (bytes) in each period; 0: no limit."""
        self.rates = _rates(messages, size, period_s)
        """Per second."""
        self.waits = 0
        """How often a taker had to wait."""
        self.retired = False
        """It was replaced: takers need not wait any more."""
        self.sleeps: set[asyncio.Future[None]] | None = None
        """Of the takers that wait; None until one did."""
        self._clock = clock
        self._burst_ns = _burst_ns(period_s)
        now = clock.monotonic_ns()
        self._full_ns = [now, now]
        """When messages and bytes are at their burst again, if nothing is taken."""

    def take(self, messages: int, size: int) -> float:
        """Take tokens, and return the seconds until they are paid; at most 0: no wait."""
        now = self._clock.monotonic_ns()
        due = now
        for at, amount in enumerate((messages, size)):
            rate = self.rates[at]
            if rate > 0:
                self._full_ns[at] = max(self._full_ns[at], now) + int(amount / rate * 1e9)
                due = max(due, self._full_ns[at] - self._burst_ns)
        self.waits += due > now
        return (due - now) / 1e9

    def give_back(self, messages: int, size: int) -> None:
        """Return tokens that were taken in vain. Takers that wait already are not sooner."""
        for at, amount in enumerate((messages, size)):
            if self.rates[at] > 0:
                self._full_ns[at] -= int(amount / self.rates[at] * 1e9)

    def has(self, messages: int) -> bool:
        """Return whether so many messages are paid at once."""
        now, rate = self._clock.monotonic_ns(), self.rates[0]
        full = max(self._full_ns[0], now) + (int(messages / rate * 1e9) if rate else 0)
        return full - self._burst_ns <= now

    def is_of(self, messages: float, size: float, period_s: float) -> bool:
        """Return whether it is of this rate, with this burst."""
        return (self.rates, self._burst_ns) == (_rates(messages, size, period_s), _burst_ns(period_s))

    @property
    def debt_s(self) -> float:
        """Seconds until all that was taken is paid."""
        now = self._clock.monotonic_ns()
        return max(0, *(each - self._burst_ns - now for each in self._full_ns)) / 1e9

    def retire(self) -> None:
        """End all waits: another bucket takes its place."""
        self.retired = True
        for each in self.sleeps or ():
            each.cancel()


def _rates(messages: float, size: float, period_s: float) -> tuple[float, float]:
    return min(messages / period_s, RATE_MOST), min(size / period_s, RATE_MOST)


def _burst_ns(period_s: float) -> int:
    return int(period_s * 1e9)


class Pace:
    """The rates that apply to one subscription: its own, and that of its topic."""

    def __init__(self, clock: Clock, *buckets: Bucket) -> None:
        self._clock = clock
        self._buckets = buckets
        self.waiting = False
        """A read waits until its messages may be delivered."""
        messages, sizes = zip(*(each.rates for each in buckets), strict=True)
        slowest = min((each for each in messages if each), default=0.0)
        self.read_entries = max(1, min(READ_MOST, int(slowest / STEPS_S))) if slowest else READ_MOST
        """Largest number of entries of a read: others of the topic have their turn between reads."""
        slowest = min((each for each in sizes if each), default=0.0)
        self.read_bytes = max(1, int(slowest / STEPS_S)) if slowest else 1 << 62

    @property
    def waits(self) -> int:
        """How often a read had to wait, for any rate."""
        return sum(each.waits for each in self._buckets)

    async def wait(self, messages: int, size: int) -> None:
        """Wait until so much may be delivered."""
        delay_s = max(each.take(messages, size) for each in self._buckets)
        if delay_s > 0:
            self.waiting = True
            try:
                await paid(self._clock, delay_s, *self._buckets)
            finally:
                self.waiting = False


async def paid(clock: Clock, delay_s: float, *buckets: Bucket) -> None:
    """Wait for a time; a bucket that is retired ends the wait."""
    if delay_s <= 0 or any(each.retired for each in buckets):
        return
    sleep = asyncio.ensure_future(clock.sleep(delay_s))
    sets = []
    for each in buckets:
        each.sleeps = each.sleeps or set()
        sets.append(each.sleeps)
        each.sleeps.add(sleep)
    try:
        await asyncio.wait([sleep])
    finally:
        sleep.cancel()
        for sleeps in sets:
            sleeps.discard(sleep)


async def admitted(clock: Clock, bucket: Bucket, messages: int, size: int) -> None:
    """Take from a bucket, and wait until it is paid."""
    delay_s = bucket.take(messages, size)
    if delay_s > 0:
        await paid(clock, delay_s, bucket)


def replaced(known: Bucket | None, clock: Clock, messages: int, size: int, period_s: float) -> Bucket | None:
    """Return the bucket of a rate, the known one if it fits; None: no limit."""
    if not messages and not size:
        if known is not None:
            known.retire()
        return None
    if known is not None:
        if known.is_of(messages, size, period_s):
            return known
        known.retire()
    return Bucket(clock, messages, size, period_s)
