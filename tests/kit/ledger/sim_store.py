"""Write and read a store over any `Disk`, without the core's thread."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from holdfast import _core
from holdfast._core import Entries, Log, Round, at, parse_run
from holdfast.errors import Corrupt, Misuse
from holdfast.group import BEGINNING, Position
from holdfast.ledger.layout import (
    FILE_HEADER,
    INDEX_ENTRY,
    FileKind,
    LedgerFile,
    file_header,
    require_header,
    salt_of,
)
from holdfast.ledger.store_options import SyncMode
from holdfast.ledger.writer import Progress, Unsynced
from holdfast.system import Clock, Disk, File
from holdfast.system.file_steps import write_all

PATIENCE_S = 0.010
"""How long a round that is not urgent waits for more events."""
OS_SYNC_S = 1.0
"""How often `sync = os` syncs."""
COUNT_MAX = 4096
"""How many entries one read returns at most."""
FILES_MAX = 128


class SimFiles:
    """Creates writer and reader over any `Disk`, in place of the core's."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk, self._clock = disk, clock

    def writer(self, log: Log, sync: SyncMode, incarnation: bytes) -> SimWriter:
        return SimWriter(log, self._disk, sync, incarnation, self._clock)

    def reader(self, incarnation: bytes) -> DiskReader:
        return DiskReader(self._disk, incarnation)


@dataclass
class _Ledger:
    data: File
    index: File
    written: int
    synced: int


class SimWriter:
    """A writer like the core's, as a task over any `Disk`, for the simulation."""

    def __init__(self, log: Log, disk: Disk, sync: SyncMode, incarnation: bytes, clock: Clock) -> None:
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
        """Bytes of the current round in the journal."""
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
            raise Misuse("a failed sync is never repeated on the same file; call use_journal() first")
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
        """Wait for work; return `False` at the end."""
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
            with contextlib.suppress(TimeoutError):  # until more events come
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
        # Not the exception itself: its traceback would hold the round and its bytes as long as this frame.
        ledger_failure: tuple[str, int, str] | None = None
        for step in _core.ROUND_PLAN:
            match step:
                case "journal_write":
                    if not self._journal_written:
                        await self._write_journal(found)
                case "ledger_write":  # a ledger without room does not delay the journal
                    ledger_failure = await self._write_ledgers(found)
                case "journal_sync":
                    if not self._journal_synced:
                        await self._sync_journal(found)
                case _:
                    raise AssertionError(f"this writer does not know step {step} of the plan")
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
        """Open a ledger; empty the files of a ledger that begins here."""
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
        """Sync the last second's writes (`sync = os`), also of a journal that was left."""
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


class DiskReader:
    """A reader like the core's, over any `Disk`."""

    def __init__(self, disk: Disk, incarnation: bytes) -> None:
        self._disk = disk
        self._incarnation = incarnation
        self._open: OrderedDict[LedgerFile, tuple[File, File]] = OrderedDict()

    async def read(
        self, file: LedgerFile, first_ordinal: int, entry: int, count_max: int, size_max: int, label: int
    ) -> Entries:
        data, index = await self._files(file)
        count = max(1, min(count_max, COUNT_MAX))
        raw = await index.read(FILE_HEADER + INDEX_ENTRY * entry, INDEX_ENTRY * (count + 1))
        offsets = struct.unpack(f"<{len(raw) // INDEX_ENTRY}Q", raw[: len(raw) // INDEX_ENTRY * INDEX_ENTRY])
        if not offsets:
            raise Corrupt(f"{file.index_path} ends before entry {entry}; run `holdfast doctor`")
        ends = [*offsets[1:], await data.size()] if len(offsets) <= count else [*offsets[1:]]
        taken = 1
        while taken < min(count, len(ends)) and ends[taken] - offsets[0] <= size_max:
            taken += 1
        block = await data.read(offsets[0], max(0, ends[taken - 1] - offsets[0]))
        return parse_run(label or file.ledger, first_ordinal, entry, raw[: INDEX_ENTRY * taken], block)

    async def time(self, file: LedgerFile, entry: int) -> int:
        return (await self.read(file, 0, entry, 1, 0, 0)).time(0)

    async def forget(self, ledger: int) -> None:
        for file in [file for file in self._open if file.ledger == ledger]:
            await self._close(self._open.pop(file))

    async def close(self) -> None:
        while self._open:
            await self._close(self._open.popitem()[1])

    async def _files(self, file: LedgerFile) -> tuple[File, File]:
        found = self._open.get(file)
        if found is None:
            data, index = await self._opened(file)
            found = self._open.setdefault(file, (data, index))
            if found[0] is not data:  # another reader was quicker
                await self._close((data, index))
            elif len(self._open) > FILES_MAX:
                await self._close(self._open.popitem(last=False)[1])
        if file in self._open:
            self._open.move_to_end(file)
        return found

    async def _opened(self, file: LedgerFile) -> tuple[File, File]:
        """Open both files, or none: the second may be gone, or the first another ledger's."""
        async with contextlib.AsyncExitStack() as opened:
            data = await self._disk.open(file.data_path)
            opened.push_async_callback(data.close)
            index = await self._disk.open(file.index_path)
            opened.push_async_callback(index.close)
            head = await data.read(0, FILE_HEADER)
            require_header(file.data_path, head, FileKind.LEDGER_DATA, file.ledger, self._incarnation)
            opened.pop_all()
            return data, index

    @staticmethod
    async def _close(files: tuple[File, File]) -> None:
        for file in files:
            await file.close()
