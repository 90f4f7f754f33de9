"""A running store: follow the writer, handle failures, watch the disk's space, and take snapshots."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from holdfast._core import at
from holdfast.errors import Closed, HoldfastError, NoSpace
from holdfast.group import Position
from holdfast.ledger.directory import OpenDirectory, StoreStats
from holdfast.ledger.failures import FailureRecovery
from holdfast.ledger.files.entries import LedgerReader
from holdfast.ledger.journal.rotation import JournalRotation
from holdfast.ledger.journal.scan import wipe
from holdfast.ledger.layout import LedgerFile, Place
from holdfast.ledger.recovery import StateMachine
from holdfast.ledger.snapshot import capture as snapshot_capture
from holdfast.ledger.snapshot.format import Meta
from holdfast.ledger.space import Demand, is_full
from holdfast.ledger.writer import SYNC_AT_ONCE, RoundWriter

TICK_S = 1.0
"""How often the disk's free space and the snapshot's age are checked."""
FRESH_BYTES = 32 << 20
"""After this many admitted bytes the disk's free space is read again."""
SWEEP = 16
"""After this many snapshots every name is checked for files that are not needed."""
CLOSING_S = 60.0
"""How long a close waits for the last events to be durable, and for the last snapshot, by default."""
PATIENCE_S = 10.0
"""How long after a failed snapshot the next one is tried."""


