"""Read entries of ledgers through the core. The caller stays below `visible`."""

from __future__ import annotations

import resource
from typing import Protocol

from holdfast._core import Entries, LedgerFiles
from holdfast.errors import Corrupt
from holdfast.ledger.layout import LedgerFile
from holdfast.system import in_thread


class LedgerReader(Protocol):
    """Reads runs of entries."""

    async def read(
        self, file: LedgerFile, first_ordinal: int, entry: int, count_max: int, size_max: int, label: int
    ) -> Entries:
        """Read entries from `entry` on: at least one, even if it is larger than `size_max`.

        Raises:
            Corrupt: the first one is damaged; the text names file and offset.
        """

    async def time(self, file: LedgerFile, entry: int) -> int:
        """Return the log time of one entry."""

    async def forget(self, ledger: int) -> None:
        """Close the files of a ledger that was deleted or replaced."""

    async def close(self) -> None:
        """Close all files."""


def open_max() -> int:
    """Return how many ledgers stay open for reading, with two descriptors each."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(8, min(256, limit // 16))


class NativeReader:
    """Reads through the core: from the page cache at once, otherwise in a thread.

    A cancelled read still waits for its thread, which would otherwise open files again after `close`.
    """

    def __init__(self, directory: str, incarnation: bytes) -> None:
        self._files = LedgerFiles(directory, incarnation, open_max())

    async def read(
        self, file: LedgerFile, first_ordinal: int, entry: int, count_max: int, size_max: int, label: int
    ) -> Entries:
        rest = (first_ordinal, entry, count_max, size_max)
        found = self._files.read(file.ledger, *rest, False, file.generation, label)
        if found is None:
            found = await in_thread(self._files.read, file.ledger, *rest, True, file.generation, label)
        if found is None:
            raise Corrupt(f"{file.data_path}: entry {entry} could not be read; run `holdfast doctor`")
        return found

    async def time(self, file: LedgerFile, entry: int) -> int:
        found = self._files.read(file.ledger, 0, entry, 1, 0, False, file.generation)
        if found is not None:
            return found.time(0)
        return await in_thread(self._files.time, file.ledger, entry, file.generation)

    async def forget(self, ledger: int) -> None:
        self._files.forget(ledger)

    async def close(self) -> None:
        """Close now, not at a collection: other objects may hold this one in a cycle."""
        self._files.forget_all()
