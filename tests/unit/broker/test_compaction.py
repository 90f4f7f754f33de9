"""Compaction of an embedded broker: what is refused, what fails, and where readers begin.

The model of tests/conformance/test_compaction_model.py has the rest.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import packing
from holdfast._core import Entries, crc32c, encode_messages
from holdfast.broker.broker import Broker
from holdfast.broker.compaction.source import CompactionSource, pieces
from holdfast.broker.topic import Topic
from tests.kit.broker.brokers import on_broker
from tests.kit.ledger.entry_bytes import Fields, entry, varint

Pairs = list[tuple[str | None, bytes]]
TOPIC = "persistent://public/default/prices"


async def fill(broker: Broker, pairs: Pairs, batch: int = 1) -> None:
    async with broker.producer("prices", batch=batch) as producer:
        for key, data in pairs:
            await producer.send_many([data] * batch, key=key)


async def read(broker: Broker, **more: Any) -> list[bytes]:
    found = []
    async with broker.reader("prices", compacted=True, **more) as reader:
        while await reader.has_more():
            found.append((await reader.read(timeout=5)).data)
    return found


async def compacted(broker: Broker) -> None:
    await broker.admin.compact("prices", wait=True)
    found = broker.admin.compaction("prices")
    assert found.state == "done", found.error


async def keep_house(broker: Broker) -> None:
    """Let housekeeping look at the topic, and do what is due."""
    for _ in range(4):
        await broker.housekeeping._look_at(broker.topic(TOPIC))
        await broker.settle()


def test_what_is_refused(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        with pytest.raises(holdfast.NotFound, match="there is no topic"):
            await broker.admin.compact("prices")
        await broker.admin.create_exchange("routes", kind="fanout")
        with pytest.raises(holdfast.Misuse, match="exchange"):
            await broker.admin.compact("routes")
        await fill(broker, [("a", b"1")])
        await broker.admin.compact("prices")
        with pytest.raises(holdfast.Busy, match="is being compacted already"):
            await broker.admin.compact("prices")
        await broker.compactions.ended(broker.topic(TOPIC))
        kinds: list[Any] = ["shared", "key_shared"]
        for kind in kinds:
            with pytest.raises(holdfast.Misuse, match="cannot read the compacted view"):
                async with broker.consumer("prices", kind, type=kind, compacted=True):
                    pass
        async with broker.consumer("prices", "s", type="failover", compacted=True):
            with pytest.raises(holdfast.Misuse, match="read the compacted view; a new one has to"):
                async with broker.consumer("prices", "s", type="failover"):
                    pass
        async with broker.consumer("prices", "s", type="failover"):  # the next consumer chooses anew
            pass

    on_broker(tmp_path, work)


def test_a_full_disk_leaves_the_former_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(broker: Broker) -> None:
        await fill(broker, [("a", b"1"), ("a", b"2")])
        await compacted(broker)
        await fill(broker, [("a", b"3")])
        admit = broker.store.admit

        def full(size: int) -> None:
            if size:
                raise holdfast.NoSpace("the disk is full; make room")
            admit(size)

        with monkeypatch.context() as patch:
            patch.setattr(broker.store, "admit", full)
            await broker.admin.compact("prices", wait=True)
        found = broker.admin.compaction("prices")
        assert (found.state, found.error, found.view) == ("failed", "the disk is full; make room", 1)
        assert (found.succeeded, found.failed) == (1, 1)
        assert await read(broker) == [b"2", b"3"]
        broker.machine.state.check()
        await compacted(broker)
        assert await read(broker) == [b"3"]

    on_broker(tmp_path, work)


def test_a_damaged_entry_fails_it_by_name(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await fill(broker, [("a", b"damaged"), ("a", b"2")])
        (ledger,) = (tmp_path / "ledgers").glob("*.data")
        await broker.settle()
        await broker.admin.roll("prices")
        data = bytearray(ledger.read_bytes())
        data[data.index(b"damaged")] ^= 1
        ledger.write_bytes(data)
        await broker.admin.compact("prices", wait=True)
        found = broker.admin.compaction("prices")
        assert found.state == "failed"
        assert ledger.name in found.error
        assert found.view == 0

    on_broker(tmp_path, work)


@pytest.mark.parametrize("how", ["no pyarrow", "too large", "damaged"])
def test_a_batch_that_cannot_be_opened_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """It is told once, with the reason."""

    async def work(broker: Broker) -> None:
        plain = encode_messages([b"1", b"2"], "p", 0, 0, key="a", batch=2)
        async with broker.producer("prices"):
            topic = broker.topic(TOPIC)
            of = next(iter(topic.producers.values()))
            kind, told = 1 if how == "no pyarrow" else 2, 1 << 30 if how == "too large" else 9
            packed = pack(plain[0], kind, told)
            for number in range(2):
                entry = [(number, 1, packed)]
                await broker.publish_entries(topic, of.session, of.epoch, of.name, entry)
        if how == "no pyarrow":
            monkeypatch.setattr(packing, "_arrow", missing)
        with caplog.at_level(logging.WARNING, "holdfast.broker"):
            await compacted(broker)
        assert len(await read(broker)) == 2
        assert len(caplog.records) == 1
        words = {
            "no pyarrow": "needs the package pyarrow",
            "too large": "the limit is",
            "damaged": "does not open",
        }
        assert words[how] in caplog.text
        assert "stays whole" in caplog.text

    on_broker(tmp_path, work)


def missing() -> Any:
    raise ImportError("no module named pyarrow")


def pack(entry: bytes, compression: int, told: int) -> bytes:
    """Say of a batch that it is compressed, which it is not."""
    size = int.from_bytes(entry[6:10], "big")
    metadata = entry[10 : 10 + size] + bytes([8 << 3, compression]) + bytes([9 << 3]) + varint(told)
    body = len(metadata).to_bytes(4, "big") + metadata + entry[10 + size :]
    return entry[:2] + crc32c(body).to_bytes(4, "big") + body


def test_messages_without_a_key(tmp_path: Path) -> None:
    for keep, expected in ((False, [b"2"]), (True, [b"free", b"2"])):

        async def work(broker: Broker, expected: list[bytes] = expected) -> None:
            await fill(broker, [("a", b"1"), (None, b"free"), ("a", b"2")])
            await compacted(broker)
            assert await read(broker) == expected

        on_broker(tmp_path / str(keep), work, compaction_keep_keyless=keep)


def test_a_topic_that_is_deleted_truncated_or_forgotten(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await fill(broker, [("a", b"1"), ("a", b"2"), ("b", b"1")])
        await compacted(broker)
        await broker.admin.create_subscription("prices", "s", start="earliest")
        await broker.admin.forget_compaction("prices")
        assert broker.admin.compaction("prices").state == "never"
        assert await read(broker) == [b"1", b"2", b"1"], "without a view, the topic itself"
        await compacted(broker)
        await broker.admin.truncate("prices")
        assert await read(broker) == []
        broker.machine.state.check()
        await fill(broker, [("a", b"3")])
        await compacted(broker)
        assert await read(broker) == [b"3"]
        await broker.admin.compact("prices")
        ended = asyncio.create_task(broker.compactions.ended(broker.topic(TOPIC)))
        await asyncio.sleep(0)
        await broker.admin.delete_topic("prices", force=True)
        await asyncio.gather(ended, return_exceptions=True)
        assert ended.exception() is None or isinstance(ended.exception(), holdfast.NotFound)
        broker.machine.state.check()
        assert not broker.machine.state.compactions

    on_broker(tmp_path, work)


def test_nothing_that_a_compaction_needs_is_trimmed(tmp_path: Path) -> None:
    """I311: by a threshold before the first compaction, and by a ring."""

    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("prices", retention_bytes=0, compaction_threshold=1 << 30)
        await broker.admin.create_subscription("prices", "s", start="earliest")
        await fill(broker, [(f"k{n}", b"1") for n in range(9)])
        await broker.admin.clear("prices", "s")
        await keep_house(broker)
        assert broker.topic(TOPIC).first == 0
        await compacted(broker)
        await keep_house(broker)
        assert broker.topic(TOPIC).first > 0
        assert len(await read(broker)) == 9
        await broker.admin.set_policies("prices", ring_entries=1)
        await fill(broker, [(f"k{n}", b"2") for n in range(9)])
        await keep_house(broker)
        assert broker.topic(TOPIC).first <= 9
        broker.machine.state.check()
        assert len(await read(broker)) == 18
        await compacted(broker)
        assert await read(broker) == [b"2"] * 9

    on_broker(tmp_path, work, roll_entries=2, compaction_grace_s=0.0)


def test_the_threshold_asks_again_only_after_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full is not asked every few seconds."""

    async def work(broker: Broker) -> None:
        def full(size: int) -> None:
            raise holdfast.NoSpace("the disk is full; make room")

        await fill(broker, [("a", b"x" * 100), ("a", b"y" * 100)])
        with monkeypatch.context() as patch:
            patch.setattr(broker.store, "admit", full)
            await broker.admin.set_policies("prices", compaction_threshold=10)
            for _ in range(3):
                await keep_house(broker)
                await broker.compactions.ended(broker.topic(TOPIC))
        found = broker.admin.compaction("prices")
        assert (found.state, found.failed) == ("failed", 1)

    on_broker(tmp_path, work)


