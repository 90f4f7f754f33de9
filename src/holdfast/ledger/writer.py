"""Who makes rounds durable: the core's thread on real files, or a task on any disk. One interface, one suite.

```
 a round:  the steps of `_core.ROUND_PLAN`, in their order ─► reported
```

The plan stands in one place (`native/holdfast/log/round_plan.hpp`), and both writers execute it.

Nothing is reported durable before its journal was synced and its ledgers were written (I33). What fails stays
in memory: the writer says so and stands still until `resume`. A failed sync is never tried again on the same
file: the round goes into the next journal, which `use_journal` must have named (I34).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, cast

from holdfast import _core
from holdfast._core import Log, Round, at
from holdfast.errors import Misuse
from holdfast.group import BEGINNING, Position
from holdfast.ledger.journal.scan import write_all
from holdfast.ledger.layout import FILE_HEADER, FileKind, LedgerFile, file_header, salt_of
from holdfast.system import Clock, Disk, File
from holdfast.system.disk import SystemFile, in_thread

Sync = Literal["group", "always", "os"]

PATIENCE_S = 0.010
"""How long what is not urgent may wait for company."""
SYNC_AT_ONCE = 32
"""How many ledgers' descriptors are duplicated at a time."""
OS_SYNC_S = 1.0
"""How often `sync = os` syncs."""


class Progress(NamedTuple):
    """How far a writer is."""

    durable_d: int
    """The journal is synced up to here, and the ledgers are written."""
    journal_d: int
    """The last event before `journal_offset`."""
    journal_offset: int
    """Where the next round goes, in the journal in use."""
    journals: int
    """Which call of `use_journal` is in effect, from 1; 0: none yet."""
    rounds: int
    journal_bytes: int
    """Written by this writer, to all journals."""
    failure: tuple[str, int, str] | None
    """The operation, its errno, and where. The writer stands still."""


@dataclass(frozen=True)
class Unsynced:
    """A ledger that was written since it was last synced."""

    ledger: int
    data: File
    index: File
    size: int
    """Of the data file, when this was asked."""
    owned: bool = True
    """Whoever asked closes the files."""

    async def sync(self) -> None:
        await self.data.sync()
        await self.index.sync()

    async def close(self) -> None:
        if self.owned:
            await self.data.close()
            await self.index.close()


class RoundWriter(Protocol):
    """What a store needs of a writer. Except for the journal's file, all of it is about rounds of a `Log`."""

    def start(self, told: Callable[[], None]) -> None:
        """Begin. `told` is called on the loop when `poll` has something new."""

    async def stop(self, flush: bool) -> None:
        """End; with `flush` after all that waits, unless it stands still."""

    def wake(self) -> None:
        """There may be something to write."""

    def poll(self) -> Progress:
        """How far it is."""

    def use_journal(self, file: File, offset: int) -> None:
        """From the next round on."""

    def resume(self) -> None:
        """Do again what failed."""

    def set_stable(self, position: Position) -> None:
        """For the headers of the rounds to come."""

    def unsynced(self) -> list[Unsynced]:
        """Ledgers to sync, those that wait longest first; not all at once."""

    def synced(self, ledger: int, size: int) -> None:
        """This ledger was synced up to there."""

    def forget(self, ledger: int) -> None:
        """Its files are going to be removed."""

    def rescued(self, ledger: int) -> File | None:
        """Return the data file that it has open, for one whose name is gone. The receiver closes it."""

    async def use_generation(self, ledger: int, generation: int) -> int:
        """Write it to these files from now on. How far the others were written; 0: not by this writer."""


