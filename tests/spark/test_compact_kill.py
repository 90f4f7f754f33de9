"""Kill a compaction with SIGKILL: while it writes its files, and after its commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.pipeline.archive import read_archive, verify_archive
from holdfast.pipeline.compact import compact
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory
from tests.kit.spark.archive_kill import Drivers
from tests.kit.spark.pipeline_kill import killed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)
Kill = Callable[[str, Path, Path], None]
"""At this step, with this data, of this result."""


def rows(spark: SparkSession, to: Path) -> list[tuple[str, bytes, bytes, int]]:
    found = read_archive(spark, to).select("topic", "key", "value", "position").collect()
    return sorted((row[0], bytes(row[1]), bytes(row[2]), row[3]) for row in found)


def test_what_is_killed_is_as_if_it_had_not_been_or_whole(spark: SparkSession, tmp_path: Path) -> None:
    """I180, for a compacted directory: each kill leaves the old or the new result."""
    drivers = Drivers(spark)

    def kill(step: str, data: Path, to: Path) -> None:
        assert drivers.compact(step, data, to, "a", "b") == "killed"

    try:
        kill_and_go_on(spark, tmp_path, kill)
    finally:
        drivers.close()


@pytest.mark.nightly  # two Javas; in `make test` test_what_is_killed_is_as_if_it_had_not_been_or_whole
def test_the_command_is_killed_with_its_java(spark: SparkSession, tmp_path: Path) -> None:
    """I180: nothing of it goes on, as when its machine goes."""

    def kill(step: str, data: Path, to: Path) -> None:
        inside = to / "_holdfast"
        there = {
            "half": lambda: any((inside / "staging").rglob("*.parquet")),
            "linked": (inside / "runs/00000002.json").exists,
        }
        killed(["compact", "a", "b", "--data", str(data), "--to", str(to)], there[step])

    kill_and_go_on(spark, tmp_path, kill)


def kill_and_go_on(spark: SparkSession, tmp_path: Path, kill: Kill) -> None:
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

    kill("half", data, to)
    assert rows(spark, to) == old
    kill("linked", data, to)
    assert rows(spark, to) == new
    assert run(to) is None
    assert rows(spark, to) == new
    assert verify_archive(spark, to) == len(new)
    (last,) = ArchiveDirectory(to, "compacted").runs()
    assert not list((to / "_holdfast/staging").iterdir())
    assert sorted(str(each.relative_to(to)) for each in to.rglob("*.parquet")) == sorted(last.files)
