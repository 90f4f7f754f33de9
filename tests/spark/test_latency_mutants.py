"""Mutants of an audit's latency: each brings back a former fault; the checks notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from holdfast.columns import decoding
from holdfast.pipeline import audit
from holdfast.pipeline.jobs import audit_counts as accounting
from holdfast.pipeline.jobs import audit_page as report
from holdfast.pipeline.jobs.audit_counts import Bar
from tests.kit.ledger.topic_bytes import FIRST, Maker, MemoryTopic, stored
from tests.kit.spark.latency_world import Clocks, account, drawn, require_unclamped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Patch = Callable[[pytest.MonkeyPatch], None]


def producers_clock(patch: pytest.MonkeyPatch) -> None:
    """Both ends are the producer's clock, as they were: publishTime in the place of storedTime."""
    real = accounting.counted

    def counted(spark: SparkSession, rows: DataFrame, *more: Any) -> dict[str, Any]:
        return real(spark, rows.drop("storedTime").withColumnRenamed("publishTime", "storedTime"), *more)

    patch.setattr(audit, "NEEDED", (*audit.NEEDED, "publishTime"))
    patch.setattr(audit, "counted", counted)


def clamped(patch: pytest.MonkeyPatch) -> None:
    """The histogram has nothing below a millisecond."""
    real = Bar.of

    def of(topic: str, tenth: int, count: int) -> Bar:
        return real(topic, max(tenth, 31), count)

    patch.setattr(Bar, "of", of)


def unsaid(patch: pytest.MonkeyPatch) -> None:
    """Skew is not told."""
    patch.setattr(audit, "clock_notes", lambda *_: [])


@pytest.mark.parametrize("mutant", [producers_clock, clamped, unsaid])
def test_each_is_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Patch
) -> None:
    clocks = Clocks.publish(tmp_path / "data")
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        clocks.check(spark)


def test_plots_that_clamp_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = account(-4_000, 3, 0, 2_000_000)
    require_unclamped(drawn(found, monkeypatch))
    real = report._times

    def times(*arguments: Any) -> Any:
        at, moments = real(*arguments)
        clamp = [each and replace(each, p50=max(1000, each.p50), p99=max(1000, each.p99)) for each in moments]
        return at, clamp

    monkeypatch.setattr(report, "_times", times)
    with pytest.raises(AssertionError):
        require_unclamped(drawn(found, monkeypatch))


def check_stored() -> None:
    """Each row has the time of its block."""
    made = Maker(1)
    made.any(60)
    topic: Any = MemoryTopic(made.entries)
    wish = decoding.Wish(["position", "storedTime"])
    start, stop = topic.plan()
    for batch in decoding.Decoding(topic, start, stop, wish).batches():
        for row in batch.to_pylist():
            assert row["storedTime"] == stored(row["position"] - FIRST)


def test_a_column_of_another_time_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core hands over publishTime, or the time of the first entry of a run."""
    check_stored()
    real = decoding.Decoding.batches

    def published(self: decoding.Decoding) -> Any:
        others = decoding.Wish(["position", "publishTime"])
        for batch in real(decoding.Decoding(self._topic, self._start, self._stop, others)):
            yield batch.rename_columns(["position", "storedTime"])

    def first(self: decoding.Decoding) -> Any:
        for batch in real(self):
            times = pa.array([batch.column("storedTime")[0]] * len(batch))
            yield pa.record_batch([batch.column("position"), times], names=["position", "storedTime"])

    for mutant in (published, first):
        monkeypatch.setattr(decoding.Decoding, "batches", mutant)
        with pytest.raises(AssertionError):
            check_stored()
