"""Entries that were read ahead, kept in memory until their consumers take them."""

from __future__ import annotations

from collections import deque

from holdfast._core import Entries

BYTES_MAX = 8 << 20


class Recent:
    """The runs that were read last and not fully delivered.

    Older ones are read again from the ledger.

    Example:
        >>> Recent().find(7) is None
        True
    """

    def __init__(self) -> None:
        self._runs: deque[Entries] = deque()
        self._bytes = 0

    def keep(self, entries: Entries) -> None:
        """Keep a run; the oldest ones go when all take too many bytes."""
        self._runs.append(entries)
        self._bytes += entries.space
        while self._bytes > BYTES_MAX:
            self._bytes -= self._runs.popleft().space

    def find(self, ordinal: int) -> Entries | None:
        """Return the run that has an entry."""
        for each in self._runs:
            if each.first_ordinal <= ordinal < each.end_ordinal:
                return each
        return None

    def clear(self) -> None:
        if self._runs:
            self._runs.clear()
            self._bytes = 0
