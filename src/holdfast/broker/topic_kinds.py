"""Kinds of topics that drop entries by themselves: rings and last-value topics.

A ring keeps the newest entries. Of each key, a last-value topic keeps the newest entry. A policy makes a
topic one or both. Entries are dropped by events (`RingTrim`, `Supersede`), never by a publish. So each member
drops the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker.part import Part
from holdfast.ledger import AckState

if TYPE_CHECKING:
    from holdfast.ledger import LedgerTable


class Thinned(Part):
    """Entries that a topic has dropped."""

    def __init__(self, topic: int, first: int = 0) -> None:
        self.topic = topic
        self.dropped = 0
        """Entries that left a backlog before they were acknowledged; once for each subscription."""
        self.superseded = AckState(first)
        """Entries of which each message has a newer one with the same key."""

    def superseded_ranges(self) -> list[tuple[int, int]]:
        """Return the superseded entries, as sorted ranges of ordinals."""
        return [(0, self.superseded.acked_to), *self.superseded.ranges()]


def ring_floor(ledgers: LedgerTable, entries: int | None, size: int | None) -> int:
    """Return the first ordinal that a ring keeps.

    A ledger's bytes are spread evenly over its entries: the state does not know the size of each.
    """
    floor = ledgers.first
    if entries is not None:
        floor = max(floor, ledgers.end - entries)
    if size is None:
        return floor
    left = size
    for info in reversed(ledgers):
        if info.size <= left:
            left -= info.size
            continue
        return max(floor, info.end - left * info.entries // info.size)
    return floor


def size_behind(ledgers: LedgerTable, ordinal: int) -> int:
    """Return the bytes from an ordinal on; those of its own ledger are estimated."""
    total = 0
    for info in reversed(ledgers):
        if info.end <= ordinal:
            break
        total += info.size * (info.end - max(info.first, ordinal)) // info.entries
    return total
