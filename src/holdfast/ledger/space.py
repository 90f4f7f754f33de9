"""Room on the disk: refused where it is asked for, kept where it is needed.

Whoever publishes is refused before the event exists, while there is still room for everything that was
admitted: in the journal, whose files are made in advance, and in the ledgers. Acks, deletes and snapshots are
not refused: they need the journal's room, of which one file is left to them, and for a snapshot the reserve:
a file that is given up when the disk is full and taken back when there is room again. Until then nothing is
admitted (I38).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast._core import at
from holdfast.errors import NoSpace
from holdfast.ledger.layout import RESERVE
from holdfast.system import Disk
from holdfast.system.files import opened, remove

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says when there is no room."""
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
"""What the system says when it is short of something that comes back."""
SLACK_BYTES = 1 << 16
"""For what a file system needs beside the bytes of its files."""


@dataclass(frozen=True)
class Demand:
    """What has to find room."""

    size: int
    """Of the entries to publish."""
    pending: int
    """Applied, and not yet written: it goes to the journal and to ledgers."""
    journal_room: int
    """What is left of the journal's files, in use and spare, less one whole file: that is for acks."""
    journal_bytes: int
    """Of a further file."""

    @property
    def for_ledgers(self) -> int:
        """Entries are blocks there, and have an index."""
        return self.size + self.size // 4

    @property
    def beyond_journal(self) -> int:
        """What does not fit into the journal's files: the file in use grows by it, or another one is made."""
        return max(0, self.pending + self.size - self.journal_room)

    @property
    def room(self) -> int:
        """All that is needed now."""
        further = self.beyond_journal + self.journal_bytes if self.beyond_journal else 0
        return self.pending + self.for_ledgers + further + SLACK_BYTES


def shortage(free: int, demand: Demand) -> int:
    """How many bytes are missing on a disk that has so many free; 0: there is room."""
    return max(0, demand.room - free)


class Space:
    """What is free, and the reserve."""

    def __init__(self, disk: Disk, reserve_bytes: int) -> None:
        self._disk = disk
        self.reserve_bytes = reserve_bytes
        self.reserved = False
        """The reserve is there."""
        self.free_bytes = 0
        """When it was last looked at, less what was admitted since."""
        self.refused = 0
        """How often somebody was refused, since the store was opened."""

    async def look(self) -> None:
        """Ask the disk; take the reserve back if there is room for it."""
        self.free_bytes = await self._disk.free()
        if not self.reserved and self.free_bytes >= self.reserve_bytes + SLACK_BYTES:
            await self._restore()

    async def open(self) -> None:
        """As an earlier life left it, or new."""
        sizes = await self._disk.sizes("")
        self.reserved = sizes.get(RESERVE, -1) >= self.reserve_bytes
        await self.look()

    def admit(self, demand: Demand) -> None:
        """Promise room.

        Raises:
            NoSpace: there is none.
        """
        missing = shortage(self.free_bytes, demand)
        if self.reserved and missing == 0:
            self.free_bytes -= demand.for_ledgers + (demand.size if demand.beyond_journal else 0)
            return
        self.refused += 1
        why = f"{missing} bytes are missing" if self.reserved else "the reserve is in use"
        raise NoSpace(
            f"the disk is full: {why}. Nothing was published; acknowledging and deleting go on. "
            "Delete or trim topics, or make room on the disk"
        )

    async def grow(self, size: int) -> None:
        """The reserve should be at least that large: a snapshot has to fit into it."""
        if size <= self.reserve_bytes or not self.reserved:
            return
        if await self._disk.free() >= size + SLACK_BYTES:
            self.reserve_bytes = size
            await self._restore()

    async def release(self) -> bool:
        """Give the reserve up. False: there was none."""
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
                    await self._disk.sync_directory("")  # recovery may need it, too
                self.reserved = True
            except OSError as error:
                with contextlib.suppress(OSError):
                    await remove(self._disk, RESERVE)
                if error.errno not in FULL:
                    raise
        self.free_bytes = await self._disk.free()
        at("reserve_restored")


def is_full(error: OSError) -> bool:
    """Is it room that is missing?"""
    return error.errno in FULL


@contextlib.contextmanager
def no_space(what: str) -> Iterator[None]:
    """ENOSPC becomes the error that says what to do."""
    try:
        yield
    except NoSpace:
        raise
    except OSError as error:
        if not is_full(error):
            raise
        raise NoSpace(f"the disk is full, and {what}; make room and start again") from error
