"""A broker's directory with messages in it, for the tests of the pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.columns import topic_and_partition
from holdfast.columns.schema import COLUMNS
from holdfast.names import topic_name
from holdfast.pipeline.archive import KEPT
from holdfast.pipeline.jobs.inputs import Extent, ddl
from holdfast.pipeline.numbered import encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = ddl(KEPT)


def publish(data: Path, topic: str, values: Sequence[bytes], batch: int = 1, **more: Any) -> None:
    with holdfast.Broker.open(data) as broker, broker.producer(topic, batch=batch) as producer:
        producer.send_many(list(values), **more)


def append_entries(data: Path, topic: str, entries: Sequence[bytes], **options: Any) -> None:
    """Entries as they are, as a client has made them."""
    import asyncio

    from holdfast.broker.api.stage import StageReceipt
    from holdfast.broker.events import StageAppend

    async def append() -> None:
        async with holdfast.Broker.open(data, **options) as broker:
            where = (await broker.ensure_topic(topic_name(topic))).state.id
            for entry in entries:  # one by one: each may begin a ledger
                stage = await broker.stage()
                made = await broker.engine.submit(StageAppend(stage.id, where, 0, [entry]))
                receipt = StageReceipt(stage.id, ((where, made.count, made.digest),))
                assert await broker.sink_commit(stage.id.hex(), 1, [receipt])

    asyncio.run(append())


def trim(data: Path, topic: str) -> int:
    """Trim all entries that no subscription holds; return the first position that is left."""
    from holdfast.columns.files import FilePlace

    with holdfast.Broker.open(data, roll_entries=1) as broker:
        broker.admin.trim(topic)
    return FilePlace(str(data)).open(topic_name(topic)).plan()[0]


def topic_rows(spark: SparkSession, data: Path, *topics: str) -> DataFrame:
    reader = spark.read.format("holdfast").option("path", str(data)).option("topics", ",".join(topics))
    return reader.load()


class Fed:
    """Rows of a test's own in the place of a source."""

    def __init__(
        self,
        rows: dict[str, list[dict[str, Any]]],
        incarnation: str = "aa",
        first: int = 0,
        schemas: Mapping[str, Sequence[bytes]] | None = None,
    ) -> None:
        self.known = {topic_name(name): tuple(each) for name, each in (schemas or {}).items()}
        self.rows = {topic_name(name): found for name, found in rows.items()}
        self.incarnation, self.first = incarnation, first

    def extents(self, topics: Sequence[str]) -> dict[str, Extent]:
        names = map(topic_name, topics)
        return {name: Extent(self.incarnation, self.first, len(self.rows[name])) for name in names}

    def messages(
        self,
        spark: SparkSession,
        topics: Sequence[str],
        *,
        columns: Sequence[str] = tuple(COLUMNS),
        ranges: Mapping[str, tuple[int, int]] | None = None,
        accept_loss: bool = False,
    ) -> DataFrame:
        found = [
            complete(row, name, position)
            for name in map(topic_name, topics)
            for position, row in enumerate(self.rows[name])
            if ranges is None or ranges[name][0] <= position < ranges[name][1]
        ]
        return spark.createDataFrame(found, SCHEMA).select(*columns)

    def free_below(self, name: str, since: int, position: int, now_ns: int) -> int:
        return position

    def positions(self, name: str, start: int, stop: int) -> Iterator[Sequence[int]]:
        yield range(start, stop)

    def schemas(self, names: Iterable[str]) -> dict[str, tuple[bytes, ...]]:
        return {topic: self.known.get(topic, ()) for topic, _ in map(topic_and_partition, names)}


def complete(row: dict[str, Any], topic: str, position: int) -> tuple[Any, ...]:
    """A row of all columns, with what the test does not care about."""
    from datetime import UTC, datetime, timedelta

    found: dict[str, Any] = {
        "key": None,
        "value": b"",
        "topic": topic,
        "partition": 0,
        "messageId": (1, position, -1),
        "publishTime": datetime(2026, 11, 15, 12, tzinfo=UTC) + timedelta(milliseconds=position),
        "eventTime": None,
        "producer": "p",
        "sequenceId": position,
        "properties": {},
        "position": position,
        "storedTime": datetime(2026, 11, 15, 12, tzinfo=UTC) + timedelta(microseconds=1500 * position),
        "keyEncoding": None,
        "orderingKey": None,
        "encryption": None,
        "schemaVersion": None,
    }
    unknown = row.keys() - found.keys()
    assert not unknown, unknown
    return tuple({**found, **row}[name] for name in KEPT)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    publish(path, "rig", [encode_json("r", n, "k", value=float(n)) for n in range(20)], key="k")
    return path
