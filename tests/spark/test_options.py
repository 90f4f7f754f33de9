"""Schemas of the user's own, as Spark hands them over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.spark.filled import data as data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


def test_schemas_in_spark(spark: SparkSession, data: Path) -> None:
    """Spark passes types and nullability of a schema to the source."""
    load = spark.read.format("holdfast").option("path", str(data)).option("topic", "orders")
    with pytest.raises(Exception, match="key must be able to be null"):
        load.schema("key binary NOT NULL, position bigint").load().count()
    typed = load.option("valueFormat", "json").schema("value struct<id: bigint>, position bigint").load()
    assert typed.where("position < 3").selectExpr("value.id IS NULL none").collect() == [(True,)] * 3
    with pytest.raises(Exception, match="leave out valueSchema"):
        load.option("valueSchema", "non sense (").schema("position bigint").load().count()
