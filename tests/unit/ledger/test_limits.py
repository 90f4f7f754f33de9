"""The largest names and numbers of files, as in docs/reference/limits.md."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import Corrupt, HoldfastError, _core
from holdfast.broker import Broker
from holdfast.group import Position
from holdfast.ids import NUMBER_MAX
from holdfast.ledger.files.rebuild import Rewriter
from holdfast.ledger.files.table import view_path
from holdfast.ledger.layout import (
    GENERATION_MAX,
    LEDGERS,
    Extent,
    FileKind,
    LedgerFile,
    file_header,
    journal_path,
    number_of,
    read_file_header,
    snapshot_path,
)
from holdfast.ledger.snapshot import format as snapshot_format
from holdfast.system import SystemDisk
from tests.kit.broker.brokers import on_broker
from tests.kit.broker.limit_checks import versions_of_a_table_come_round
from tests.kit.broker.old import INCARNATION, Age
from tests.kit.ledger.entry_bytes import ledger

NUMBERS = [0, 1, 9, 10, 15, 16, (1 << 32) - 1, 1 << 32, (1 << 60) - 1, 1 << 60, NUMBER_MAX]
"""Numbers at which a digit is added, and the last one."""


def test_names_of_files_sort_as_their_numbers() -> None:
    for name in (journal_path, snapshot_path, view_path, lambda n: LedgerFile(n).data_path):
        names = [name(number) for number in NUMBERS]
        assert names == sorted(names)
        assert len({len(each) for each in names}) == 1
    assert [number_of(journal_path(each).rpartition("/")[2]) for each in NUMBERS] == NUMBERS


@pytest.mark.parametrize("generation", [0, 1, 9, 10, GENERATION_MAX])
@pytest.mark.parametrize("number", [1, 1 << 60, NUMBER_MAX])
def test_the_core_finds_the_file_of_every_generation(tmp_path: Path, number: int, generation: int) -> None:
    """Python and the core make the same names, and parse them."""
    file = LedgerFile(number, generation)
    assert LedgerFile.parse(f"{file.stem}.data") == (file, "data")
    data, offsets = ledger([b"x"])
    (tmp_path / LEDGERS).mkdir()
    (tmp_path / file.data_path).write_bytes(file_header(FileKind.LEDGER_DATA, number, INCARNATION) + data)
    index = b"".join(each.to_bytes(8, "little") for each in offsets)
    (tmp_path / file.index_path).write_bytes(file_header(FileKind.LEDGER_INDEX, number, INCARNATION) + index)
    found = _core.LedgerFiles(str(tmp_path), INCARNATION).read(number, 0, 0, 1, 1 << 20, True, generation)
    assert found is not None
    assert found.entry(0) == b"x"


@pytest.mark.parametrize("kind", list(FileKind))
def test_the_last_number_of_a_file(kind: FileKind) -> None:
    header = file_header(kind, NUMBER_MAX, INCARNATION)
    assert read_file_header(header) == (kind, 1, NUMBER_MAX, INCARNATION)
    with pytest.raises(HoldfastError, match=r"63 bits of numbers of .* files; start a broker in a new data"):
        file_header(kind, NUMBER_MAX + 1, INCARNATION)


def test_the_last_generation_of_a_ledger() -> None:
    disk: Any = None
    assert Rewriter(disk, LedgerFile(7, GENERATION_MAX - 1), INCARNATION).new == (7, GENERATION_MAX)
    with pytest.raises(HoldfastError, match="ledger 7 was rewritten 4294967295 times"):
        Rewriter(disk, LedgerFile(7, GENERATION_MAX), INCARNATION)


def test_the_last_journal_file(tmp_path: Path) -> None:
    """Confirmed messages are found again; a broker that needs one more file says so."""
    path = Age(journal=NUMBER_MAX - 1).make(tmp_path / "data")
    options: dict[str, Any] = {
        "sync": "os", "journal_bytes": 1 << 16, "reserve_bytes": 1 << 16, "snapshot_s": 1e9
    }  # fmt: skip
    sent = []

    async def fill(broker: Broker) -> None:
        async with broker.producer("orders") as producer:
            for _ in range(2000):  # until the journal needs its next file, which another task looks after
                sent.append(await producer.send(bytes(8000)))
                await asyncio.sleep(0)

    with pytest.raises(HoldfastError, match="63 bits of numbers of journal files"):
        on_broker(path, fill, **options)
    assert len(sent) >= 7
    names = sorted(each.name for each in (path / "journal").iterdir() if not each.name.startswith("spare"))
    assert names[-1] == f"{NUMBER_MAX:016x}"


def test_a_snapshot_of_the_last_numbers(tmp_path: Path) -> None:
    ledgers = snapshot_format.pack_ledgers(
        {NUMBER_MAX: (NUMBER_MAX, NUMBER_MAX)}, {NUMBER_MAX: GENERATION_MAX}
    )
    meta = snapshot_format.Meta(
        d=NUMBER_MAX, position=(NUMBER_MAX, (1 << 64) - 1), clean=True, time_ns=(1 << 64) - 1,
        next_ledger=NUMBER_MAX, journal=NUMBER_MAX, journal_offset=NUMBER_MAX, journal_d=NUMBER_MAX,
        ledgers=ledgers,
    )  # fmt: skip

    async def there_and_back() -> snapshot_format.Snapshot:
        disk = SystemDisk(tmp_path)
        await disk.make_directory("snapshots")
        await snapshot_format.write(disk, meta, [b"part"], INCARNATION)
        await snapshot_format.name(disk, NUMBER_MAX)
        assert await snapshot_format.names(disk) == [NUMBER_MAX]
        return await snapshot_format.load(disk, NUMBER_MAX, INCARNATION)

    found = asyncio.run(there_and_back())
    assert (found.meta, found.parts) == (meta, [b"part"])
    assert found.meta.at == Position(NUMBER_MAX, (1 << 64) - 1)
    assert found.meta.extents() == {LedgerFile(NUMBER_MAX, GENERATION_MAX): Extent(NUMBER_MAX, NUMBER_MAX)}


def test_versions_of_a_topics_table_come_round(tmp_path: Path) -> None:
    versions_of_a_table_come_round(tmp_path)


def test_the_last_offset_of_a_file(tmp_path: Path) -> None:
    """A block just below 2^62 can be read.

    The file is a hole before it. An offset beyond it is damage of the index.
    """
    number, (data, _) = 7, ledger([b"x"])
    offset = (1 << 62) - 64
    (tmp_path / LEDGERS).mkdir()
    file = LedgerFile(number)
    with (tmp_path / file.data_path).open("wb") as out:
        out.write(file_header(FileKind.LEDGER_DATA, number, INCARNATION))
        os.pwrite(out.fileno(), data, offset)
    index = file_header(FileKind.LEDGER_INDEX, number, INCARNATION) + offset.to_bytes(8, "little")
    (tmp_path / file.index_path).write_bytes(index)
    found = _core.LedgerFiles(str(tmp_path), INCARNATION).read(number, 0, 0, 1, 4096, True)
    assert found is not None
    assert found.entry(0) == b"x"
    beyond = file_header(FileKind.LEDGER_INDEX, number, INCARNATION) + (1 << 62).to_bytes(8, "little")
    (tmp_path / file.index_path).write_bytes(beyond)
    with pytest.raises(Corrupt, match="entry 0 cannot be read"):
        _core.LedgerFiles(str(tmp_path), INCARNATION).read(number, 0, 0, 1, 1 << 20, True)
