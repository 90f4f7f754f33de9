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
