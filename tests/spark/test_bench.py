"""Test the pipeline's benchmark: its forms have the same rows; it judges by its figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.pipeline import FORMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE, COUNT = 100, 10_000


@pytest.mark.timeout(300)
def test_all_forms_are_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    from bench.pipeline_world import MemorySource, World, cpu_seconds

    spark.dataSource.register(MemorySource)
    world = World(tmp_path, SIZE, COUNT)
    before = cpu_seconds()
    world.make(spark, 2)
    digest = ["count(*)", "bit_xor(xxhash64(cast(value as string)))", "count(distinct value)"]
    digests = {form: world.frame(spark, form).selectExpr(*digest).first() for form in FORMS}
    assert {row[0] for row in digests.values() if row} == {COUNT}
    assert len(set(digests.values())) == 1
    assert {row[2] for row in digests.values() if row} == {COUNT}, "payloads that repeat flatter Parquet"
    written = sum(path.stat().st_size for path in (world.folder / "parquet").glob("*.parquet"))
    assert written > 0.5 * SIZE * COUNT, "Parquet's dictionary has nothing to find"
    assert cpu_seconds() > before
