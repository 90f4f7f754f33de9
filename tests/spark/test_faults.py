"""Test faults as users of Spark see them: damage, loss, limits, kills, wrong options."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Broker
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.client import Client
from holdfast.columns.files import FilePlace
from holdfast.pipeline import behind_latest
from holdfast.pipeline.options import Side, declared
from tests.kit.pipeline.streams import ORDERS, until
from tests.kit.served import served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

PREFIX = "persistent://public/default/"
ROW = "topic string, value binary, position bigint"
WITH_DAMAGE = f"{ROW}, corrupt string"
SLOW = "worker failed to connect back"
"""Spark gives its own Python processes ten seconds to start, which a busy machine may not have."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[BlockingBroker]:
    with Broker.open(data, roll_entries=10, housekeeping_s=3600) as opened:
        yield opened


def send(broker: BlockingBroker, values: range, topic: str = "orders", size: int = 0) -> None:
    """Numbers, of so many bytes at least."""
    with broker.producer(topic) as producer:
        for each in values:
            producer.send(b"%0*d" % (size, each))


def load(spark: SparkSession, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("holdfast").options(**{"topic": "orders", **named(options)})
    return (reader.schema(schema) if schema else reader).load()


def named(options: dict[str, Any]) -> dict[str, str]:
    return {name.replace("url", "service.url"): str(value) for name, value in options.items()}


class Query:
    """One checkpoint, and the rows that its runs read, each with its options."""

    def __init__(self, spark: SparkSession, folder: Path, **options: Any) -> None:
        self._spark, self._folder, self._options = spark, folder, options
        self.batches: dict[int, list[Any]] = {}
        """By number, in order; one that is empty is none."""
        self.progress: list[Any] = []
        """Of the last run."""

    def start(self, schema: str = ROW, **more: Any) -> Any:
        trigger = more.pop("trigger", {"availableNow": True})
        given = {"startingOffsets": "earliest", **self._options, **more}
        frame = self._spark.readStream.format("holdfast").options(**named(given)).schema(schema).load()
        writer = frame.writeStream.foreachBatch(self._batch).trigger(**trigger)
        writer = writer.option("checkpointLocation", str(self._folder))
        for _ in range(5):
            query = writer.start()
            until(lambda query=query: not query.status["message"].startswith("Initializing"))  # type: ignore[misc]
            if SLOW not in str(query.exception()):
                break
        return query

    def _batch(self, frame: DataFrame, number: int) -> None:
        found = frame.orderBy("topic", "position").collect()
        if found:
            assert self.batches.setdefault(number, found) == found

    def run(self, schema: str = ROW, **more: Any) -> list[Any]:
        """Read all present entries; return the rows of each batch that has some."""
        before = set(self.batches)
        query = self.start(schema, **more)
        assert query.awaitTermination(300)
        self.progress = query.recentProgress
        return [batch for number, batch in self.batches.items() if number not in before]

    def read(self, **more: Any) -> list[tuple[str, int]]:
        """Read all present entries, as short topic names and positions."""
        return [place(row) for batch in self.run(**more) for row in batch]

    def rows(self) -> list[Any]:
        return [row for batch in list(self.batches.values()) for row in batch]


def place(row: Any) -> tuple[str, int]:
    return row.topic.removeprefix(PREFIX), row.position


def block(data: Path, position: int) -> tuple[Path, int, int]:
    """The file, the number and the offset of an entry."""
    topic = FilePlace(str(data)).open(ORDERS)
    topic.plan()
    found = topic._at(position, position + 1)[0]
    file = Path(topic._stem(found) + ".data")
    return file, position - found.first, topic._offset(found, position, topic._size(found))


def damage(data: Path, position: int) -> str:
    """One bit of it; answers the pattern of what must be said."""
    file, entry, offset = block(data, position)
    with file.open("r+b") as opened:
        opened.seek(offset + 40)
        (byte,) = opened.read(1)
        opened.seek(offset + 40)
        opened.write(bytes([byte ^ 1]))
    where = re.escape(str(file))
    return rf"{ORDERS}, position {position}: {where}: entry {entry} cannot be read at offset {offset}\b"


# -- damage --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """A directory of 40 entries, and what must be said of those that are damaged."""
    data = tmp_path_factory.mktemp("damaged") / "data"
    with Broker.open(data, roll_entries=10) as broker:
        send(broker, range(40))
    return data, {position: damage(data, position) for position in (15, 27)}


@pytest.mark.parametrize("way", ["path", "url"])
def test_damage_in_a_batch(spark: SparkSession, damaged: tuple[Path, dict[int, str]], way: str) -> None:
    """I152: named; or left out; or a row that says what it was."""
    data, words = damaged
    with contextlib.ExitStack() as stack:
        told: dict[str, Any] = {"path": data}
        if way == "url":
            told = {"url": stack.enter_context(served(data, http=True)).http_url}
        with pytest.raises(Exception, match=f"({'|'.join(words.values())}).*mode=permissive to leave it out"):
            load(spark, **told).count()
        told["mode"] = "permissive"
        rows = load(spark, **told).orderBy("position").collect()
        assert [(row.position, int(row.value)) for row in rows] == [
            (i, i) for i in range(40) if i not in words
        ]
        rows = load(spark, WITH_DAMAGE, **told).orderBy("position").collect()
        assert [row.position for row in rows] == list(range(40))
        for row in rows:
            if row.position in words:
                assert row.value is None
                assert re.match(words[row.position], row.corrupt)
            else:
                assert (int(row.value), row.corrupt) == (row.position, None)


def test_damage_in_a_stream(
    spark: SparkSession, damaged: tuple[Path, dict[int, str]], tmp_path: Path
) -> None:
    """It fails and names the entry; in permissive mode it continues with the same batch."""
    data, words = damaged
    query = Query(spark, tmp_path / "check", path=data, topic="orders", maxOffsetsPerTrigger=20)
    with pytest.raises(Exception, match=words[15]):
        query.run()
    assert query.batches == {}
    found = query.run(WITH_DAMAGE, mode="permissive")
    assert [[row.position for row in batch] for batch in found] == [list(range(20)), list(range(20, 40))]
    assert [row.position for row in query.rows() if row.corrupt is not None] == [*words]
    left_out = Query(spark, tmp_path / "other", path=data, topic="orders", mode="permissive")
    assert left_out.read() == [("orders", i) for i in range(40) if i not in words]


# -- limits --------------------------------------------------------------------------------------------


def test_limits_per_trigger(spark: SparkSession, data: Path, broker: BlockingBroker, tmp_path: Path) -> None:
    """Every batch is within its limit, all entries come once, and each lag is right."""
    send(broker, range(30), "orders-partition-0", 100)
    send(broker, range(10), "orders-partition-1", 100)
    query = Query(spark, tmp_path / "offsets", path=data, topic="orders", maxOffsetsPerTrigger=8)
    assert [len(batch) for batch in query.run(f"{ROW}, partition int")] == [8] * 5
    assert sorted((row.partition, row.position) for row in query.rows()) == [
        *((0, i) for i in range(30)), *((1, i) for i in range(10)),
    ]  # fmt: skip
    left = {0: 30, 1: 10}
    told = [each for each in query.progress if each["numInputRows"]]
    assert len(told) == 5
    for batch, progress in zip(query.batches.values(), told, strict=True):
        for row in batch:
            left[row.partition] -= 1
        assert behind_latest(progress) == {
            "minOffsetsBehindLatest": min(left.values()),
            "maxOffsetsBehindLatest": max(left.values()),
            "avgOffsetsBehindLatest": sum(left.values()) / 2,
        }


def test_bytes_per_trigger(spark: SparkSession, data: Path, broker: BlockingBroker, tmp_path: Path) -> None:
    send(broker, range(40), size=400)
    query = Query(spark, tmp_path / "check", path=data, topic="orders", maxBytesPerTrigger="5k")
    found = query.run()
    assert all(len(batch) * 400 <= 5 << 10 for batch in found)
    assert 4 <= len(found) <= 8, "10 entries are 4000 bytes, and what entries have beside them"
    assert [(row.position, int(row.value)) for row in query.rows()] == [(i, i) for i in range(40)]
    assert query.run() == []


def test_a_batch_waits_for_enough(
    spark: SparkSession, data: Path, broker: BlockingBroker, tmp_path: Path
) -> None:
    """Available-now does not wait: what is there is all."""
    send(broker, range(5))
    query = Query(spark, tmp_path / "check", path=data, topic="orders", minOffsetsPerTrigger=10)
    running = query.start(trigger={"processingTime": "0 seconds"})
    try:
        until(lambda: not running.isActive or running.lastProgress is not None)  # an empty first batch
        send(broker, range(5, 10))
        until(lambda: not running.isActive or len(query.rows()) > 0)
        send(broker, range(10, 13))
        running.processAllAvailable()
    finally:
        running.stop()
    assert running.exception() is None
    assert [len(batch) for batch in query.batches.values()] == [10]
    assert query.read() == [("orders", i) for i in range(10, 13)]


# -- loss ----------------------------------------------------------------------------------------------


def test_topics_come_go_and_come_again(
    spark: SparkSession, data: Path, broker: BlockingBroker, tmp_path: Path
) -> None:
    """Under a stream that runs, and between its runs."""
    query = Query(spark, tmp_path / "check", path=data, topicsPattern="new.*")
    strict, lenient = {"failOnDataLoss": "true"}, {"failOnDataLoss": "false"}
    running = query.start(trigger={"processingTime": "0 seconds"}, **strict)
    try:
        for name in ("new1", "new2"):
            send(broker, range(5), name)
            until(lambda name=name: not running.isActive or (name, 4) in map(place, query.rows()))  # type: ignore[misc]
        broker.admin.delete_topic("new1", force=True)
        gone = rf"{PREFIX}new1 was deleted or created again, and was read up to entry 5; set failOnDataLoss"
        with pytest.raises(Exception, match=gone):
            running.awaitTermination(300)
    finally:
        running.stop()
    assert sorted(map(place, query.rows())) == [(name, i) for name in ("new1", "new2") for i in range(5)]
    assert query.read(**lenient) == []
    send(broker, range(7), "new1")
    assert query.read(**strict) == [("new1", i) for i in range(7)], "by then it is a new one"
    broker.admin.delete_topic("new1", force=True)
    send(broker, range(3), "new1")
    send(broker, range(5, 6), "new2")
    with pytest.raises(Exception, match="new1 was deleted or created again, and was read up to entry 7"):
        query.run(**strict)
    assert query.read(**lenient) == [*(("new1", i) for i in range(3)), ("new2", 5)]


def test_trimmed_between_two_runs(
    spark: SparkSession, data: Path, broker: BlockingBroker, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path / "check", path=data, topic="orders")
    send(broker, range(12))
    assert query.read() == [("orders", i) for i in range(12)]
    send(broker, range(12, 45))
    broker.admin.create_subscription("orders", "done", "latest")
    first = broker.admin.trim("orders")
    assert 12 < first < 45
    lost = rf"{ORDERS}: entries 12 to {first - 1} were trimmed before they were read; "
    with pytest.raises(Exception, match=rf"{lost}set failOnDataLoss=false to continue with entry {first}"):
        query.run()
    assert query.read(failOnDataLoss="false") == [("orders", i) for i in range(first, 45)]
    assert query.read() == []
    assert [int(row.value) for row in query.rows()] == [*range(12), *range(first, 45)]
    with pytest.raises(Exception, match=rf"entries 0 to {first - 1} were trimmed"):
        load(spark, path=data, startingOffsets='{"orders": {"0": 0}}').count()


# -- a broker that is killed ---------------------------------------------------------------------------


def commit(client: Client, values: range) -> None:
    stage = client.stage()
    stage.append("orders", [b"%d" % each for each in values])
    client.sink_commit("fill", values.stop, [stage.close()])


def test_the_broker_is_killed_under_a_stream(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    """By path the query does not notice; from its checkpoint it can continue by URL."""
    query = Query(spark, tmp_path / "check", topic="orders", maxOffsetsPerTrigger=7)
    with served(data) as first, Client(first.url) as client:
        commit(client, range(20))
        running = query.start(path=data, trigger={"processingTime": "0 seconds"})
        try:
            until(lambda: not running.isActive or len(query.rows()) == 20)
            commit(client, range(20, 30))
            first.end(signal.SIGKILL)
            with served(data, http=True) as second, Client(second.url) as again:
                commit(again, range(30, 40))
                until(lambda: not running.isActive or len(query.rows()) >= 40)
                running.processAllAvailable()
                running.stop()
                commit(again, range(40, 50))
                second.end(signal.SIGKILL)
        finally:
            running.stop()
        assert running.exception() is None
    with served(data, http=True) as third, Client(third.url) as last:
        commit(last, range(50, 60))
        assert query.read(url=third.http_url) == [("orders", i) for i in range(40, 60)]
    assert [(row.position, int(row.value)) for row in query.rows()] == [(i, i) for i in range(60)]


# -- wrong options -------------------------------------------------------------------------------------


def test_wrong_options(spark: SparkSession, data: Path, broker: BlockingBroker, tmp_path: Path) -> None:
    """The error lists the right ones, on all four ways into Spark."""
    send(broker, range(1))
    read = {"path": str(data), "topic": "orders", "maxOffsetPerTrigger": "5"}
    write = {"service.url": "holdfast://127.0.0.1:1", "topic": "orders", "messagePerEntry": "5"}
    stream = Query(spark, tmp_path / "read", **read)
    once = spark.sql("select 'x' as value").write.format("holdfast").options(**write)
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    endless = rows.writeStream.format("holdfast").options(**write)
    endless = endless.option("checkpointLocation", str(tmp_path / "write"))
    ways: list[tuple[Side, str, Callable[[], Any]]] = [
        ("source", "maxOffsetsPerTrigger", lambda: load(spark, **read).count()),
        ("source", "maxOffsetsPerTrigger", stream.run),
        ("sink", "messagesPerEntry", lambda: once.mode("append").save()),
        ("sink", "messagesPerEntry", lambda: endless.start().awaitTermination(300)),
    ]
    for side, meant, way in ways:
        known = ", ".join(sorted(each.name for each in declared(side)))
        words = rf"the {side} of holdfast has no option '\w+'; did you mean {meant}\? It has: {known}$"
        with pytest.raises(Exception, match=re.compile(words, re.MULTILINE)):
            way()
