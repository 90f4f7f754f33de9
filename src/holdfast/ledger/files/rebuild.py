"""Rebuild a ledger's index from its data, and a ledger's files after a failed sync.

When a sync of a ledger's file fails, it is not known which writes since the last sync are on the disk. A
later sync that succeeds does not cover them. So the ledger is written again, into a file of the next
generation. Blocks are copied from the old file if their checksum and number are right. Blocks that the old
file has lost are in the journal, and a restart reads them from there (I35).
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

from holdfast._core import walk_blocks
from holdfast.errors import Corrupt, HoldfastError
from holdfast.ledger.layout import (
    BLOCK_HEADER,
    FILE_HEADER,
    GENERATION_MAX,
    INDEX_ENTRY,
    BlockKind,
    Extent,
    FileKind,
    LedgerFile,
    file_header,
    padded,
    require_header,
)
from holdfast.system import Disk, File, opened, remove, write_all

WINDOW = 1 << 20
_SIZE = struct.Struct("<4xI")


@dataclass(frozen=True)
class Run:
    """Verified blocks of a ledger that follow one another."""

    offset: int
    first_entry: int
    count: int
    data: bytes
    index: bytes
    """The offset of each block, as in the index file."""


@dataclass(frozen=True)
class BlockFault:
    """The first damaged block of a ledger."""

    path: str
    offset: int
    entry: int
    what: str

    def __str__(self) -> str:
        return f"{self.path} at offset {self.offset}: entry {self.entry} is damaged ({self.what})"


async def runs(file: File, path: str, offset: int, entry: int, end: int) -> AsyncIterator[Run | BlockFault]:
    """Yield a data file's blocks from `offset`, where `entry` starts, to `end` or a fault."""
    want = WINDOW
    while offset < end:
        data = await file.read(offset, min(want, end - offset))
        count, consumed, fault, index = walk_blocks(data, BlockKind.ENTRY, entry, offset)
        if count:
            yield Run(offset, entry, count, data[:consumed], index)
            offset, entry, want = offset + consumed, entry + count, WINDOW
            continue
        # Not one whole block: it is larger than what was read, or damaged, or the file ends here.
        space = _space(data)
        if len(data) < min(want, end - offset) or not len(data) < space <= end - offset:
            yield BlockFault(path, offset, entry, fault or "the file ends here")
            return
        want = space


def _space(data: bytes) -> int:
    """Return the space that the first block claims; not verified."""
    if len(data) < BLOCK_HEADER:
        return 0
    size: int = _SIZE.unpack_from(data)[0]
    return padded(BLOCK_HEADER + size)


async def rebuild_index(disk: Disk, ledger: LedgerFile, extent: Extent, incarnation: bytes) -> None:
    """Rebuild the index of a ledger from its data.

    Raises:
        Corrupt: the data is damaged; the text names file and offset.
    """
    await remove(disk, ledger.index_path)
    async with opened(disk, ledger.data_path) as data:
        head = await data.read(0, FILE_HEADER)
        require_header(ledger.data_path, head, FileKind.LEDGER_DATA, ledger.ledger, incarnation)
        async with opened(disk, ledger.index_path, create=True) as index:
            await write_all(index, 0, file_header(FileKind.LEDGER_INDEX, ledger.ledger, incarnation))
            entries = 0
            async for run in runs(data, ledger.data_path, FILE_HEADER, 0, extent.size):
                if isinstance(run, BlockFault):
                    raise Corrupt(f"{run}; restore a backup")
                await write_all(index, FILE_HEADER + INDEX_ENTRY * run.first_entry, run.index)
                entries += run.count
            if entries != extent.entries:
                raise Corrupt(
                    f"{ledger.data_path} at offset {extent.size}: there are {entries} entries before it, "
                    f"not {extent.entries}; restore a backup"
                )
            await index.sync()


class Rewriter:
    """Writes a ledger again, as its next generation, while the old file may still grow.

    `copy` brings the new file up to a size of the old one, as often as needed. Then the writer is switched to
    the new file, and `sync` makes it durable.
    """

    def __init__(self, disk: Disk, old: LedgerFile, incarnation: bytes) -> None:
        self._disk = disk
        self._incarnation = incarnation
        self.old = old
        if old.generation >= GENERATION_MAX:
            raise HoldfastError(
                f"ledger {old.ledger} was rewritten {old.generation} times, the maximum; take a "
                "backup, and check the disk"
            )
        self.new = LedgerFile(old.ledger, old.generation + 1)
        self.extent = Extent(FILE_HEADER, 0)
        """Size and entries of the new file."""
        self._files: list[File] = []

    async def open(self, rescued: File | None = None) -> None:
        """Open the files. `rescued`: the old data file, still open, whose name is gone."""
        self._files.append(rescued or await self._disk.open(self.old.data_path))
        for path in (self.new.data_path, self.new.index_path):
            await remove(self._disk, path)
        for path, kind in (
            (self.new.data_path, FileKind.LEDGER_DATA),
            (self.new.index_path, FileKind.LEDGER_INDEX),
        ):
            self._files.append(await self._disk.open(path, create=True))
            await write_all(self._files[-1], 0, file_header(kind, self.old.ledger, self._incarnation))

    async def copy_ahead(self) -> None:
        """Copy what is there now, so that little is left while reads wait."""
        await self._copy(await self.size())

    async def copy(self, size: int) -> None:
        """Copy everything up to this size of the old data file.

        Raises:
            Corrupt: the old file has lost a part of it.
        """
        if fault := await self._copy(size):
            raise Corrupt(f"{fault} after a failed sync; start again: the journal has this entry")

    async def _copy(self, size: int) -> BlockFault | None:
        old, data, index = self._files
        async for run in runs(old, self.old.data_path, self.extent.size, self.extent.entries, size):
            if isinstance(run, BlockFault):
                return run
            await write_all(data, run.offset, run.data)
            await write_all(index, FILE_HEADER + INDEX_ENTRY * run.first_entry, run.index)
            self.extent = Extent(run.offset + len(run.data), run.first_entry + run.count)
        return None

    async def size(self) -> int:
        """Return the size of the old data file."""
        return await self._files[0].size()

    async def sync(self) -> None:
        for file in self._files[1:]:
            await file.sync()

    async def close(self) -> None:
        while self._files:
            await self._files.pop().close()
