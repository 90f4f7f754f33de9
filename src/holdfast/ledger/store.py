"""The store: a directory that makes a machine's events durable, and recovers them.

```
             applied()                              on_durable(D)
 machine ───────────────► writer ───────────────────────────────► producers, dispatch
    ▲                       │ journal, ledgers
    │ load, redo            ▼
 recovery ◄──────────── directory ◄───── Running: next journal file, spare, space, failures,
                                                  snapshots every 64 MiB of journal or 60 s
```

Promises upward: exactly the events that `on_durable` reported are there after any crash (I33). Damage is
reported and not skipped (I31). A full disk refuses new entries, and accepts changes that free space (I38).
Needs from below: a `Disk`, and for the core's writer the path of the same directory.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from holdfast._core import Entries, Log, at
from holdfast.errors import Busy, Closed, HoldfastError, Misuse, NotFound
from holdfast.group import Position
from holdfast.ledger import recovery
from holdfast.ledger.closing import Closing
from holdfast.ledger.directory import OpenDirectory, StoreStats
from holdfast.ledger.files.entries import LedgerReader, NativeReader
from holdfast.ledger.journal import files as journal_files
from holdfast.ledger.journal.files import JournalFiles
from holdfast.ledger.journal.rotation import JournalRotation
from holdfast.ledger.layout import JOURNAL, LEDGERS, LOCK, PAGE, LedgerFile, Place, journal_path
from holdfast.ledger.recovery import Recovered, Recovery, StateMachine
from holdfast.ledger.running import CLOSING_S, Running
from holdfast.ledger.snapshot import capture as snapshot_capture
from holdfast.ledger.snapshot.format import Meta
from holdfast.ledger.space import Space, no_space
from holdfast.ledger.store_options import StoreOptions, SyncMode, journal_missed
from holdfast.ledger.writer import NativeWriter, RoundWriter
from holdfast.system import Clock, Disk, Lock, Randomness, SystemDisk

__all__ = ["Files", "NativeFiles", "Recovered", "StateMachine", "Store", "StoreOptions", "StoreStats"]


class Files(Protocol):
    """Creates the writer and the reader of a store."""

    def writer(self, log: Log, sync: SyncMode, incarnation: bytes) -> RoundWriter: ...

    def reader(self, incarnation: bytes) -> LedgerReader: ...


class NativeFiles:
    """Writer and reader of the core, in a directory."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)

    def writer(self, log: Log, sync: SyncMode, incarnation: bytes) -> RoundWriter:
        return NativeWriter(log, self.path, sync, incarnation)

    def reader(self, incarnation: bytes) -> LedgerReader:
        return NativeReader(self.path, incarnation)


