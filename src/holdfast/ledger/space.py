"""Space on the disk: refuse new entries in time, and keep a reserve.

A publish is refused before its event exists. At that time there is still room for all that was admitted: in
the journal, whose files are created in advance, and in the ledgers. Acks, deletes and snapshots are not
refused. One journal file is left for them. A snapshot may use the reserve, a file that is deleted when the
disk is full and created again when there is room. Until then nothing is admitted (I38).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast._core import at
from holdfast.errors import NoSpace
from holdfast.ledger.layout import RESERVE
from holdfast.system import Disk, opened, remove

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk."""
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
"""Errors of a shortage that may end by itself."""
SLACK_BYTES = 1 << 16
"""For metadata of the file system."""


@dataclass(frozen=True)
class Demand:
    """Bytes that need room on the disk."""

    size: int
    """Bytes of the entries to publish."""
    pending: int
    """Bytes applied and not yet written: they go to the journal and to ledgers."""
    journal_room: int
    """Room in the journal's files, current and spare, less one whole file: that is for acks."""
    journal_bytes: int
    """Size of one more file."""

    @property
    def for_ledgers(self) -> int:
        """Bytes in ledgers: entries become blocks there, with an index."""
        return self.size + self.size // 4

    @property
    def beyond_journal(self) -> int:
        """Bytes that do not fit into the journal's files, so that these must grow."""
        return max(0, self.pending + self.size - self.journal_room)

    @property
    def room(self) -> int:
        """All bytes that are needed now."""
        further = self.beyond_journal + self.journal_bytes if self.beyond_journal else 0
        return self.pending + self.for_ledgers + further + SLACK_BYTES


def shortage(free: int, demand: Demand) -> int:
    """Return how many bytes are missing with `free` bytes; 0 if there is room."""
    return max(0, demand.room - free)


class Space:
    """Free space of the disk, and the reserve."""

    def __init__(self, disk: Disk, reserve_bytes: int) -> None:
        self._disk = disk
        self.reserve_bytes = reserve_bytes
        self.reserved = False
        """Whether the reserve exists."""
        self.free_bytes = 0
        """Free bytes at the last look, less those admitted since."""
        self.refused = 0
        """How many publishes were refused since the store was opened."""

    async def look(self) -> None:
        """Read the disk's free space; create the reserve again if there is room for it."""
        self.free_bytes = await self._disk.free()
        if not self.reserved and self.free_bytes >= self.reserve_bytes + SLACK_BYTES:
            await self._restore()

    async def open(self) -> None:
        """Find the reserve of an earlier run, or create it."""
        sizes = await self._disk.sizes("")
        self.reserved = sizes.get(RESERVE, -1) >= self.reserve_bytes
        await self.look()

    def admit(self, demand: Demand) -> None:
        """Promise room on the disk.

        Raises:
            NoSpace: there is not enough room.
        """
        missing = shortage(self.free_bytes, demand)
        if self.reserved and missing == 0:
            self.free_bytes -= demand.for_ledgers + (demand.size if demand.beyond_journal else 0)
            return
        self.refused += 1
        why = f"{missing} bytes are missing" if self.reserved else "the reserve is in use"
        raise NoSpace(
            f"the disk is full: {why}. Nothing was published; acknowledging and deleting still work. "
            "Delete or trim topics, or free space on the disk"
        )

    async def grow(self, size: int) -> None:
        """Raise the reserve to at least this size: a snapshot has to fit into it."""
        if size <= self.reserve_bytes or not self.reserved:
            return
        if await self._disk.free() >= size + SLACK_BYTES:
            self.reserve_bytes = size
            await self._restore()

    async def release(self) -> bool:
        """Delete the reserve; `False` if it was in use already."""
        if not self.reserved:
            return False
        self.reserved = False
        found = await remove(self._disk, RESERVE)
        at("reserve_released")
        self.free_bytes = await self._disk.free()
        return found

    async def _restore(self) -> None:
        await remove(self._disk, RESERVE)
        async with opened(self._disk, RESERVE, create=True) as file:
            try:
                if self.reserve_bytes:
                    await file.preallocate(self.reserve_bytes)
                    await file.sync()
                    await self._disk.sync_directory("")  # recovery may need the reserve, too
                self.reserved = True
            except OSError as error:
                with contextlib.suppress(OSError):
                    await remove(self._disk, RESERVE)
                if error.errno not in FULL:
                    raise
        self.free_bytes = await self._disk.free()
        at("reserve_restored")


def is_full(error: OSError) -> bool:
    """Return whether an error means a full disk."""
    return error.errno in FULL


@contextlib.contextmanager
def no_space(what: str) -> Iterator[None]:
    """Turn errors of a full disk into `NoSpace`."""
    try:
        yield
    except NoSpace:
        raise
    except OSError as error:
        if not is_full(error):
            raise
        raise NoSpace(f"the disk is full, and {what}; free space and start again") from error