class Running:
    """A store between `start` and `close`."""

    def __init__(
        self,
        opened: OpenDirectory,
        machine: StateMachine,
        writer: RoundWriter,
        rotation: JournalRotation,
        reader: LedgerReader,
        on_durable: Callable[[int], None],
        on_failed: Callable[[HoldfastError], None],
    ) -> None:
        self.opened = opened
        self.machine = machine
        self.writer = writer
        self._rotation = rotation
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
        self._looked_at = -1
        self._wanted = asyncio.Event()
        self._failures = FailureRecovery(opened, writer, rotation, reader, self._wanted.set)
        self._lock = asyncio.Lock()
        self._start: tuple[Place, int] | None = None
        """Where the journal starts for the snapshot that is being taken."""
        self._capture_d = 0
        self._bytes_before = 0
        self._taken_ns = opened.clock.monotonic_ns()
        self._snapshots = self._snapshot_bytes = 0
        self._trouble = ""
        self._sweep = True
        """Whether files may be left that only a check of every name finds."""

    # -- calls of the store ----------------------------------------------------------------------------

    def start(self) -> None:
        self._spawn(self._serve, "serve")

    def admit(self, size: int) -> None:
        self._require_alive()
        self._admitted += size
        if self._admitted >= FRESH_BYTES:
            self._admitted = 0
            self._attention.set()
        room = self._rotation.room(self._progress)
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

    def journal_end(self) -> tuple[Place, int]:
        self._require_alive()
        self._told()
        return self._rotation.place(self._progress)

    async def rescue(self, ledger: int) -> bool:
        """Rewrite a ledger whose file is gone; `False` if that is not possible."""
        self._require_alive()
        return await self._failures.rescue(ledger)

    @property
    def stalled_s(self) -> float:
        """Seconds for which events wait for room on a full disk; 0.0: none waits."""
        since = self._failures.full_since_ns
        if (
            since is None
            or self._failed is not None
            or self._progress.durable_d >= self.machine.log.next_d - 1
        ):
            return 0.0
        return (self.opened.clock.monotonic_ns() - since) / 1e9

    def stats(self) -> StoreStats:
        opened, log = self.opened, self.machine.log
        return StoreStats(
            sync=opened.options.sync,
            applied_d=log.next_d - 1,
            durable_d=self._progress.durable_d,
            snapshot_d=opened.kept[-1].d,
            rounds=self._progress.rounds,
            journal_bytes=self._progress.journal_bytes,
            journal_files=self._rotation.number,
            snapshots=self._snapshots,
            snapshot_bytes=self._snapshot_bytes,
            pending_bytes=log.pending_bytes,
            free_bytes=opened.space.free_bytes,
            reserved=opened.space.reserved,
            refused=opened.space.refused,
            rewritten=self._failures.rewritten,
            trouble=self._trouble,
            failed=str(self._failed or ""),
        )

    async def stop(self, clean: bool, within_s: float = CLOSING_S) -> None:
        """Stop; with `clean`, first take a last snapshot if it is ready in time."""
        whole = False
        try:
            if clean and self._failed is None:
                with contextlib.suppress(HoldfastError, OSError):  # TimeoutError is an OSError
                    async with asyncio.timeout(within_s):
                        await self._finish()
                    whole = True
        finally:
            await self._end()
        if whole:  # bytes of an earlier use of this file would look like a torn round
            await wipe(self.opened.disk, [self._rotation.place(self._progress)[0]])

    async def _end(self) -> None:
        """Stop tasks and writer, also if cancelled: nothing is written after the lock."""
        cancelled = False
        while True:
            try:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self.writer.stop(flush=False)
                break
            except asyncio.CancelledError:
                cancelled = True
        self._progress = self.writer.poll()
        await self._rotation.close()
        self._fail(Closed("the store was closed"), tell=False)
        if cancelled:
            raise asyncio.CancelledError

    async def _finish(self) -> None:
        lost = await self._failures.look_after_journal()
        last_d = self.machine.log.next_d - 1
        await self._durable(last_d)
        if lost or not (self.opened.kept[-1].clean and self.opened.kept[-1].d == last_d):
            await self._snapshot(clean=True)

    def _require_alive(self) -> None:
        if self._failed is not None:
            raise self._failed

    # -- following the writer --------------------------------------------------------------------------

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(work), name=f"holdfast-store-{name}")
        self._tasks.append(task)

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """Stop the store on an error that a task does not handle."""
        try:
            await work()
        except HoldfastError as error:
            self._fail(error)
        except OSError as error:
            self._fail(Closed(f"the store has stopped: {error}; look at the disk and start again"))
        except Exception as error:  # a defect: callers that wait get an error
            self._fail(Closed(f"the store has stopped: {error!r}; this is a defect, report it"))
            raise

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
        await self._rotation.begin(self.writer)
        self.writer.start(self._told)
        self.writer.wake()
        self._spawn(self._keep_snapshots, "snapshots")
        await self._mind()

    def _told(self) -> None:
        """Take the writer's news: failures, durable events, a full journal file."""
        before, self._progress = self._progress, self.writer.poll()
        progress = self._progress
        if progress.journal_d <= self._capture_d:
            self._start = self._rotation.place(progress)
        if progress.failure is not None or self._rotation.is_due(progress):
            self._attention.set()
        if self._has_grown() and not self._lock.locked():
            self._wanted.set()
        if progress.durable_d > before.durable_d:
            self._failures.full_since_ns = None
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
            await self._require_lock()
            if self._progress.failure is not None:
                if await self._failures.mend(self._progress):
                    self._told()
                else:
                    self._attention.set()
            try:
                if self._progress.failure is None:
                    await self._failures.look_after_journal()
                if self._progress.failure is None and self._rotation.is_due(self._progress):
                    await self._failures.go_on(needed=False)
                await self._look()
            except NoSpace:
                pass  # it continues in the current file
            except OSError as error:
                self._trouble = f"the next journal file is not ready: {error}"

    async def _require_lock(self) -> None:
        """Raise `Closed` if another process may have this directory open."""
        if not await self.opened.lock.is_held():
            raise Closed(
                "the data directory is not locked any more. Other code in this process closed the lock's "
                "descriptor (a daemoniser, os.closerange?), or the directory was moved or replaced. Open "
                "the broker again; nothing confirmed is lost"
            )

    @staticmethod
    async def _pause(event: asyncio.Event, seconds: float) -> bool:
        """Wait for an event at most `seconds`; clear it, and return whether it was set."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # not wait_for, which may swallow a cancellation
                await event.wait()
        was_set = event.is_set()
        event.clear()
        return was_set

    async def _look(self) -> None:
        """Check the disk's free space, and prepare a spare journal file."""
        opened = self.opened
        idle, self._looked_at = self._looked_at, self._progress.journal_bytes
        await opened.space.look()
        if opened.space.free_bytes < opened.files.size:
            await opened.files.shrink()
        if opened.files.spares:
            return
        if opened.space.free_bytes > opened.files.size:
            if not self._rotation.is_half_full(self._progress) and self._progress.journal_bytes != idle:
                return  # the next snapshot may free one in time
            try:
                await opened.files.make_spare()
            except OSError as error:
                if not is_full(error):
                    self._trouble = f"a spare journal file could not be created: {error}"
        elif opened.kept[0].journal < self._rotation.number and self._progress.durable_d > opened.kept[-1].d:
            self._wanted.set()  # a snapshot turns old journal files into spares or free space

    # -- snapshots -------------------------------------------------------------------------------------

    def _has_grown(self) -> bool:
        """Return whether the journal behind the last snapshot makes another one due."""
        return self._progress.journal_bytes - self._bytes_before >= self.opened.options.snapshot_bytes

    async def _keep_snapshots(self) -> None:
        while True:
            wanted = await self._pause(self._wanted, TICK_S)
            age_s = (self.opened.clock.monotonic_ns() - self._taken_ns) / 1e9
            changed = self._progress.durable_d > self.opened.kept[-1].d
            if wanted or self._has_grown() or (changed and age_s >= self.opened.options.snapshot_s):
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
                            "the disk is full, and there is no room for a snapshot; free space on the disk"
                        ) from error

    async def _take(self, clean: bool) -> None:
        opened = self.opened
        await self._failures.look_after_journal()  # recovery will start in the journal file named below
        self._told()
        captured = self.machine.capture()
        next_ledger, time_ns = self.machine.log.next_ledger, self.machine.log.time
        self._start, self._capture_d = self._rotation.place(self._progress), captured.d
        bytes_before = self._progress.journal_bytes
        at("snapshot_begin")
        try:
            await self._durable(captured.d)
            while self._stable is not None and self._stable < captured.position:
                self._stable_moved.clear()
                await self._stable_moved.wait()
        finally:
            self._capture_d = 0
        start, start_d = self._start
        generations = None
        while generations is None:
            await self._sync_ledgers(next_ledger)
            generations = await self._failures.settled(captured.ledgers)
        at("snapshot_synced")
        meta = await asyncio.to_thread(
            snapshot_capture.summary,
            captured,
            start,
            start_d,
            generations,
            next_ledger=next_ledger,
            time_ns=time_ns,
            clean=clean,
            proven=opened.options.sync != "os",
        )
        size = await snapshot_capture.publish(opened.disk, meta, captured.parts, opened.incarnation)
        before = opened.kept[-1]
        opened.kept[:] = [*(old for old in opened.kept if old.d < meta.d), meta][-2:]
        self._snapshots, self._snapshot_bytes = self._snapshots + 1, size
        self._bytes_before, self._taken_ns = bytes_before, opened.clock.monotonic_ns()
        self._failures.suspect, self._trouble = False, ""
        if not opened.pins:
            await self._drop(before)
        await opened.space.grow(2 * size)
        self._attention.set()  # there may be space for a spare now

    async def _sync_ledgers(self, next_ledger: int) -> None:
        opened = self.opened

        async def one(file: LedgerFile) -> None:
            if opened.current_file(file.ledger) == file:
                await self._failures.sync_ledger(file.ledger, partial(opened.sync_ledger, file))
            opened.unsynced.discard(file)

        files = sorted(opened.unsynced)
        for begin in range(0, len(files), SYNC_AT_ONCE):
            await snapshot_capture.abreast(one(file) for file in files[begin : begin + SYNC_AT_ONCE])
        await snapshot_capture.sync_ledgers(self.writer, opened.disk, self._failures.sync_ledger, next_ledger)

    async def _drop(self, before: Meta) -> None:
        """Delete files that are not needed. A failure is repeated later."""
        opened = self.opened
        kept, disk = list(opened.kept), opened.disk
        try:
            await snapshot_capture.drop_snapshots(disk, kept)
            await self._rotation.drop(kept[0].journal)
            alive = await asyncio.to_thread(kept[-1].numbers)
            if self._sweep or self._failures.rewritten or self._snapshots % SWEEP == 0:
                going = await snapshot_capture.find_garbage(disk, kept, opened.generations)
            else:
                going = await asyncio.to_thread(
                    snapshot_capture.gone_since, before, kept[-1], opened.generations
                )
            self._sweep = True
            await snapshot_capture.drop_ledgers(disk, going, alive, self.writer, self._reader)
            self._sweep = False
        except OSError as error:
            self._trouble = f"files that are not needed could not be deleted: {error}"
