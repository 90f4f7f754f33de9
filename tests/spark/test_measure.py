"""Test figures per window: repeated, late and other messages, as batch and as stream."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import Misuse
from holdfast.pipeline.archive import archive
from holdfast.pipeline.jobs.inputs import Origin
from holdfast.pipeline.measure import (
    Fields,
    MeasureReport,
    Windows,
    dropped,
    measure,
    measure_stream,
    stream_report,
)
from holdfast.pipeline.numbered import encode_json
from tests.kit.pipeline.streams import until
from tests.kit.slices import seeds
from tests.kit.spark.archive_kill import Drivers
from tests.kit.spark.pipeline_kill import killed
from tests.kit.spark.pipeline_world import Fed, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # for Spark on a busy machine

BEGAN_S = 1_794_744_000
"""A full minute."""


def reading(number: int, second: float, value: float, key: str = "k") -> bytes:
    return encode_json("rig", number, key, sent_ns=int((BEGAN_S + second) * 1e9), value=value)


def windows(spark: SparkSession, to: Path) -> list[tuple[int, str, int, float, float]]:
    rows = spark.read.parquet(str(to)).selectExpr("unix_seconds(start) AS s", "key", "count", "least", "mean")
    return sorted((row["s"] - BEGAN_S, *row[1:]) for row in rows.collect())


@pytest.mark.usefixtures("elsewhere")
def test_a_batch_counts_each_once(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    sent = [reading(0, 1, 2.0), reading(1, 9.999, 4.0), reading(0, 1, 2.0), reading(2, 10, 7.0, "other")]
    publish(data, "m", [*sent, b"no JSON", b"{}", encode_json("rig", 9, "k"), reading(3, 4, 6.0)])
    done = measure(spark, to=tmp_path / "w", topics=["m"], path=str(data))
    wanted = [(0, "k", 3, 2.0, 4.0), (10, "other", 1, 7.0, 7.0)]
    assert windows(spark, tmp_path / "w") == wanted
    assert (done.windows, done.measurements, done.late) == (2, 4, 0)
    assert "2 windows of 4 measurements" in done.table()
    assert [(row["start"], row["end"]) for row in done.rows] == [
        ("2026-11-15T12:00:00+00:00", "2026-11-15T12:00:10+00:00"),
        ("2026-11-15T12:00:10+00:00", "2026-11-15T12:00:20+00:00"),
    ]
    archive(spark, topics=["m"], to=tmp_path / "a", path=str(data))
    measure(spark, to=tmp_path / "w", archive=tmp_path / "a", windows=Windows("20 seconds", "10 seconds"))
    assert [row[:3] for row in windows(spark, tmp_path / "w")] == [
        (-10, "k", 3),
        (0, "k", 3),
        (0, "other", 1),
        (10, "other", 1),
    ]


def test_what_has_no_number_counts_for_itself_and_topics_are_told_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    plain = [b'{"key": "k", "value": %d, "sent_ns": %d}' % (i, (BEGAN_S + 1) * 10**9) for i in range(3)]
    publish(data, "a", [*plain, reading(0, 1, 5.0)])
    publish(data, "b", [reading(0, 1, 7.0), reading(0, 1, 7.0)])
    measure(spark, to=tmp_path / "w", topics=["a", "b"], path=str(data))
    assert windows(spark, tmp_path / "w") == [(0, "k", 5, 0.0, 3.0)]


def test_fields_of_another_name(spark: SparkSession, tmp_path: Path) -> None:
    """Where the time is missing, the message's own counts."""
    rows = [{"value": b'{"id": %d, "room": "a b", "deg C": 2.5}' % n} for n in (1, 2, 2)]
    archive(spark, topics=["m"], to=tmp_path / "a", source=Fed({"m": rows}))
    fields = Fields(value="deg C", key="room", time_ns="at", identity=("id",))
    measure(spark, to=tmp_path / "w", archive=tmp_path / "a", fields=fields)
    assert [row[1:] for row in windows(spark, tmp_path / "w")] == [("a b", 2, 2.5, 2.5)]
    none = measure(spark, to=tmp_path / "w", archive=tmp_path / "a", fields=Fields(value="deg F"))
    assert none.note == "not one of 3 messages is JSON with a number in 'deg F'"
    assert none.table().startswith("note: not one of 3 messages")


