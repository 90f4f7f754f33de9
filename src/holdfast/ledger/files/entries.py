"""Reading ledgers: through the core on real files, or through any disk. Who asks stays below `visible`."""

from __future__ import annotations

import asyncio
import resource
import struct
from collections import OrderedDict
from typing import Protocol

from holdfast._core import Entries, LedgerFiles, parse_run
from holdfast.errors import Corrupt
from holdfast.ledger.layout import FILE_HEADER, INDEX_ENTRY, FileKind, LedgerFile, require_header
from holdfast.system import Disk, File

COUNT_MAX = 4096
"""How many entries one read gives at most."""
FILES_MAX = 128


class LedgerReader(Protocol):
    """Gives runs of entries."""

    async def read(
        self, file: LedgerFile, first_ordinal: int, entry: int, count_max: int, size_max: int, label: int
    ) -> Entries:
        """Entries from `entry` on: at least one, even if it is larger than `size_max`.

        Raises:
            Corrupt: the first one is damaged; the text has file and offset.
        """

    async def time(self, file: LedgerFile, entry: int) -> int:
        """The log time of one entry."""

    async def forget(self, ledger: int) -> None:
        """Its files were removed, or replaced."""

    async def close(self) -> None:
        """Close all files."""


def open_max() -> int:
    """How many ledgers are kept open for reading, two descriptors each: what a process may well spare."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(8, min(256, limit // 16))


class NativeReader:
    """The core's: what is in the page cache is there at once, the rest comes through a thread."""

    def __init__(self, directory: str, incarnation: bytes) -> None:
        self._files = LedgerFiles(directory, incarnation, open_max())

    async def read(
        self, file: LedgerFile, first_ordinal: int, entry: int, count_max: int, size_max: int, label: int
    ) -> Entries:
        rest = (first_ordinal, entry, count_max, size_max)
        found = self._files.read(file.ledger, *rest, False, file.generation, label)
        if found is None:
            found = await asyncio.to_thread(
                self._files.read, file.ledger, *rest, True, file.generation, label
            )
        if found is None:
            raise Corrupt(f"{file.data_path}: entry {entry} could not be read; run `holdfast doctor`")
        return found

    async def time(self, file: LedgerFile, entry: int) -> int:
        found = self._files.read(file.ledger, 0, entry, 1, 0, False, file.generation)
        if found is not None:
            return found.time(0)
        return await asyncio.to_thread(self._files.time, file.ledger, entry, file.generation)

    async def forget(self, ledger: int) -> None:
        self._files.forget(ledger)

    async def close(self) -> None:
        """Not left to the collector: other objects may hold this one in a cycle."""
        self._files.forget_all()


class DiskReader:
    """The same over a `Disk`."""

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
            data = await self._disk.open(file.data_path)
            index = await self._disk.open(file.index_path)
            head = await data.read(0, FILE_HEADER)
            require_header(file.data_path, head, FileKind.LEDGER_DATA, file.ledger, self._incarnation)
            found = self._open.setdefault(file, (data, index))
            if found[0] is not data:  # somebody else was quicker
                await self._close((data, index))
            elif len(self._open) > FILES_MAX:
                await self._close(self._open.popitem(last=False)[1])
        if file in self._open:
            self._open.move_to_end(file)
        return found

    @staticmethod
    async def _close(files: tuple[File, File]) -> None:
        for file in files:
            await file.close()
