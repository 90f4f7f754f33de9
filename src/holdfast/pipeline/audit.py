"""The delivery audit: of numbered messages, which are lost, which are there twice, which overtook another.

A message is (topic, producer, number). Archive and live topic are looked at together, each position once.
Everything is counted by Spark: groups of numbers first, single numbers only where a group has a hole or too
many. So memory does not grow with the messages.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import Misuse
from holdfast.pipeline.archive import read_archive
from holdfast.pipeline.archived import ArchiveDirectory
from holdfast.pipeline.inputs import Origin, Told, Topics, full_names, silent
from holdfast.pipeline.numbered import decoded
from holdfast.pipeline.reading import topic_and_partition
from holdfast.pipeline.words import text_table, time_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP_BITS = 15
"""So many numbers, as a power of two, are counted together first."""
SHOWN = 1_000
"""Gaps, repetitions and overtakings that are told one by one; all are counted."""
POINTS = 300
"""Of a curve over time."""
NEEDED = ("value", "topic", "partition", "messageId", "publishTime", "position")
SHARES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class Gap:
    """Numbers that are missing, both ends included."""

    topic: str
    producer: str
    first: int
    last: int


@dataclass(frozen=True)
class Found:
    """A message that is there again, or behind a later one of its key."""

    topic: str
    producer: str
    number: int
    position: int


@dataclass(frozen=True)
class ProducerAudit:
    """What one producer has in one topic."""

    topic: str
    producer: str
    messages: int
    distinct: int
    last: int
    """The highest number; -1: none is there."""
    confirmed: int | None
    """How many it knows to be confirmed; None: it was not said, so all up to `last` count."""
    lost: int
    duplicated: int
    out_of_order: int
    unconfirmed: int
    """There, though nobody told its producer."""


@dataclass(frozen=True)
class Latency:
    """From `sent_ns` to `publishTime`, in µs. The latter has milliseconds only."""

    topic: str
    count: int
    min: int
    p50: int
    p90: int
    p99: int
    p999: int
    max: int

    @property
    def shares(self) -> tuple[int, int, int, int]:
        return self.p50, self.p90, self.p99, self.p999


@dataclass(frozen=True)
class Moment:
    """A stretch of time in a topic."""

    topic: str
    at_s: int
    count: int
    p50: int
    p99: int


@dataclass(frozen=True)
class AuditReport:
    """The account."""

    archived: int
    live: int
    messages: int
    """All that were looked at: archived and live."""
    foreign: int
    """Not numbered, or damaged."""
    producers: list[ProducerAudit]
    latency: list[Latency]
    step_s: int
    series: list[Moment]
    """The messages by publish time, in steps of `step_s`."""
    histogram: list[tuple[str, float, int]]
    """Topic, latency in µs from which on, how many."""
    gaps: list[Gap] = field(default_factory=list)
    repeated: list[Found] = field(default_factory=list)
    overtaken: list[Found] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def lost(self) -> int:
        return sum(each.lost for each in self.producers)

    @property
    def duplicated(self) -> int:
        return sum(each.duplicated for each in self.producers)

    @property
    def out_of_order(self) -> int:
        return sum(each.out_of_order for each in self.producers)

    @property
    def sound(self) -> bool:
        return self.lost == self.duplicated == self.out_of_order == 0

    def record(self) -> dict[str, Any]:
        """For machines."""
        found = asdict(self)
        for name in ("lost", "duplicated", "out_of_order", "sound"):
            found[name] = getattr(self, name)
        return found

    def table(self) -> str:
        """For people."""
        rows = [
            (each.topic, each.producer, each.messages, each.lost, each.duplicated, each.out_of_order)
            for each in self.producers
        ]
        head = ("TOPIC", "PRODUCER", "MESSAGES", "LOST", "DUPLICATED", "OUT OF ORDER")
        lines = text_table(head, rows)
        if self.latency:
            columns = ("LATENCY", "MESSAGES", "50 %", "90 %", "99 %", "99.9 %", "MOST")
            times = [
                (each.topic, each.count, *map(time_words, each.shares), time_words(each.max))
                for each in self.latency
            ]
            lines += ["", *text_table(columns, times)]
        verdict = "sound" if self.sound else "NOT SOUND"
        total = (
            f"{verdict}: {self.messages:,} messages ({self.archived:,} archived, {self.live:,} live), lost "
            f"{self.lost:,}, duplicated {self.duplicated:,}, out of order {self.out_of_order:,}"
        )
        other = f", {self.foreign:,} not numbered" if self.foreign else ""
        return "\n".join([*lines, "", f"{total}{other}; {self.seconds:.1f} s"])


def audit(
    spark: SparkSession,
    *,
    topics: Sequence[str] = (),
    path: str | None = None,
    url: str | None = None,
    token: str | None = None,
    source: Topics | None = None,
    archive: str | Path | None = None,
    expected: Mapping[str, int] | None = None,
    told: Told = silent,
) -> AuditReport:
    """Account for every numbered message.

    Args:
        spark: a session that knows `format("holdfast")`.
        topics: which; none: all of the archive.
        path, url, token: where they are live: a data directory, or a server's HTTP address; or `source`.
        archive: an archive's directory, to be looked at together with the live topics, or alone.
        expected: how many messages were confirmed to each producer. Without it, all numbers up to the highest
            are expected, and what is missing at the end is not noticed.
        told: hears of every step.
    """
    from pyspark.sql import functions as F  # noqa: N812

    began = time.monotonic()
    told("read")
    kept, live = both(spark, topics, source or _origin(path, url, token), archive)
    frames = [
        frame.withColumn("live", F.lit(is_live))
        for frame, is_live in ((kept, 0), (live, 1))
        if frame is not None
    ]
    if not frames:
        raise Misuse("an audit looks at an archive, at topics, or at both; say which")
    rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    named = {topic_and_partition(name)[0] for name in full_names(topics)} if topics else set()
    return audit_rows(spark, rows, topics=named, expected=expected, told=told, began=began)


def _origin(path: str | None, url: str | None, token: str | None) -> Topics | None:
    return None if path is None and url is None else Origin(path, url, token)


def both(
    spark: SparkSession,
    topics: Sequence[str],
    origin: Topics | None,
    archive: str | Path | None,
) -> tuple[DataFrame | None, DataFrame | None]:
    """Archived rows, and those of the live topics that are not archived."""
    from pyspark.sql import functions as F  # noqa: N812

    kept = live = None
    names = full_names(topics) if topics else []
    stops = {}
    if archive is not None:
        stops = ArchiveDirectory.there(archive).positions()
        kept = read_archive(spark, archive).select(*NEEDED)
        if names:
            bases = {topic_and_partition(name)[0] for name in names}
            kept = kept.where(F.col("topic").isin(*bases))
    if origin is not None:
        ranges = {}
        for name, extent in origin.extents(names or list(stops)).items():
            reach = stops.get(name)
            same = reach is not None and reach.incarnation == extent.incarnation
            start = max(extent.first, reach.stop) if reach is not None and same else extent.first
            if start < extent.visible:
                ranges[name] = (start, extent.visible)
        if ranges:
            live = origin.messages(spark, list(ranges), columns=NEEDED, ranges=ranges)
        elif kept is None:
            live = spark.createDataFrame([], read_schema())
    return kept, live


def read_schema() -> str:
    from holdfast.pipeline.columns import COLUMNS

    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in NEEDED)


def audit_rows(
    spark: SparkSession,
    rows: DataFrame,
    *,
    topics: Collection[str] = (),
    expected: Mapping[str, int] | None = None,
    told: Told = silent,
    began: float | None = None,
) -> AuditReport:
    """The same over rows that somebody else has read, with a column `live` of 0 and 1.

    `topics` are accounted for even if there is nothing of them.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F  # noqa: N812

    began = time.monotonic() if began is None else began
    found = rows.select(
        "topic",
        "partition",
        "position",
        F.col("messageId.batchIndex").alias("batchIndex"),
        F.unix_micros("publishTime").alias("at"),
        "live",
        decoded("value").alias("numbered"),
    )
    narrow = found.select("*", "numbered.*").drop("numbered")
    narrow = narrow.withColumn("number", F.when(F.col("number") >= 0, F.col("number")))
    narrow = narrow.persist(StorageLevel.DISK_ONLY)  # each topic is read and decoded once
    good = narrow.where("number IS NOT NULL AND producer IS NOT NULL")
    groups = _groups(spark, good, expected)
    try:
        told("count")
        totals = narrow.groupBy("topic", "live").count().collect()
        producers = _producers(groups, expected, {row["topic"] for row in totals} | set(topics))
        told("order")
        overtaken, late = _order(good, any(each.duplicated for each in producers))
        told("latency")
        latency, step_s, series, histogram = _latency(good)
        told("details")
        gaps = _gaps(groups, good, expected, producers) if any(each.lost for each in producers) else []
        repeated = _repeated(groups, good) if any(each.duplicated for each in producers) else []
    finally:
        groups.unpersist()
        narrow.unpersist()
    counted = [
        ProducerAudit(**{**asdict(each), "out_of_order": late.get((each.topic, each.producer), 0)})
        for each in producers
    ]
    archived, live = (sum(row["count"] for row in totals if row["live"] == is_live) for is_live in (0, 1))
    return AuditReport(
        archived=archived,
        live=live,
        messages=archived + live,
        foreign=archived + live - sum(each.messages for each in counted),
        producers=counted,
        latency=latency,
        step_s=step_s,
        series=series,
        histogram=histogram,
        gaps=gaps,
        repeated=repeated,
        overtaken=overtaken,
        seconds=time.monotonic() - began,
    )


