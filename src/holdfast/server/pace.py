"""Limit how slow a transfer may be before its connection is closed.

A transfer that moves a byte now and then would never end. So each transfer has a time limit, and the bytes
that it moves extend the limit. A client that keeps the slowest allowed pace is never closed.
"""

from __future__ import annotations

SLOWEST_BYTES_S = 16 << 10
"""Bytes that extend the limit by a second. Faster transfers are never closed."""


class Pace:
    """One transfer, from its first byte to its last.

    Example:
        >>> pace = Pace(within_s=30.0)
        >>> pace.begin(now=0.0)
        >>> pace.late(now=29.0, moved=1), pace.late(now=31.0, moved=2), pace.late(now=31.0, moved=1 << 20)
        (False, True, False)
        >>> pace.end()
        >>> pace.late(now=99.0, moved=0)
        False
    """

    __slots__ = ("_since", "within_s")

    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self._since: float | None = None

    @property
    def running(self) -> bool:
        return self._since is not None

    def begin(self, now: float) -> None:
        """Start the transfer, unless it has started."""
        if self._since is None:
            self._since = now

    def end(self) -> None:
        self._since = None

    def rest(self, seconds: float) -> None:
        """Exclude a time in which the server did not look at the transfer."""
        if self._since is not None:
            self._since += seconds

    def since(self, now: float) -> float:
        """Return the seconds since the transfer started."""
        return 0.0 if self._since is None else now - self._since

    def late(self, now: float, moved: int) -> bool:
        """Return whether the transfer is too slow, given the bytes that it has moved."""
        return self.since(now) > self.within_s + moved / SLOWEST_BYTES_S


class Appetite:
    """Chooses how many bytes to read from a client: fewer while they take long.

    Example:
        >>> appetite = Appetite(most=256 << 10)
        >>> appetite.took(0.050)
        >>> appetite.bytes >> 10
        128
        >>> appetite.took(0.0001)
        >>> appetite.bytes >> 10
        256
    """

    TURN_S = 0.001
    LEAST = 2 << 10

    __slots__ = ("_most", "bytes")

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = most

    def took(self, seconds: float) -> None:
        """Note how long the last bytes took to process."""
        if seconds > self.TURN_S:
            self.bytes = max(self.LEAST, self.bytes // 2)
        elif seconds < self.TURN_S / 4:
            self.bytes = min(self._most, 2 * self.bytes)