class NativeWriter:
    """The core's writer: a thread that never takes the GIL."""

    def __init__(self, log: Log, directory: str, sync: Sync, incarnation: bytes) -> None:
        self._writer = _core.Writer(log, directory, sync, incarnation)
        self._told: Callable[[], None] | None = None
        self._last: Progress | None = None
        """How far it was when it ended."""

    def start(self, told: Callable[[], None]) -> None:
        asyncio.get_running_loop().add_reader(self._writer.fileno(), told)
        self._told = told
        self._writer.start()

    async def stop(self, flush: bool) -> None:
        if self._last is not None:
            return
        if self._told is not None:
            await in_thread(self._writer.stop, flush)
            asyncio.get_running_loop().remove_reader(self._writer.fileno())
            self._told()
            self._told = None
        self._last = self.poll()
        del self._writer  # its files with it: of an object in a cycle they would stay until it is collected

    def wake(self) -> None:
        """It sees for itself."""

    def poll(self) -> Progress:
        if self._last is not None:
            return self._last
        found = self._writer.poll()
        return Progress(
            found.durable_d,
            found.journal_d,
            found.journal_offset,
            found.journals,
            found.rounds,
            found.journal_bytes,
            found.error,
        )

    def use_journal(self, file: File, offset: int) -> None:
        self._writer.use_journal(cast(SystemFile, file).fileno(), offset)

    def resume(self) -> None:
        self._writer.resume()

    def set_stable(self, position: Position) -> None:
        if self._last is None:
            self._writer.set_stable(position.view, position.index)

    def unsynced(self) -> list[Unsynced]:
        return [
            Unsynced(ledger, SystemFile(data), SystemFile(index), size)
            for ledger, data, index, size in self._writer.ledgers(SYNC_AT_ONCE)
        ]

    def synced(self, ledger: int, size: int) -> None:
        self._writer.synced(ledger, size)

    def forget(self, ledger: int) -> None:
        self._writer.forget(ledger)

    def rescued(self, ledger: int) -> File | None:
        descriptor = self._writer.open_data(ledger)
        return SystemFile(descriptor) if descriptor >= 0 else None

    async def use_generation(self, ledger: int, generation: int) -> int:
        return await asyncio.to_thread(self._writer.use_generation, ledger, generation)


@dataclass
class _Ledger:
    data: File
    index: File
    written: int
    synced: int