def _groups(spark: SparkSession, good: DataFrame, expected: Mapping[str, int] | None) -> DataFrame:
    """By topic, producer and group of numbers: how many, how many different ones, from where to where.

    What was confirmed and what was not are groups of their own.
    """
    from pyspark.sql import functions as F  # noqa: N812

    rows = good.select("topic", "producer", "number")
    if expected is None:
        rows = rows.withColumn("confirmed", F.lit(True))
    else:
        counts = spark.createDataFrame(list(expected.items()), "producer STRING, n BIGINT")
        rows = rows.join(F.broadcast(counts), "producer", "left")
        rows = rows.withColumn("confirmed", F.coalesce(F.col("number") < F.col("n"), F.lit(False))).drop("n")
    times = rows.groupBy("topic", "producer", "confirmed", "number").agg(F.count("*").alias("times"))
    grouped = times.groupBy(
        "topic", "producer", "confirmed", F.shiftright("number", GROUP_BITS).alias("group")
    )
    return grouped.agg(
        F.sum("times").alias("rows"),
        F.count("*").alias("numbers"),
        F.min("number").alias("first"),
        F.max("number").alias("last"),
    ).cache()


def _producers(
    groups: DataFrame, expected: Mapping[str, int] | None, topics: set[str]
) -> list[ProducerAudit]:
    from pyspark.sql import functions as F  # noqa: N812

    by_producer = groups.groupBy("topic", "producer").agg(
        F.sum("rows").alias("rows"),
        F.sum("numbers").alias("numbers"),
        F.coalesce(F.sum(F.when(F.col("confirmed"), F.col("numbers"))), F.lit(0)).alias("there"),
        F.max("last").alias("last"),
    )
    found = {(row["topic"], row["producer"]): row for row in by_producer.collect()}
    names = set(found) | {(topic, producer) for topic in topics for producer in expected or ()}
    audits = []
    for topic, producer in sorted(names):
        row = found.get((topic, producer))
        rows, numbers, there, last = row[2:] if row else (0, 0, 0, -1)
        confirmed = None if expected is None else expected.get(producer, 0)
        wanted = last + 1 if confirmed is None else confirmed
        audits.append(
            ProducerAudit(
                topic=topic,
                producer=producer,
                messages=rows,
                distinct=numbers,
                last=last,
                confirmed=confirmed,
                lost=wanted - there,
                duplicated=rows - numbers,
                out_of_order=0,
                unconfirmed=0 if confirmed is None else numbers - there,
            )
        )
    return audits


