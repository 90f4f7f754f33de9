"""Read a broker's files while it appends, rolls, trims, dies and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._core import TopicView
from holdfast.columns.files import FilePlace, FileTopic
from holdfast.ledger.files import table
from holdfast.ledger.files.table import Publications, read_table, table_path, view_path
from holdfast.names import topic_name
from tests.kit.ledger.topic_runs import numbers
from tests.kit.processes import until

ORDERS = topic_name("orders")


def test_what_is_visible_is_read_and_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(holdfast.NotFound, match="not a broker's directory"):
            FileTopic(tmp_path, ORDERS)
        async with holdfast.Broker.open(tmp_path) as broker:
            with pytest.raises(holdfast.NotFound, match="shows no topic"):
                FileTopic(tmp_path, ORDERS)
            async with broker.producer("orders") as p:
                await p.send_many([b"%d" % n for n in range(10)])
                files = FileTopic(tmp_path, ORDERS)
                assert files.plan() == (0, 10)
                await broker.admin.roll("orders")
                await p.send_many([b"%d" % n for n in range(10, 15)])
                assert files.plan() == (0, 15)
                assert numbers(files, *files.plan()) == list(range(15))
                assert numbers(files, 8, 12) == [8, 9, 10, 11]
        assert files.plan() == (0, 15)
        assert numbers(FileTopic(tmp_path, ORDERS), 0, 15) == list(range(15))

    asyncio.run(main())


def test_what_was_trimmed_or_deleted_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.Broker.open(tmp_path) as broker, broker.producer("orders") as p:
            await broker.admin.create_subscription("orders", "s")
            await p.send_many([b"%d" % n for n in range(10)])
            await broker.admin.roll("orders")
            await p.send_many([b"%d" % n for n in range(10, 15)])
            files = FileTopic(tmp_path, ORDERS)
            first, visible = files.plan()
            await broker.admin.clear("orders", "s")
            await broker.admin.trim("orders")
            await broker.engine.settle()
            assert numbers(files, *files.plan()) == list(range(10, 15))
            with pytest.raises(holdfast.NotFound, match="trimmed"):
                numbers(files, first, visible)
            await p.close()
            await broker.admin.delete_topic("orders", force=True)
            with pytest.raises(holdfast.NotFound, match="deleted"):
                files.plan()
            with pytest.raises(holdfast.NotFound, match="shows no topic"):
                FileTopic(tmp_path, ORDERS)
            async with broker.producer("orders") as again:
                await again.send(b"99")
            with pytest.raises(holdfast.NotFound, match="deleted"):
                files.plan()
            assert numbers(FileTopic(tmp_path, ORDERS), 0, 1) == [99]

    asyncio.run(main())


def test_damaged_tables_are_told(tmp_path: Path) -> None:
    with holdfast.Broker.open(tmp_path) as broker, broker.producer("orders") as p:
        p.send(b"1")
        path = tmp_path / table_path(ORDERS)
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            with pytest.raises(holdfast.Corrupt, match=path.name):
                read_table(tmp_path, ORDERS)
        path.write_bytes(whole)
        assert (tmp_path / view_path(1)).stat().st_size == 4096


NEWS = topic_name("news")


def publish(directory: Path, *names: str) -> None:
    with holdfast.Broker.open(directory) as broker:
        for name in names:
            with broker.producer(name) as p:
                p.send(b"1")


def test_a_damaged_table_concerns_its_topic_alone(tmp_path: Path) -> None:
    """I166: with any byte of a table damaged, other topics are read; this one raises."""
    publish(tmp_path, "orders", "news")
    path = tmp_path / table_path(ORDERS)
    whole = path.read_bytes()
    named = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        place = FilePlace(str(tmp_path))
        assert place.topics([NEWS]) == [NEWS]
        assert place.open(NEWS).plan() == (0, 1)
        try:
            assert FilePlace(str(tmp_path)).topics() == [NEWS, ORDERS]
            named += 1
        except holdfast.Corrupt as error:
            assert f"{path}, of an unknown topic" in str(error)  # noqa: PT017
    assert named == len(whole) - len(ORDERS)  # with damage anywhere but in the name
    for bytes_left in (b"", b"\0" * len(whole), whole[:-1], whole.replace(b"orders", b"others")):
        path.write_bytes(bytes_left)
        place = FilePlace(str(tmp_path))
        assert place.topics([ORDERS]) == [ORDERS]
        with pytest.raises(
            holdfast.Corrupt, match=f"^{ORDERS}: .*{path.name}.*restart the broker, which writes it again"
        ):
            place.open(ORDERS)


def test_a_damaged_table_of_a_partition_is_missed(tmp_path: Path) -> None:
    """A reader of a topic gets an error if one of its partitions is missing."""
    publish(tmp_path, "orders-partition-0", "orders-partition-7", "news")
    (tmp_path / table_path(f"{ORDERS}-partition-7")).write_bytes(b"")
    place = FilePlace(str(tmp_path))
    assert place.topics([NEWS]) == [NEWS]
    assert place.topics([ORDERS]) == [f"{ORDERS}-partition-0", f"{ORDERS}-partition-7"]


def test_a_start_writes_damaged_tables_anew(tmp_path: Path) -> None:
    """Also of a topic that is empty by now."""
    with holdfast.Broker.open(tmp_path, retention_s=0) as broker:
        for name in ("orders", "news"):
            broker.admin.create_subscription(name, "s")
            with broker.producer(name) as p:
                p.send(b"1")
        broker.admin.roll("news")
        broker.admin.clear("news", "s")
        broker.admin.trim("news")
        until(lambda: FilePlace(str(tmp_path)).open(NEWS).plan() == (1, 1))
    for name in (ORDERS, NEWS):
        (tmp_path / table_path(name)).write_bytes(b"")
    with holdfast.Broker.open(tmp_path):
        until(lambda: all((tmp_path / table_path(each)).stat().st_size for each in (ORDERS, NEWS)))
        place = FilePlace(str(tmp_path))
        assert place.topics() == [NEWS, ORDERS]
        assert (place.open(ORDERS).plan(), place.open(NEWS).plan()) == ((0, 1), (1, 1))


def test_a_topic_that_is_shown_for_the_first_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new topic is absent or readable at every moment, also one created again."""
    seen: list[Any] = []

    def look() -> None:
        try:
            place = FilePlace(str(tmp_path))
            for name in place.topics():
                seen.append((name, place.open(name).plan(), FileTopic(tmp_path, name).plan()))
        except holdfast.HoldfastError as error:
            seen.append(error)

    def around(kind: Any, member: str) -> None:
        real = getattr(kind, member)

        def step(self: Any, *told: Any) -> Any:
            look()
            found = real(self, *told)
            look()
            return found

        monkeypatch.setattr(kind, member, step)

    class View:
        """A view with a look after its creation, and around each of its writes."""

        def __init__(self, *told: Any) -> None:
            self._view = TopicView(*told)
            look()

        def publish(self, *told: Any) -> None:
            look()
            self._view.publish(*told)
            look()

        def sync(self) -> None:
            self._view.sync()

    with holdfast.Broker.open(tmp_path, roll_entries=1) as broker:
        monkeypatch.setattr(table, "TopicView", View)
        around(Publications, "_renew")
        around(table, "write_part")
        for count in (1, 2):
            with broker.producer("orders", batch=1) as p:
                p.send_many([b"1"] * count)
            whole = (ORDERS, (0, count), (0, count))
            until(lambda whole=whole: whole in seen)  # type: ignore[misc]
            assert not [each for each in seen if isinstance(each, Exception)]
            broker.admin.delete_topic("orders")
            seen.clear()


