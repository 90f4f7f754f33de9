"""The journal files of a store that runs long."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

from holdfast.ledger.journal.rotation import JournalRotation
from holdfast.ledger.layout import PAGE, Place


def test_a_long_life_does_not_remember_each_of_its_files() -> None:
    """Keep a range of file numbers, which have no gaps, not a growing list."""

    async def create(number: int, size: int | None = None) -> str:
        return f"file {number}"

    files: Any = SimpleNamespace(create=create, spares=0, size=1 << 16, small=1 << 14)
    disk: Any = None
    writer: Any = SimpleNamespace(use_journal=lambda file, offset: None)
    rotation = JournalRotation(disk, files, Place(7, PAGE), 0)
    before = sys.getsizeof(rotation._used)

    async def live() -> None:
        for _ in range(1000):
            await rotation.go_on(writer)

    asyncio.run(live())
    assert rotation.number == 1007
    progress: Any = SimpleNamespace(journals=500, journal_offset=PAGE, journal_d=9)
    assert rotation.place(progress) == (Place(506, PAGE), 9)
    assert sys.getsizeof(rotation._used) == before


def test_a_file_that_a_snapshot_drops_is_not_lost() -> None:
    """Let `drop` remove a file while `lost` looks at its name."""

    class Removed:
        """A disk from which a snapshot drops two journal files during the first look."""

        def __init__(self) -> None:
            self.looked = 0

        async def is_named(self, path: str, file: Any) -> bool:
            assert not file.closed, f"{path} is closed already"
            self.looked += 1
            if self.looked == 1:
                await rotation.drop(before=9)
            return False

        async def list(self, directory: str) -> list[str]:
            return [f"{number:016d}" for number in (7, 8, 9)]

        async def sync_directory(self, directory: str) -> None:
            pass

    class Opened(SimpleNamespace):
        async def close(self) -> None:
            self.closed = True

    async def create(number: int, size: int | None = None) -> Opened:
        return Opened(closed=False)

    async def drop(number: int, reuse: bool) -> None:
        pass

    files: Any = SimpleNamespace(create=create, drop=drop, spares=0, size=1 << 16, small=1 << 14)
    disk: Any = Removed()
    writer: Any = SimpleNamespace(use_journal=lambda file, offset: None)
    rotation = JournalRotation(disk, files, Place(6, PAGE), 0)

    async def live() -> list[int]:
        for _ in range(3):
            await rotation.go_on(writer)
        return await rotation.lost()

    assert asyncio.run(live()) == [9], "only the last file was removed by other code"
