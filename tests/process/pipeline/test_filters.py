"""publishedFrom, publishedBefore, keys: the rows that the same `where` leaves; without Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.pipeline.options import parse
from holdfast.pipeline.source.batch import BatchReader
from holdfast.pipeline.source.stream import StreamReader
from tests.kit.slices import seeds
from tests.kit.spark.filter_world import world as world

if TYPE_CHECKING:
    pass

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


Row = dict[str, Any]


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
    """Return the rows that `where` selects: rows with an unknown condition are left out."""

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


def choices(
    rows: list[Row], count: int, seed: int
) -> Iterator[tuple[list[str] | None, int | None, int | None]]:
    """Filters at the edges of what is there, and beside them."""
    random_ = random.Random(seed)
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
@pytest.mark.parametrize("seed", seeds("filters", test=1, nightly=5))
def test_the_same_rows_as_where(place: str, world: dict[str, dict[str, str]], seed: int) -> None:
    """Keys that are null, batches, compressed, chunked and encrypted messages; batches and streams."""
    rows = batch_rows(world["path"])
    assert len(rows) > 300
    assert any(row["encryption"] for row in rows)
    found = 0
    for chosen in choices(rows, 40 if place == "path" else 10, seed):
        expected = wanted(rows, *chosen)
        assert batch_rows(world[place], **told(*chosen)) == expected, chosen
        assert stream_rows(world[place], **told(*chosen)) == expected, chosen
        found += len(expected)
    assert found > 500, "they left something"
    assert len(wanted(rows, ["a"], None, None)) == 4
    assert [row["value"] for row in wanted(rows, ["a"], 5_000_000, 5_000_001)] == [b"a", b"a"]