def test_what_is_not_finite_is_no_measurement(spark: SparkSession, tmp_path: Path) -> None:
    wrong = [reading(1, 2, math.nan), reading(2, 2, -math.inf), b'{"value": 1e999, "key": "k"}']
    large = [reading(n, 3, 1.7e308, "large") for n in (3, 4)]
    rows = [{"value": each} for each in (reading(0, 1, 2.0), *wrong, *large)]
    archive(spark, topics=["m"], to=tmp_path / "a", source=Fed({"m": rows}))
    done = measure(spark, to=tmp_path / "w", archive=tmp_path / "a")
    assert (done.windows, done.measurements, done.not_finite) == (2, 3, 3)
    assert [(row["key"], row["mean"], row["most"]) for row in done.rows] == [
        ("k", 2.0, 2.0),
        ("large", None, 1.7e308),  # the sum is more than a number can be
    ]
    json.dumps(done.record(), allow_nan=False)
    assert "2 windows of 3 measurements, 3 were not finite" in done.table()
    archive(spark, topics=["n"], to=tmp_path / "b", source=Fed({"n": rows[1:4]}))
    none = measure(spark, to=tmp_path / "w", archive=tmp_path / "b")
    assert (none.windows, none.not_finite) == (0, 3), "counted also where nothing is left"


def test_a_run_that_is_killed_leaves_the_old_figures(spark: SparkSession, tmp_path: Path) -> None:
    """The driver gets SIGKILL while Java writes; the next run starts when Java is idle."""
    drivers = Drivers(spark)

    def kill(data: Path, to: Path) -> None:
        assert drivers.measure(data, to, "m") == "killed"
        until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), 60)

    try:
        kill_and_measure(spark, tmp_path, kill)
    finally:
        drivers.close()


@pytest.mark.nightly  # a Java of its own; in `make test` test_a_run_that_is_killed_leaves_the_old_figures
def test_the_command_is_killed_with_its_java(spark: SparkSession, tmp_path: Path) -> None:
    def kill(data: Path, to: Path) -> None:
        command = ["measure", "m", "--data", str(data), "--to", str(to)]
        killed(command, lambda: any(tmp_path.glob(".w.new-*")))

    kill_and_measure(spark, tmp_path, kill)


def kill_and_measure(spark: SparkSession, tmp_path: Path, kill: Callable[[Path, Path], None]) -> None:
    data, to = tmp_path / "data", tmp_path / "w"
    publish(data, "m", [reading(0, 1, 2.0)])
    measure(spark, to=to, topics=["m"], path=str(data))
    publish(data, "m", [reading(1, 2, 4.0)])
    kill(data, to)
    assert windows(spark, to) == [(0, "k", 1, 2.0, 2.0)]
    measure(spark, to=to, topics=["m"], path=str(data))
    assert windows(spark, to) == [(0, "k", 2, 2.0, 3.0)]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "w"]


