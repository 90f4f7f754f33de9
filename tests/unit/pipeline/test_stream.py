"""`spark.readStream.format("holdfast")`: every entry in one batch, whatever the broker does meanwhile."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Broker
from holdfast.broker.blocking import BlockingBroker
from holdfast.client import Client, Progress
from holdfast.errors import BadConfiguration, Timeout
from holdfast.pipeline import behind_latest
from holdfast.pipeline.offsets import DataLoss
from holdfast.pipeline.options import parse
from holdfast.pipeline.stream import StreamReader, in_turn, reach, share
from tests.kit.served import served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

ORDERS = "persistent://public/default/orders"


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
def broker(data: str) -> Iterator[BlockingBroker]:
    with Broker.open(data, roll_entries=10, housekeeping_s=3600) as opened:
        yield opened


def send(broker: BlockingBroker, count: int, topic: str = "orders") -> None:
    with broker.producer(topic) as producer:
        for at in range(0, count, 10):
            producer.send_many([b"x" * 100] * min(10, count - at))


class Stream:
    """A query without Spark: what Spark would call, and what it would read."""

    def __init__(
        self, data: str | None, told: Any = None, columns: tuple[str, ...] = ("position",), **options: Any
    ) -> None:
        from pyspark.sql.types import BinaryType, LongType, StructType

        kinds = {"position": LongType(), "value": BinaryType()}
        schema = StructType()
        for name in columns:
            schema = schema.add(name, kinds[name])
        given = {"topic": "orders", "startingOffsets": "earliest", **{k: str(v) for k, v in options.items()}}
        if "topicsPattern" in given:
            del given["topic"]
        if data is not None:
            given["path"] = data
        self._columns = columns
        self.reader = StreamReader(parse(given, "source"), schema)
        if told is not None:
            self.reader._subscription = self.reader._later = told
        self.offset = _json(self.reader.initialOffset())

    def batch(self, limit: Any = None) -> list[Any]:
        """The positions, or values, of the next batch; asked twice, as after a crash."""
        end = self.end(limit)
        found = [self.rows(end) for _ in range(2)]
        assert found[0] == found[1]
        self.offset = end
        return found[0]

    def end(self, limit: Any = None) -> Any:
        """Where the next batch ends."""
        return _json(self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit()))

    def rows(self, end: Any) -> list[Any]:
        """What a batch reads that ends there."""
        return [
            row[self._columns[0]]
            for split in self.reader.partitions(self.offset, end)
            for batch in self.reader.read(split)
            for row in batch.to_pylist()
        ]

    def position(self, topic: str = ORDERS) -> int:
        return int(self.offset[topic]["0"]["position"])


def _json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))


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
    """At most is at most; and a topic that is always full keeps no other waiting."""
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


@pytest.mark.parametrize("seed", range(20))
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
    for _ in range(50):  # whoever waits: at most once round
        waiting = {f"t{number:02}": choose.choice([0, 1, 5]) for number in range(20)} | {"t07": 1}
        shares = share(waiting, 2, last)
        last = in_turn(shares, last)[-1]
        waited = 0 if shares["t07"] else waited + 1
        assert waited < 10


def test_waiting_for_enough(data: str, broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    monkeypatch.setattr("holdfast.pipeline.stream.time.monotonic", lambda: clock)
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
    with pytest.raises(DataLoss, match="deleted, or made again"):
        strict.batch()
    send(broker, 4)
    with pytest.raises(DataLoss, match="deleted, or made again"):
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


class Told:
    """Stands in for the subscription at the broker."""

    def __init__(self, number: int = 3, acked: int = 10) -> None:
        self.name, self.number, self.acked = "billing", number, acked
        self.done = list[tuple[str, int, int]]()
        """Which topic, under which number, up to where."""
        self.away = False

    def at(self, topic: str, incarnation: bytes, create: bool = True) -> Progress:
        if self.away:
            raise Timeout("nobody answers")
        return Progress(incarnation, self.number, self.acked, 0, 0)

    def finished(self, topic: str, at: Progress, position: int) -> None:
        self.done.append((topic, at.reset_number, position))
        self.acked = max(self.acked, position)


NAMED: dict[str, Any] = {"service.url": "holdfast://127.0.0.1:1", "predefinedSubscription": "billing"}


def test_a_reset_is_obeyed_between_batches(data: str, broker: BlockingBroker) -> None:
    """I156: a batch is of one reset number; the first of the next one begins at the reset's target."""
    send(broker, 30)
    told: Any = Told()
    stream = Stream(data, told, maxOffsetsPerTrigger=5, **NAMED)
    assert stream.batch() == [10, 11, 12, 13, 14]
    assert stream.batch() == [15, 16, 17, 18, 19]
    assert told.done == [(ORDERS, 3, 15)], "the first of them is done"
    told.number, told.acked = 4, 2  # somebody resets it to entry 2 ...
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


