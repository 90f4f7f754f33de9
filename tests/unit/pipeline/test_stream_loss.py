"""Streams over topics that are trimmed, deleted, made again or restored under them; without Spark."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import BadConfiguration, Broker, DataLoss, NotFound, Timeout
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.client import Progress
from holdfast.columns.files import topic_and_partition
from holdfast.ledger.files.backup import backup, restore
from holdfast.pipeline import behind_latest
from holdfast.pipeline.source import stream
from tests.kit.pipeline.streams import (
    NAMED,
    ORDERS,
    Local,
    Stream,
    Told,
    entries_of,
    publish,
    read_in_lives,
    send,
)
from tests.kit.slices import seeds

pytestmark = pytest.mark.usefixtures("at_once")


# -- chunked messages ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds("chunks over batches", test=3))
def test_a_chunked_message_over_batches_is_read_whole(data: str, broker: BlockingBroker, seed: int) -> None:
    """I157: the broker never trims first chunks that the stream still needs."""
    found, wanted = read_in_lives(data, broker, seed)
    assert found == wanted
    at = Local(broker).at(ORDERS, broker._twin.topic(ORDERS).state.incarnation)
    assert at.acked_to == at.visible == at.first, "at the end nothing is open, and all of it may go"


def test_a_beginning_that_is_gone_is_a_loss(
    data: str, broker: BlockingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    parts = entries_of("large", 3)
    publish(broker, [*entries_of("a", 1), parts[0], *entries_of("b", 1)])
    strict = Stream(data, None, ("value",))
    lenient = Stream(data, None, ("value",), failOnDataLoss="false")
    assert strict.batch() == lenient.batch() == [b"a", b"b"]
    broker.admin.create_subscription("orders", "done", "latest")
    assert broker.admin.trim("orders") == 3, "the first part goes: nobody named a subscription"
    publish(broker, [parts[1], parts[2], *entries_of("c", 1)])
    with pytest.raises(
        DataLoss, match=r"position 4: the beginning of this chunked message is missing.*below 3"
    ):
        strict.batch()
    assert lenient.batch() == [b"c"]
    assert "is missing, and it is left out" in caplog.text
    begun = Stream(data, None, ("value",))  # a query that begins now does not need it
    assert begun.batch() == [b"c"]


def test_a_batch_that_a_reset_has_let_go_of_can_end(data: str, broker: BlockingBroker) -> None:
    """I156: Spark repeats a logged batch, also if its entries were trimmed since."""
    publish(broker, entries_of("a", 1) * 9)
    stream = Stream(data, Local(broker), maxOffsetsPerTrigger=6, **NAMED)
    assert stream.batch() == list(range(6))
    planned = stream.end()
    broker.admin.create_subscription("orders", "others", "latest")
    broker.admin.reset("orders", "billing", "latest")
    broker.admin.trim("orders")
    assert stream.rows(planned) == []
    stream.offset = planned
    publish(broker, entries_of("c", 1) * 2)
    assert stream.batch() == [9, 10]


def test_a_batch_that_was_trimmed_without_a_reset_is_a_loss(data: str, broker: BlockingBroker) -> None:
    publish(broker, entries_of("a", 1) * 9)
    stream = Stream(data, Local(broker), maxOffsetsPerTrigger=6, **NAMED)
    assert stream.batch() == list(range(6))
    planned, at = stream.end(), stream.reader._later.at(ORDERS, broker._twin.topic(ORDERS).state.incarnation)
    stream.reader._later.finished(ORDERS, at, 8)  # by a consumer that has not read it
    with pytest.raises(DataLoss, match="entries 6 to 7 were trimmed"):
        stream.rows(planned)


# -- topics that are others ----------------------------------------------------------------------------


def test_a_topic_that_was_made_again_keeps_its_own_subscription(data: str, broker: BlockingBroker) -> None:
    """I158: what was read of the old one moves nothing in the new one."""
    send(broker, 9)
    running = Stream(data, Local(broker), failOnDataLoss="false", **NAMED)
    assert running.batch() == list(range(9))
    strict = Stream(data, Local(broker), **NAMED)
    strict.offset = running.offset
    broker.admin.delete_topic("orders", force=True)
    with pytest.raises(DataLoss, match="deleted or created again"):
        strict.batch()
    send(broker, 12)
    with pytest.raises(DataLoss, match="deleted or created again"):
        strict.batch()
    running.reader._later.at(ORDERS, broker._twin.topic(ORDERS).state.incarnation)  # of another topic
    assert running.batch() == list(range(12)), "also by a stream that starts again with the old offset"
    assert running.batch() == []
    send(broker, 1)
    assert running.batch() == [12]


def test_a_deleted_topic_ends_no_stream_that_may_go_on(
    data: str, broker: BlockingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, 5)
    send(broker, 5, "others")
    options: dict[str, Any] = {"topicsPattern": "orders|others", "failOnDataLoss": "false", **NAMED}
    running = Stream(data, Local(broker), **options)
    planned = running.end()
    broker.admin.delete_topic("orders", force=True)
    assert running.rows(planned) == [0, 1, 2, 3, 4], "of the other, in a batch that was planned"
    running.offset = planned
    assert "was deleted or created again" in caplog.text
    again = Stream(data, Local(broker), **options)
    again.offset = running.offset  # as after a restart: the offset still has the topic that is gone
    send(broker, 2, "others")
    assert again.batch() == [5, 6]
    assert list(again.offset) == ["persistent://public/default/others"]
    assert ORDERS not in broker.admin.topics(), "and nobody has made it again"


def test_a_topic_deleted_while_a_task_reads_is_told(
    data: str, broker: BlockingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, 5)
    for fail in ("true", "false"):
        running = Stream(data, None, failOnDataLoss=fail)
        splits = running.reader.partitions(running.offset, running.end())
        if fail == "true":
            strict, planned = running, splits
    broker.admin.delete_topic("orders", force=True)
    with pytest.raises(DataLoss, match="was deleted while it was read"):
        [list(strict.reader.read(each)) for each in planned]
    caplog.clear()
    assert [batch for each in splits for batch in running.reader.read(each)] == []
    assert "entries 0 to 4 are lost" in caplog.text


def test_a_subscription_that_somebody_deleted_is_told(data: str, broker: BlockingBroker) -> None:
    class Strict(Local):
        def at(self, topic: str, incarnation: bytes, create: bool = True) -> Progress:
            if not create and self.name not in broker.admin.subscriptions(topic):
                raise NotFound("orders has no subscription 'billing'")
            return super().at(topic, incarnation, create)

    send(broker, 5)
    running = Stream(data, Strict(broker), **NAMED)
    assert running.batch() == [0, 1, 2, 3, 4]
    broker.admin.delete_subscription("orders", "billing")
    with pytest.raises(BadConfiguration, match="has no subscription"):
        running.batch()


def test_a_topic_that_a_look_has_missed_is_not_lost(
    data: str, broker: BlockingBroker, monkeypatch: Any
) -> None:
    """A listing of a directory that changes meanwhile may lack some files."""
    send(broker, 5)
    running = Stream(data)
    assert running.batch() == [0, 1, 2, 3, 4]
    send(broker, 2)
    monkeypatch.setattr(type(running.reader._place), "topics", lambda *_: [])
    assert running.batch() == [5, 6]


def test_a_topic_that_is_not_asked_for_any_more_is_no_loss(
    data: str, broker: BlockingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, 2)
    send(broker, 3, "bills")
    both = Stream(data, topicsPattern=".*")
    assert sorted(both.batch()) == [0, 0, 1, 1, 2]
    one = Stream(data)
    one.offset = both.offset
    send(broker, 1)
    assert one.batch() == [2]
    assert list(one.offset) == [ORDERS]
    assert "bills is no longer a topic of this query" in caplog.text


def test_what_a_subscription_says_may_be_shown_a_moment_later(
    data: str, broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a loss: the reset is to an end that the files lack yet."""
    monkeypatch.setattr(stream, "SHOWN_S", 20.0)
    send(broker, 5)
    told: Any = Told(acked=2)
    running = Stream(data, told, **NAMED)
    assert running.batch() == [2, 3, 4]
    told.number, told.acked = 4, 8
    looks_again = iter([lambda: send(broker, 3)])
    paused = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: next(looks_again)())
    monkeypatch.setattr(stream, "time", paused)
    assert running.batch() == []
    assert list(looks_again) == []
    assert running.position() == 8


