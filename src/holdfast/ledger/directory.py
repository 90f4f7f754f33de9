"""Stats of a store, and the state that its parts share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.ledger.journal.files import JournalFiles
from holdfast.ledger.layout import LedgerFile
from holdfast.ledger.snapshot.format import Meta
from holdfast.ledger.space import Space
from holdfast.ledger.store_options import StoreOptions, SyncMode
from holdfast.system import Clock, Disk, Lock, opened


@dataclass(frozen=True)
class StoreStats:
    """Sizes and counts of a store, since it was opened."""

    sync: SyncMode
    applied_d: int
    durable_d: int
    snapshot_d: int
    """The D of the newest snapshot: recovery starts behind it."""
    rounds: int
    journal_bytes: int
    """Bytes of all rounds, with their padding."""
    journal_files: int
    """The number of the journal file in use."""
    snapshots: int
    snapshot_bytes: int
    """Size of the last snapshot."""
    pending_bytes: int
    free_bytes: int
    reserved: bool
    """Whether the reserve is complete. If not, the disk is full, and nothing is admitted."""
    refused: int
    rewritten: int
    """Ledgers that were rewritten because their file had failed."""
    trouble: str
    """Why the last snapshot or journal file failed; empty: it did not."""
    failed: str
    """Why the store has stopped; empty: it runs."""


@dataclass
class OpenDirectory:
    """State of an open directory, shared by all parts of its store."""

    disk: Disk
    lock: Lock
    clock: Clock
    options: StoreOptions
    incarnation: bytes
    space: Space
    files: JournalFiles
    kept: list[Meta]
    """The kept snapshots: the older one, then the newest."""
    generations: dict[int, int] = field(default_factory=dict)
    """Generation of each ledger's file, where it is not 0."""
    unsynced: set[LedgerFile] = field(default_factory=set)
    """Ledger files that recovery wrote to."""
    moving: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    """Ledgers that are moved into another file: their reads wait."""
    missing: set[int] = field(default_factory=set)
    """Ledgers that are fetched from other members; they are not read (**I252**)."""
    pins: int = 0

    async def file_of(self, ledger: int) -> LedgerFile:
        """Return the file of a ledger, after a move to another file has ended."""
        if ledger in self.moving:
            await asyncio.shield(self.moving[ledger])
        return self.current_file(ledger)

    def current_file(self, ledger: int) -> LedgerFile:
        """Return the file of a ledger, also while the ledger is moved to another file."""
        return LedgerFile(ledger, self.generations.get(ledger, 0))

    @contextlib.contextmanager
    def pin(self) -> Iterator[Meta]:
        """Keep all files while the context is open."""
        self.pins += 1
        try:
            yield self.kept[-1]
        finally:
            self.pins -= 1

    async def sync_ledger(self, file: LedgerFile) -> None:
        """Sync a ledger by its name, when the writer does not have it open."""
        for path in (file.data_path, file.index_path):
            with contextlib.suppress(FileNotFoundError):  # it has been trimmed
                async with opened(self.disk, path) as data:
                    await data.sync()
