"""Test the pipeline with a real Spark session and without a broker: `python -m pytest`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from measurements import Limits, alarms, clean  # type: ignore[import-not-found]
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from holdfast.pipeline import session
from holdfast.pipeline.numbered import encode_json

NOON = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp())


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session("test", master="local[1]", settings={"spark.sql.shuffle.partitions": "1"})
    yield made
    made.stop()


def messages(spark: SparkSession, *values: bytes) -> DataFrame:
    """Build messages as the source returns them, with only the columns that the test reads."""
    return spark.createDataFrame([(value,) for value in values], "value binary")


def reading(number: int, celsius: float, seconds: int = 0) -> bytes:
    return encode_json("rig-1", number, "boiler", sent_ns=(NOON + seconds) * 10**9, value=celsius)


def test_each_reading_counts_once_and_other_messages_are_left_out(spark: SparkSession) -> None:
    found = clean(messages(spark, reading(0, 20.5), reading(0, 20.5), reading(1, 9999.0), b"no JSON", b""))
    expected = spark.createDataFrame(
        [("rig-1", 0, "boiler", datetime(2026, 11, 15, 12, tzinfo=UTC), 20.5)],
        "producer string, number bigint, sensor string, at timestamp, celsius double",
    )
    assertDataFrameEqual(found, expected)


def test_a_hot_minute_is_an_alarm(spark: SparkSession) -> None:
    readings = clean(messages(spark, reading(0, 70.0), reading(1, 90.0, 10), reading(2, 60.0, 70)))
    expected = spark.createDataFrame(
        [("boiler", datetime(2026, 11, 15, 12, tzinfo=UTC), 90.0, 2)],
        "sensor string, minute timestamp, celsius double, readings bigint",
    )
    assertDataFrameEqual(alarms(readings, Limits(alarm=80.0)), expected)
