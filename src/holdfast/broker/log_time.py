"""The time that a sender gives its frames: the wall clock, as far as the monotonic clock vouches for it.

```
 offset = wall clock - monotonic clock

                     one frame a year ahead              the clock was set, and stays so
                              |                                  +-------------------------
 offset      -----------------'-----------------      -----------'
 vouched for -----------------------------------      ----------------------+--------------
                                                                 |<CONFIRM_S>|
```

Log time is the largest time of a frame so far. A frame of a clock that is a year ahead would stop it for that
year: time to live, retention, roll-over by age and seek by time all follow it. So a jump ahead is believed
when it has lasted (**I65**).
"""

from __future__ import annotations

from holdfast.system import Clock

SECOND = 1_000_000_000

AHEAD_S = 60.0
"""How far a stamp may run ahead of what is vouched for: clocks that are set by some seconds are common."""

CONFIRM_S = 300.0
"""A jump that has lasted so long is believed."""

SET_NS = 1_577_836_800 * SECOND
"""2020: a clock that shows an earlier time was never set. What it is set to later is believed at once."""


LAST_NS = (1 << 63) - 1
"""In the year 2262, where the clocks of Linux and Python end: log time stands still, all else goes on."""


class LogClock:
    """Bounds how far the stamps of a sender run ahead of its monotonic clock.

    Example:
        >>> from types import SimpleNamespace
        >>> wall, monotonic = [SET_NS], [0]
        >>> raw = SimpleNamespace(now_ns=lambda: wall[0], monotonic_ns=lambda: monotonic[0])
        >>> clock = LogClock(raw)
        >>> wall[0] += 365 * 86_400 * SECOND
        >>> (clock.now_ns() - SET_NS) / SECOND
        60.0
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now_ns, monotonic_ns = clock.now_ns(), clock.monotonic_ns()
        self._vouched_ns = now_ns - monotonic_ns
        self._since_ns = monotonic_ns
        self._low_ns = self._high_ns = self._vouched_ns
        """The least and the largest offset since then."""
        self.refused_ns = 0
        """How far the wall clock was ahead of the last stamp."""

    def now_ns(self) -> int:
        """The time of a frame: the wall clock, or as much of its jump as is allowed."""
        now_ns, monotonic_ns = self._clock.now_ns(), self._clock.monotonic_ns()
        self._look(now_ns - monotonic_ns, monotonic_ns)
        stamp_ns = min(now_ns, monotonic_ns + self._vouched_ns + int(AHEAD_S * SECOND))
        self.refused_ns = now_ns - stamp_ns
        return min(max(0, stamp_ns), LAST_NS)

    def _look(self, offset_ns: int, monotonic_ns: int) -> None:
        self._low_ns, self._high_ns = min(self._low_ns, offset_ns), max(self._high_ns, offset_ns)
        if self._vouched_ns + monotonic_ns < SET_NS:
            self._vouched_ns = max(self._vouched_ns, offset_ns)
        if monotonic_ns - self._since_ns < CONFIRM_S * SECOND:
            return
        # The nearest offset that held all the time: one sample elsewhere, ahead or behind, moves nothing.
        self._vouched_ns = min(max(self._vouched_ns, self._low_ns), self._high_ns)
        self._since_ns, self._low_ns, self._high_ns = monotonic_ns, offset_ns, offset_ns
