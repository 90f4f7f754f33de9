"""Test the sink as users of Spark see it; the official client reads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.client import Client
from tests.kit.pipeline.streams import until
from tests.kit.served import Served, served
from tests.kit.slices import pick
from tests.kit.spark.sink_hooks import Hooked
from tests.kit.spark.sink_kill import Arm, Run, World, read
from tests.kit.spark.sink_kill_driver import copy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(600)

ALL = """
    select cast(id as string) as value, concat('k', id % 3) as key, if(id % 2 = 0, 'even', 'odd') as topic,
        map('n', cast(id as string)) as properties, timestamp_millis(1700000000000 + id) as eventTime
    from range(10)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Served]:
    with served(data, "--set", "broker.retention_bytes=-1") as it:
        yield it


def write(rows: DataFrame, server: Served, **options: Any) -> None:
    rows.write.format("holdfast").option("service.url", server.url).options(**options).mode("append").save()


def values(server: Served, topic: str) -> list[str]:
    return [message.data().decode() for message in read(server.url, topic)]


def test_a_table_is_written(spark: SparkSession, server: Served) -> None:
    write(spark.sql(ALL).repartition(2), server)
    found = {topic: read(server.url, topic) for topic in ("even", "odd")}
    assert sorted(int(each.data()) for each in found["even"]) == [0, 2, 4, 6, 8]
    for message in (*found["even"], *found["odd"]):
        number = int(message.data())
        assert message.partition_key() == f"k{number % 3}"
        assert message.properties() == {"n": str(number)}
        assert message.event_timestamp() == 1_700_000_000_000 + number
    names = [(each.producer_name(), each.topic_name()) for each in (*found["even"], *found["odd"])]
    assert all(name.startswith("spark-") for name, _ in names)
    write(spark.sql(ALL), server, topic="all", sinkName="nightly")
    assert sorted(map(int, values(server, "all"))) == list(range(10)), "the option says it for all"
    assert {each.producer_name().rpartition("-")[0] for each in read(server.url, "all")} == {"nightly"}


def test_no_rows(spark: SparkSession, server: Served) -> None:
    write(spark.sql(ALL).where("false"), server, topic="nothing")
    with Client(server.url) as client:
        assert client.progress("nothing", "s", create=True).visible == 0


def test_several_to_an_entry(spark: SparkSession, server: Served) -> None:
    rows = spark.range(0, 100, 1, 1).selectExpr("cast(id as string) as value")
    write(rows, server, topic="batched", messagesPerEntry=10)
    assert values(server, "batched") == [str(i) for i in range(100)], "in the order of the rows"
    with Client(server.url) as client:
        assert client.progress("batched", "s", create=True).visible == 10


def test_what_was_read_is_written(spark: SparkSession, server: Served, data: Path) -> None:
    """Also messages without a value, and keys of bytes."""
    made = spark.sql("select null as key, 'x' as value union all select 'k', null")
    write(made.selectExpr("cast(key as binary) as key", "value"), server, topic="first")
    source = spark.read.format("holdfast").option("path", str(data))
    write(source.option("topic", "first").load(), server, topic="second")
    for topic in ("first", "second"):
        found = {(row.key, row.value) for row in source.option("topic", topic).load().collect()}
        assert found == {(None, b"x"), (b"k", None)}


def test_a_write_that_is_made_again(spark: SparkSession, server: Served) -> None:
    """I144: by name and number it is published once; a late batch is an error."""
    rows = spark.sql(ALL)
    for _ in range(2):
        write(rows, server, topic="again", sinkName="day", batchId=5)
    assert len(values(server, "again")) == 10
    write(rows, server, topic="again", sinkName="day", batchId=6)
    with pytest.raises(Exception, match=r"batch/day has already published batch 6; this is batch 5"):
        write(rows, server, topic="again", sinkName="day", batchId=5)
    assert len(values(server, "again")) == 20
    write(rows, server, topic="again")
    write(rows, server, topic="again")
    assert len(values(server, "again")) == 40, "without a number, each is another one"


