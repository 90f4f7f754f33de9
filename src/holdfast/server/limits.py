"""Limit open files, and connections: in all and from one address."""

from __future__ import annotations

import resource
from collections import Counter

from holdfast.errors import TooManyConnections
from holdfast.server.config import Limits


def raise_descriptor_limit() -> int:
    """Raise the limit of open files as far as possible; returns that limit.

    The soft limit is 1024 on most systems, for programs that still use `select`; each connection and each
    ledger in use takes one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft  # some systems name no hard limit and still refuse it
    return hard


class Admission:
    """Counts connections, of both protocols together.

    Example:
        >>> door = Admission(Limits(connections=1))
        >>> door.enter("127.0.0.1")
        >>> door.count
        1
        >>> door.leave("127.0.0.1")
        >>> door.count
        0
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._addresses: Counter[str] = Counter()
        self.count = 0
        self.refused = 0
        """Since the start."""

    def enter(self, address: str) -> None:
        """One more from this address; `leave` follows when it has gone.

        Raises:
            TooManyConnections: there is no place; it does not count.
        """
        limits = self._limits
        if self.count >= limits.connections:
            self.refused += 1
            raise TooManyConnections(
                f"there are {self.count} connections, and no more are possible; try later"
            )
        if self._addresses[address] >= limits.connections_per_address:
            self.refused += 1
            raise TooManyConnections(
                f"there are {self._addresses[address]} connections from {address}, and no more are possible"
            )
        self.count += 1
        self._addresses[address] += 1

    def leave(self, address: str) -> None:
        """One that had entered has gone."""
        self.count -= 1
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]  # a server lives long and hears from many