def test_a_subscription_says_where_a_query_begins(data: str) -> None:
    for option, value in (("startingOffsets", '{"orders": {"0": 7}}'), ("startingTimestamp", "2026-01-01")):
        options: dict[str, Any] = {option: value}
        with pytest.raises(BadConfiguration, match="predefinedSubscription says where a query begins"):
            Stream(data, None, **NAMED, **options)


def test_a_subscription_named_later_follows_the_checkpoint(data: str, broker: BlockingBroker) -> None:
    """It does not move the query; later resets count."""
    send(broker, 20)
    plain = Stream(data, maxOffsetsPerTrigger=8)
    assert len(plain.batch()) == 8
    for acked in (0, 3, 15):
        told: Any = Told(number=2, acked=acked)
        running = Stream(data, told, maxOffsetsPerTrigger=8, **NAMED)
        running.offset = plain.offset
        assert running.batch() == list(range(8, 16))
        assert running.batch() == list(range(16, 20))
        assert told.done == ([(ORDERS, 2, 16)] if acked < 16 else [])
        told.number, told.acked = 3, 5
        assert running.batch() == list(range(5, 13)), "a reset is obeyed"
    other: Any = Told(number=7, acked=1)
    other.name = "audit"
    running.reader._subscription = running.reader._later = other
    assert running.batch() == list(range(13, 20)), "another subscription follows, too"


