"""Limit the memory held for clients: one sum of bytes over all connections.

Promises upward: the sum stays below `limits.held_bytes`. A request that would exceed it is refused. Of the
holders with slow transfers, the oldest is closed first: a client that keeps pace holds bytes only briefly.
Needs from below: holders that report their bytes, and that release them when they are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from holdfast.errors import TooManyConnections

HELD_BYTES = 512 << 20
"""The default limit."""

SESSION_BYTES = 4096
"""Approximate memory of a producer or a consumer, without its properties."""


class Budget:
    """Bytes held for clients, by holder.

    Example:
        >>> budget = Budget(100)
        >>> closed = []
        >>> budget.hold("slow", 60, lambda: (closed.append("slow"), budget.hold("slow", 0)))
        >>> budget.hold("new", 70, lambda: None)
        >>> closed, budget.held
        (['slow'], 70)
    """

    def __init__(self, limit: int = HELD_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self.refused = 0
        """Requests refused and holders closed, since the start."""
        self._sizes: dict[Hashable, int] = {}
        """Bytes by holder, the oldest holder first."""
        self._closers: dict[Hashable, Callable[[], object]] = {}
        self._making_room = False
        """Holders are being closed."""

    def hold(self, holder: Hashable, size: int, close: Callable[[], object] | None = None) -> None:
        """Set the bytes of a holder; above the limit, close the oldest that have `close`."""
        self.held += size - self._sizes.get(holder, 0)
        if size:
            self._sizes[holder] = size
            if close is not None:
                self._closers[holder] = close
        else:
            self._sizes.pop(holder, None)
            self._closers.pop(holder, None)
        if self._making_room:  # a holder that is being closed gives back its parts one by one
            return
        self._making_room = True
        try:
            while self.held > self.limit and self._closers:
                oldest, close = next(iter(self._closers.items()))
                del self._closers[oldest]
                self.refused += 1
                close()
        finally:
            self._making_room = False

    def require(self, size: int, what: str) -> None:
        """Check that `size` more bytes fit.

        Raises:
            TooManyConnections: they exceed the limit now.
        """
        if self.held + size > self.limit:
            self.refused += 1
            raise TooManyConnections(
                f"{self.held} bytes are held for clients, and {size} more for {what} exceed the limit of "
                f"{self.limit}; try later, or raise limits.held_bytes"
            )

    def of(self, holder: Hashable) -> int:
        """Return the bytes of a holder."""
        return self._sizes.get(holder, 0)
