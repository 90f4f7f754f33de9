"""The journal files in use: follow the writer, start the next file, drop old ones."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.ledger.journal import files as journal_files
from holdfast.ledger.journal.files import JournalFiles
from holdfast.ledger.layout import JOURNAL, PAGE, Place, journal_path
from holdfast.ledger.writer import Progress, RoundWriter
from holdfast.system import Disk, File


class JournalRotation:
    """The journal of a running store, from the file in which recovery ended.

    A writer is given a file before it starts to use it. Until then its reports are about the file before;
    `place` finds which, by counting (`Progress.journals`).
    """

    def __init__(self, disk: Disk, files: JournalFiles, next_place: Place, last_d: int) -> None:
        self._disk = disk
        self.files = files
        self._used: Sequence[int] = range(next_place.journal, next_place.journal + 1)
        """Numbers of the files since the start, without gaps; the first may be deleted."""
        self._open: dict[int, File] = {}
        self._start = next_place
        self._start_d = last_d
        self._spoiled: set[int] = set()
        """Files in which an operation failed: they are not reused."""
        self._lost: set[int] = set()
        """Files that other code has removed or replaced."""
        self._small: set[int] = set()
        """Files that were created small, on a nearly full disk."""

    @property
    def number(self) -> int:
        """The number of the newest file."""
        return self._used[-1]

    async def begin(self, writer: RoundWriter) -> None:
        """Let the writer continue where recovery ended, or in the next file.

        Until the next file exists, the journal ends in the old one: a snapshot or a close may come first.
        """
        start = self._start
        if start.offset >= self._full(start.journal):
            start = Place(start.journal + 1, PAGE)
            file = await self.files.create(start.journal)
        else:
            file = await self._disk.open(journal_path(start.journal))
        self._start, self._used = start, range(start.journal, start.journal + 1)
        self._open[self.number] = file
        writer.use_journal(file, self._start.offset)

    def _size(self, number: int) -> int:
        return self.files.small if number in self._small else self.files.size

    def _full(self, number: int) -> int:
        """Return the size at which a file is full: a round still fits behind it."""
        return self._size(number) - self._size(number) // 8

    def place(self, progress: Progress) -> tuple[Place, int]:
        """Return where the next round goes, and the last D before it."""
        if progress.journals == 0:
            place, last_d = self._start, self._start_d
        else:
            place = Place(self._used[progress.journals - 1], progress.journal_offset)
            last_d = progress.journal_d
        if place.journal in self._lost:  # the writer's next round starts another file
            place = Place(self.number, PAGE)
        return place, last_d

    def is_waiting(self, progress: Progress) -> bool:
        """Return whether the writer has a file that it has not started to use."""
        return len(self._used) > max(1, progress.journals)

    def room(self, progress: Progress) -> int:
        """Return the room in current file and spares, less one file for acks."""
        place, _ = self.place(progress)
        left = max(0, self._size(place.journal) - place.offset)
        whole = self.files.spares + self.is_waiting(progress) - 1
        return left + whole * self.files.size

    def is_half_full(self, progress: Progress) -> bool:
        """Return whether the next file should be ready soon."""
        place, _ = self.place(progress)
        return place.offset >= self._size(place.journal) // 2

    def is_due(self, progress: Progress) -> bool:
        """Return whether it is time for the next file."""
        if progress.journals == 0 or self.is_waiting(progress):
            return False
        return progress.journal_offset >= self._full(self.number)

    async def go_on(self, writer: RoundWriter, spoiled: bool = False, small: bool = False) -> None:
        """Give the writer the next file.

        `spoiled`: the current one has failed, and is not reused. `small`: the disk is nearly full.
        """
        if spoiled:
            self._spoiled.add(self.number)
        number = self.number + 1
        small = small and not self.files.spares
        file = await self.files.create(number, self.files.small if small else None)
        if small:
            self._small.add(number)
        self._open[number] = file
        self._used = range(self._used[0], number + 1)
        writer.use_journal(file, PAGE)

    async def lost(self) -> list[int]:
        """Return the files whose names other code has removed or given to other files."""
        found = []
        for number, file in sorted(self._open.items()):
            # A snapshot may drop files meanwhile, before or during the look at the name.
            if number in self._open and not await self._disk.is_named(journal_path(number), file):
                found.append(number)
        return [number for number in found if number in self._open]

    async def forget(self, number: int) -> None:
        """Close a lost file, after the writer has another one."""
        self._lost.add(number)
        if file := self._open.pop(number, None):
            await file.close()

    async def drop(self, before: int) -> None:
        """Drop the files that no kept snapshot needs."""
        dropped = False
        for number in await journal_files.numbers(self._disk):
            if number >= before:
                break
            if number in self._open:
                await self._open.pop(number).close()
            await self.files.drop(number, reuse=number not in self._spoiled)
            dropped = True
        for known in (self._spoiled, self._lost, self._small):
            known.difference_update([number for number in known if number < before])
        if dropped:
            await self._disk.sync_directory(JOURNAL)

    async def close(self) -> None:
        while self._open:
            await self._open.popitem()[1].close()
