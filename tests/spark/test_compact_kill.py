"""`holdfast pipeline compact`, killed with SIGKILL: while its files are written, and behind its commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.pipeline.archive import read_archive, verify_archive
from holdfast.pipeline.archived import ArchiveDirectory
from holdfast.pipeline.compact import compact
from tests.kit.spark.pipeline_kill import killed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)  # Spark starts three times


def rows(spark: SparkSession, to: Path) -> list[tuple[str, bytes, bytes, int]]:
    found = read_archive(spark, to).select("topic", "key", "value", "position").collect()
    return sorted((row[0], bytes(row[1]), bytes(row[2]), row[3]) for row in found)


def test_what_is_killed_is_as_if_it_had_not_been_or_whole(spark: SparkSession, tmp_path: Path) -> None:
    """I180, for a compacted directory: after each kill one result can be read, the old or the new one."""
    data, to = tmp_path / "data", tmp_path / "compacted"

    def more(life: int) -> None:
        with holdfast.Broker.open(data) as broker:
            for topic in ("a", "b"):
                with broker.producer(topic) as producer:
                    for key in range(life, life + 4):
                        producer.send(b"%d in life %d" % (key, life), key=f"k{key}")
                    producer.send(b"", key=f"k{life}")

    def run(directory: Path) -> int | None:
        return compact(spark, path=str(data), topics=["a", "b"], to=directory).run

    more(1)
    run(to)
    old = rows(spark, to)
    more(2)
    run(tmp_path / "at once")
    new = rows(spark, tmp_path / "at once")
    assert len(old) == len(new) == 6
    assert old != new

    command = ["compact", "a", "b", "--data", str(data), "--to", str(to)]
    inside = to / "_holdfast"
    killed(command, lambda: any((inside / "staging").rglob("*.parquet")))
    assert rows(spark, to) == old
    killed(command, (inside / "runs/00000002.json").exists)
    assert rows(spark, to) == new
    assert run(to) is None
    assert rows(spark, to) == new
    assert verify_archive(spark, to) == len(new)
    (last,) = ArchiveDirectory(to, "compacted").runs()
    assert not list((inside / "staging").iterdir())
    assert sorted(str(each.relative_to(to)) for each in to.rglob("*.parquet")) == sorted(last.files)