def test_a_row_larger_than_a_message(spark: SparkSession, server: Served) -> None:
    """It goes in parts, which clients join."""
    rows = spark.sql("select concat(id, repeat('x', 6000000)) as value, 'k' as key from range(2)")
    write(rows, server, topic="large-rows")
    found = read(server.url, "large-rows")
    assert sorted(each.data()[:1] for each in found) == [b"0", b"1"]
    assert {(len(each.data()), each.partition_key()) for each in found} == {(6_000_001, "k")}


def lines(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))


def stream(rows: DataFrame, server: Served, checkpoint: Path, **options: Any) -> StreamingQuery:
    to = rows.writeStream.format("holdfast").option("service.url", server.url).options(**options)
    query = to.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_an_old_checkpoint_is_noticed(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "0").write_text("a\nb")
    stream(lines(spark, folder), server, checkpoint, topic="stream")
    shutil.copytree(checkpoint, tmp_path / "old")
    for name in ("1", "2"):
        (folder / name).write_text(f"c{name}")
    stream(lines(spark, folder), server, checkpoint, topic="stream")
    assert sorted(values(server, "stream")) == ["a", "b", "c1", "c2"]
    with pytest.raises(Exception, match=r"has already published batch 2; this is batch 1"):
        stream(lines(spark, folder), server, tmp_path / "old", topic="stream")
    assert len(values(server, "stream")) == 4
    stream(lines(spark, folder), server, tmp_path / "other", topic="stream")
    assert len(values(server, "stream")) == 8, "another checkpoint is another query"


def test_two_queries_with_one_checkpoint(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    """I144: the second query continues, the first ends; a batch is published once."""
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "0").write_text("a\nb")
    to = lines(spark, folder).writeStream.format("holdfast").option("service.url", server.url)
    to = to.option("topic", "twins").option("checkpointLocation", str(checkpoint))
    first = to.trigger(processingTime="0 seconds").start()
    first.processAllAvailable()
    second = to.trigger(processingTime="0 seconds").start()
    try:
        (folder / "1").write_text("c")
        second.processAllAvailable()
        assert second.id == first.id
        assert not first.isActive
    finally:
        first.stop()
        second.stop()
    assert sorted(values(server, "twins")) == ["a", "b", "c"]


