"""A store at work: it follows its writer, mends what fails, keeps room on the disk, and takes snapshots.

What may fail, and what is done (I34, I35, I38):

| what fails                     | what is done                                                              |
|--------------------------------|---------------------------------------------------------------------------|
| a write or sync of the journal | the round goes into a new file; if that fails too, the store stops        |
| a sync of the journal, `os`    | a new file, and a snapshot at once: what it was to cover is not known     |
| a write to a ledger            | once more; then the ledger is rewritten; then the store stops             |
| a sync of a ledger             | the ledger is rewritten into a file of the next generation                |
| any of these, for want of room | the reserve is given up; then it is tried again until there is room       |
| a snapshot                     | tried again later; the journal grows meanwhile                            |
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from holdfast._core import Log, at
from holdfast.errors import Closed, HoldfastError, NoSpace
from holdfast.group import Clock, Disk, Position
from holdfast.ledger import snapshotting
from holdfast.ledger.journal import wipe
from holdfast.ledger.journaling import Journaling
from holdfast.ledger.journals import JournalFiles
from holdfast.ledger.layout import LEDGERS, LedgerFile, Place
from holdfast.ledger.reading import LedgerReader
from holdfast.ledger.repair import Rewriter
from holdfast.ledger.snapshot import Meta
from holdfast.ledger.snapshotting import Captured
from holdfast.ledger.space import FULL, Demand, Space, is_full
from holdfast.ledger.writing import RoundWriter, Sync

TICK_S = 1.0
"""How often the disk's room and the age of the snapshot are looked at."""
FRESH_BYTES = 32 << 20
"""After so much was admitted, the disk is asked again how much room it has."""
PATIENCE_S = 10.0
"""How long closing waits for the last events, and how long a snapshot that failed is not tried again."""


class Machine(Protocol):
    """What a store recovers into, and makes snapshots of."""

    @property
    def log(self) -> Log:
        """Where its events get their numbers, and from where they are written. `load` may replace it."""

    def load(self, parts: Iterable[bytes]) -> None:
        """Take the state of a snapshot."""

    def redo(self, view: int, index: int, frame: bytes) -> None:
        """Apply events that were applied once. What they append to ledgers is written again."""

    def capture(self) -> Captured:
        """The state as it is now."""


@dataclass(frozen=True)
class StoreOptions:
    """How a store works. Sizes in bytes."""

    sync: Sync = "group"
    snapshot_bytes: int = 64 << 20
    """So much journal makes a snapshot due."""
    snapshot_s: float = 60.0
    """So does so much time, if anything happened."""
    reserve_bytes: int = 16 << 20
    journal_bytes: int = 64 << 20
    """Of each journal file. Two are there at any time."""


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
            try:
                opened = await self.disk.open(path)
            except FileNotFoundError:
                continue  # it was trimmed meanwhile
            try:
                await opened.sync()
            finally:
                await opened.close()


