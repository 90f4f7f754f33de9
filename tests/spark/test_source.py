"""`spark.read.format("holdfast")`: what is there, exactly, and errors that help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.broker.api.blocking import BlockingBroker
from tests.kit.spark.source_rows import ORDERS, fill
from tests.kit.spark.sourced import broker as broker
from tests.kit.spark.sourced import data as data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


def load(spark: SparkSession, data: str, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("holdfast").option("path", data)
    for name, value in options.items():
        reader = reader.option(name, value)
    return (reader.schema(schema) if schema else reader).load()


# -- with Spark ----------------------------------------------------------------------------------------


def test_all_columns(spark: SparkSession, data: str, broker: BlockingBroker) -> None:
    with broker.producer("orders", name="shop") as producer:
        producer.send_many([b"rope", b"tar"], key="smith", properties={"a": "b"}, event_time=5_000_000_000)
    rows = load(spark, data, topic="orders").orderBy("position").collect()
    assert [row.value for row in rows] == [b"rope", b"tar"]
    row = rows[1]
    assert (bytes(row.key), row.topic, row.partition) == (b"smith", ORDERS, 0)
    assert (row.messageId.entry, row.position, row.sequenceId, row.producer) == (1, 1, 1, "shop")
    assert row.properties == {"a": "b"}
    assert row.eventTime.timestamp() == 5.0


def test_a_schema_prunes_and_orders_columns(spark: SparkSession, data: str, broker: BlockingBroker) -> None:
    fill(broker, 25)
    frame = load(spark, data, "position bigint, value binary, partition int", topic="orders")
    assert frame.columns == ["position", "value", "partition"]
    rows = frame.orderBy("position").collect()
    assert [(row.position, row.value) for row in rows] == [(i, b"%d" % i) for i in range(25)]
    with pytest.raises(Exception, match="no column 'positon'; did you mean position"):
        load(spark, data, "positon bigint", topic="orders").collect()
    with pytest.raises(Exception, match="the column value is binary, not string; cast it in Spark"):
        load(spark, data, "value string", topic="orders").collect()


def test_a_frame_is_planned_once(spark: SparkSession, data: str, broker: BlockingBroker) -> None:
    """At the first use; Spark does not ask again, as the page says."""
    fill(broker, 5)
    reader = spark.read.format("holdfast").option("topic", "orders").schema("position bigint")
    frame = reader.load(data)
    assert frame.count() == 5
    fill(broker, 5)
    assert (frame.count(), reader.load(data).count()) == (5, 10)


def test_wrong_options_in_spark(spark: SparkSession, data: str, broker: BlockingBroker) -> None:
    fill(broker, 1)
    with pytest.raises(Exception, match=r"no option 'topik'; did you mean topic\?.*startingOffsets"):
        load(spark, data, topik="orders")
    with pytest.raises(Exception, match=rf"no topic .*/order; check the name\. It shows: {ORDERS}"):
        load(spark, data, topic="order").collect()


def test_json_values_are_columns(spark: SparkSession, data: str, broker: BlockingBroker) -> None:
    """Only that values are decoded; tests/spark/test_json.py compares them."""
    schema = "id BIGINT, at STRUCT<x: INT>, m MAP<STRING, INT>, n DECIMAL(5,2), "
    schema += "t TIMESTAMP, w ARRAY<DATE>, z BINARY"
    values = [
        b'{"id": 1, "at": {"x": 3}, "m": {"a": 1}, "n": 1.5, "t": 5, "w": ["1970-01-02"], "z": "aGk="}',
        b'{"id": 2}{"id": 3}', b"", b"[" * 5000, b'{"id": 4}',
    ]  # fmt: skip
    with broker.producer("orders") as producer:
        producer.send_many(values)
    typed = load(spark, data, topic="orders", valueFormat="json", valueSchema=schema)
    text = "value.id", "cast(value as string) text"
    rows = typed.where("position >= 0").orderBy("position").selectExpr(*text).collect()
    assert [row.id for row in rows] == [1, 2, None, None, 4]
    assert [row.text for row in rows[:3]] == [
        "{1, {3}, {a -> 1}, 1.50, 1970-01-01 00:00:05, [1970-01-02], hi}",
        "{2, null, null, null, null, null, null}",
        None,
    ]
    for wrong, words in (
        ("id BIGINT NOT NULL", "value.id must be able to be null: leave out NOT NULL"),
        ("id BIGINT, at STRUCT<x: INTERVAL DAY>", "value.at.x is interval day, which JSON cannot become"),
        ("id BIGINT, id STRING", "value.id twice"),
    ):
        with pytest.raises(Exception, match=words):
            load(spark, data, topic="orders", valueFormat="json", valueSchema=wrong).collect()


# -- what is read --------------------------------------------------------------------------------------
