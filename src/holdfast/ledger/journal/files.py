"""The journal's files: created in advance, named when needed, and reused.

A file is filled with zeros before its first use, so no round can fail because the disk is full. And a sync of
blocks that were written before is much cheaper than a sync that has to record new blocks. The header is
synced before the name appears, and the name before anything is written, so a numbered file without a sound
header is damage.
A file behind both kept snapshots becomes a spare. Its old rounds have a lower D than any round that recovery
looks for. Its first page is wiped before it gets its new number (I32).
"""

from __future__ import annotations

import asyncio
import contextlib

from holdfast._core import at
from holdfast.ledger.layout import JOURNAL, NEW, PAGE, SPARE, FileKind, file_header, journal_path, number_of
from holdfast.system import Disk, File, opened, remove, write_all

FILL = 1 << 20
"""How many zeros are written at a time."""
SPARES_MAX = 4
"""How many files are kept for reuse: about as many as one snapshot frees."""


async def numbers(disk: Disk) -> list[int]:
    """Return the numbers of all journal files, rising."""
    found = (number_of(name) for name in await disk.list(JOURNAL))
    return sorted(number for number in found if number is not None)


class JournalFiles:
    """Creates, names, deletes and reuses the journal's files. It does not read their rounds."""

    def __init__(self, disk: Disk, incarnation: bytes, size: int) -> None:
        self._disk = disk
        self.incarnation = incarnation
        self.size = size
        """Bytes of each file. A round that needs more room makes its file longer."""
        self.small = max(4 * PAGE, size // 16 // PAGE * PAGE)
        """Bytes of a file that is created when the disk is nearly full."""
        self._spares: list[str] = []
        self._turn = asyncio.Lock()
        """One task at a time creates, takes or returns a spare."""

    @property
    def spares(self) -> int:
        """How many spares are ready."""
        return len(self._spares)

    async def look(self) -> None:
        """Find the spares of an earlier run; delete incomplete ones."""
        sizes = await self._disk.sizes(JOURNAL)
        for name, size in sizes.items():
            if name.startswith(SPARE):
                if size >= self.size and not name.endswith(NEW) and len(self._spares) < SPARES_MAX:
                    self._spares.append(f"{JOURNAL}/{name}")
                else:
                    await self._disk.unlink(f"{JOURNAL}/{name}")

    async def make_spare(self) -> None:
        """Fill a file with zeros as a spare. Does nothing if there is a spare."""
        async with self._turn:
            await self._make_spare(self.size)

    async def _make_spare(self, size: int) -> None:
        if self._spares:
            return
        name = self._name()
        await remove(self._disk, name + NEW)
        try:
            async with opened(self._disk, name + NEW, create=True) as file:
                await file.preallocate(size)
                for offset in range(0, size, FILL):
                    await write_all(file, offset, bytes(min(FILL, size - offset)))
                await file.sync()
        except OSError:
            with contextlib.suppress(OSError):  # the next start removes it
                await remove(self._disk, name + NEW)
            raise
        await self._disk.rename(name + NEW, name)
        at("journal_made")
        self._spares.append(name)

    def _name(self) -> str:
        """Return a name that no spare has."""
        names = (f"{JOURNAL}/{SPARE}{number}" for number in range(SPARES_MAX + 1))
        return next(name for name in names if name not in self._spares)

    async def create(self, number: int, size: int | None = None) -> File:
        """Return the file of this number, with its header, ready for its first round.

        `size` is for a nearly full disk: a smaller file, if there is not a spare.
        """
        async with self._turn:
            await self._make_spare(size or self.size)
            # If anything fails from here on, this spare is not used again.
            return await self._use(self._spares.pop(0), journal_path(number), number)

    async def _use(self, spare: str, path: str, number: int) -> File:
        file = await self._disk.open(spare)
        try:
            header = file_header(FileKind.JOURNAL, number, self.incarnation)
            await write_all(file, 0, header + bytes(2 * PAGE - len(header)))
            await file.sync()
            await self._disk.rename(spare, path)
            await self._disk.sync_directory(JOURNAL)
        except BaseException as error:
            await file.close()
            if isinstance(error, OSError):
                with contextlib.suppress(OSError):
                    # Free the number for the next attempt: numbers have no gaps.
                    await remove(self._disk, spare)
                    await remove(self._disk, path)
            raise
        at("journal_used")
        return file

    async def drop(self, number: int, reuse: bool) -> None:
        """Remove a file that is not needed. With `reuse` it may become a spare."""
        async with self._turn:
            at("journal_dropped")
            path = journal_path(number)
            if reuse and len(self._spares) < SPARES_MAX and await self._shorten(path):
                name = self._name()
                await self._disk.rename(path, name)
                self._spares.append(name)
                at("journal_recycled")
            else:
                await remove(self._disk, path)

    async def shrink(self) -> None:
        """Keep one spare only: the disk is nearly full."""
        async with self._turn:
            while len(self._spares) > 1:
                await remove(self._disk, self._spares.pop())

    async def _shorten(self, path: str) -> bool:
        """Cut a file to the size of a spare; return whether it is long enough."""
        async with opened(self._disk, path) as file:
            size = await file.size()
            if size > self.size:
                await file.truncate(self.size)
            return size >= self.size
