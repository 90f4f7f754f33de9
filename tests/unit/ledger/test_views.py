"""Files of compacted views: checked, damaged, repaired by a start, backed up and restored."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Broker, Corrupt
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.columns.files import FilePlace
from holdfast.ledger.files.backup import backup, backup_running, restore
from holdfast.ledger.files.doctor import examine
from holdfast.system import SystemDisk
from tests.kit.pipeline.compacted import PRICES, SMALL, Prices, Row, rows_of, through_newest, view_files
from tests.kit.slices import seeds

OPTIONS = {"roll_entries": 7, "retention_s": 0, "housekeeping_s": 3600, **SMALL}


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
def expected(data: str) -> list[Row]:
    """The rows of a closed directory: two views, and entries behind them."""
    with Broker.open(data, **OPTIONS) as broker:
        return made(broker, data)


def made(broker: BlockingBroker, data: str) -> list[Row]:
    prices = Prices(broker, data)
    prices.send(40)
    prices.compact()
    prices.settle()
    prices.send(30)
    horizon = prices.compact()
    prices.send(10)
    return prices.expected(horizon)


def rows(data: str) -> list[Row]:
    topic = through_newest(data)
    assert topic.view == 2
    return rows_of(topic, *topic.plan())


def test_the_doctor_finds_views_sound(data: str, expected: list[Row]) -> None:
    found = examine(data)
    assert (found.sound, found.notes) == (True, [])
    assert rows(data) == expected, "and a closed directory is read"
    file = Path(f"{data}/ledgers/{FilePlace(data).topic(PRICES).table.views[0].file:016x}.data")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    [fault] = examine(data).faults
    assert f"ledgers/{file.name} at offset" in fault


def a_bit(content: bytes, choose: random.Random) -> bytes:
    at = choose.randrange(8 * len(content))
    return content[: at // 8] + bytes([content[at // 8] ^ 1 << at % 8]) + content[at // 8 + 1 :]


def a_cut(content: bytes, choose: random.Random) -> bytes:
    return content[: choose.randrange(len(content))]


def zeros(content: bytes, choose: random.Random) -> bytes:
    return bytes(len(content))


DAMAGE: list[Callable[[bytes, random.Random], bytes]] = [a_bit, a_cut, zeros]


@pytest.mark.parametrize("seed", seeds("damaged views", test=3))
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_view_is_named_and_repaired(
    damage: Callable[[bytes, random.Random], bytes], seed: int, data: str, expected: list[Row]
) -> None:
    """I166: only compacted reads of this topic notice it; a start repairs it."""
    choose = random.Random(seed)
    file = view_files(data)[-1]
    content = file.read_bytes()
    for _ in range(20):
        file.write_bytes(damage(content, choose))
        with pytest.raises(Corrupt, match=rf"{file}.*no message is lost: start or restart the broker"):
            through_newest(data)
    assert examine(data).sound, "nothing confirmed is damaged"
    plain = FilePlace(data).open(PRICES)
    assert rows_of(plain, *plain.plan()), "without the view the topic is read"
    with Broker.open(data, **OPTIONS):
        assert rows(data) == expected
    assert (file.read_bytes(), rows(data)) == (content, expected)


def test_a_view_that_is_missing_or_another_one(data: str, expected: list[Row]) -> None:
    before, newest = view_files(data)
    shutil.copy(before, newest)
    with pytest.raises(Corrupt, match=rf"{newest} is not view 2 of {PRICES}; no message is lost"):
        through_newest(data)
    newest.unlink()
    with pytest.raises(
        Corrupt, match=rf"{newest} does not exist, and its table names it; restart the broker"
    ):
        through_newest(data)
    with Broker.open(data, **OPTIONS):
        assert rows(data) == expected


def test_files_that_no_table_names_are_removed(data: str, expected: list[Row]) -> None:
    """As a killed broker leaves them."""
    before, newest = view_files(data)
    left = [
        newest.with_name(newest.name.replace(".2.", ".7.")),
        newest.with_name(f"{newest.name}.new"),
        newest.with_name(f"{'0' * 32}.1.compacted"),
    ]
    for each in left:
        shutil.copy(newest, each)
    with Broker.open(data, **OPTIONS) as broker:
        assert view_files(data) == [before, newest]
        assert not any(each.exists() for each in left)
        assert rows(data) == expected
        broker.admin.forget_compaction(PRICES)
        assert view_files(data) == []


def test_an_index_of_a_view_is_rebuilt(data: str, expected: list[Row]) -> None:
    """I71."""
    file = FilePlace(data).topic(PRICES).table.views[0].file
    index = Path(f"{data}/ledgers/{file:016x}.index")
    content = index.read_bytes()
    index.unlink()
    assert rows(data) == expected
    with Broker.open(data, **OPTIONS):
        assert rows(data) == expected
    assert index.read_bytes() == content


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """Where a backup goes, and where it is restored."""
    return tmp_path / "copy", tmp_path / "new"


def test_a_backup_has_the_views(data: str, expected: list[Row], copies: tuple[Path, Path]) -> None:
    backup(data, copies[0])
    restored(copies, expected)


def test_a_backup_of_a_running_broker_has_the_views(data: str, copies: tuple[Path, Path]) -> None:
    """Compactions after it change nothing in it."""
    with Broker.open(data, **OPTIONS) as broker:
        expected = made(broker, data)
        copies[0].mkdir()
        store = broker._twin.store
        broker._run(backup_running(store, store.disk, SystemDisk(copies[0])))
        broker.admin.compact(PRICES, wait=True)
    restored(copies, expected)


def restored(copies: tuple[Path, Path], expected: list[Row]) -> None:
    """Check what a restored directory has, and that its topic can be compacted again."""
    copy, new = copies
    restore(copy, new)
    assert examine(new).sound
    with Broker.open(new, **OPTIONS) as broker:
        assert rows(str(new)) == expected
        broker.admin.compact(PRICES, wait=True)
        assert through_newest(str(new)).view == 3
    assert examine(new).sound