def test_where_a_compacted_reader_begins(tmp_path: Path) -> None:
    """At ids that only the view has, at times, and at ids that were compacted."""

    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("prices", retention_bytes=0)
        await broker.admin.create_subscription("prices", "s", start="earliest")
        await fill(broker, [(f"k{n % 4}", b"%d" % n) for n in range(12)])
        ids = [broker.topic(TOPIC).id_of(at) for at in range(12)]
        await compacted(broker)
        await broker.admin.clear("prices", "s")
        await keep_house(broker)
        assert broker.topic(TOPIC).first >= 11
        assert await read(broker) == [b"8", b"9", b"10", b"11"]
        assert await read(broker, start=ids[9]) == [b"9", b"10", b"11"]
        assert await read(broker, start=ids[2]) == [b"8", b"9", b"10", b"11"], "the next one that is there"
        assert await read(broker, start="latest") == []
        assert await read(broker, start=1) == [b"8", b"9", b"10", b"11"]
        async with broker.consumer("prices", "c", start="earliest", compacted=True) as consumer:
            first = await consumer.receive(timeout=5)
            assert first.id == ids[8]
            await consumer.seek(ids[10])
            assert (await consumer.receive(timeout=5)).data == b"10"
            await consumer.seek("earliest")
            assert (await consumer.receive(timeout=5)).data == b"8"

    on_broker(tmp_path, work, roll_entries=2, compaction_grace_s=0.0)