class Running:
    """Everything between `start` and `close`."""

    def __init__(
        self,
        opened: Opened,
        machine: Machine,
        writer: RoundWriter,
        journaling: Journaling,
        reader: LedgerReader,
        on_durable: Callable[[int], None],
        on_failed: Callable[[HoldfastError], None],
    ) -> None:
        self.opened = opened
        self.machine = machine
        self.writer = writer
        self._journaling = journaling
        self._reader = reader
        self._on_durable, self._on_failed = on_durable, on_failed
        self._progress = writer.poll()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._stable: Position | None = None
        self._stable_moved = asyncio.Event()
        self._attention = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: HoldfastError | None = None
        self._admitted = 0
        # failures in a row
        self._journal_mended_at = -1
        self._ledger_mended_at = (-1, 0)
        self._spoiled: set[LedgerFile] = set()
        """Ledger files whose sync has failed: they are not synced again."""
        self._suspect = False
        """`sync = os`: a sync has failed, and no snapshot has been taken since."""
        # snapshots
        self._wanted = asyncio.Event()
        self._lock = asyncio.Lock()
        self._start: tuple[Place, int] | None = None
        """Where the journal behind the snapshot that is being taken begins."""
        self._capture_d = 0
        self._bytes_before = 0
        self._taken_ns = opened.clock.monotonic_ns()
        self._snapshots = self._snapshot_bytes = self._rewritten = 0
        self._trouble = ""

    # -- what the store is asked -----------------------------------------------------------------------

    def start(self) -> None:
        self._spawn(self._serve, "serve")

    def admit(self, size: int) -> None:
        self._require_alive()
        self._admitted += size
        if self._admitted >= FRESH_BYTES:
            self._admitted = 0
            self._attention.set()
        room = self._journaling.room(self._progress)
        demand = Demand(size, self.machine.log.pending_bytes, room, self.opened.files.size)
        self.opened.space.admit(demand)

    def set_stable(self, position: Position) -> None:
        self._stable = position
        self.writer.set_stable(position)
        self._stable_moved.set()

    async def flush(self) -> None:
        self._require_alive()
        await self._durable(self.machine.log.next_d - 1)

    async def snapshot(self) -> None:
        self._require_alive()
        await self._snapshot(clean=False)

    def stats(self) -> StoreStats:
        opened, log = self.opened, self.machine.log
        return StoreStats(
            sync=opened.options.sync,
            applied_d=log.next_d - 1,
            durable_d=self._progress.durable_d,
            snapshot_d=opened.kept[-1].d,
            rounds=self._progress.rounds,
            journal_bytes=self._journaling.written_bytes,
            journal_files=self._journaling.number,
            snapshots=self._snapshots,
            snapshot_bytes=self._snapshot_bytes,
            pending_bytes=log.pending_bytes,
            free_bytes=opened.space.free_bytes,
            reserved=opened.space.reserved,
            refused=opened.space.refused,
            rewritten=self._rewritten,
            trouble=self._trouble,
            failed=str(self._failed or ""),
        )

    async def stop(self, clean: bool) -> None:
        """With `clean`: after a last snapshot, if that is possible in time."""
        whole = False
        if clean and self._failed is None:
            with contextlib.suppress(HoldfastError, OSError):  # TimeoutError is one
                async with asyncio.timeout(PATIENCE_S):
                    await self._finish()
                whole = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.writer.stop(flush=False)
        self._progress = self.writer.poll()
        await self._journaling.close()
        if whole:  # what an earlier use of the file left there would look like a round that is not whole
            await wipe(self.opened.disk, [self._journaling.place(self._progress)[0]])
        self._fail(Closed("the store was closed"), tell=False)

    async def _finish(self) -> None:
        last_d = self.machine.log.next_d - 1
        await self._durable(last_d)
        if not (self.opened.kept[-1].clean and self.opened.kept[-1].d == last_d):
            await self._snapshot(clean=True)

    def _require_alive(self) -> None:
        if self._failed is not None:
            raise self._failed

    # -- following the writer --------------------------------------------------------------------------

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(work), name=f"holdfast-store-{name}")
        self._tasks.append(task)

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """What a task of the store lets escape ends the store: nobody else would see it."""
        try:
            await work()
        except HoldfastError as error:
            self._fail(error)
        except OSError as error:
            self._fail(Closed(f"the store has stopped: {error}; look at the disk and start again"))

    def _fail(self, error: HoldfastError, tell: bool = True) -> None:
        if self._failed is not None:
            return
        self._failed = error
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
        if tell:
            self._on_failed(error)

    async def _serve(self) -> None:
        for ledger, generation in self.opened.generations.items():
            if generation:
                await self.writer.use_generation(ledger, generation)
        await self._journaling.begin(self.writer)
        self.writer.start(self._told)
        self.writer.wake()
        self._spawn(self._keep_snapshots, "snapshots")
        await self._mind()

    def _told(self) -> None:
        """The writer has something new to say."""
        before, self._progress = self._progress, self.writer.poll()
        progress = self._progress
        self._journaling.count(progress)
        if progress.journal_d <= self._capture_d:
            self._start = self._journaling.place(progress)
        if progress.failure is not None or self._journaling.is_due(progress):
            self._attention.set()
        if self._journaling.written_bytes - self._bytes_before >= self.opened.options.snapshot_bytes:
            self._wanted.set()
        if progress.durable_d > before.durable_d:
            self._reached(progress.durable_d)

    def _reached(self, d: int) -> None:
        if self._waiters:
            for _, waiter in [each for each in self._waiters if each[0] <= d]:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters = [each for each in self._waiters if each[0] > d]
        if self._failed is None:
            self._on_durable(d)

    async def _durable(self, d: int) -> None:
        """Wait until everything up to d is durable."""
        self._require_alive()
        if self._progress.durable_d >= d:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((d, waiter))
        await waiter

    # -- minding the journal and the disk's room -------------------------------------------------------

    async def _mind(self) -> None:
        while True:
            await self._pause(self._attention, TICK_S)
            if self._progress.failure is not None:
                await self._mend(*self._progress.failure)
            elif self._journaling.is_due(self._progress):
                with contextlib.suppress(NoSpace):  # it goes on in the file that it has
                    await self._go_on(spoiled=False)
            await self._look()

    @staticmethod
    async def _pause(event: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # not wait_for, which may swallow a cancellation
                await event.wait()
        event.clear()

    async def _look(self) -> None:
        """How much room there is; a spare for the journal."""
        opened = self.opened
        await opened.space.look()
        if opened.files.spare:
            return
        if opened.space.free_bytes > opened.files.size:
            try:
                await opened.files.make_spare()
            except OSError as error:
                if not is_full(error):
                    self._trouble = f"no spare journal file could be made: {error}"
        elif (
            opened.kept[0].journal < self._journaling.number and self._progress.durable_d > opened.kept[-1].d
        ):
            self._wanted.set()  # old journal files become spares, or make room, after snapshots

    async def _go_on(self, spoiled: bool) -> None:
        """Into the next journal file; NoSpace if there is no room for one, not even in the reserve."""
        for _ in range(2):
            try:
                await self._journaling.go_on(self.writer, spoiled)
                return
            except OSError as error:
                if not is_full(error):
                    raise
                if not await self.opened.space.release():
                    break
        raise NoSpace("there is no room for a journal file")

    async def _mend(self, op: str, number: int, where: str) -> None:
        """Do something about a failure of the writer, which stands still until then."""
        if op.startswith("journal"):
            await self._mend_journal(op, number, where)
        elif number in FULL:
            if not await self.opened.space.release():
                await self.opened.clock.sleep(TICK_S / 4)
            self._wanted.set()
            self._resume()
        else:
            await self._mend_ledger(op, number, where)

    def _resume(self) -> None:
        self.writer.resume()
        self._progress = self._progress._replace(failure=None)

    async def _mend_journal(self, op: str, number: int, where: str) -> None:
        again = self._suspect or self._progress.journal_d == self._journal_mended_at
        if again and number not in FULL:
            raise Closed(
                f"the journal failed twice, in two files ({where}: {os.strerror(number)}): nothing can be "
                "made durable any more. Look at the disk and start again; nothing confirmed is lost"
            )
        if not self._journaling.is_waiting(self._progress):
            try:
                await self._go_on(spoiled=True)
            except NoSpace:
                await self.opened.clock.sleep(TICK_S / 4)
                self._attention.set()
                return
        self._journal_mended_at = self._progress.journal_d
        if op == "journal_sync" and self.opened.options.sync == "os":
            self._suspect = True
            self._wanted.set()
        self._resume()

    async def _mend_ledger(self, op: str, number: int, where: str) -> None:
        d, times = self._ledger_mended_at
        times = times + 1 if d == self._progress.durable_d else 1
        self._ledger_mended_at = (self._progress.durable_d, times)
        parsed = LedgerFile.parse(where.rpartition("/")[2])
        if times > 2 or parsed is None:
            raise Closed(
                f"{where} could not be written ({os.strerror(number)}); look at the disk and start again"
            )
        if op == "ledger_sync":
            self._spoiled.add(parsed[0])
        if times > 1 or op == "ledger_sync":
            await self._rewrite(parsed[0].ledger)
        self._resume()

    async def _rewrite(self, ledger: int) -> None:
        """Into a file of the next generation (I35)."""
        opened = self.opened
        old = LedgerFile(ledger, opened.generations.get(ledger, 0))
        rewriter = Rewriter(opened.disk, old, opened.incarnation)
        moved = opened.moving[ledger] = asyncio.get_running_loop().create_future()
        try:
            await rewriter.open()
            written = await self.writer.use_generation(ledger, rewriter.new.generation)
            at("ledger_switched")
            await rewriter.copy(written or await rewriter.size())
            opened.generations[ledger] = rewriter.new.generation
            await self._reader.forget(ledger)
            del opened.moving[ledger]
            moved.set_result(None)
            await rewriter.sync()
            await opened.disk.sync_directory(LEDGERS)
        finally:
            if opened.moving.pop(ledger, None) is not None:
                moved.set_result(None)
            await rewriter.close()
        opened.unsynced.discard(old)
        self._rewritten += 1
        at("ledger_rewritten")

    # -- snapshots -------------------------------------------------------------------------------------

    async def _keep_snapshots(self) -> None:
        while True:
            wanted = self._wanted.is_set()
            if not wanted:
                await self._pause(self._wanted, TICK_S)
                wanted = self._wanted.is_set()
            age_s = (self.opened.clock.monotonic_ns() - self._taken_ns) / 1e9
            changed = self._progress.durable_d > self.opened.kept[-1].d
            grown = self._journaling.written_bytes - self._bytes_before >= self.opened.options.snapshot_bytes
            if wanted or grown or (changed and age_s >= self.opened.options.snapshot_s):
                self._wanted.clear()
                try:
                    await self._snapshot(clean=False)
                except NoSpace:
                    await self.opened.clock.sleep(PATIENCE_S)
                except OSError as error:
                    self._trouble = f"a snapshot could not be written: {error}"
                    await self.opened.clock.sleep(PATIENCE_S)

    async def _snapshot(self, clean: bool) -> None:
        async with self._lock:
            for attempt in range(2):
                try:
                    await self._take(clean)
                    return
                except OSError as error:
                    if not is_full(error):
                        raise
                    if attempt or not await self.opened.space.release():
                        self._trouble = "there was no room for a snapshot"
                        raise NoSpace(
                            "the disk is full, and there is no room for a snapshot; make room"
                        ) from error

    async def _take(self, clean: bool) -> None:
        opened = self.opened
        self._told()
        captured = self.machine.capture()
        next_ledger, time_ns = self.machine.log.next_ledger, self.machine.log.time
        self._start, self._capture_d = self._journaling.place(self._progress), captured.d
        bytes_before = self._journaling.written_bytes
        at("snapshot_begin")
        try:
            await self._durable(captured.d)
            while self._stable is not None and self._stable < captured.position:
                self._stable_moved.clear()
                await self._stable_moved.wait()
        finally:
            self._capture_d = 0
        start, start_d = self._start
        await self._sync_ledgers()
        at("snapshot_synced")
        meta = snapshotting.summary(
            captured,
            start,
            start_d,
            opened.generations,
            next_ledger=next_ledger,
            time_ns=time_ns,
            clean=clean,
            proven=opened.options.sync != "os",
        )
        size = await snapshotting.publish(opened.disk, meta, captured.parts, opened.incarnation)
        opened.kept[:] = [*(old for old in opened.kept if old.d < meta.d), meta][-2:]
        self._snapshots, self._snapshot_bytes = self._snapshots + 1, size
        self._bytes_before, self._taken_ns = bytes_before, opened.clock.monotonic_ns()
        self._suspect, self._trouble = False, ""
        if not opened.pins:
            await self._drop()
        await opened.space.grow(2 * size)

    async def _sync_ledgers(self) -> None:
        opened = self.opened
        for file in sorted(opened.unsynced):
            if opened.generations.get(file.ledger, 0) == file.generation:
                await self._sync_ledger(file.ledger, partial(opened.sync_ledger, file))
            opened.unsynced.discard(file)
        await snapshotting.sync_ledgers(self.writer, opened.disk, self._sync_ledger)

    async def _sync_ledger(self, ledger: int, by: Callable[[], Awaitable[None]]) -> None:
        """Sync a ledger, once: after a failure its file is given up (I35)."""
        file = LedgerFile(ledger, self.opened.generations.get(ledger, 0))
        if file not in self._spoiled:
            try:
                await by()
                return
            except OSError as error:
                self._spoiled.add(file)
                if is_full(error):
                    await self.opened.space.release()
        await self._rewrite(ledger)

    async def _drop(self) -> None:
        """What goes wrong here costs room and nothing else: it is done again after the next snapshot."""
        opened = self.opened
        try:
            await snapshotting.drop_all(
                opened.disk, opened.kept, self._journaling, opened.generations, self.writer, self._reader
            )
        except OSError as error:
            self._trouble = f"what is no longer needed could not be removed: {error}"