def test_a_stream_adds_each_window_once(spark: SparkSession, tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "w"

    def run(*values: bytes) -> int:
        publish(data, "m", [*values, reading(99, 1, math.nan)])
        query = measure_stream(
            spark,
            to=to,
            checkpoint=tmp_path / "checkpoint",
            topics=["m"],
            path=str(data),
            windows=Windows("10 seconds", late="20 seconds"),
        )
        query.awaitTermination()
        done = stream_report(spark, to, query, 0.0)
        assert (done.not_finite, done.note) == (1, "")
        return done.late

    assert run(reading(0, 1, 1.0), reading(1, 8, 3.0), reading(0, 1, 1.0), reading(2, 12, 5.0)) == 0
    # Late, and in time; a repetition in another batch; and time goes on by a minute.
    assert run(reading(3, 2, 8.0), reading(2, 12, 5.0), reading(4, 60, 1.0)) == 0
    assert windows(spark, to) == [(0, "k", 3, 1.0, 4.0), (10, "k", 1, 5.0, 5.0)]
    # Too late: its window was told already.
    assert run(reading(5, 3, 100.0), reading(6, 120, 1.0)) == 1
    assert windows(spark, to)[:2] == [(0, "k", 3, 1.0, 4.0), (10, "k", 1, 5.0, 5.0)]
    assert windows(spark, to)[2:] == [(60, "k", 1, 1.0, 1.0)]
    with pytest.raises(
        Misuse, match="window was 10 and is 20, slide was 10 and is 20, late was 20 and is 60"
    ):
        measure_stream(
            spark,
            to=to,
            checkpoint=tmp_path / "checkpoint",
            topics=["m"],
            path=str(data),
            windows=Windows("20 seconds"),
        )


def test_what_spark_has_forgotten_is_not_counted_and_that_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def progress(batch: int) -> Any:
        return SimpleNamespace(batchId=batch, stateOperators=[], observedMetrics={})

    nothing = MeasureReport(str(tmp_path), 0, 0, 0, 0, 0.0)
    monkeypatch.setattr("holdfast.pipeline.measure.report", lambda *_: nothing)
    query: Any = SimpleNamespace(recentProgress=[progress(n) for n in range(7, 107)])
    assert stream_report(spark, tmp_path, query, 0.0).note.endswith("are counted from batch 7 on")
    del query.recentProgress[0]
    assert stream_report(spark, tmp_path, query, 0.0).note == ""


@pytest.mark.parametrize("seed", seeds("measure", test=1, nightly=3))
def test_stream_and_batch_as_a_plain_computation_has_it(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Random readings, some twice, up to 15 s late: 20 s suffice."""
    chance = random.Random(seed)
    sent = [(number, round(chance.uniform(0, 200), 3), f"k{number % 3}") for number in range(300)]
    values = {number: round(chance.gauss(20, 5), 3) for number, _, _ in sent}
    arrivals = [(second + chance.uniform(0, 15), each) for each in sent for second in [each[1]]]
    arrivals += [
        (second + chance.uniform(0, 15), each) for each in chance.sample(sent, 60) for second in [each[1]]
    ]
    arrivals.append((300.0, (300, 300.0, "k0")))  # time goes on, so that all others are over
    values[300] = 1.0
    order = [each for _, each in sorted(arrivals)]
    data = tmp_path / "data"
    publish(data, "m", [reading(number, second, values[number], key) for number, second, key in order])
    wanted: dict[tuple[int, str], dict[int, float]] = {}
    for number, second, key in order:
        wanted.setdefault((int(second // 10) * 10, key), {})[number] = values[number]
    plain: list[Any] = sorted(
        (second, key, len(found), min(found.values()), pytest.approx(sum(found.values()) / len(found)))
        for (second, key), found in wanted.items()
    )
    measure(spark, to=tmp_path / "batch", topics=["m"], path=str(data))
    assert windows(spark, tmp_path / "batch") == plain
    messages = Origin(str(data)).stream(spark, ["m"]).option("maxOffsetsPerTrigger", "60").load()
    query = measure_stream(
        spark,
        to=tmp_path / "stream",
        checkpoint=tmp_path / "checkpoint",
        messages=messages,
        windows=Windows("10 seconds", late="20 seconds"),
    )
    query.awaitTermination()
    assert dropped(query) == 0
    assert windows(spark, tmp_path / "stream") == plain[:-1], "the last one is still open"
    p95 = {
        (row["start"], row["key"]): row["p95"]
        for row in spark.read.parquet(str(tmp_path / "batch")).collect()
    }
    for (second, key), found in wanted.items():
        at = datetime.fromtimestamp(BEGAN_S + second)  # as Spark hands it over
        assert p95[at, key] == sorted(found.values())[math.ceil(0.95 * len(found)) - 1]
