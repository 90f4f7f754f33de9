"""The journal files in use: going on in the next one, knowing which one a writer is at, dropping old ones."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.ledger.journal import files as journal_files
from holdfast.ledger.journal.files import JournalFiles
from holdfast.ledger.layout import JOURNAL, PAGE, Place, journal_path
from holdfast.ledger.writer import Progress, RoundWriter
from holdfast.system import Disk, File


class Journaling:
    """The journal of a running store, from the file in which recovery ended.

    A writer is told of a file before it begins to use it. In between, what it reports is about the file
    before; `place` tells which, by counting (`Progress.journals`).
    """

    def __init__(self, disk: Disk, files: JournalFiles, next_place: Place, last_d: int) -> None:
        self._disk = disk
        self.files = files
        self._used: Sequence[int] = range(next_place.journal, next_place.journal + 1)
        """The files of this life, of which the first may be gone: their numbers have no gaps."""
        self._open: dict[int, File] = {}
        self._start = next_place
        self._start_d = last_d
        self._spoiled: set[int] = set()
        """Files in which something failed: they are not used again."""
        self._lost: set[int] = set()
        """Files that other code has removed or replaced."""
        self._small: set[int] = set()
        """Files that were made when there was hardly any room."""

    @property
    def number(self) -> int:
        """Of the newest file."""
        return self._used[-1]

    async def begin(self, writer: RoundWriter) -> None:
        """Let the writer go on where recovery ended, or in the next file if that one is full.

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
        """A file that has grown so far is left: before its end, so that no round makes it longer."""
        return self._size(number) - self._size(number) // 8

    def place(self, progress: Progress) -> tuple[Place, int]:
        """Where the next round goes, and the last D before it."""
        if progress.journals == 0:
            place, last_d = self._start, self._start_d
        else:
            place = Place(self._used[progress.journals - 1], progress.journal_offset)
            last_d = progress.journal_d
        if place.journal in self._lost:  # the writer has been given another file, which its next round begins
            place = Place(self.number, PAGE)
        return place, last_d

    def is_waiting(self, progress: Progress) -> bool:
        """The writer was given a file that it has not begun to use."""
        return len(self._used) > max(1, progress.journals)

    def room(self, progress: Progress) -> int:
        """What is left of the file in use, and of the spares; less one file, which is kept for acks."""
        place, _ = self.place(progress)
        left = max(0, self._size(place.journal) - place.offset)
        whole = self.files.spares + self.is_waiting(progress) - 1
        return left + whole * self.files.size

    def is_half_full(self, progress: Progress) -> bool:
        """The next file should be ready soon."""
        place, _ = self.place(progress)
        return place.offset >= self._size(place.journal) // 2

    def is_due(self, progress: Progress) -> bool:
        """It is time for the next file."""
        if progress.journals == 0 or self.is_waiting(progress):
            return False
        return progress.journal_offset >= self._full(self.number)

    async def go_on(self, writer: RoundWriter, spoiled: bool = False, small: bool = False) -> None:
        """Give the writer the next file. `spoiled`: something failed in this one. `small`: room is scarce."""
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
        """Files that are not there any more under their names: other code has removed or replaced them."""
        return [
            number
            for number, file in sorted(self._open.items())
            if not await self._disk.is_named(journal_path(number), file)
        ]

    async def forget(self, number: int) -> None:
        """A file that is lost, which another one follows."""
        self._lost.add(number)
        if file := self._open.pop(number, None):
            await file.close()

    async def drop(self, before: int) -> None:
        """Files that no kept snapshot needs."""
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
