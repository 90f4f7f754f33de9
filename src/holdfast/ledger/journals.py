"""The journal's files: made in advance, named when they are needed, used again when nobody needs them.

A file is filled with zeros before its first use: a sync of blocks that were written before is much cheaper
than one that has to record new blocks, and no round can fail for want of room. Its header is synced before
its name appears, and the name before anything is written into it: a numbered file that has no sound header is
damage.
A file behind both kept snapshots becomes the spare. Its old rounds have a lower D than anything that will
be looked for, and its first page is wiped before it gets its new number (I32).
"""

from __future__ import annotations

import asyncio
import contextlib

from holdfast._core import at
from holdfast.group import Disk, File
from holdfast.ledger.journal import write_all
from holdfast.ledger.layout import JOURNAL, NEW, PAGE, SPARE, FileKind, file_header, journal_path, number_of
from holdfast.ledger.snapshot import remove

FILL = 1 << 20
"""Zeros are written in pieces of this size."""


async def numbers(disk: Disk) -> list[int]:
    """Of all journal files, rising."""
    found = (number_of(name) for name in await disk.list(JOURNAL))
    return sorted(number for number in found if number is not None)


class JournalFiles:
    """Makes, names, drops and keeps the journal's files. It does not look into them."""

    def __init__(self, disk: Disk, incarnation: bytes, size: int) -> None:
        self._disk = disk
        self._incarnation = incarnation
        self.size = size
        """Of each file, in bytes. A round that needs more room makes its file longer."""
        self.small = max(4 * PAGE, size // 16 // PAGE * PAGE)
        """Of a file that is made when there is hardly any room."""
        self.spare = False
        """A spare is ready."""
        self._turn = asyncio.Lock()
        """There is one name for the spare: whoever makes, takes or returns one does so alone."""

    async def look(self) -> None:
        """What an earlier life left: is there a spare? Half a one is thrown away."""
        await remove(self._disk, SPARE + NEW)
        sizes = await self._disk.sizes(JOURNAL)
        self.spare = sizes.get(SPARE.rpartition("/")[2], 0) >= self.size
        if not self.spare:
            await remove(self._disk, SPARE)

    async def make_spare(self) -> None:
        """Fill a file with zeros, and have it ready. Does nothing if there is one."""
        async with self._turn:
            await self._make_spare(self.size)

    async def _make_spare(self, size: int) -> None:
        if self.spare:
            return
        await remove(self._disk, SPARE + NEW)
        file = await self._disk.open(SPARE + NEW, create=True)
        try:
            await file.preallocate(size)
            for offset in range(0, size, FILL):
                await write_all(file, offset, bytes(min(FILL, size - offset)))
            await file.sync()
        except OSError:
            with contextlib.suppress(OSError):  # what cannot be removed now is at the next start
                await remove(self._disk, SPARE + NEW)
            raise
        finally:
            await file.close()
        await self._disk.rename(SPARE + NEW, SPARE)
        at("journal_made")
        self.spare = True

    async def create(self, number: int, size: int | None = None) -> File:
        """The file of that number, with its header, named, ready for its first round.

        `size` is for times of need: a file that is smaller than others, if there is no spare.
        """
        async with self._turn:
            return await self._create(number, size or self.size)

    async def _create(self, number: int, size: int) -> File:
        await self._make_spare(size)
        self.spare = False  # whatever goes wrong from here on: this one is not used again
        file = await self._disk.open(SPARE)
        try:
            header = file_header(FileKind.JOURNAL, number, self._incarnation)
            await write_all(file, 0, header + bytes(2 * PAGE - len(header)))
            await file.sync()
            await self._disk.rename(SPARE, journal_path(number))
            await self._disk.sync_directory(JOURNAL)
        except OSError:
            await file.close()
            with contextlib.suppress(OSError):
                # The number has to be free for the next attempt: numbers have no gaps.
                for path in (SPARE, journal_path(number)):
                    await remove(self._disk, path)
            raise
        at("journal_used")
        return file

    async def drop(self, number: int, reuse: bool) -> None:
        """Nobody needs this file any more. With `reuse` it may become the spare."""
        async with self._turn:
            await self._drop(number, reuse)

    async def _drop(self, number: int, reuse: bool) -> None:
        at("journal_dropped")
        if reuse and not self.spare and await self._shorten(number):
            await self._disk.rename(journal_path(number), SPARE)
            self.spare = True
            at("journal_recycled")
        else:
            await remove(self._disk, journal_path(number))

    async def _shorten(self, number: int) -> bool:
        """Is it as long as a spare has to be? A longer one is cut."""
        file = await self._disk.open(journal_path(number))
        try:
            size = await file.size()
            if size > self.size:
                await file.truncate(self.size)
            return size >= self.size
        finally:
            await file.close()