# -- topics that are shorter than they were ------------------------------------------------------------


def restored(data: str, target: Path, before: Callable[[], None]) -> None:
    """Put the directory back to what it was, after something was done with it."""
    backup(data, target)
    before()
    shutil.rmtree(data)
    restore(target, data)


@pytest.fixture
def shorter(data: str, tmp_path: Path) -> tuple[Any, Any]:
    """Offsets of a stream that read 20 and 35 entries; the topic has 20 again."""
    with Broker.open(data) as broker:
        send(broker, 20)
    running = Stream(data)
    assert len(running.batch()) == 20
    early = running.offset

    def further() -> None:
        with Broker.open(data) as broker:
            send(broker, 15)
        assert Stream(data).batch() == list(range(35))
        running.offset = running.end()

    restored(data, tmp_path / "backup", further)
    with Broker.open(data):
        pass  # which shows what there is
    return early, running.offset


def test_a_topic_that_lost_its_end_is_a_loss(data: str, shorter: tuple[Any, Any]) -> None:
    """Not damage, and never silent: new entries have positions that were read before."""
    early, late = shorter
    for mode in ("failfast", "permissive"):
        strict = Stream(data, None, mode=mode)
        strict.offset = late
        with pytest.raises(DataLoss, match=r"ends before entry 20, and was read up to entry 35.*restored"):
            strict.batch()
        strict.offset = early
        with pytest.raises(DataLoss, match=r"ends before entry 20.*start its broker"):
            strict.reader.partitions(early, late)


