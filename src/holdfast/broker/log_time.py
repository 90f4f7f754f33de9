"""Give frames the time of the wall clock, checked against the monotonic clock.

```
 offset = wall clock - monotonic clock

                     one frame a year ahead              the clock was set, and stays so
                              |                                  +-------------------------
 offset      -----------------'-----------------      -----------'
 vouched for -----------------------------------      ----------------------+--------------
                                                                 |<CONFIRM_S>|
```

Log time is the largest time of a frame so far. A frame from a clock that is a year ahead would stop log time
for that year. Time to live, retention, roll-over by age and seek by time all follow log time. So a jump ahead
is accepted only when it has lasted (**I65**).
"""

from __future__ import annotations

from holdfast.system import Clock

SECOND = 1_000_000_000

AHEAD_S = 60.0
"""Seconds that a stamp may be ahead of the vouched time; clocks are often set by some seconds."""

CONFIRM_S = 300.0
"""Seconds after which a jump that lasts is accepted."""

SET_NS = 1_577_836_800 * SECOND
"""2020: a clock with an earlier time was never set. The time that it is set to is accepted at once."""


LAST_NS = (1 << 63) - 1
"""In the year 2262, where the clocks of Linux and Python end: log time stands still, all else continues."""


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
        """Return the time of a frame: the wall clock, at most `AHEAD_S` ahead."""
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
        # The nearest offset that held during all of it: one sample ahead or behind moves nothing.
        self._vouched_ns = min(max(self._vouched_ns, self._low_ns), self._high_ns)
        self._since_ns, self._low_ns, self._high_ns = monotonic_ns, offset_ns, offset_ns
