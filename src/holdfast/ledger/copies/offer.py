"""Offer the files of a running store: ledgers, a snapshot, then the journal.

The store is pinned meanwhile. The journal is listed last: what it has then is the copy's last event. So a
long copy does not end far behind.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.ledger.layout import Place, journal_path, snapshot_path
from holdfast.ledger.snapshot.format import Meta
from holdfast.system import Disk, opened


class Item(msgspec.Struct, array_like=True, frozen=True):
    """A file to copy, up to a size."""

    path: str
    size: int


class Source(Protocol):
    """A running store."""

    @property
    def disk(self) -> Disk: ...
    def journal_end(self) -> tuple[Place, int]: ...


async def offer(disk: Disk, meta: Meta) -> list[Item]:
    """List the ledgers of a snapshot, the newest first, and the snapshot itself."""
    items = []
    for ledger, extent in sorted(meta.extents().items(), key=lambda row: row[0], reverse=True):
        items += [Item(ledger.data_path, extent.size), Item(ledger.index_path, extent.index_size)]
    if meta.d:
        async with opened(disk, snapshot_path(meta.d)) as file:
            items.append(Item(snapshot_path(meta.d), await file.size()))
    return items


async def journal_items(source: Source, meta: Meta) -> list[Item]:
    """List the journal behind a snapshot, up to the last durable event."""
    end, _ = source.journal_end()
    items = []
    for number in range(meta.journal, end.journal):
        async with opened(source.disk, journal_path(number)) as file:
            items.append(Item(journal_path(number), await file.size()))
    return [*items, Item(journal_path(end.journal), end.offset)]
