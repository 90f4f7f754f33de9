"""Test latency by log time: wrong clocks of producers, archives without it, the network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast.errors import Corrupt
from holdfast.pipeline import archive as archiving
from holdfast.pipeline.archive import archive, read_archive, verify_archive
from holdfast.pipeline.audit import audit
from holdfast.pipeline.jobs.archive_directory import VERSION, ArchiveDirectory, Run
from holdfast.pipeline.jobs.audit_page import page
from tests.kit.served import served
from tests.kit.spark.latency_world import Clocks
from tests.kit.spark.pipeline_world import topic_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Clocks:
    return Clocks.publish(tmp_path_factory.mktemp("clocks") / "data")


def test_latency_is_from_the_producers_clock_to_the_brokers(spark: SparkSession, clocks: Clocks) -> None:
    found = clocks.check(spark)
    assert "latency (below 0: clock skew)" in page(found)
    rows = topic_rows(spark, clocks.data, "late").selectExpr("unix_micros(storedTime) AS at").collect()
    assert all(clocks.began_us <= row["at"] <= clocks.ended_us for row in rows)


def test_the_same_over_the_network(spark: SparkSession, clocks: Clocks) -> None:
    """The column comes by Flight as it comes from the files."""
    with served(clocks.data, http=True) as server:
        clocks.check(spark, url=server.http_url)
        told = {"service.url": server.http_url, "topic": "late"}
        schema = "position bigint, storedTime timestamp, uniqueId string"
        far = (
            spark.read.format("holdfast").options(**told).schema(schema).load().orderBy("position").collect()
        )
    reader = spark.read.format("holdfast").option("path", str(clocks.data)).option("topic", "late")
    assert far == reader.schema(schema).load().orderBy("position").collect()
    assert len({row["uniqueId"] for row in far}) == len(far) == 5


def test_an_archive_keeps_the_time(spark: SparkSession, clocks: Clocks, tmp_path: Path) -> None:
    archive(spark, topics=["late", "ahead"], to=tmp_path, path=str(clocks.data))
    live = topic_rows(spark, clocks.data, "late", "ahead").select("topic", "position", "storedTime")
    kept = read_archive(spark, tmp_path).select("topic", "position", "storedTime")
    assert sorted(kept.collect()) == sorted(live.collect())
    found = audit(spark, archive=tmp_path)
    assert [each.skewed for each in found.latency] == [5, 0]
    assert (found.archived, found.untimed) == (10, 0)
    assert verify_archive(spark, tmp_path) == 10


@pytest.mark.parametrize(
    ("version", "lacking", "untimed"), [(1, ("storedTime", "schemaVersion"), 5), (2, ("schemaVersion",), 0)]
)
def test_an_archive_of_a_former_version(
    spark: SparkSession,
    clocks: Clocks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    lacking: tuple[str, ...],
    untimed: int,
) -> None:
    """Runs without later columns can be read, verified and continued; latency may be unknown."""
    with monkeypatch.context() as patch:
        former = [name for name in archiving.KEPT if name not in lacking]
        patch.setattr(archiving, "KEPT", former)
        patch.setattr(archiving, "ARCHIVED", [*former, "date"])
        patch.setattr(archiving, "VERSION", version)
        archive(spark, topics=["late"], to=tmp_path, path=str(clocks.data))
    [run] = ArchiveDirectory.there(tmp_path).runs()
    assert run.version == version
    assert verify_archive(spark, tmp_path) == 5
    assert {row[name] for row in read_archive(spark, tmp_path).collect() for name in lacking} == {None}
    found = audit(spark, archive=tmp_path)
    timed = [5] if untimed == 0 else []
    assert (found.sound, found.untimed) == (True, untimed)
    assert [each.count for each in found.latency] == timed
    assert bool(found.series) == bool(timed)
    assert ("5 archived messages without storedTime" in found.table()) == bool(untimed)
    done = archive(spark, topics=["late", "ahead"], to=tmp_path, path=str(clocks.data))
    assert (done.run, done.rows) == (2, 5)
    assert [each.version for each in ArchiveDirectory.there(tmp_path).runs()] == [version, VERSION]
    assert verify_archive(spark, tmp_path) == 10
    both = audit(spark, archive=tmp_path)
    assert (both.untimed, [each.count for each in both.latency]) == (untimed, [*timed, 5])


def test_a_run_of_a_later_version_is_refused(tmp_path: Path) -> None:
    directory = ArchiveDirectory(tmp_path)
    with directory.changing():
        directory.commit(Run(VERSION, "archive", 1, "id", "now", {}, []))
    [path] = (tmp_path / "_holdfast/runs").glob("*.json")
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), "version": VERSION + 1}))
    with pytest.raises(Corrupt, match="use a newer holdfast"):
        directory.runs()
