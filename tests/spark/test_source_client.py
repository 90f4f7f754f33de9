"""The source sees, row by row, what the official client reads: random streams of all that clients publish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.spark import source_storm
from tests.kit.spark.source_storm import Account, Plain, WithSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def require_sound(counts: Callable[[str], None]) -> Callable[[Account], None]:
    def judge(account: Account) -> None:
        counts(account.words())
        _require(account)

    return judge


def _require(account: Account) -> None:
    """Nothing is wrong, and everything that can happen did."""
    assert not account.faults, account.faults[:5]
    missing = [name for name in source_storm.HAPPENS if not account.counts[name]]
    assert not missing, f"{missing} did not happen: {account.words()}"


@pytest.mark.parametrize(("seed", "by"), [(2, "path"), (108, "url")])
def test_the_same_rows_as_the_client(
    tmp_path: Path, seed: int, by: str, require_sound: Callable[[Account], None]
) -> None:
    """I150, I153, I155, I156: random ranges, and a stream that is reset and trimmed; by path and by URL."""
    require_sound(source_storm.run(tmp_path, seed, by, Plain(), rounds=5, messages=50))


@pytest.mark.parametrize(("seed", "by"), [(301, "path"), (302, "url")])
def test_the_same_rows_in_spark(
    spark: SparkSession, tmp_path: Path, seed: int, by: str, require_sound: Callable[[Account], None]
) -> None:
    """The same with Spark, whose stream runs while it all happens."""
    reading = WithSpark(spark, tmp_path / "checkpoint")
    require_sound(source_storm.run(tmp_path, seed, by, reading, rounds=2, messages=40))