def test_a_version_is_of_one_table_for_good(tmp_path: Path) -> None:
    """A reader with an old table, damaged since, must notice the new one."""
    with holdfast.Broker.open(tmp_path) as broker, broker.producer("orders") as p:
        for _ in range(3):
            p.send(b"1")
            broker.admin.roll("orders")
    before = read_table(tmp_path, ORDERS)
    (tmp_path / table_path(ORDERS)).write_bytes(b"")
    with holdfast.Broker.open(tmp_path) as broker, broker.producer("orders") as p:
        p.send(b"1")
        after = read_table(tmp_path, ORDERS)
    assert after.version > before.version > 1
    assert after.ledgers[: len(before.ledgers)] == before.ledgers


def test_what_was_left_of_a_deleted_topic_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was killed, or had no descriptors, between the deletion and its files."""

    def fails(self: Publications, topic: int) -> None:
        raise OSError("too many open files")

    with monkeypatch.context() as patch, holdfast.Broker.open(tmp_path) as broker:
        patch.setattr(Publications, "gone", fails)
        for name in ("orders", "news"):
            with broker.producer(name) as p:
                p.send(b"1")
        broker.admin.delete_topic("orders", force=True)
    (tmp_path / (table_path(NEWS) + ".new")).write_bytes(b"half")
    assert FilePlace(str(tmp_path)).topics() == [NEWS, ORDERS]
    with holdfast.Broker.open(tmp_path):
        until(lambda: FilePlace(str(tmp_path)).topics() == [NEWS])
        until(lambda: len(list((tmp_path / "topics").iterdir())) == 2)
