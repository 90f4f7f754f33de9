"""Clean the readings of a rig and find alarms: a pipeline to edit.

    python measurements.py DATA_DIRECTORY OUTPUT

`clean` and `alarms` are plain functions from DataFrame to DataFrame. The batch, the test and the declarative
pipeline in `declarative/` call them. A stream needs a limit for late readings: in `clean`, add
`.withWatermark("at", "1 minute")` after `where`, and use `dropDuplicatesWithinWatermark`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast.pipeline import session

TOPIC = "measurements"
FIELDS = "producer STRING, number BIGINT, sent_ns BIGINT, key STRING, value DOUBLE"


@dataclass(frozen=True)
class Limits:
    """Range of valid readings, and the limit of an alarm."""

    least: float = -50.0
    most: float = 150.0
    alarm: float = 80.0


def read(spark: SparkSession, data: str) -> DataFrame:
    """Read the topic from the broker's directory; the server may run."""
    return spark.read.format("holdfast").option("path", data).option("topic", TOPIC).load()


def clean(messages: DataFrame, limits: Limits = Limits()) -> DataFrame:  # noqa: B008  # immutable
    """Select typed readings, each once; other messages are left out."""
    found = F.from_json(F.col("value").cast("string"), FIELDS)
    readings = messages.select(found.alias("found")).select(
        F.col("found.producer").alias("producer"),
        F.col("found.number").alias("number"),
        F.col("found.key").alias("sensor"),
        F.timestamp_micros(F.expr("found.sent_ns DIV 1000")).alias("at"),
        F.col("found.value").alias("celsius"),
    )
    return readings.where(F.col("celsius").between(limits.least, limits.most)).dropDuplicates(
        ["producer", "number"]
    )


def alarms(readings: DataFrame, limits: Limits = Limits()) -> DataFrame:  # noqa: B008  # immutable
    """Find the highest temperature per sensor and minute, if it is an alarm."""
    minutes = readings.groupBy("sensor", F.window("at", "1 minute")).agg(
        F.max("celsius").alias("celsius"), F.count("*").alias("readings")
    )
    hot = minutes.where(F.col("celsius") > limits.alarm)
    return hot.select("sensor", F.col("window.start").alias("minute"), "celsius", "readings")


def main(data: str, output: str) -> None:
    spark = session("measurements")
    found = alarms(clean(read(spark, data)))
    found.write.mode("overwrite").parquet(output)
    spark.read.parquet(output).orderBy("minute", "sensor").show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
