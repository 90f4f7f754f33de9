"""Processes that read a broker's files beside it, while it appends, rolls, trims, dies and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast
from holdfast._core import Batch
from holdfast.broker.names import topic_name
from holdfast.ledger.publication import TopicFiles, read_table, table_path, view_path
from processes import Start, tell

ORDERS = topic_name("orders")


def numbers(files: TopicFiles, start: int, stop: int) -> list[int]:
    return [int(message.data) for run in files.runs(start, stop) for message in Batch(run)]


def test_what_is_visible_is_read_and_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(holdfast.NotFound, match="no broker's directory"):
            TopicFiles(tmp_path, ORDERS)
        async with holdfast.Broker.open(tmp_path) as broker:
            with pytest.raises(holdfast.NotFound, match="shows no topic"):
                TopicFiles(tmp_path, ORDERS)
            async with broker.producer("orders") as p:
                await p.send_many([b"%d" % n for n in range(10)])
                files = TopicFiles(tmp_path, ORDERS)
                assert files.plan() == (0, 10)
                await broker.admin.roll("orders")
                await p.send_many([b"%d" % n for n in range(10, 15)])
                assert files.plan() == (0, 15)
                assert numbers(files, *files.plan()) == list(range(15))
                assert numbers(files, 8, 12) == [8, 9, 10, 11]
        assert files.plan() == (0, 15)
        assert numbers(TopicFiles(tmp_path, ORDERS), 0, 15) == list(range(15))

    asyncio.run(main())


def test_what_was_trimmed_or_deleted_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.Broker.open(tmp_path) as broker, broker.producer("orders") as p:
            await broker.admin.create_subscription("orders", "s")
            await p.send_many([b"%d" % n for n in range(10)])
            await broker.admin.roll("orders")
            await p.send_many([b"%d" % n for n in range(10, 15)])
            files = TopicFiles(tmp_path, ORDERS)
            first, visible = files.plan()
            await broker.admin.clear("orders", "s")
            await broker.admin.trim("orders")
            await broker.engine.settle()
            with pytest.raises(holdfast.NotFound, match="trimmed"):
                numbers(files, first, visible)
            assert numbers(files, *files.plan()) == list(range(10, 15))
            await p.close()
            await broker.admin.delete_topic("orders", force=True)
            with pytest.raises(holdfast.NotFound, match="deleted"):
                files.plan()
            with pytest.raises(holdfast.NotFound, match="shows no topic"):
                TopicFiles(tmp_path, ORDERS)
            async with broker.producer("orders") as again:
                await again.send(b"99")
            with pytest.raises(holdfast.NotFound, match="deleted"):
                files.plan()
            assert numbers(TopicFiles(tmp_path, ORDERS), 0, 1) == [99]

    asyncio.run(main())


def serve(path: str, start: int) -> None:
    """Publish numbered messages for ever, in ledgers of 50, keeping the last few thousand."""
    with holdfast.Broker.open(path, roll_entries=50, journal_bytes=1 << 20, sync="os") as broker:
        if not broker.admin.topics():
            broker.admin.create_subscription("orders", "s")
        tell("serving")
        with broker.producer("orders") as p:
            while True:
                ids = p.send_many([b"%d" % n for n in range(start, start + 20)])
                start += len(ids)
                if start % 400 == 0:
                    broker.admin.skip("orders", "s", 300)


def test_a_reader_beside_a_broker_that_is_killed(tmp_path: Path, start: Start) -> None:
    """Ordinal and number are the same here: whatever the reader sees must be right, and never go back."""
    seen = 0
    for _ in range(3):
        broker = start(serve, str(tmp_path), seen_end(tmp_path))
        broker.hear()
        goal = seen + 1500
        while seen < goal:
            try:
                files = TopicFiles(tmp_path, ORDERS)
                first, visible = files.plan()
                assert visible >= seen, "what was visible is not any more"
                begin = max(first, visible - 200)
                assert numbers(files, begin, visible) == list(range(begin, visible))
                seen = visible
            except holdfast.NotFound:
                continue  # not there yet, or trimmed meanwhile
        broker.kill()


def seen_end(directory: Path) -> int:
    """Where a broker that is opened now goes on."""

    async def main() -> int:
        async with holdfast.Broker.open(directory) as broker:
            if not broker.admin.topics():
                return 0
            (topic,) = broker.topics.values()
            return topic.visible

    return asyncio.run(main())


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
