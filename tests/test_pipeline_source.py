"""`spark.read.format("holdfast")`: what is there, exactly, and errors that help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Broker
from holdfast.broker.blocking import BlockingBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
def broker(data: str) -> Iterator[BlockingBroker]:
    with Broker.open(data) as opened:
        yield opened


def load(spark: SparkSession, data: str, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("holdfast").option("path", data)
    for name, value in options.items():
        reader = reader.option(name, value)
    return (reader.schema(schema) if schema else reader).load()


def test_all_columns(spark: SparkSession, data: str, broker: BlockingBroker) -> None:
    with broker.producer("orders", name="shop") as producer:
        producer.send_many([b"rope", b"tar"], key="smith", properties={"a": "b"}, event_time=5_000_000_000)
    rows = load(spark, data, topic="orders").orderBy("position").collect()
    assert [row.value for row in rows] == [b"rope", b"tar"]
    row = rows[1]
    assert (bytes(row.key), row.topic, row.partition) == (b"smith", "persistent://public/default/orders", 0)
    assert (row.messageId.entry, row.position, row.sequenceId, row.producer) == (1, 1, 1, "shop")
    assert row.properties == {"a": "b"}
    assert row.eventTime.timestamp() == 5.0