def test_a_rewind_drops_a_read_that_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I313: the second pass begins at the start, also during a read."""

    async def work(broker: Broker) -> None:
        await fill(broker, [(f"k{n}", b"1") for n in range(6)])
        topic = broker.topic(TOPIC)
        source = CompactionSource(topic, 6, broker.clock)
        assert (await source.next()) is not None
        source.rewind()
        gate, real = asyncio.Event(), Topic.read

        async def slow(self: Topic, ordinal: int, count_max: int, size_max: int) -> Entries:
            entries = await real(self, ordinal, count_max, size_max)
            await gate.wait()
            return entries

        monkeypatch.setattr(Topic, "read", slow)
        reading = asyncio.create_task(source.next())
        await asyncio.sleep(0.001)
        source.rewind()
        gate.set()
        entries = await reading
        assert entries is not None
        assert (entries.first_ordinal, len(entries), source.dropped) == (0, 6, 1)

    on_broker(tmp_path, work)


def test_a_reader_of_a_removed_view_takes_no_later_one_for_it(tmp_path: Path) -> None:
    """Numbers of views are never used again."""

    async def work(broker: Broker) -> None:
        await fill(broker, [(f"k{n}", b"old") for n in range(20)])
        await compacted(broker)
        async with broker.reader("prices", compacted=True, receiver_queue=2) as reader:
            assert (await reader.read(timeout=5)).data == b"old"
            first = broker.admin.compaction("prices").view
            await broker.admin.truncate("prices")
            await fill(broker, [(f"k{n}", b"new") for n in range(20)])
            await compacted(broker)
            assert broker.admin.compaction("prices").view > first
            found = []
            while await reader.has_more():
                found.append((await reader.read(timeout=5)).data)
            assert found.count(b"new") == 20
            assert found.count(b"old") <= 2, "only those that it had received already"
        broker.machine.state.check()

    on_broker(tmp_path, work)


def test_a_missing_file_fails_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for the end of the topic."""

    async def work(broker: Broker) -> None:
        await fill(broker, [("a", b"1"), ("a", b"2")])
        await broker.admin.roll("prices")
        topic, real = broker.topic(TOPIC), Topic.read

        async def missing(self: Topic, *told: Any) -> Entries:
            raise holdfast.NotFound("ledger 1 does not exist")

        with monkeypatch.context() as patch:
            patch.setattr(Topic, "read", missing)
            await broker.admin.compact("prices", wait=True)
        assert Topic.read is real
        found = broker.admin.compaction("prices")
        assert (found.state, found.error) == ("failed", "ledger 1 does not exist")
        assert not topic.state.compaction or not topic.state.compaction.requested

    on_broker(tmp_path, work)


def test_a_reset_to_the_beginning_leads_into_the_view(tmp_path: Path) -> None:
    """Also without a consumer, and for a subscription that administration creates."""

    async def work(broker: Broker) -> None:
        await trimmed(broker)
        await broker.admin.create_subscription("prices", "made", start="earliest")
        await broker.admin.create_subscription("prices", "reset", start="latest")
        await broker.admin.reset("prices", "reset", "earliest")
        for name in ("made", "reset"):
            stats = broker.admin.subscription_stats("prices", name)
            assert stats.backlog == 4, "the entries that are there, not the places"
            async with broker.consumer("prices", name, compacted=True) as consumer:
                found = [await consumer.receive(timeout=5) for _ in range(4)]
                assert [each.data for each in found] == [b"8", b"9", b"10", b"11"]

    on_broker(tmp_path, work, roll_entries=2, compaction_grace_s=0.0)


