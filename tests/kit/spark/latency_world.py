"""Topics whose producers' clocks are wrong, and what an audit must say of their latency."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from holdfast.pipeline.audit import AuditReport, audit, clock_notes
from holdfast.pipeline.jobs import audit_page as pages
from holdfast.pipeline.jobs.audit_counts import Bar, Latency, Moment, ProducerAudit
from holdfast.pipeline.jobs.audit_page import page
from holdfast.pipeline.numbered import encode
from tests.kit.ledger.entry_bytes import METADATA, Fields, entry
from tests.kit.spark.pipeline_world import append_entries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "persistent://public/default/t"
LATE_S = 30
"""How long before it was stored a message says that it was sent."""
AHEAD_S = 45
"""How far the clock of another producer is ahead of the broker's."""


@dataclass(frozen=True)
class Clocks:
    """Publish to two topics messages that were sent long ago, and in the future.

    As with clients, the publish time of their metadata is the time at which they were sent.
    """

    data: Path
    began_us: int
    ended_us: int

    @classmethod
    def publish(cls, data: Path, count: int = 5) -> Clocks:
        began = time.time_ns() // 1000
        for topic, sent_s in (("late", -LATE_S), ("ahead", AHEAD_S)):
            entries = []
            for number in range(count):
                sent_ns = time.time_ns() + sent_s * 1_000_000_000
                fields: Fields = [
                    (METADATA["producer_name"], b"rig"),
                    (METADATA["sequence_id"], number),
                    (METADATA["publish_time"], sent_ns // 1_000_000),
                ]
                entries.append(entry(fields, encode("rig", number, "k", sent_ns=sent_ns)))
            append_entries(data, topic, entries)
        return cls(data, began, time.time_ns() // 1000)

    def check(self, spark: SparkSession, url: str | None = None) -> AuditReport:
        """Both topics, as the broker's clock has it."""
        path = None if url is not None else str(self.data)
        found = audit(spark, topics=["late", "ahead"], path=path, url=url)
        took_us = self.ended_us - self.began_us
        ahead, late = found.latency
        assert found.sound
        assert LATE_S * 1e6 <= late.min <= late.p50 <= late.max <= LATE_S * 1e6 + took_us
        assert -AHEAD_S * 1e6 <= ahead.min <= ahead.p50 <= ahead.max <= -AHEAD_S * 1e6 + took_us
        assert (late.skewed, ahead.skewed) == (0, ahead.count)
        [note] = [note for note in found.notes if "clock skew" in note]
        assert note.startswith("persistent://public/default/ahead: clock skew: 5 of 5 messages")
        bars = {
            name: [each for each in found.histogram if each.topic.endswith(name)]
            for name in ("late", "ahead")
        }
        assert all(each.low <= each.high < 0 for each in bars["ahead"]), "clamped"
        assert all(each.low > 1e7 for each in bars["late"])
        assert {each.p50 > 0 for each in found.series if each.topic.endswith("ahead")} == {False}, "clamped"
        begin, end = self.began_us // 1_000_000 - found.step_s, self.ended_us // 1_000_000 + found.step_s
        assert all(begin <= each.at_s <= end for each in found.series), "not by the broker's clock"
        return found


def tenth(took_us: int) -> int:
    """Where a latency is counted, by plain Python."""
    size = int(10 * math.log10(abs(took_us))) + 1 if took_us else 0
    return -size if took_us < 0 else size


def account(*took_us: int) -> AuditReport:
    """Of one message a second, each of which took so long."""
    took, count = sorted(took_us), len(took_us)
    half, skewed = took[count // 2], sum(each < 0 for each in took)
    latency = Latency(TOPIC, count, took[0], half, half, half, half, took[-1], skewed)
    counts = {"messages": count, "distinct": count, "last": count - 1, "confirmed": None, "lost": 0}
    producer = ProducerAudit(TOPIC, "a", **counts, duplicated=0, out_of_order=0, unconfirmed=0)  # type: ignore[arg-type]
    return AuditReport(
        archived=0,
        live=count,
        messages=count,
        foreign=0,
        damaged=0,
        producers=[producer],
        latency=[latency],
        step_s=1,
        series=[Moment(TOPIC, 1_794_700_000 + at, 1, each, each) for at, each in enumerate(took_us)],
        histogram=[Bar.of(TOPIC, tenth(each), 1) for each in took],
        notes=list(clock_notes([latency], 0)),
    )


def drawn(found: AuditReport, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """The values of each plot, in ms: what matplotlib was given."""
    values: dict[str, list[float]] = {}

    def figure(title: str, draw: object, height: float = 2.6) -> str:
        from matplotlib.figure import Figure

        axes = Figure().add_subplot()
        draw(axes)  # type: ignore[operator]
        shapes: list[Any] = [each for each in axes.patches if hasattr(each, "get_x")]
        lines = [float(each) for line in axes.get_lines() for each in np.asarray(line.get_ydata())]
        bars = [each.get_x() for each in shapes if each.get_height() == 1]
        values[title] = bars if title == "How long it took" else lines
        return ""

    with monkeypatch.context() as patch:
        patch.setattr(pages, "_figure", figure)
        page(found)
    return values


def require_unclamped(found: dict[str, list[float]]) -> None:
    """Return the drawn values for latencies of -4,000, 3, 0 and 2,000,000 µs, in ms."""
    assert sorted(set(found["Latency over time"])) == [-4.0, 0.0, 0.003, 2000.0]
    assert min(found["How long it took"]) < -4
    assert any(0 < each <= 0.003 for each in found["How long it took"])
