"""Compare rows of the source with those of the official client, for random streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.slices import Seed, pick, seeds
from tests.kit.spark import source_storm
from tests.kit.spark.source_storm import ALWAYS, WithSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("by", pick(test=["url"], nightly=["path", "url"]))
@pytest.mark.parametrize("seed", seeds("source rows in Spark", test=1, nightly=2))
def test_the_same_rows_in_spark(
    spark: SparkSession, tmp_path: Path, seed: Seed, by: str, counts: Callable[[str], None]
) -> None:
    """I150, I153, I155, I156: with Spark, whose stream runs while it all happens."""
    reading = WithSpark(spark, tmp_path / "checkpoint")
    account = source_storm.run(tmp_path, seed, by, reading, rounds=2, messages=40)
    counts(account.words())
    account.require_sound(ALWAYS)  # two rounds need not meet more; those without Spark do
