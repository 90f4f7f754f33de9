"""publishedFrom, publishedBefore, keys: the rows that the same `where` leaves, for one load() alone."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Broker
from holdfast.client import Client
from holdfast.errors import BadConfiguration
from holdfast.pipeline.batch import BatchReader
from holdfast.pipeline.inputs import settings
from holdfast.pipeline.options import parse
from holdfast.pipeline.stream import StreamReader
from tests.kit.ledger.entry_bytes import METADATA, SINGLE, Fields, batch_payload, entry
from tests.kit.ledger.topic_bytes import Maker
from tests.kit.served import served
from tests.unit.pipeline.test_stream import NAMED, ORDERS, Stream, Told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_10000_MS = 253_402_300_800_000
Row = dict[str, Any]


def edges() -> list[bytes]:
    """What a filter could get wrong: no key, an empty one, one that is said to be null, no time."""

    def fields(time: int) -> Fields:
        return [
            (METADATA["producer_name"], b"p"),
            (METADATA["sequence_id"], 1),
            (METADATA["publish_time"], time),
        ]

    key, null = METADATA["partition_key"], METADATA["null_partition_key"]
    own, own_null = SINGLE["partition_key"], SINGLE["null_partition_key"]
    parts: list[tuple[Fields, bytes]] = [
        ([], b"no key"),
        ([(own, b"")], b"empty"),
        ([(own, b"a")], b"a"),
        ([(own, b"a"), (own_null, 1)], b"null"),
        ([(own, b"a" * 300)], b"long"),
    ]
    batch: Fields = [(METADATA["num_messages_in_batch"], len(parts)), (key, b"a")]
    return [
        entry([*fields(5000), (key, b"a")], b"a"),
        entry([*fields(5001), (key, b"")], b"empty"),
        entry([*fields(5000), (key, b"a"), (null, 1)], b"null"),
        entry(fields(4999), b"no key"),
        entry([*fields(YEAR_10000_MS), (key, b"a")], b"no time"),
        entry([*fields(YEAR_10000_MS - 1), (key, b"a")], b"the last time"),
        entry([*fields(5000), *batch], batch_payload(parts)),
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """Messages of all kinds: by path and by address."""
    data = tmp_path_factory.mktemp("filters") / "data"
    made = Maker(17)
    made.any(250)
    with served(data, http=True) as server:
        with Client(server.url.replace("pulsar", "holdfast")) as client:
            stage = client.stage()
            stage.append_entries("orders", [*made.entries, *edges()])
            client.sink_commit("fill", 1, [stage.close()])
        yield {"path": {"path": str(data)}, "url": {"service.url": server.http_url}}


def schema() -> Any:
    from pyspark.sql.types import (
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructType,
        TimestampType,
    )

    place = StructType().add("ledger", LongType()).add("entry", LongType()).add("batchIndex", IntegerType())
    made = StructType().add("key", BinaryType()).add("value", BinaryType()).add("messageId", place)
    return (
        made.add("publishTime", TimestampType()).add("position", LongType()).add("encryption", BinaryType())
        .add("corrupt", StringType())
    )  # fmt: skip


def batch_rows(where: dict[str, str], **options: str) -> list[Row]:
    reader = BatchReader(parse({**where, "topic": "orders", **options}, "source"), schema())
    return [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]


def stream_rows(where: dict[str, str], **options: str) -> list[Row]:
    """Of a stream, in batches of a few entries; it ends where the topic does."""
    more = {"topic": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    reader = StreamReader(parse({**where, **more, **options}, "source"), schema())
    start, found = reader.initialOffset(), list[Row]()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        for split in reader.partitions(start, end):
            found += [row for batch in reader.read(split) for row in batch.to_pylist()]
        start = end
    return found


def wanted(rows: list[Row], keys: list[str] | None, low: int | None, high: int | None) -> list[Row]:
    """What `where` leaves: what is not known is not wanted."""

    def micros(row: Row) -> int | None:
        time = row["publishTime"]
        return None if time is None else (time - EPOCH) // timedelta(microseconds=1)

    chosen = None if keys is None else [key.encode() for key in keys]
    return [
        row
        for row in rows
        if (chosen is None or (row["key"] is not None and row["key"] in chosen))
        and (low is None or ((time := micros(row)) is not None and time >= low))
        and (high is None or ((time := micros(row)) is not None and time < high))
    ]


def told(keys: list[str] | None, low: int | None, high: int | None) -> dict[str, str]:
    """The same as options; whole milliseconds in both forms that there are."""
    found = {} if keys is None else {"keys": json.dumps(keys)}
    for name, micros in (("publishedFrom", low), ("publishedBefore", high)):
        if micros is not None:
            moment = (EPOCH + timedelta(microseconds=micros)).isoformat()
            found[name] = str(micros // 1000) if micros % 2000 == 0 else moment
    return found


def choices(rows: list[Row], count: int) -> Iterator[tuple[list[str] | None, int | None, int | None]]:
    """Filters at the edges of what is there, and beside them."""
    random_ = random.Random(4)
    texts = list[str]()
    for key in sorted({row["key"] for row in rows if row["key"] is not None}):
        try:
            texts.append(key.decode())
        except UnicodeDecodeError:
            continue
    times = [(row["publishTime"] - EPOCH) // timedelta(microseconds=1) for row in rows if row["publishTime"]]
    yield ["a"], None, None
    yield ["", "nobody"], None, None
    yield None, 5_000_000, 5_000_001
    yield None, 5_000_000, 5_000_000
    yield ["a"], 4_999_001, 5_000_001
    for _ in range(count):
        keys = random_.choice([None, random_.sample(texts, min(len(texts), random_.randrange(1, 6)))])
        bounds = sorted(random_.choice(times) + random_.choice([-1, 0, 0, 1]) for _ in range(2))
        low, high = (random_.choice([None, each]) for each in bounds)
        yield keys, low, high


@pytest.mark.parametrize("place", ["path", "url"])
def test_the_same_rows_as_where(place: str, world: dict[str, dict[str, str]]) -> None:
    """Keys that are null, batches, compressed, chunked and encrypted messages; batches and streams."""
    rows = batch_rows(world["path"])
    assert len(rows) > 300
    assert any(row["encryption"] for row in rows)
    found = 0
    for chosen in choices(rows, 40 if place == "path" else 10):
        expected = wanted(rows, *chosen)
        assert batch_rows(world[place], **told(*chosen)) == expected, chosen
        assert stream_rows(world[place], **told(*chosen)) == expected, chosen
        found += len(expected)
    assert found > 500, "they left something"
    assert len(wanted(rows, ["a"], None, None)) == 4
    assert [row["value"] for row in wanted(rows, ["a"], 5_000_000, 5_000_001)] == [b"a", b"a"]


def test_rows_that_are_left_out_move_a_stream_and_its_subscription(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with Broker.open(data) as broker:
        for key in ("a", "b"):
            with broker.producer("orders") as producer:
                producer.send_many([b"x"] * 10, key=key)
        fake: Any = Told(acked=0)
        stream = Stream(data, fake, maxOffsetsPerTrigger=5, keys='["b"]', **NAMED)
        assert [stream.batch() for _ in range(4)] == [[], [], [10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]
        assert stream.position() == 20
        assert stream.batch() == []
        assert fake.done == [(ORDERS, 3, position) for position in (5, 10, 15, 20)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"keys": "[]"}, r'it takes one text or more as a JSON list, such as \["smith", "jones"\]'),
        ({"keys": "smith"}, "one text or more as a JSON list"),
        ({"keys": '["a", 5]'}, "one text or more as a JSON list"),
        ({"keys": '["\\ud800"]'}, "one text or more as a JSON list"),
        ({"keys": "[" * 100_000}, "one text or more as a JSON list"),
        ({"publishedFrom": "5001", "publishedBefore": "5000"}, "publishedFrom is after publishedBefore"),
        ({"publishedFrom": "yesterday"}, "milliseconds since 1970"),
        ({"publishedBefore": "9" * 30}, "a time before the year 10000"),
        (
            {"filterPushdown": "true"},
            r"no option 'filterPushdown': Spark keeps one filter .* give publishedFrom, publishedBefore, "
            r"keys, startingOffsets, endingOffsets instead, .* It has: ",
        ),
    ],
)
def test_wrong_filters_say_what_is_right(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadConfiguration, match=words):
        parse(given, "source")


# -- with Spark ----------------------------------------------------------------------------------------


def load(spark: SparkSession, where: dict[str, str], **options: str) -> DataFrame:
    return spark.read.format("holdfast").options(**where, topic="orders", **options).load()


def test_sparks_own_push_down_gives_wrong_rows(spark: SparkSession) -> None:
    """Why there is none: Spark keeps one reader for all scans of a frame, with the filter that came last.

    When this fails Spark has mended it, and the source can take filters from `where` (docs/source.md).
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition, LessThan

    class Reader(DataSourceReader):
        most = 60

        def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
            for each in filters:
                if isinstance(each, LessThan):
                    self.most = min(self.most, each.value)
                else:
                    yield each

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(self.most)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield from ((number,) for number in range(partition.value))

    class Tiny(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tiny"

        def schema(self) -> str:
            return "position bigint"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Tiny)
    with settings(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        frame = spark.read.format("tiny").load()
        assert frame.where("position < 5").count() == 5
        assert frame.count() == 5, "60, if Spark were right"


def test_each_load_has_its_own_filters(spark: SparkSession, world: dict[str, dict[str, str]]) -> None:
    """Used again, in a union, and in threads; beside `where` on a frame that has them, too."""
    where = world["path"]
    plain, some = load(spark, where), load(spark, where, keys='["a", ""]')
    late = load(spark, where, publishedFrom="1990-01-01", publishedBefore="2050-01-01T00:00:00.000500Z")
    by_key = "key IN (X'61', X'')"
    by_time = (
        "publishTime >= timestamp'1990-01-01 00:00:00Z' AND "
        "publishTime < timestamp'2050-01-01 00:00:00.0005Z'"
    )
    everything = sorted(map(repr, plain.collect()))
    keyed, timed = (sorted(map(repr, plain.where(each).collect())) for each in (by_key, by_time))
    assert 0 < len(keyed) < len(everything)
    assert 0 < len(timed) < len(everything)
    frames = [(some, keyed), (late, timed), (plain, everything), (plain.where(by_key), keyed)]
    frames += [(some.union(late), sorted(keyed + timed)), (some.union(plain), sorted(keyed + everything))]
    frames += [(some.where("position < 0"), []), (some, keyed)]

    def right(frame: tuple[DataFrame, list[str]]) -> bool:
        return sorted(map(repr, frame[0].collect())) == frame[1]

    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(right, frames))
    assert all(map(right, frames[:3]))
