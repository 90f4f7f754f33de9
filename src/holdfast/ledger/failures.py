"""Handle failed calls of a running store (I34, I35, I38).

| failure                        | what the store does                                                       |
|--------------------------------|---------------------------------------------------------------------------|
| a write or sync of the journal | writes the round to a new file; if that fails too, it stops               |
| the journal's file was removed | a new file, and a snapshot at once: the ledgers have the lost events      |
| a sync of the journal, `os`    | a new file, and a snapshot at once: it is not known which rounds are lost |
| a write to a ledger            | repeats it; then rewrites the ledger; then stops                          |
| a sync of a ledger             | rewrites the ledger into a file of the next generation                    |
| a ledger's file was removed    | the same, from the file that is still open                                |
| any of these, on a full disk   | releases the reserve; then tries again until there is room                |
| a snapshot                     | tries again later; the journal grows until then                           |
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Iterable

from holdfast._core import at
from holdfast.errors import Closed, NoSpace
from holdfast.ledger.directory import OpenDirectory
from holdfast.ledger.files.entries import LedgerReader
from holdfast.ledger.files.rebuild import Rewriter
from holdfast.ledger.journal.rotation import JournalRotation
from holdfast.ledger.layout import LEDGERS, LedgerFile, journal_path
from holdfast.ledger.space import FULL, SCARCE, is_full, no_space
from holdfast.ledger.writer import Progress, RoundWriter
from holdfast.system import File

LOG = logging.getLogger("holdfast.store")

LOST = (errno.EBADF, errno.ENOENT)
"""Errors of a descriptor that other code closed, and of a file that other code removed."""
WAIT_S = 0.25
"""Pause before a retry on a full disk."""


class FailureRecovery:
    """Repairs what failed, and remembers it, so that a failed sync is never repeated."""

    def __init__(
        self,
        opened: OpenDirectory,
        writer: RoundWriter,
        rotation: JournalRotation,
        reader: LedgerReader,
        want_snapshot: Callable[[], None],
    ) -> None:
        self._opened = opened
        self._writer = writer
        self._rotation = rotation
        self._reader = reader
        self._want_snapshot = want_snapshot
        self._journal_mended_at = -1
        self._ledger_mended_at = (-1, 0)
        self._spoiled: set[LedgerFile] = set()
        """Ledger files whose sync has failed: they are not synced again."""
        self._looking = asyncio.Lock()
        """One task at a time handles files that other code has removed."""
        self._turn = asyncio.Lock()
        """One ledger is rewritten at a time."""
        self.full_since_ns: int | None = None
        """Since when the writer waits for room, without any progress."""
        self.suspect = False
        """`sync = os`: a sync has failed, and no snapshot has been taken since."""
        self.rewritten = 0
        """How many ledgers were rewritten."""

    async def go_on(self, needed: bool) -> None:
        """Continue in the next journal file.

        `needed`: the writer has stopped until it has one. It may be a small one, in the reserve's space.
        Otherwise there is time: the next snapshots free old files.

        Raises:
            NoSpace: there is not enough room for a file.
        """
        try:
            with no_space("the journal cannot continue in another file"):
                await self._rotation.go_on(self._writer, spoiled=needed)
        except NoSpace:
            self._want_snapshot()
            if not needed:
                raise
            await self._opened.space.release()
            with no_space("the journal cannot continue in another file"):
                await self._rotation.go_on(self._writer, spoiled=needed, small=True)

    async def mend(self, progress: Progress) -> bool:
        """Repair a failure of the writer and resume it; `False` if the disk is full.

        Raises:
            Closed: it cannot be repaired.
        """
        assert progress.failure is not None
        op, number, where = progress.failure
        try:
            if op.startswith("journal"):
                await self._mend_journal(progress, op, number, where)
            elif number in SCARCE:
                await self._opened.clock.sleep(WAIT_S)
            elif number in FULL and op != "ledger_sync":
                await self._wait_for_room()
            else:
                await self._mend_ledger(progress, op, number, where)
        except NoSpace:
            await self._wait_for_room()
            return False
        except OSError as error:
            if error.errno not in SCARCE:
                raise
            await self._opened.clock.sleep(WAIT_S)
            return False
        self._writer.resume()
        return True

    async def _wait_for_room(self) -> None:
        """Release the reserve; if it is in use already, wait a little."""
        self._want_snapshot()  # a snapshot may make room
        if not await self._opened.space.release():
            if self.full_since_ns is None:
                self.full_since_ns = self._opened.clock.monotonic_ns()
            await self._opened.clock.sleep(WAIT_S)

    async def _mend_journal(self, progress: Progress, op: str, number: int, where: str) -> None:
        again = self.suspect or progress.journal_d == self._journal_mended_at
        if again and number not in FULL:
            raise Closed(
                f"the journal failed twice, in two files ({where}: {os.strerror(number)}), so nothing can be "
                "made durable. Check the disk and start again; nothing confirmed is lost"
            )
        if not self._rotation.is_waiting(progress):
            await self.go_on(needed=True)
        self._journal_mended_at = progress.journal_d
        if number in LOST:
            self._tell(f"{where} was removed, or its descriptor closed, by other code")
            self._want_snapshot()
        if op == "journal_sync" and self._opened.options.sync == "os":
            self.suspect = True
            self._want_snapshot()

    async def look_after_journal(self) -> bool:
        """Leave journal files that other code has removed; return whether a snapshot is needed."""
        async with self._looking:
            lost = await self._rotation.lost()
            if not lost:
                return False
            paths = ", ".join(journal_path(number) for number in lost)
            self._tell(f"{paths}: other code has removed or replaced it")
            if self._rotation.number in lost:
                await self.go_on(needed=True)
            for number in lost:
                await self._rotation.forget(number)
        self._want_snapshot()
        return True

    async def rescue(self, ledger: int) -> bool:
        """Rewrite a ledger whose file other code has removed; `False` if not open here."""
        async with self._looking:
            file = self._opened.current_file(ledger)
            rescued = await self._rescued(file)
            if rescued is None:
                return False
            await rescued.close()
            self._tell(f"{file.data_path} was removed or replaced by other code")
            self._spoiled.add(file)
            await self._rewrite(ledger)
            return True

    def _tell(self, what: str) -> None:
        LOG.error("%s; the broker continues, and writes the lost data to a new file", what)

    async def _mend_ledger(self, progress: Progress, op: str, number: int, where: str) -> None:
        d, times = self._ledger_mended_at
        times = times + 1 if d == progress.durable_d else 1
        parsed = LedgerFile.parse(where.rpartition("/")[2])
        if times > 2 or parsed is None:
            raise Closed(
                f"{where} could not be written ({os.strerror(number)}); check the disk and start again"
            )
        if op == "ledger_sync":
            self._spoiled.add(parsed[0])
        if number == errno.ENOENT and op != "ledger_open":
            self._tell(f"{where} was removed by other code")
        if times > 1 or op == "ledger_sync" or number == errno.ENOENT:
            with contextlib.suppress(FileNotFoundError):  # not even created: repeat it once
                await self._rewrite(parsed[0].ledger)
        self._ledger_mended_at = (progress.durable_d, times)

    async def _rewrite(self, ledger: int) -> None:
        """Rewrite a ledger into a file of the next generation (I35).

        Raises:
            NoSpace: there is not enough room yet; nothing has changed.
        """
        opened = self._opened
        async with self._turn:
            old = opened.current_file(ledger)
            rewriter = Rewriter(opened.disk, old, opened.incarnation)
            try:
                with no_space(f"{old.data_path} could not be rewritten"):
                    await rewriter.open(await self._rescued(old))
                    await rewriter.copy_ahead()
                await self._move(ledger, rewriter)
                opened.unsynced.add(rewriter.new)
                self._spoiled.add(rewriter.new)  # until it is known to be durable
                await rewriter.sync()
                await opened.disk.sync_directory(LEDGERS)
                self._spoiled.discard(rewriter.new)
                opened.unsynced -= {old, rewriter.new}
            finally:
                await rewriter.close()
            self.rewritten += 1
            at("ledger_rewritten")

    async def _rescued(self, old: LedgerFile) -> File | None:
        """Return the open data file of a ledger whose name is gone."""
        file = self._writer.rescued(old.ledger)
        if file is not None and await self._opened.disk.is_named(old.data_path, file):
            await file.close()
            return None
        return file

    async def _move(self, ledger: int, rewriter: Rewriter) -> None:
        """Switch the writer to the new file, and copy the rest of the old one."""
        opened = self._opened
        moved = opened.moving[ledger] = asyncio.get_running_loop().create_future()
        try:
            written = await self._writer.use_generation(ledger, rewriter.new.generation)
            at("ledger_switched")
            size = written or await rewriter.size()
            while True:  # no way back: the writer already writes to the new file only
                try:
                    await rewriter.copy(size)
                    break
                except OSError as error:
                    if not is_full(error):
                        raise
                    await self._wait_for_room()
            opened.generations[ledger] = rewriter.new.generation
            await self._reader.forget(ledger)
        finally:
            del opened.moving[ledger]
            moved.set_result(None)

    async def settled(self, ledgers: Iterable[int]) -> dict[int, int] | None:
        """Return the generations after any rewrite; `None` if a ledger is not durable."""
        async with self._turn:
            opened = self._opened
            if self._spoiled and any(opened.current_file(each) in self._spoiled for each in ledgers):
                return None
            return dict(opened.generations)

    async def sync_ledger(
        self, ledger: int, by: Callable[[], Awaitable[None]], data: File | None = None
    ) -> None:
        """Sync a ledger; rewrite it after a failure (I35) or if its file was removed."""
        file = self._opened.current_file(ledger)
        if data is not None and not await self._opened.disk.is_named(file.data_path, data):
            self._tell(f"{file.data_path} was removed or replaced by other code")
            self._spoiled.add(file)
        if file not in self._spoiled:
            try:
                await by()
                return
            except OSError as error:
                self._spoiled.add(file)
                if is_full(error):
                    await self._opened.space.release()
        try:
            await self._rewrite(ledger)
        except NoSpace:
            if not await self._opened.space.release():
                raise
            await self._rewrite(ledger)