def test_a_named_subscription_moves_behind_what_is_done(spark: SparkSession, tmp_path: Path) -> None:
    """With a real broker and Spark: begun where it is, moved when the next start knows that all is done."""
    data = tmp_path / "data"
    with served(data, http=False) as server, Client(server.url) as client:
        stage = client.stage()
        stage.append("orders", [b"%d" % i for i in range(20)])
        client.sink_commit("k", 1, [stage.close()])
        options = {"service.url": server.url, "predefinedSubscription": "billing", "topic": "orders"}
        run = Running(spark, str(data), tmp_path / "done", startingOffsets="earliest", **options)
        assert run.available_now() == list(range(20))
        assert client.progress("orders", "billing").acked_to in (0, 20)
        assert run.available_now() == []
        at = client.progress("orders", "billing")
        assert at.acked_to == 20, "the next start knows that it is done"
        reset(server.url, "orders", "billing")
        assert client.progress("orders", "billing").acked_to == 0
        for _ in range(2):
            run.start(availableNow=True).awaitTermination(300)
            again = [int(row["value"]) for row in spark.read.parquet(str(tmp_path / "done/out")).collect()]
            assert sorted(again) == sorted([*range(20), *range(20)]), "all of it once more, as was asked for"
        assert client.progress("orders", "billing").acked_to == 20, "and it is done under the new number"


def reset(url: str, topic: str, subscription: str) -> None:
    """To the beginning, by the official client, as an operator does."""
    import pulsar

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe(topic, subscription).seek(pulsar.MessageId.earliest)
    client.close()


# -- with Spark ----------------------------------------------------------------------------------------


class Running:
    """A query with a checkpoint, into Parquet."""

    def __init__(self, spark: SparkSession, data: str, folder: Path, **options: Any) -> None:
        self._spark = spark
        self._folder = folder
        reader = spark.readStream.format("holdfast").option("path", data)
        for name, value in options.items():
            reader = reader.option(name, value)
        self._frame = reader.schema("value binary, position bigint").load()
        self._seen: set[int] = set()

    def start(self, **trigger: Any) -> Any:
        writer = self._frame.writeStream.format("parquet").option("path", str(self._folder / "out"))
        return writer.option("checkpointLocation", str(self._folder / "check")).trigger(**trigger).start()

    def available_now(self) -> list[int]:
        """What was written by one run, that was not there before."""
        query = self.start(availableNow=True)
        query.awaitTermination(300)
        found = [row.position for row in self.rows().collect()]
        assert len(found) == len(set(found)), "a row came twice"
        new = sorted(set(found) - self._seen)
        self._seen |= set(found)
        return new

    def rows(self) -> DataFrame:
        return self._spark.read.schema("value binary, position bigint").parquet(str(self._folder / "out"))


def until(condition: Callable[[], bool], timeout_s: float = 240.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_reading_while_the_broker_appends_rolls_and_trims(
    spark: SparkSession, data: str, tmp_path: Path, broker: BlockingBroker
) -> None:
    """I153, I155: every row once, and in no batch one that was not there."""
    total = 2000
    broker.admin.create_topic("orders")
    broker.admin.create_subscription("orders", "spark", "earliest")

    def publish() -> None:
        with broker.producer("orders") as producer:
            for at in range(0, total, 10):
                producer.send_many([b"%d" % i for i in range(at, at + 10)])
                time.sleep(0.002)

    publishing = threading.Thread(target=publish)
    publishing.start()
    run = Running(spark, data, tmp_path, topic="orders", startingOffsets="earliest", maxOffsetsPerTrigger=300)
    query = run.start(processingTime="0 seconds")
    try:
        trimmed = 0

        def done() -> bool:
            nonlocal trimmed
            assert query.isActive, query.exception()
            progress = query.lastProgress
            end = json.loads(progress["sources"][0]["endOffset"] or "{}") if progress else {}
            position = end.get(ORDERS, {}).get("0", {}).get("position", 0)
            if position > trimmed + 200:  # what is done may go
                broker.admin.skip("orders", "spark", position - 100 - trimmed)
                broker.admin.trim("orders")
                trimmed = position - 100
            return bool(position == total)

        until(done)
        query.processAllAvailable()
    finally:
        query.stop()
        publishing.join()
    rows = run.rows().orderBy("position").collect()
    assert [(row.position, row.value) for row in rows] == [(i, b"%d" % i) for i in range(total)]
    assert trimmed > 0
