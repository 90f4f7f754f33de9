"""The options of a store. A broker's options have them, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.ledger.layout import PAGE

SyncMode = Literal["group", "always", "os"]


@dataclass(frozen=True)
class StoreOptions:
    """The options of a store, with units in the names."""

    sync: SyncMode = "group"
    """When a message counts as durable.

    `group`: after the `fdatasync` of its round; all that waits shares one. A power cut loses nothing that was
    confirmed. Acknowledgements without a receipt may be lost with the last 10 ms.
    `always`: the same, and every acknowledgement starts a round at once.
    `os`: after the write; the system is asked to sync once a second. A killed process loses nothing, a power
    cut loses up to a second of what was confirmed.
    """
    snapshot_bytes: int = 64 << 20
    """Bytes of journal after which a snapshot is taken."""
    snapshot_s: float = 60.0
    """Time after which a snapshot is taken, if there were events."""
    journal_bytes: int = 16 << 20
    """Size of each journal file. One is in use, and mostly a spare is ready."""
    reserve_bytes: int = 32 << 20
    """Reserved disk space, so that acknowledgements, deletes and snapshots continue on a full disk."""


def journal_missed(size: int) -> str:
    """Return the possible sizes of a journal file, or nothing if this is one.

    Example:
        >>> journal_missed(1 << 20), journal_missed(20_000)
        ('', 'a multiple of 4096, at least 16384')
    """
    return "" if size >= 4 * PAGE and size % PAGE == 0 else f"a multiple of {PAGE}, at least {4 * PAGE}"