class SimWriter:
    """The same without a thread, over any `Disk`: what the simulation runs."""

    def __init__(self, log: Log, disk: Disk, sync: Sync, incarnation: bytes, clock: Clock) -> None:
        self._log = log
        self._disk = disk
        self._mode = sync
        self._incarnation = incarnation
        self._salt = salt_of(incarnation)
        self._clock = clock
        self._told: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None
        self._work = asyncio.Event()
        self._idle = asyncio.Lock()
        """Held while ledgers are written."""
        self._stopping = False
        self._flush = False

        self._round: Round | None = None
        self._journal_written = self._journal_synced = False
        self._writes_done = 0
        self._failure: tuple[str, int, str] | None = None

        self._journal: File | None = None
        self._offset = 0
        self._space = 0
        """Of the round that is being written, in the journal."""
        self._next: tuple[File, int] | None = None
        self._calls = 0
        self._left: list[File] = []
        self._stable = BEGINNING
        self._journals = 0
        self._rounds = 0
        self._journal_bytes = 0
        self._journal_d = self._durable_d = self._synced_d = log.next_d - 1
        self._sync_at_ns: int | None = None

        self._ledgers: dict[int, _Ledger] = {}
        self._generations: dict[int, int] = {}

    # -- what the store asks ---------------------------------------------------------------------------

    def start(self, told: Callable[[], None]) -> None:
        self._told = told
        self._task = asyncio.get_running_loop().create_task(self._run(), name="holdfast-writer")

    async def stop(self, flush: bool) -> None:
        if self._task is None:
            return
        self._stopping, self._flush = True, flush
        self._work.set()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()
        self._task = None
        for ledger in self._ledgers.values():
            await ledger.data.close()
            await ledger.index.close()
        self._ledgers.clear()
        self._told()

    def wake(self) -> None:
        self._work.set()

    def poll(self) -> Progress:
        return Progress(
            self._durable_d,
            self._journal_d,
            self._offset,
            self._journals,
            self._rounds,
            self._journal_bytes,
            self._failure,
        )

    def use_journal(self, file: File, offset: int) -> None:
        self._next = (file, offset)
        self._calls += 1

    def resume(self) -> None:
        if self._failure is None:
            raise Misuse("the writer has not failed")
        if self._failure[0] == "journal_sync" and self._next is None:
            raise Misuse("a failed sync is never tried again on the same file; call use_journal() first")
        self._failure = None
        self._work.set()

    def set_stable(self, position: Position) -> None:
        self._stable = position

    def unsynced(self) -> list[Unsynced]:
        return [
            Unsynced(number, ledger.data, ledger.index, ledger.written, owned=False)
            for number, ledger in self._ledgers.items()
            if ledger.written > ledger.synced
        ]

    def synced(self, ledger: int, size: int) -> None:
        if found := self._ledgers.get(ledger):
            found.synced = max(found.synced, min(size, found.written))

    def forget(self, ledger: int) -> None:
        self._ledgers.pop(ledger, None)
        self._generations.pop(ledger, None)

    def rescued(self, ledger: int) -> File | None:
        return None

    async def use_generation(self, ledger: int, generation: int) -> int:
        async with self._idle:
            self._generations[ledger] = generation
            found = self._ledgers.pop(ledger, None)
            return found.written if found else 0

    # -- the task --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while await self._wait():
            try:
                if self._round is None:
                    await self._take()
                if self._round is not None:
                    self._switch()
                    await self._write_round(self._round)
                if self._sync_at_ns is not None and self._clock.monotonic_ns() >= self._sync_at_ns:
                    await self._sync_dirty()
            except _Failure as failure:
                self._failure = failure.what
            self._told()
        if self._failure is None and self._sync_at_ns is not None:
            try:
                await self._sync_dirty()
            except _Failure as failure:
                self._failure = failure.what

    async def _wait(self) -> bool:
        """Until there is something to do. False: end."""
        while True:
            self._work.clear()
            waits = self._round is not None or self._log.pending_bytes > 0
            if self._stopping and (self._failure is not None or not self._flush or not waits):
                return False
            if self._failure is None and waits:
                return True
            if self._failure is None and self._sync_at_ns is not None:
                left_s = (self._sync_at_ns - self._clock.monotonic_ns()) / 1e9
                if left_s <= 0:
                    return True
                asyncio.get_running_loop().call_later(left_s, self._work.set)
            await self._work.wait()

    async def _take(self) -> None:
        self._round = self._log.take_round()
        self._journal_written = self._journal_synced = self._round is not None and not self._round.first_d
        self._writes_done = 0
        if self._round is not None and not self._round.urgent and self._mode != "always":
            with contextlib.suppress(TimeoutError):  # until something else comes
                async with asyncio.timeout(PATIENCE_S):
                    await self._work.wait()

    def _switch(self) -> None:
        if self._next is None:
            return
        if self._sync_at_ns is not None and self._journal is not None:
            self._left.append(self._journal)
        (self._journal, self._offset), self._next = self._next, None
        self._journals = self._calls

    async def _write_round(self, found: Round) -> None:
        # Not the exception itself: its traceback would keep the round, and its bytes, as long as this frame.
        ledger_failure: tuple[str, int, str] | None = None
        for step in _core.ROUND_PLAN:
            match step:
                case "journal_write":
                    if not self._journal_written:
                        await self._write_journal(found)
                case "ledger_write":  # the journal does not wait for one that has no room
                    ledger_failure = await self._write_ledgers(found)
                case "journal_sync":
                    if not self._journal_synced:
                        await self._sync_journal(found)
                case _:
                    raise AssertionError(f"the plan has a step that this writer does not know: {step}")
        if self._journal_synced:
            self._journal_d = max(self._journal_d, found.settled_d)
        if ledger_failure is not None:
            raise _Failure(*ledger_failure)
        self._durable_d = found.settled_d
        self._rounds += 1
        self._round = None
        at("round_done")

    async def _write_ledgers(self, found: Round) -> tuple[str, int, str] | None:
        async with self._idle:
            writes = found.writes
            while self._writes_done < len(writes):
                try:
                    await self._write_ledger(*writes[self._writes_done])
                except _Failure as failure:
                    return failure.what
                self._writes_done += 1
        return None

    async def _write_journal(self, found: Round) -> None:
        where = f"the journal at offset {self._offset}"
        if self._journal is None:
            raise _Failure("journal_write", errno.EBADF, "no journal; call use_journal() first")
        stable, synced_d = self._stable, self._synced_d if self._mode == "os" else found.first_d - 1
        data = found.journal(found.first_d - 1, stable.view, stable.index, synced_d, self._salt)
        try:
            await write_all(self._journal, self._offset, data)
        except OSError as error:
            raise _Failure("journal_write", error.errno or errno.EIO, where) from None
        self._journal_written, self._space = True, len(data)

    async def _sync_journal(self, found: Round) -> None:
        assert self._journal is not None
        if self._mode == "os":
            if self._sync_at_ns is None:
                self._sync_at_ns = self._clock.monotonic_ns() + round(OS_SYNC_S * 1e9)
        else:
            try:
                await self._journal.sync()
            except OSError as error:
                self._journal_written = False  # all of it goes to the next journal
                where = f"the journal at offset {self._offset}"
                raise _Failure("journal_sync", error.errno or errno.EIO, where) from None
            self._synced_d = found.last_d
        self._offset += self._space
        self._journal_bytes += self._space
        self._journal_synced = True

    async def _write_ledger(
        self, ledger: int, offset: int, data: bytes, index_offset: int, index: bytes
    ) -> None:
        file = LedgerFile(ledger, self._generations.get(ledger, 0))
        op, path = "ledger_open", file.data_path
        try:
            if ledger not in self._ledgers:
                self._ledgers[ledger] = await self._open_ledger(file, offset)
            found = self._ledgers[ledger]
            op = "ledger_write"
            await write_all(found.data, offset, data)
            op, path = "index_write", file.index_path
            await write_all(found.index, index_offset, index)
            found.written = offset + len(data)
        except OSError as error:
            raise _Failure(op, error.errno or errno.EIO, path) from None

    async def _open_ledger(self, file: LedgerFile, offset: int) -> _Ledger:
        """A ledger that begins here has no bytes yet: whatever a crash left under its name is emptied."""
        fresh = offset == FILE_HEADER and file.generation == 0
        files: list[File] = []
        for path, kind in ((file.data_path, FileKind.LEDGER_DATA), (file.index_path, FileKind.LEDGER_INDEX)):
            try:
                files.append(await self._disk.open(path, create=fresh))
            except FileExistsError:
                files.append(await self._disk.open(path))
                await files[-1].truncate(0)
            if fresh:
                await write_all(files[-1], 0, file_header(kind, file.ledger, self._incarnation))
        return _Ledger(files[0], files[1], offset, offset)

    async def _sync_dirty(self) -> None:
        """`sync = os`: what was written in the last second, also to a journal that was left since."""
        self._sync_at_ns = None
        synced_d = self._journal_d
        left, self._left = self._left, []
        try:
            for file in left:
                await file.sync()
            if self._journal is not None:
                await self._journal.sync()
        except OSError as error:
            where = f"the journal at offset {self._offset}"
            raise _Failure("journal_sync", error.errno or errno.EIO, where) from None
        self._synced_d = synced_d


class _Failure(Exception):
    def __init__(self, op: str, number: int, where: str) -> None:
        super().__init__(op, number, where)
        self.what = (op, number, where)