def test_a_batch_for_two_topics_fails_between_them(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    """`foreachBatch`, as on the page: rows written before the failure are not written again."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("0", "1"):
        (folder / name).write_text(f"a{name}\nb{name}")
    fails = [1]

    def both(rows: DataFrame, batch: int) -> None:
        for name in ("left", "right"):
            if batch in fails and name == "right":
                fails.remove(batch)
                raise RuntimeError("told to fail")
            write(rows, server, topic=name, sinkName=f"both/{name}", batchId=batch)

    to = lines(spark, folder).writeStream.foreachBatch(both).trigger(availableNow=True)
    to = to.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="told to fail"):
        to.start().awaitTermination()
    assert len(values(server, "left")) == 4
    assert len(values(server, "right")) == 2
    to.start().awaitTermination()
    for name in ("left", "right"):
        assert sorted(values(server, name)) == ["a0", "a1", "b0", "b1"]


def test_the_subscription_catches_up(spark: SparkSession, server: Served, data: Path, tmp_path: Path) -> None:
    """I140: a restarted query first sends the position that the last one did not send."""
    write(spark.sql(ALL), server, topic="in")
    rows = spark.readStream.format("holdfast").option("path", str(data)).option("service.url", server.url)
    rows = (
        rows.option("topic", "in")
        .option("predefinedSubscription", "late")
        .option("startingOffsets", "earliest")
    )
    to = rows.load().writeStream.format("holdfast").option("service.url", server.url).option("topic", "out")
    to = to.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with Client(server.url) as client:
        query = to.trigger(processingTime="30 days").start()
        # Then its first batch is in the commit log.
        until(lambda: query.lastProgress is not None or not query.isActive, 240)
        assert query.isActive, query.exception()
        query.stop()
        assert client.progress("in", "late").acked_to == 0
        to.trigger(availableNow=True).start().awaitTermination()
        assert client.progress("in", "late").acked_to == 10
    assert len(values(server, "out")) == 10


@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        ("select 1 as value", {}, "column value is int; it must be string or binary"),
        ("select 'x' as key", {}, "the sink needs a column value, string or binary; the columns are: key"),
        ("select 'x' as value", {"topic": "a/b"}, "'a/b' is not the name of a topic; write orders"),
        (
            "select 'x' as value, 'a/b' as topic",
            {"topic": None},
            "column topic: 'a/b' is not the name of a topic",
        ),
        (
            "select 'x' as value",
            {"service.url": None},
            "the sink needs option service.url, such as holdfast://",
        ),
        ("select 'x' as value", {"topik": "t"}, r"no option 'topik'; did you mean topic\?"),
        ("select 'x' as value", {"path": "/data"}, "Start `holdfast serve --data DIR`, give option"),
    ],
)
def test_wrong_input(
    spark: SparkSession, server: Served, query: str, options: dict[str, Any], words: str
) -> None:
    given = {"topic": "wrong", "service.url": server.url, **options}
    to = spark.sql(query).write.format("holdfast")
    with pytest.raises(Exception, match=words):
        to.options(**{k: v for k, v in given.items() if v is not None}).mode("append").save()
    with Client(server.url) as client:
        assert client.progress("wrong", "s", create=True).visible == 0


def test_what_a_topic_cannot_do(spark: SparkSession, server: Served) -> None:
    to = spark.sql(ALL).write.format("holdfast").option("service.url", server.url).option("topic", "t")
    with pytest.raises(Exception, match="a topic is appended to, never overwritten"):
        to.mode("overwrite").save()


def test_nobody_serves(spark: SparkSession) -> None:
    to = spark.sql(ALL).write.format("holdfast").option("service.url", "holdfast://127.0.0.1:1")
    with pytest.raises(Exception, match=r"127.0.0.1:1: Connection refused; stage_open was not sent"):
        to.option("topic", "t").option("timeout", "300ms").mode("append").save()


def hooked(spark: SparkSession) -> Run:
    """Lives of a query in this session: what dies is a worker or the broker."""
    spark.dataSource.register(Hooked)
    return lambda directory, url, mutant: copy(spark, Path(directory), url, mutant)


def test_a_worker_and_the_broker_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    """I141, I143: kills of a task, after the commit, and in `abort`.

    After the second, Spark's log lacks a batch that the broker has. The subscription follows (I140).
    """
    all_steps = ("begin", "opened", "appended", "staged", "commit", "published")
    steps = pick(test=("opened", "staged", "published"), nightly=all_steps)
    commits = pick(test=("published",), nightly=("commit", "published"))
    with World(tmp_path, hooked(spark)) as world:
        world.life(Arm("appended", "worker"))
        for step in commits:
            world.life(Arm(step, "worker"))
        world.life(Arm("published", "fail"))
        world.feed(10, 10)
        world.feed(10, 10)
        assert world.life(*(Arm(step, "broker") for step in steps)) == 0
        account = world.judge()
    assert not account.faults, account.faults
    assert account.failed == 2 + len(commits)
    assert account.restarts == len(steps)


def test_a_large_batch_in_little_memory(spark: SparkSession, tmp_path: Path) -> None:
    """400 MB in one task: the memory of task and broker does not grow."""
    setting = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "8m")
    try:
        used = large_batch(spark, tmp_path)
    finally:
        spark.conf.set(setting, str(before))
    assert max(used) < 300, used


def large_batch(spark: SparkSession, tmp_path: Path, count: int = 4000) -> list[int]:
    """The largest memory of its workers, and of the broker, in MB."""
    with World(tmp_path, hooked(spark), batches=0) as world:
        rows = spark.range(0, count, 1, 1).selectExpr("repeat(char(65 + id % 26), 100000) as value")
        to = rows.write.format("hooked").option("service.url", world.broker.url).option("topic", "even")
        to.option("world", str(tmp_path)).mode("append").save()
        with Client(world.broker.url) as client:
            assert client.progress("even", "watch").visible == count
        status = Path(f"/proc/{(tmp_path / 'broker.pid').read_text()}/status").read_text()
        broker = int(status.partition("VmHWM:")[2].split()[0]) >> 10
    noted = map(json.loads, (tmp_path / "trace").read_text().splitlines())
    return [broker, *(each[1] for each in noted if each[0] == "rss_mb")]