class Store:
    """A data directory, one machine, one writer. Open, recover, start, close, in this order.

    Example:
        >>> import asyncio, tempfile
        >>> from holdfast.broker.machine import Machine as BrokerMachine
        >>> from holdfast.system import SystemClock, SystemDisk, SystemRandomness
        >>> async def main(path: str) -> None:
        ...     store = await Store.open(
        ...         SystemDisk(path), files=NativeFiles(path), options=StoreOptions(journal_bytes=1 << 20),
        ...         clock=SystemClock(), randomness=SystemRandomness(),
        ...     )
        ...     machine = BrokerMachine()
        ...     found = await store.recover(machine)
        ...     store.start(machine, on_durable=print, on_failed=print)
        ...     await store.close()
        ...     print(found.fresh, found.last_d)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        True 0
    """

    def __init__(self, opened: OpenDirectory, base: recovery.Base, files: Files, fresh: bool) -> None:
        self._opened = opened
        self._base = base
        self._files = files
        self._fresh = fresh
        self._upto: Position | Literal["stable"] | None = None
        self._reader = files.reader(opened.incarnation)
        self._rotation: JournalRotation | None = None
        self._running: Running | None = None
        self._closing = Closing("holdfast-close")

    @property
    def incarnation(self) -> bytes:
        """A random number, drawn when the directory was created; in the header of every file."""
        return self._opened.incarnation

    def generation(self, ledger: int) -> int:
        """Return the generation of a ledger's file: readers need it for the name."""
        return self._opened.generations.get(ledger, 0)

    def rewritten(self) -> int:
        """Return a number that changes when a ledger continues in a file of another generation."""
        return sum(self._opened.generations.values())

    # -- opening ---------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        disk: Disk,
        *,
        clock: Clock,
        randomness: Randomness,
        files: Files,
        options: StoreOptions | None = None,
        upto: Position | Literal["stable"] | None = None,
        lock: Lock | None = None,
        missing: Set[int] | None = None,
    ) -> Store:
        """Lock the directory, create it if needed, and find the snapshot to start from.

        `files` are those of the same directory. `upto` cuts the events after this position, or after the last
        position that was known to be stable. `lock` is the directory's, if the caller has it; the store
        releases it. `missing` are ledgers that this member fetches while it serves; with any, the mark
        `incomplete` is expected.

        Raises:
            Locked: another process has this directory open.
            Corrupt, LayoutMismatch: not one snapshot can be used.
            Misuse: the directory holds files that are not a store's, or is a cluster node's without `lock`.
            NoSpace: there is not enough room for the journal.
        """
        options = options or StoreOptions()
        if possible := journal_missed(options.journal_bytes):
            raise Misuse(f"journal_bytes is {options.journal_bytes}; use {possible}")
        member = lock is not None  # it locks before it joins, and asks here after that
        lock = lock or await disk.lock(LOCK)
        try:
            at("recover_locked")
            if not member:
                await recovery.require_no_member(disk)
            with no_space("its journal could not be created"):
                incarnation, fresh = await recovery.prepare(
                    disk, randomness, options.journal_bytes, updating=bool(missing)
                )
            if fresh and isinstance(files, NativeFiles):  # make the directory's own name durable, too
                await SystemDisk(Path(files.path).resolve().parent).sync_directory("")
            base = await recovery.find_base(disk, incarnation)
            opened = OpenDirectory(
                disk=disk,
                lock=lock,
                clock=clock,
                options=options,
                incarnation=incarnation,
                space=Space(disk, options.reserve_bytes),
                files=JournalFiles(disk, incarnation, options.journal_bytes),
                kept=base.kept,
                missing=set(missing or ()),
            )
            store = cls(opened, base, files, fresh)
            store._upto = upto
            return store
        except BaseException:
            await lock.release()
            raise

    async def recover(self, machine: StateMachine) -> Recovered:
        """Bring a new machine and the ledgers to the state of the last confirmed event.

        Raises:
            Corrupt: confirmed data is damaged; the text names file and offset. Restore a backup.
            NoSpace: the disk is full, and the reserve was not enough. Free space, and try again.
        """
        opened, base = self._opened, self._base
        with no_space("the ends of its ledgers could not be written"):
            await opened.space.open()
            release = opened.space.release
            found = Recovery(
                opened.disk, opened.incarnation, base, self._fresh, release, frozenset(opened.missing)
            )
            report = await found.run(machine, self._upto)
            opened.generations.update(found.ends.generations())
            opened.unsynced |= found.ends.touched
            await opened.files.look()
            place = found.ending.next
            if found.is_cut:
                place = await self._cut(machine, place.journal + 1)
            self._rotation = JournalRotation(opened.disk, opened.files, place, report.last_d)
        at("recover_done")
        return report

    async def _cut(self, machine: StateMachine, number: int) -> Place:
        """Start a new journal behind this state, with a snapshot; the old journal is void."""
        opened = self._opened
        for file in sorted(opened.unsynced):
            await opened.sync_ledger(file)
        opened.unsynced.clear()
        await opened.disk.sync_directory(LEDGERS)
        await (await opened.files.create(number)).close()
        captured = machine.capture()
        meta = snapshot_capture.summary(
            captured,
            Place(number, PAGE),
            captured.d,
            opened.generations,
            next_ledger=machine.log.next_ledger,
            time_ns=machine.log.time,
            cut=True,
        )
        await snapshot_capture.publish(opened.disk, meta, captured.parts, opened.incarnation)
        opened.kept[:] = [meta]
        await snapshot_capture.drop_snapshots(opened.disk, opened.kept)
        for old in await journal_files.numbers(opened.disk):
            if old < number:  # other events will have their D: they must not become spares
                await opened.disk.unlink(journal_path(old))
        await opened.disk.sync_directory(JOURNAL)
        return meta.start

    def start(
        self,
        machine: StateMachine,
        on_durable: Callable[[int], None],
        on_failed: Callable[[HoldfastError], None],
    ) -> None:
        """Write what the machine applies from now on.

        `on_durable(d)`: everything up to d is durable. `on_failed(error)` is called once, and nothing is
        durable after it. Both are called on the event loop.
        """
        if self._rotation is None:
            raise Misuse("recover() comes before start()")
        opened = self._opened
        writer = self._files.writer(machine.log, opened.options.sync, opened.incarnation)
        self._running = Running(opened, machine, writer, self._rotation, self._reader, on_durable, on_failed)
        self._running.start()

    # -- while it runs ---------------------------------------------------------------------------------

    def applied(self) -> None:
        """Wake the writer: the machine has applied a frame."""
        if self._running is not None:
            self._running.writer.wake()

    def admit(self, size: int) -> None:
        """Promise room on the disk for entries of `size` bytes.

        Raises:
            NoSpace: there is not enough room beside the reserve. Changes that free space do not ask here.
            Closed: the store has failed.
        """
        self._alive().admit(size)

    def set_stable(self, position: Position) -> None:
        """Set the position up to which a majority holds everything; snapshots wait for it."""
        if self._running is not None:
            self._running.set_stable(position)

    async def read(
        self, ledger: int, first_ordinal: int, entry: int, count_max: int, size_max: int, label: int = 0
    ) -> Entries:
        """Read at least one entry of a ledger, from `entry` on.

        The caller knows that they are durable.

        `first_ordinal` is the ordinal of the ledger's entry 0, `label` the ledger's id for users.

        Raises:
            Corrupt: the first of them is damaged; the text has file and offset.
            Busy: the ledger is not here yet.
        """
        self._require_here(ledger, label)
        what = (first_ordinal, entry, count_max, size_max, label)
        try:
            return await self._reader.read(await self._opened.file_of(ledger), *what)
        except (NotFound, FileNotFoundError):
            if self._running is None or not await self._running.rescue(ledger):
                raise
            return await self._reader.read(await self._opened.file_of(ledger), *what)

    async def time(self, ledger: int, entry: int) -> int:
        """Return the log time of one entry, in ns since the epoch.

        Raises:
            Busy: the ledger is not here yet.
        """
        self._require_here(ledger)
        return await self._reader.time(await self._opened.file_of(ledger), entry)

    # -- ledgers that are fetched from other members ---------------------------------------------------

    @property
    def missing(self) -> Set[int]:
        """The numbers of ledgers that are not here yet. They are not read."""
        return self._opened.missing

    def arrived(self, ledger: int) -> None:
        """Note that a missing ledger is here, durably, or that it is not needed."""
        self._opened.missing.discard(ledger)

    async def file_of(self, ledger: int) -> LedgerFile:
        """Return the file of a ledger that exists here."""
        return await self._opened.file_of(ledger)

    def _require_here(self, ledger: int, label: int = 0) -> None:
        if ledger in self._opened.missing:
            raise Busy(
                f"ledger {label or ledger} is not here yet: this member is being updated, and fetches "
                f"{len(self._opened.missing)} ledgers from other members; ask another member, or wait"
            )

    async def flush(self) -> None:
        """Wait until all events that were applied before this call are durable.

        Raises:
            Closed: the store has failed, or was closed.
        """
        await self._alive().flush()

    async def snapshot(self) -> None:
        """Take a snapshot now.

        Raises:
            Closed: the store has failed, or was closed.
            NoSpace: there is not enough room for it, even with the reserve.
        """
        await self._alive().snapshot()

    def pin(self) -> AbstractContextManager[Meta]:
        """Keep all files while a backup copies the newest snapshot, which is returned."""
        return self._opened.pin()

    def journal_end(self) -> tuple[Place, int]:
        """Return where the journal's next round goes, and the last D before it."""
        return self._alive().journal_end()

    @property
    def disk(self) -> Disk:
        """The disk of the directory."""
        return self._opened.disk

    @property
    def stalled_s(self) -> float:
        """Seconds for which events wait for room on a full disk; 0.0: none waits."""
        return 0.0 if self._running is None else self._running.stalled_s

    def stats(self) -> StoreStats:
        """Return sizes and counts of this store."""
        return self._alive().stats()

    async def close(self, clean: bool = True, within_s: float = CLOSING_S) -> None:
        """Make all events durable, take a last snapshot, and unlock the directory.

        A second call does nothing.

        Without `clean`, after a failure, and if that is not done in time, it only stops, and the next start
        recovers.
        """
        await self._closing(lambda: self._close(clean, within_s))

    async def _close(self, clean: bool, within_s: float) -> None:
        """Stop, and release the lock last: until then a task may still write."""
        try:
            if self._running is not None:
                await self._running.stop(clean, within_s)
        finally:
            await self._reader.close()
            await self._opened.lock.release()

    def _alive(self) -> Running:
        if self._closing.begun or self._running is None:
            raise Closed("the store was closed, or not started; open it again")
        return self._running
