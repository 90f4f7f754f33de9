"""Declare the same pipeline: Spark finds the order of its tables. See spark-pipeline.yml."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from holdfast.pipeline import register

sys.path.insert(0, str(Path.cwd().parent))  # the folder of measurements.py
import measurements as functions  # type: ignore[import-not-found]

spark = SparkSession.active()
register(spark)


@dp.materialized_view
def readings() -> DataFrame:
    """Select typed readings of the topic, each once."""
    found: DataFrame = functions.clean(functions.read(spark, os.environ["HOLDFAST_DATA"]))
    return found


@dp.materialized_view
def alarms() -> DataFrame:
    """Find the highest temperature per sensor and minute, if it is an alarm."""
    found: DataFrame = functions.alarms(spark.read.table("readings"))
    return found
