"""publishedFrom, publishedBefore, keys: the rows that the same `where` leaves, for one load() alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.pipeline.jobs.inputs import settings
from tests.kit.spark.filter_world import world as world

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


def load(spark: SparkSession, where: dict[str, str], **options: str) -> DataFrame:
    return spark.read.format("holdfast").options(**where, topic="orders", **options).load()


def test_sparks_own_push_down_gives_wrong_rows(spark: SparkSession) -> None:
    """Filters are not pushed down, because Spark keeps one reader, with the last filter.

    When this fails Spark has mended it, and the source can take filters from `where` (docs/guide/source.md).
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition, LessThan

    class Reader(DataSourceReader):
        most = 60

        def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
            for each in filters:
                if isinstance(each, LessThan):
                    self.most = min(self.most, each.value)
                else:
                    yield each

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(self.most)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield from ((number,) for number in range(partition.value))

    class Tiny(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tiny"

        def schema(self) -> str:
            return "position bigint"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Tiny)
    with settings(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        frame = spark.read.format("tiny").load()
        assert frame.where("position < 5").count() == 5
        assert frame.count() == 5, "60, if Spark were right"


def test_each_load_has_its_own_filters(spark: SparkSession, world: dict[str, dict[str, str]]) -> None:
    """In repeated queries, unions and threads; also beside `where` on the same frame."""
    where = world["path"]
    plain, some = load(spark, where), load(spark, where, keys='["a", ""]')
    late = load(spark, where, publishedFrom="1990-01-01", publishedBefore="2050-01-01T00:00:00.000500Z")
    by_key = "key IN (X'61', X'')"
    by_time = (
        "publishTime >= timestamp'1990-01-01 00:00:00Z' AND "
        "publishTime < timestamp'2050-01-01 00:00:00.0005Z'"
    )
    everything = sorted(map(repr, plain.collect()))
    keyed, timed = (sorted(map(repr, plain.where(each).collect())) for each in (by_key, by_time))
    assert 0 < len(keyed) < len(everything)
    assert 0 < len(timed) < len(everything)
    frames = [(some, keyed), (late, timed), (plain, everything), (plain.where(by_key), keyed)]
    frames += [(some.union(late), sorted(keyed + timed)), (some.union(plain), sorted(keyed + everything))]
    frames += [(some.where("position < 0"), []), (some, keyed)]

    def right(frame: tuple[DataFrame, list[str]]) -> bool:
        return sorted(map(repr, frame[0].collect())) == frame[1]

    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(right, frames))
    assert all(map(right, frames[:3]))