def _order(good: DataFrame, repeated: bool) -> tuple[list[Found], dict[tuple[str, str], int]]:
    """Messages behind a later one of the same producer and key. One that is there again is none of them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    place = F.struct("position", "batchIndex")
    rows = good.select("topic", "partition", "producer", "key", "number", place.alias("place"))
    if repeated:
        first = F.min_by(F.struct("partition", "key", "place"), "place")
        rows = rows.groupBy("topic", "producer", "number").agg(first.alias("first"))
        rows = rows.select("topic", "producer", "number", "first.*")
    before = Window.partitionBy("topic", "partition", "producer", "key").orderBy("place")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    late = rows.withColumn("highest", F.max("number").over(before)).where("number < highest").cache()
    try:
        counts = late.groupBy("topic", "producer").count().collect()
        shown = late.orderBy("topic", "place").limit(SHOWN).collect() if counts else []
    finally:
        late.unpersist()
    return (
        [Found(row["topic"], row["producer"], row["number"], row["place"]["position"]) for row in shown],
        {(row["topic"], row["producer"]): row["count"] for row in counts},
    )


def _latency(good: DataFrame) -> tuple[list[Latency], int, list[Moment], list[tuple[str, float, int]]]:
    from pyspark.sql import functions as F  # noqa: N812

    timed = good.where("sent_ns IS NOT NULL AND at IS NOT NULL").select(
        "topic", "at", F.expr("at - sent_ns DIV 1000").alias("took")
    )
    shares = F.percentile_approx("took", list(SHARES), 10_000)
    ends = [F.array(end("took")) for end in (F.min, F.max)]
    overall = timed.groupBy("topic").agg(
        F.count("*").alias("n"),
        F.concat(ends[0], shares, ends[1]).alias("took"),
        F.min("at").alias("begin"),
        F.max("at").alias("end"),
    )
    rows = overall.orderBy("topic").collect()
    latency = [Latency(row["topic"], row["n"], *row["took"]) for row in rows]
    if not rows:
        return [], 1, [], []
    span_s = (max(row["end"] for row in rows) - min(row["begin"] for row in rows)) / 1e6
    step_s = max(1, int(-(-span_s // POINTS)))
    at = (F.floor(F.col("at") / (step_s * 1_000_000)) * step_s).alias("at_s")
    curve = timed.groupBy("topic", at).agg(
        F.count("*").alias("n"), F.percentile_approx("took", [0.5, 0.99], 1_000).alias("shares")
    )
    series = [
        Moment(row["topic"], row["at_s"], row["n"], *row["shares"])
        for row in curve.orderBy("topic", "at_s").collect()
    ]
    tenth = F.floor(F.log10(F.greatest(F.col("took"), F.lit(1))) * 10).alias("tenth")
    bars = timed.groupBy("topic", tenth).count().orderBy("topic", "tenth").collect()
    return latency, step_s, series, [(row["topic"], 10 ** (row["tenth"] / 10), row["count"]) for row in bars]


def _gaps(
    groups: DataFrame,
    good: DataFrame,
    expected: Mapping[str, int] | None,
    producers: list[ProducerAudit],
) -> list[Gap]:
    """Where numbers are missing, of what was confirmed: between groups, in them, and at the end."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    mine = groups.where("confirmed")
    row_by_row = Window.partitionBy("topic", "producer").orderBy("group")
    between = mine.select(
        "topic",
        "producer",
        (F.coalesce(F.lag("last").over(row_by_row), F.lit(-1)) + 1).alias("from"),
        (F.col("first") - 1).alias("to"),
    )
    holed = mine.where(F.col("numbers") < F.col("last") - F.col("first") + 1).limit(SHOWN)
    numbers = good.select("topic", "producer", "number", F.shiftright("number", GROUP_BITS).alias("group"))
    which = ["topic", "producer", "group"]
    inside = numbers.join(F.broadcast(holed.select(*which)), which)
    in_group = Window.partitionBy("topic", "producer", "group").orderBy("number")
    within = inside.select(
        "topic",
        "producer",
        (F.col("number") + 1).alias("from"),
        (F.lead("number").over(in_group) - 1).alias("to"),
    )
    rows = between.unionByName(within).where(F.col("from") <= F.col("to"))
    found = [Gap(*row) for row in rows.orderBy("topic", "producer", "from").limit(SHOWN).collect()]
    # Of what was confirmed nothing can lie between groups of it and its end but a gap.
    for each in producers:
        if expected is not None and each.lost:
            last = _last_confirmed(groups, each)
            if last + 1 < expected.get(each.producer, 0):
                found.append(Gap(each.topic, each.producer, last + 1, expected[each.producer] - 1))
    if expected is not None:
        found = [
            Gap(each.topic, each.producer, each.first, min(each.last, expected.get(each.producer, 0) - 1))
            for each in found
            if each.first < expected.get(each.producer, 0)
        ]
    return found[:SHOWN]


def _last_confirmed(groups: DataFrame, each: ProducerAudit) -> int:
    from pyspark.sql import functions as F  # noqa: N812

    mine = groups.where(
        F.col("confirmed") & (F.col("topic") == each.topic) & (F.col("producer") == each.producer)
    )
    row = mine.agg(F.max("last").alias("last")).first()
    return -1 if row is None or row["last"] is None else int(row["last"])


def _repeated(groups: DataFrame, good: DataFrame) -> list[Found]:
    """Some of those that are there again, and where they come for the last time."""
    from pyspark.sql import functions as F  # noqa: N812

    full = groups.where("rows > numbers").limit(SHOWN).select("topic", "producer", "group").distinct()
    rows = good.withColumn("group", F.shiftright("number", GROUP_BITS))
    rows = rows.join(F.broadcast(full), ["topic", "producer", "group"])
    times = [F.count("*").alias("times"), F.max("position").alias("position")]
    again = rows.groupBy("topic", "producer", "number").agg(*times).where("times > 1")
    shown = again.drop("times").orderBy("topic", "producer", "number").limit(SHOWN).collect()
    return [Found(*row) for row in shown]
