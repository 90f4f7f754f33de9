"""`compact` counts messages, not the positions that they stand at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.spark.ways import check_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_messages_of_batches_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    check_counts(spark, tmp_path / "data", tmp_path / "to")
