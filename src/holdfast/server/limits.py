"""Limit open files, and connections: in all and from one address."""

from __future__ import annotations

import resource
from collections import Counter

from holdfast.errors import TooManyConnections
from holdfast.formatting import plural
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


class ConnectionCount:
    """Counts the connections of both protocols together, and refuses those above a limit.

    Example:
        >>> door = ConnectionCount(Limits(connections=1))
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
        """Count a connection from this address; `leave` follows at its end.

        Raises:
            TooManyConnections: a limit is reached; the connection is not counted.
        """
        limits = self._limits
        if self.count >= limits.connections:
            self.refused += 1
            raise TooManyConnections(
                f"the server has {plural(self.count, 'connection')}, the most that limits.connections "
                "allows; close some, try later, or raise the limit"
            )
        if self._addresses[address] >= limits.connections_per_address:
            self.refused += 1
            raise TooManyConnections(
                f"the server has {plural(self._addresses[address], 'connection')} from {address}, the most "
                "that limits.connections_per_address allows; close some, try later, or raise the limit"
            )
        self.count += 1
        self._addresses[address] += 1

    def leave(self, address: str) -> None:
        """Uncount a connection from this address."""
        self.count -= 1
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]  # or the table would grow with every address ever seen
