"""What a store is told, what it tells, and what everything that works on its directory knows of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.ledger.journal.files import JournalFiles
from holdfast.ledger.layout import LedgerFile
from holdfast.ledger.recovery import StateMachine
from holdfast.ledger.snapshot.format import Meta
from holdfast.ledger.space import Space
from holdfast.ledger.writer import Sync
from holdfast.system import Clock, Disk, Lock
from holdfast.system.files import opened


@dataclass(frozen=True)
class StoreOptions:
    """How a store works. Sizes in bytes."""

    sync: Sync = "group"
    snapshot_bytes: int = 64 << 20
    """So much journal makes a snapshot due."""
    snapshot_s: float = 60.0
    """So does so much time, if anything happened."""
    reserve_bytes: int = 16 << 20
    journal_bytes: int = 16 << 20
    """Of each journal file. There is one in use, and mostly a spare."""


@dataclass(frozen=True)
class StoreStats:
    """A look at a store; counts are since it was opened."""

    sync: Sync
    applied_d: int
    durable_d: int
    snapshot_d: int
    """Recovery would begin behind this event."""
    rounds: int
    journal_bytes: int
    """Of all rounds, with their padding."""
    journal_files: int
    """Made or named."""
    snapshots: int
    snapshot_bytes: int
    """Of the last one."""
    pending_bytes: int
    free_bytes: int
    reserved: bool
    """The reserve is whole. If not, the disk is full, and nothing is admitted."""
    refused: int
    rewritten: int
    """Ledgers whose file had failed."""
    trouble: str
    """What went wrong with the last attempt at a snapshot; empty: nothing."""
    failed: str
    """Why it serves no more; empty: it does."""


@dataclass
class Opened:
    """What is known of the directory, for all that work on it."""

    disk: Disk
    lock: Lock
    clock: Clock
    options: StoreOptions
    incarnation: bytes
    space: Space
    files: JournalFiles
    kept: list[Meta]
    """The snapshots that are kept: the older one, and the newest."""
    generations: dict[int, int] = field(default_factory=dict)
    """Of each ledger, where it is not 0."""
    unsynced: set[LedgerFile] = field(default_factory=set)
    """Ledger files that recovery wrote to."""
    moving: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    """Ledgers on their way into another file: reads wait."""
    pins: int = 0

    async def file_of(self, ledger: int) -> LedgerFile:
        """Where a ledger is to be read."""
        if ledger in self.moving:
            await asyncio.shield(self.moving[ledger])
        return LedgerFile(ledger, self.generations.get(ledger, 0))

    @contextlib.contextmanager
    def pin(self) -> Iterator[Meta]:
        """Nothing is dropped while it is held."""
        self.pins += 1
        try:
            yield self.kept[-1]
        finally:
            self.pins -= 1

    async def sync_ledger(self, file: LedgerFile) -> None:
        """By its name: for a file that no writer of this life has open."""
        for path in (file.data_path, file.index_path):
            with contextlib.suppress(FileNotFoundError):  # it was trimmed meanwhile
                async with opened(self.disk, path) as data:
                    await data.sync()


__all__ = ["Opened", "StateMachine", "StoreOptions", "StoreStats"]
