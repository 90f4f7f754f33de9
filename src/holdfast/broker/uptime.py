"""Uptime: log time without the time in which the broker did not run.

```
 log time  ──●────●────●────●─ ─ ─ ─ ─ ─ (outage, or a clock that jumped) ─ ─ ─ ─ ─ ─●────●────●──►
             tick tick tick tick                                                    tick tick
 uptime      +30 s +30 s +30 s                                                +60 s   +30 s
```

Ages of subscriptions and topics are counted in uptime. Ticks are events, so all members agree, and a restart
forgets nothing. Between two ticks at most `GAP_NS` count. So an outage, or a clock that is a year ahead, adds
one minute to each age (**I300**). Without anything that ages there is no tick, and uptime stands still.
"""

from __future__ import annotations

import msgspec

from holdfast.broker.part import Part

SECOND = 1_000_000_000
TICK_NS = 30 * SECOND
"""Log time between two ticks while something ages."""
GAP_NS = 60 * SECOND
"""The most that counts between two ticks."""


class Quiet(msgspec.Struct, array_like=True, frozen=True):
    """Since when a topic is unused. A new entry, client or subscription ends that."""

    end: int
    """The topic's end then."""
    since: int
    """In uptime."""


class Uptime(Part):
    """The uptime of a broker, or of a cluster.

    Example:
        >>> uptime = Uptime()
        >>> uptime.tick(100 * SECOND)
        True
        >>> uptime.now(130 * SECOND) // SECOND, uptime.now(10**9 * SECOND) // SECOND
        (30, 60)
    """

    def __init__(self) -> None:
        self.ran = 0
        """Uptime at the last tick, in ns."""
        self.ticked = 0
        """Log time of the last tick; 0: there was none."""

    def __bool__(self) -> bool:
        return self.ticked > 0

    def now(self, time: int) -> int:
        """Return the uptime at a log time."""
        return self.ran + (min(max(0, time - self.ticked), GAP_NS) if self.ticked else 0)

    def is_due(self, time: int) -> bool:
        """Return whether a tick is due: also after log time was set back."""
        return not self.ticked or not 0 <= time - self.ticked < TICK_NS

    def tick(self, time: int) -> bool:
        """Count the time since the last tick; return False if none is due."""
        if not self.is_due(time):
            return False
        self.ran, self.ticked = self.now(time), time
        return True