def test_a_topic_that_lost_its_end_is_waited_for_and_goes_on(
    data: str, shorter: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    early, late = shorter
    running = Stream(data, None, failOnDataLoss="false", mode="permissive", timeout="200ms")
    running.offset = late
    assert running.batch() == []
    assert running.position() == 35, "it may only be that its broker is not there yet"
    waiting = running.offset
    assert running.batch() == []
    assert running.offset == waiting, "nothing new is written down as long as it is so"
    assert "waiting for it to grow" in caplog.text
    with Broker.open(data) as broker:
        send(broker, 5)
        assert running.batch() == [], "first it is written down ..."
        assert running.position() == 20
        assert running.batch() == [20, 21, 22, 23, 24], "... and then all that is new is read"
        assert running.batch() == []
        send(broker, 30)
        assert running.batch() == list(range(25, 55))
    assert "continuing with entry 20, the first new one" in caplog.text
    slow = Stream(data, None, failOnDataLoss="false", minOffsetsPerTrigger=1000)
    slow.offset = json.loads(json.dumps(late).replace(": 35", ": 70"))
    assert slow.batch() == []
    with Broker.open(data) as broker:
        send(broker, 5)
        assert slow.batch() == []
        assert slow.position() == 55, "also where more is waited for"
    running = Stream(data, None, failOnDataLoss="false", timeout="100ms")
    running.offset = early
    far = json.loads(json.dumps(late).replace(": 35", ": 70"))
    assert running.rows(far) == list(range(20, 60)), "a batch that was planned: what there is of it"


def test_a_topic_whose_view_is_late_is_read_on(data: str, shorter: tuple[Any, Any]) -> None:
    """As after a power cut, when the stream is there before the broker."""
    _, late = shorter
    running = Stream(data, None, failOnDataLoss="false")
    running.offset = late
    assert running.batch() == []
    with Broker.open(data) as broker, broker.producer("orders") as producer:
        producer.send_many([b"x"] * 15)  # all at once, as a broker that starts shows it
        assert running.batch() == []
        send(broker, 3)
        assert running.batch() == [35, 36, 37]


def run_through(data: str, offset: Any) -> tuple[list[int], Any]:
    """Return the entries of one available-now run, as in a new process, and its end."""
    running = Stream(data, None, failOnDataLoss="false")
    running.reader.prepareForTriggerAvailableNow()
    running.offset, found = offset, list[int]()
    while True:
        before = running.offset
        found += running.batch()
        if running.offset == before:
            return found, before


def test_a_topic_that_lost_its_end_grows_while_no_query_runs(
    data: str, shorter: tuple[Any, Any], tmp_path: Path
) -> None:
    """Every entry that came after a run has seen the end is read, and once."""
    found, offset = run_through(data, shorter[1])
    assert found == []
    backup(data, tmp_path / "again")
    for begin in (20, 24, 28):
        with Broker.open(data) as broker:
            send(broker, 4)
        found, offset = run_through(data, offset)
        assert found == list(range(begin, begin + 4))
        assert "short" not in offset[ORDERS]["0"]
    shutil.rmtree(data)
    restore(tmp_path / "again", data)
    with Broker.open(data) as broker:
        send(broker, 6)
    found, offset = run_through(data, offset)
    assert found == []
    assert offset[ORDERS]["0"]["short"] == 26
    shutil.rmtree(data)
    restore(tmp_path / "again", data)
    with Broker.open(data):
        pass
    found, offset = run_through(data, offset)
    assert found == []
    assert offset[ORDERS]["0"]["short"] == 20, "shorter than when it was seen first"
    with Broker.open(data) as broker:
        send(broker, 3)
    assert run_through(data, offset)[0] == [20, 21, 22]


def test_a_start_behind_the_end_is_told(data: str, broker: BlockingBroker) -> None:
    send(broker, 5)
    with pytest.raises(DataLoss, match="ends before entry 5, and startingOffsets asks for 7"):
        Stream(data, startingOffsets='{"orders": {"0": 7}}')
    running = Stream(data, startingOffsets='{"orders": {"0": 7}}', failOnDataLoss="false")
    send(broker, 1)
    assert running.batch() == [5]
    assert Stream(data, startingOffsets='{"orders": {"0": 6}}').batch() == []


# -- what there is -------------------------------------------------------------------------------------


def test_what_there_is_ends_no_query(
    data: str, broker: BlockingBroker, monkeypatch: Any, caplog: Any
) -> None:
    """Spark asks for its progress: what is wrong is told by reading, or passes."""
    send(broker, 5)
    running = Stream(data)

    def fails() -> Any:
        raise Timeout("the broker does not respond")

    monkeypatch.setattr(type(running.reader._place), "topics", lambda *_: fails())
    with caplog.at_level(logging.WARNING):
        assert running.reader.reportLatestOffset() is None
    assert "is not known now: the broker does not respond" in caplog.text
    with pytest.raises(Timeout):
        running.reader.prepareForTriggerAvailableNow()


def test_behind_latest_counts_what_can_be_read(data: str, broker: BlockingBroker) -> None:
    send(broker, 30)
    running = Stream(data)
    running.batch()
    broker.admin.delete_topic("orders", force=True)
    send(broker, 12)
    send(broker, 40, "new")
    broker.admin.create_subscription("new", "done", "latest")
    first = broker.admin.trim("new")
    assert first > 20
    both = Stream(data, topicsPattern=".*")
    latest = both.reader.reportLatestOffset()
    found = behind_latest({"sources": [{"endOffset": running.offset, "latestOffset": latest}]})
    assert found["maxOffsetsBehindLatest"] == 12, "all of a topic that was made again"
    assert found["minOffsetsBehindLatest"] == 40 - first, "of a new one what was not trimmed"
    assert found["avgOffsetsBehindLatest"] == (12 + 40 - first) / 2


@pytest.mark.parametrize("name", ["orders-partition-007", "orders-partition-", "orders-partition-4294967296"])
def test_a_name_that_only_looks_like_a_partition(data: str, broker: BlockingBroker, name: str) -> None:
    send(broker, 3, name)
    send(broker, 2, "orders-partition-7")
    full = f"persistent://public/default/{name}"
    assert topic_and_partition(full) == (full, 0)
    named = Stream(data, topic=name)
    assert named.batch() == [0, 1, 2]
    assert list(named.offset) == [full]
    every = Stream(data, topicsPattern=".*")
    assert sorted(every.batch()) == [0, 0, 1, 1, 2]
    assert {topic: list(parts) for topic, parts in every.offset.items()} == {full: ["0"], ORDERS: ["7"]}
