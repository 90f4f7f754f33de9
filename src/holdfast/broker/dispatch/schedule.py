"""Hold messages back until their delivery time, on subscriptions that share their messages.

```
   read ─► hand ─┬─ due ──────────────────────────────► consumer
                 └─ not due ─► schedule (core) ─► tick ─► replay read ─► hand
```

The schedule has the ordinals of entries that were read and are not due (**I271**). It is derived: an entry
has its delivery time in its metadata. So a new owner, or a broker that has restarted, fills it by reading the
backlog. A member that passes the ownership on keeps its schedule, and does not read the backlog again later.

Time is the log time that an event would have now (`holdfast.broker.log_time`). So it is the wall clock, but
not behind log time, and at most `AHEAD_S` ahead of what the monotonic clock vouches for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from holdfast._core import Dispatch
from holdfast.system import Clock

AT_ONCE = (1 << 63) - 1
"""The time at which everything is due."""

LOOK_S = 10.0
"""Longest wait before the next look: a clock that was set, or a changed policy, has its effect by then."""


LOOK_ENTRIES = 20_000
"""Messages that one look takes at most, in some 15 ms; the next one follows at once. A million may be due."""

_NEVER_NS = -(1 << 62)


class Times(NamedTuple):
    """How delivery times apply to a topic now."""

    now_ns: int
    active: bool = True
    """If False, everything is delivered at once."""
    tick_s: float = 0.1
    """Least time between two looks for messages that are due."""


class Readable(Protocol):
    """The reads of a dispatcher."""

    halted: bool


class Scheduling:
    """The delivery times of one subscription. It calls `due` when entries are to be read.

    Example:
        >>> from types import SimpleNamespace
        >>> from holdfast.system import SystemClock
        >>> reading, times = SimpleNamespace(halted=False), lambda: Times(now_ns=5_000_000)
        >>> scheduling = Scheduling(Dispatch(), reading, SystemClock(), times, due=print)
        >>> scheduling.now_ms
        5
    """

    def __init__(
        self,
        table: Dispatch,
        reading: Readable,
        clock: Clock,
        times: Callable[[], Times] | None,
        due: Callable[[], None],
    ) -> None:
        self._table = table
        self._reading = reading
        self._clock = clock
        self._times = times or (lambda: Times(clock.now_ns()))
        self._due = due
        self._timer: asyncio.TimerHandle | None = None
        self._at_ns = 0
        self._looked_ns = _NEVER_NS
        self._stopped = False

    @property
    def waits(self) -> bool:
        """Whether this member dispatches, and holds messages back."""
        return self._table.scheduled_entries > 0 and not self._reading.halted

    @property
    def now_ms(self) -> int:
        """The time up to which messages are due."""
        times = self._times()
        return times.now_ns // 1_000_000 if times.active and not self._table.single else AT_ONCE

    def began(self) -> None:
        """Forget what became due while another member dispatched: it is read from the position on.

        Call `arm` when this member may read.
        """
        self._table.take_scheduled(self.now_ms)

    def arm(self) -> None:
        """Set the timer to the next look."""
        if self._stopped or not self._table.scheduled_entries or self._reading.halted:
            return
        times, monotonic_ns = self._times(), self._clock.monotonic_ns()
        wait_ns = self._table.next_scheduled * 1_000_000 - times.now_ns
        if not times.active:
            wait_ns = 0
        tick_ns = self._looked_ns + int(times.tick_s * 1e9) - monotonic_ns
        wait_ns = min(max(wait_ns, tick_ns, 0), int(LOOK_S * 1e9))
        at_ns = monotonic_ns + wait_ns
        if self._timer is not None:
            if self._at_ns <= at_ns:
                return
            self._timer.cancel()
        self._at_ns = at_ns
        self._timer = asyncio.get_running_loop().call_later(wait_ns / 1e9, self._look)

    def stop(self) -> None:
        """Stop the timer, for good."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._reading.halted:
            return  # when this member dispatches again, `arm` follows
        self._looked_ns = self._clock.monotonic_ns()
        moved = self._table.take_scheduled(self.now_ms, LOOK_ENTRIES)
        if moved == LOOK_ENTRIES:
            self._looked_ns = _NEVER_NS  # the rest is due, too: no tick until then
        self.arm()
        if moved:
            self._due()