async def trimmed(broker: Broker) -> None:
    """Fill a topic, compact it, and let it trim all that its view has."""
    await broker.admin.create_topic("prices", retention_bytes=0)
    await broker.admin.create_subscription("prices", "s", start="earliest")
    await fill(broker, [(f"k{n % 4}", b"%d" % n) for n in range(12)])
    await compacted(broker)
    await broker.admin.clear("prices", "s")
    await keep_house(broker)
    assert broker.topic(TOPIC).first >= 11


def test_the_backlog_knows_what_only_the_view_has(tmp_path: Path) -> None:
    """Else a client is told of a topic's end before it has read the view."""

    async def work(broker: Broker) -> None:
        await trimmed(broker)
        async with broker.consumer("prices", "c", start="earliest", compacted=True) as consumer:
            message = await consumer.receive(timeout=5)
            await consumer.ack(message, receipt=True)
            topic = broker.topic(TOPIC)
            dispatcher = topic.dispatcher_of(topic.subscriptions["c"])
            assert dispatcher is not None
            assert dispatcher.backlog >= 3

    on_broker(tmp_path, work, roll_entries=2, compaction_grace_s=0.0)


def test_a_plain_consumer_after_a_compacted_one(tmp_path: Path) -> None:
    """It gets what the topic still has, and its backlog becomes empty."""

    async def work(broker: Broker) -> None:
        await trimmed(broker)
        await fill(broker, [("k9", b"12")])
        async with broker.consumer("prices", "c", start="earliest", compacted=True) as consumer:
            await consumer.ack(await consumer.receive(timeout=5), receipt=True)
        async with broker.consumer("prices", "c") as plain:
            while True:
                message = await plain.receive(timeout=5)
                await plain.ack(message, receipt=True)
                if message.data == b"12":
                    break
            await asyncio.sleep(0.01)
        assert broker.admin.subscription_stats("prices", "c").backlog == 0

    on_broker(tmp_path, work, roll_entries=2, compaction_grace_s=0.0)


def test_a_later_consumer_begins_in_the_newest_view(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await fill(broker, [("gone", b"secret"), ("gone", b""), ("a", b"1"), ("a", b"2")])
        async with broker.consumer("prices", "c", start="earliest", compacted=True) as consumer:
            assert (await consumer.receive(timeout=5)).data == b"secret"
        await compacted(broker)
        async with broker.consumer("prices", "c", compacted=True) as consumer:
            assert (await consumer.receive(timeout=5)).data == b"2"

    on_broker(tmp_path, work)


def test_an_id_of_the_future_leads_to_the_end(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await trimmed(broker)
        await fill(broker, [("k9", b"12")])
        assert await read(broker, start=holdfast.MessageId(1 << 40, 0)) == []

    on_broker(tmp_path, work, roll_entries=2, compaction_grace_s=0.0)


def test_a_compaction_that_is_not_the_owners_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that has waited must not replace the run of the new owner."""

    async def work(broker: Broker) -> None:
        await fill(broker, [("a", b"1")])
        async with broker.compactions._turn:
            await broker.admin.compact("prices")
            await asyncio.sleep(0)
            monkeypatch.setattr(type(broker.membership), "owns", lambda self, topic: False)
        task = broker.compactions._tasks[broker.topic(TOPIC).id]
        await asyncio.wait([task])
        found = broker.topic(TOPIC).state.compaction
        assert found is not None
        assert found.requested
        assert found.run is None
        assert not found.error

    on_broker(tmp_path, work)


def test_few_bytes_do_not_open_all_at_once(tmp_path: Path) -> None:
    """A run of small batches that open to many MiB is worked on in parts."""

    async def work(broker: Broker) -> None:
        payload = b"\x00\x00\x00\x02\x18\x00" * 50
        data = zlib.compress(payload + bytes((1 << 20) - len(payload)))
        async with broker.producer("prices"):
            topic = broker.topic(TOPIC)
            of = next(iter(topic.producers.values()))
            head: Fields = [(1, b"p"), (2, 0), (3, 1), (8, 2), (9, 1 << 20), (11, 50)]
            entries = [(number, 1, entry(head, data)) for number in range(8)]
            await broker.publish_entries(topic, of.session, of.epoch, of.name, entries)
        run = await topic.read(0, 100, 1 << 20)
        parts = [len(each.entries) for each in pieces(run)]
        assert sum(parts) == 8
        assert max(parts) <= 2

    on_broker(tmp_path, work)
