"""`compact` counts messages, not the positions that they stand at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.pipeline import compact
from tests.kit.spark.ways import check_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_messages_of_batches_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    check_counts(spark, tmp_path / "data", tmp_path / "to")


def test_positions_counted_as_messages_are_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = compact.tally

    def tally(parts: Any, fresh: bool) -> tuple[dict[tuple[str, int], int], bool]:
        counted, sealed = real(
            [each.dropDuplicates(["topic", "partition", "position"]) for each in parts], fresh
        )
        return counted, sealed

    monkeypatch.setattr(compact, "tally", tally)
    with pytest.raises(AssertionError):
        check_counts(spark, tmp_path / "data", tmp_path / "to")
