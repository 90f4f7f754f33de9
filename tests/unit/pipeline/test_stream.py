"""Test `spark.readStream.format("holdfast")`: every entry in one batch, while the broker changes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Broker
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.errors import BadConfiguration
from holdfast.pipeline import behind_latest
from holdfast.pipeline.source.offsets import DataLoss
from holdfast.pipeline.source.stream import in_turn, reach, share
from tests.kit.pipeline.streams import NAMED, ORDERS, Stream, Told, send
from tests.kit.slices import seeds


@pytest.fixture
def broker(data: str) -> Iterator[BlockingBroker]:
    with Broker.open(data, roll_entries=10, housekeeping_s=3600) as opened:
        yield opened


# -- offsets and limits, without Spark -----------------------------------------------------------------


def test_batches_follow_one_another(data: str, broker: BlockingBroker) -> None:
    """I155."""
    send(broker, 25)
    stream = Stream(data)
    assert stream.batch() == list(range(25))
    before = stream.offset
    assert stream.batch() == []
    assert stream.offset == before, "Spark knows by the text that there is nothing new"
    send(broker, 5)
    assert stream.batch() == [25, 26, 27, 28, 29]
    assert Stream(data, startingOffsets="latest").batch() == []
    assert Stream(data, startingOffsets='{"orders": {"0": 28}}').batch() == [28, 29]
    with pytest.raises(BadConfiguration, match="a stream has no end"):
        Stream(data, endingOffsets='{"orders": {"0": 28}}')


def test_limits_per_trigger(data: str, broker: BlockingBroker) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    send(broker, 25)
    stream = Stream(data, maxOffsetsPerTrigger=10)
    assert [len(stream.batch()) for _ in range(4)] == [10, 10, 5, 0]
    stream = Stream(data, maxOffsetsPerTrigger=10)
    assert len(stream.batch(ReadAllAvailable())) == 25, "what Spark says goes before options"
    stream = Stream(data, maxBytesPerTrigger="1k")
    sizes = []
    while found := stream.batch():
        sizes.append(len(found))
    assert sum(sizes) == 25
    assert 3 <= max(sizes) <= 7, "100 bytes, and what an entry has beside them"
    assert Stream(data, maxBytesPerTrigger="1").batch() == [0], "one entry at least"


def test_a_limit_is_shared(data: str, broker: BlockingBroker) -> None:
    send(broker, 30, "orders-partition-0")
    send(broker, 10, "orders-partition-1")
    stream = Stream(data, maxOffsetsPerTrigger=8)
    stream.batch()
    assert [stream.offset[ORDERS][str(i)]["position"] for i in (0, 1)] == [6, 2]
    assert share({"a": 1000, "b": 1, "c": 0}, 10) == {"a": 9, "b": 1, "c": 0}
    assert share({"a": 3}, 10) == {"a": 3}


def test_a_limit_below_the_number_of_topics_goes_round(data: str, broker: BlockingBroker) -> None:
    """Limits are never exceeded, and a full topic does not block the others."""
    for name in "abcdefg":
        send(broker, 5 if name == "f" else 40, name)
    stream = Stream(data, topicsPattern=".", maxOffsetsPerTrigger=3)
    reached = []
    for _ in range(14):
        assert len(stream.batch()) == 3
        reached.append([next(iter(parts.values()))["position"] for parts in stream.offset.values()])
    assert reached[2] == [2, 2, 1, 1, 1, 1, 1]
    assert reached[6] == [3] * 7, "seven batches of three: everybody had three turns"
    assert reached[13] == [7, 6, 6, 6, 6, 5, 6], "who has nothing more is passed over"


@pytest.mark.parametrize("seed", seeds("stream limits", test=20))
def test_a_limit_is_used_up_and_never_exceeded(seed: int) -> None:
    choose = random.Random(seed)
    last, waited = "", 0
    for _ in range(200):
        waiting = {f"t{number:02}": choose.choice([0, 1, 3, 1000]) for number in range(choose.randrange(30))}
        limit = choose.randrange(1, 40)
        shares = share(waiting, limit, last)
        assert shares.keys() == waiting.keys()
        assert sum(shares.values()) == min(limit, sum(waiting.values()))
        assert all(0 <= shares[name] <= count for name, count in waiting.items())
        if limit >= sum(count > 0 for count in waiting.values()):
            assert all(shares[name] for name, count in waiting.items() if count)
        last = (in_turn(shares, last) or [last])[-1]
    for _ in range(50):  # each topic waits at most one round
        waiting = {f"t{number:02}": choose.choice([0, 1, 5]) for number in range(20)} | {"t07": 1}
        shares = share(waiting, 2, last)
        last = in_turn(shares, last)[-1]
        waited = 0 if shares["t07"] else waited + 1
        assert waited < 10


def test_waiting_for_enough(data: str, broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    monkeypatch.setattr("holdfast.pipeline.source.stream.time.monotonic", lambda: clock)
    send(broker, 5)
    stream = Stream(data, minOffsetsPerTrigger=10, maxTriggerDelay="1m")
    assert stream.batch() == []
    clock = 59.0
    assert stream.batch() == []
    clock = 61.0
    assert len(stream.batch()) == 5, "the time is over"
    assert stream.batch() == []
    clock = 200.0
    send(broker, 3)
    assert stream.batch() == []
    send(broker, 7)
    assert len(stream.batch()) == 10, "there is enough"


def test_available_now_ends_where_it_began(data: str, broker: BlockingBroker) -> None:
    send(broker, 20)
    stream = Stream(data, maxOffsetsPerTrigger=15, topicsPattern=".*", minOffsetsPerTrigger=1000)
    stream.reader.prepareForTriggerAvailableNow()
    send(broker, 20)
    send(broker, 20, "later")
    assert [len(stream.batch()) for _ in range(3)] == [15, 5, 0]
    assert list(stream.offset) == [ORDERS]


def test_new_topics_and_partitions_are_read_from_their_beginning(data: str, broker: BlockingBroker) -> None:
    stream = Stream(data, topicsPattern="orders|bills", startingOffsets="latest")
    assert stream.batch() == []
    send(broker, 3)
    assert stream.batch() == [0, 1, 2]
    send(broker, 2, "bills-partition-1")
    send(broker, 2, "tools")
    assert stream.batch() == [0, 1]
    assert set(stream.offset) == {ORDERS, "persistent://public/default/bills"}
    named = Stream(data, topic="not-yet")
    assert named.batch() == []
    send(broker, 4, "not-yet")
    assert named.batch() == [0, 1, 2, 3]


def test_a_partitioned_topic_grows_while_a_stream_runs(data: str, broker: BlockingBroker) -> None:
    """All partitions are read, later ones from their first message on."""
    broker.admin.create_partitioned_topic("whole", 2)
    stream = Stream(data, topic="whole", startingOffsets="latest")
    send(broker, 3, "whole-partition-0")
    send(broker, 2, "whole-partition-1")
    assert sorted(stream.batch()) == [0, 0, 1, 1, 2]
    broker.admin.grow_partitions("whole", 4)
    send(broker, 4, "whole-partition-3")
    assert stream.batch() == [0, 1, 2, 3]
    parts = stream.offset["persistent://public/default/whole"]
    assert {part: parts[part]["position"] for part in ("0", "1", "3")} == {"0": 3, "1": 2, "3": 4}
    assert stream.batch() == []


def test_data_loss_fails_or_is_left_out(data: str, broker: BlockingBroker) -> None:
    send(broker, 35)
    strict, lenient = Stream(data), Stream(data, failOnDataLoss="false")
    planned = lenient.reader.latestOffset(lenient.offset, lenient.reader.getDefaultReadLimit())
    broker.admin.create_subscription("orders", "done", "latest")
    first = broker.admin.trim("orders")  # all sealed ledgers
    assert first >= 30
    with pytest.raises(DataLoss, match=rf"entries 0 to {first - 1} were trimmed.*failOnDataLoss=false"):
        strict.batch()
    splits = lenient.reader.partitions(lenient.offset, planned)
    rows = [row for split in splits for batch in lenient.reader.read(split) for row in batch.to_pylist()]
    assert [row["position"] for row in rows] == list(range(first, 35)), "a batch that was planned before"
    assert lenient.batch() == list(range(first, 35))
    strict.offset = lenient.offset
    broker.admin.delete_topic("orders", force=True)
    with pytest.raises(DataLoss, match="deleted or created again"):
        strict.batch()
    send(broker, 4)
    with pytest.raises(DataLoss, match="deleted or created again"):
        strict.batch()
    assert lenient.batch() == [0, 1, 2, 3], "another topic under its name: from its beginning"
    assert lenient.batch() == []


def test_a_stream_lives_longer_than_a_broker(data: str) -> None:
    """Also one that had to write its views anew."""
    with Broker.open(data) as broker:
        send(broker, 10)
        stream = Stream(data)
        assert len(stream.batch()) == 10
    assert stream.batch() == []
    with Broker.open(data) as broker:
        send(broker, 10)
        assert len(stream.batch()) == 10
    (view,) = (Path(data) / "topics").glob("*.view")
    view.write_bytes(b"lost power")
    with Broker.open(data) as broker:
        send(broker, 10)
        assert len(stream.batch()) == 10


def test_behind_latest(data: str, broker: BlockingBroker) -> None:
    send(broker, 30, "orders-partition-0")
    send(broker, 10, "orders-partition-1")
    stream = Stream(data, maxOffsetsPerTrigger=8)
    stream.batch()
    latest = json.dumps(stream.reader.reportLatestOffset())
    progress = {"sources": [{"endOffset": json.dumps(stream.offset), "latestOffset": latest}]}
    assert behind_latest(progress) == {
        "minOffsetsBehindLatest": 8,
        "maxOffsetsBehindLatest": 24,
        "avgOffsetsBehindLatest": 16.0,
    }
    assert behind_latest({"sources": [{}]})["maxOffsetsBehindLatest"] == 0


def test_reach_over_ledgers() -> None:
    class Weighed:
        def weights(self, start: int, stop: int, step: int = 0) -> list[tuple[int, int]]:
            found = [(0, 0), (10, 100), (30, 400), (40, 400), (50, 1000)]
            begun = dict(found)[start]
            return [(at, before - begun) for at, before in found if start <= at <= stop]

    topic: Any = Weighed()
    assert [reach(topic, 0, 50, size) for size in (1, 50, 100, 250, 400, 999, 1000)] == [
        1, 5, 10, 20, 40, 49, 50,
    ]  # fmt: skip


# -- a named subscription ------------------------------------------------------------------------------


def test_a_reset_is_obeyed_between_batches(data: str, broker: BlockingBroker) -> None:
    """I156: a batch has one reset number; the next one begins at the reset."""
    send(broker, 30)
    told: Any = Told()
    stream = Stream(data, told, maxOffsetsPerTrigger=5, **NAMED)
    assert stream.batch() == [10, 11, 12, 13, 14]
    assert stream.batch() == [15, 16, 17, 18, 19]
    assert told.done == [(ORDERS, 3, 15)], "the first of them is done"
    told.number, told.acked = 4, 2  # an operator resets it to entry 2 ...
    assert stream.batch() == [2, 3, 4, 5, 6]
    assert told.done == [(ORDERS, 3, 15)], "what was done under the old number does not move it under the new"
    assert stream.batch() == [7, 8, 9, 10, 11]
    assert told.done[1:] == [(ORDERS, 4, 7)]
    told.number, told.acked = 5, 30  # ... and to the end
    assert stream.batch() == []
    assert stream.position() == 30
    before = stream.offset
    told.away = True
    assert stream.batch() == [], "no broker, no batch, and no failure"
    assert stream.offset == before
