"""Spark reads a compacted topic by path and by URL, with tombstones and a tail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Broker
from tests.kit.pipeline.compacted import PRICES, SMALL, Prices, Row, view_files
from tests.kit.served import Served, served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN = ("key", "value", "position", "messageId")
pytestmark = pytest.mark.timeout(300)


class Made:
    """A directory, and what its topic has."""

    def __init__(self, data: Path) -> None:
        self.data = data
        with Broker.open(data, roll_entries=7, retention_s=0, housekeeping_s=3600, **SMALL) as broker:
            self.prices = Prices(broker, str(data), keys=30)
            self.prices.send(80)
            self.prices.compact()
            self.prices.settle()
            self.prices.send(60)
            self.horizon = self.prices.compact()
            self.prices.settle()
            self.prices.send(25)
        self.rows = self.prices.expected(self.horizon)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("spark-compacted") / "data")


@pytest.fixture(scope="module")
def server(made: Made) -> Iterator[Served]:
    with served(made.data, http=True) as running:
        yield running


def load(spark: SparkSession, **options: Any) -> DataFrame:
    reader = spark.read.format("holdfast").option("readCompacted", "true").option("topic", "prices")
    for name, value in options.items():
        reader = reader.option(name.replace("url", "service.url"), value)
    return reader.load()


def collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    rows = frame.select(*SHOWN).collect()
    return sorted((*map(_plain, row[:3]), tuple(row.messageId)) for row in rows)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value or b""


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted(
        (*(_plain(row[name]) for name in SHOWN[:3]), tuple(row["messageId"].values())) for row in rows
    )


def test_the_view_and_its_tail_in_tasks(spark: SparkSession, made: Made, server: Served) -> None:
    """Also the entries of ledgers that are trimmed, with the ids that they had."""
    assert {row["position"] for row in made.rows} & set(range(made.horizon)), "a view"
    for where in ({"path": made.data}, {"url": server.http_url}, {"url": server.url}):
        assert collected(load(spark, minPartitions=5, **where)) == told(made.rows)
    middle = made.horizon // 2
    frame = load(spark, path=made.data, startingOffsets=f'{{"prices": {{"0": {middle}}}}}')
    assert collected(frame) == told(made.prices.expected(made.horizon, middle))


def test_the_newest_value_of_each_key(spark: SparkSession, made: Made) -> None:
    """As the guide has it: what is behind the view is not compacted."""
    from pyspark.sql.functions import col, length, max_by, struct

    newest = (
        load(spark, path=made.data)
        .where("key IS NOT NULL")
        .groupBy("key")
        .agg(max_by("value", struct("position", "messageId.batchIndex")).alias("value"))
        .where(length(col("value")) > 0)
    )
    last = {row["key"]: row["value"] for row in made.prices.rows if row["key"] is not None}
    expected = {key: value for key, value in last.items() if value}
    assert {bytes(row.key): bytes(row.value) for row in newest.collect()} == expected


def test_a_table_and_a_stream(spark: SparkSession, made: Made) -> None:
    spark.sql(
        f"CREATE TABLE compacted_prices USING holdfast OPTIONS (path '{made.data}', topic 'prices', "
        "readCompacted 'true')"
    )
    try:
        assert collected(spark.table("compacted_prices")) == told(made.rows)
        plain = spark.sql("SELECT count(*) FROM compacted_prices WITH (readCompacted = 'false')").first()
        assert plain is not None
        assert plain[0] < len(made.rows), "the topic itself is trimmed"
    finally:
        spark.sql("DROP TABLE compacted_prices")
    stream = (
        spark.readStream.format("holdfast")
        .options(path=str(made.data), topic="prices", readCompacted="true")
        .load()
    )
    with pytest.raises(Exception, match="readCompacted is for batches"):
        stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


def test_an_end_within_the_view(spark: SparkSession, made: Made, server: Served) -> None:
    end = f'{{"prices": {{"0": {made.horizon - 1}}}}}'
    for where in ({"path": made.data}, {"url": server.http_url}):
        with pytest.raises(Exception, match="within its compacted view 2, which stands for all entries"):
            load(spark, endingOffsets=end, **where).count()


def test_a_view_that_is_gone_or_damaged(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    """A planned frame reads its view, or fails; a new one reads the newest."""
    data = tmp_path / "data"
    shutil.copytree(made.data, data)
    frame = load(spark, path=data)
    assert frame.count() == len(made.rows)
    with Broker.open(data, retention_s=0, housekeeping_s=3600, **SMALL) as broker:
        prices = Prices(broker, str(data), keys=30)
        prices.rows = [*made.prices.rows]
        horizon = prices.compact()
        assert frame.count() == len(made.rows), "the view before is kept for a while"
        prices.settle()
        with pytest.raises(Exception, match=f"compacted view 2 of {PRICES} is gone"):
            frame.count()
        assert collected(load(spark, path=data)) == told(prices.expected(horizon))
    view_files(str(data))[-1].write_bytes(b"nonsense")
    with pytest.raises(Exception, match="no message is lost: start or restart the broker"):
        load(spark, path=data).count()
