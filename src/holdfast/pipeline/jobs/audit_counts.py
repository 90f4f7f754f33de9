"""Count the rows of an audit with Spark.

Numbers are counted in groups of 32,768, each a bitmap. So tasks exchange a few KiB per group. Single numbers
are read only where a group has a hole or duplicates. Memory does not grow with the number of messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from holdfast.errors import Corrupt
from holdfast.pipeline.jobs.inputs import Told, settings
from holdfast.pipeline.numbered import decoded, is_text, looks_numbered

GROUP_BITS = 15
"""log2 of the numbers in a group, which fit into one bitmap of Spark."""
SHOWN = 1_000
"""Gaps, duplicates and out-of-order messages that a report lists; all are counted."""
POINTS = 300
"""Most points of a curve over time."""
NUMBERED, DAMAGED, FOREIGN = "numbered", "damaged", "foreign"
WORDS = {DAMAGED: "damaged", FOREIGN: "not numbered"}
SHARES = (0.5, 0.9, 0.99, 0.999)
Wanted = Mapping[tuple[str, str], int | None]
"""(topic, producer) → number of confirmed messages; None: not known."""


@dataclass(frozen=True)
class Gap:
    """Missing numbers, both ends included."""

    topic: str
    producer: str
    first: int
    last: int


@dataclass(frozen=True)
class Found:
    """A duplicate, or a message after a later one of its key."""

    topic: str
    producer: str
    number: int
    position: int


@dataclass(frozen=True)
class Strange:
    """A message that is not numbered, or damaged."""

    topic: str
    position: int
    what: str


@dataclass(frozen=True)
class ProducerAudit:
    """The counts of one producer in one topic."""

    topic: str
    producer: str
    messages: int
    distinct: int
    last: int
    """The highest number; -1: there are no messages."""
    confirmed: int | None
    """Messages confirmed to the producer; None: not given, so all up to `last` are expected."""
    lost: int
    duplicated: int
    out_of_order: int
    unconfirmed: int
    """Stored messages that were not confirmed to the producer."""
    unexpected: bool = False
    """The expected counts do not name this producer."""

    @property
    def confirmed_words(self) -> str:
        if self.confirmed is not None:
            return f"{self.confirmed:,}"
        return "not expected" if self.unexpected else "–"


@dataclass(frozen=True)
class Latency:
    """From `sent_ns`, the producer's clock, to `storedTime`, the broker's, in µs. Below 0: clock skew."""

    topic: str
    count: int
    min: int
    p50: int
    p90: int
    p99: int
    p999: int
    max: int
    skewed: int = 0
    """Messages with a latency below 0: stored before they were sent, by these two clocks."""

    @property
    def shares(self) -> tuple[int, int, int, int]:
        return self.p50, self.p90, self.p99, self.p999


@dataclass(frozen=True)
class Bar:
    """Messages of a topic with a latency from `low` to `high` in µs.

    The end that is farther from 0 is excluded.
    """

    topic: str
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, topic: str, tenth: int, count: int) -> Bar:
        """Create the bar of a tenth of a power of ten.

        Bar 1 begins at 1 µs. Bar 0 is below 1 µs. Negative bars mirror the positive ones.

        Example:
            >>> Bar.of("t", 0, 5), Bar.of("t", 31, 2).low, Bar.of("t", -31, 2).high
            (Bar(topic='t', low=0.0, high=1.0, count=5), 1000.0, -1000.0)
        """
        size = abs(tenth)
        near, far = (10 ** ((size - 1) / 10) if size else 0.0), 10 ** (size / 10)
        return cls(topic, -far, -near, count) if tenth < 0 else cls(topic, near, far, count)


@dataclass(frozen=True)
class Moment:
    """The messages of a topic in one step of time."""

    topic: str
    at_s: int
    count: int
    p50: int
    p99: int


def counted(
    spark: SparkSession, rows: DataFrame, topics: Sequence[str], wanted: Wanted | None, told: Told
) -> dict[str, Any]:
    """Compute the fields of an `AuditReport`, by name."""
    found = rows.select(
        "topic",
        "partition",
        "position",
        F.col("messageId.batchIndex").alias("batchIndex"),
        F.unix_micros("storedTime").alias("at"),
        "live",
        looks_numbered("value").alias("looks"),
        is_text("value").alias("text"),
        decoded("value").alias("numbered"),
    )
    narrow = found.select("*", "numbered.*").drop("numbered")
    named = F.col("number").isNotNull() & F.col("producer").isNotNull()
    right = (F.col("number") >= 0) & (F.col("looks") | F.col("text"))  # JSON is all text
    kind = F.when(named & right, F.lit(NUMBERED))
    kind = kind.when(F.col("looks") | named, F.lit(DAMAGED)).otherwise(F.lit(FOREIGN))
    narrow = narrow.withColumn("kind", kind).drop("looks", "text")
    narrow = narrow.persist(StorageLevel.DISK_ONLY)  # each topic is read and decoded once
    good = narrow.where(F.col("kind") == NUMBERED)
    groups = _groups(spark, narrow, wanted)
    try:
        told("count")
        totals, producers = _producers(groups, topics, wanted)
        told("order")
        overtaken, late = _order(good, any(each.duplicated for each in producers))
        told("latency")
        times = _latency(spark, good)
        told("details")
        gaps = _gaps(groups, producers) if any(each.lost for each in producers) else []
        repeated = _repeated(groups, good) if any(each.duplicated for each in producers) else []
        strange = _strange(narrow) if totals["foreign"] or totals["damaged"] else []
    finally:
        groups.unpersist()
        narrow.unpersist()
    return {
        **totals,
        "producers": [
            replace(each, out_of_order=late.get((each.topic, each.producer), 0)) for each in producers
        ],
        **times,
        "gaps": gaps,
        "repeated": repeated,
        "overtaken": overtaken,
        "strange": strange,
    }


def _groups(spark: SparkSession, narrow: DataFrame, wanted: Wanted | None) -> DataFrame:
    """Count rows and distinct numbers by topic, producer and group of numbers.

    Confirmed, unconfirmed and not numbered messages are in separate groups.
    """
    numbered = F.col("kind") == NUMBERED
    rows = narrow.select(
        "topic",
        "kind",
        "live",
        F.when(numbered, F.col("producer")).alias("producer"),
        F.when(numbered, F.col("number")).alias("number"),
    )
    said = [(*who, count) for who, count in (wanted or {}).items() if count is not None]
    if said:
        counts = spark.createDataFrame(said, "topic STRING, producer STRING, n BIGINT")
        rows = rows.join(F.broadcast(counts), ["topic", "producer"], "left")
        rows = rows.withColumn("confirmed", F.coalesce(F.col("number") < F.col("n"), F.lit(True))).drop("n")
    else:
        rows = rows.withColumn("confirmed", F.lit(True))
    group = F.shiftright("number", GROUP_BITS).alias("group")
    there = F.bitmap_construct_agg(F.col("number").bitwiseAND((1 << GROUP_BITS) - 1))
    grouped = rows.groupBy("kind", "topic", "producer", "confirmed", group).agg(
        F.count("*").alias("rows"),
        F.sum("live").alias("live"),
        F.min("number").alias("first"),
        F.max("number").alias("last"),
        there.alias("there"),
    )
    return grouped.withColumn("numbers", F.bitmap_count("there")).cache()


def _producers(
    groups: DataFrame, topics: Sequence[str], wanted: Wanted | None
) -> tuple[dict[str, int], list[ProducerAudit]]:
    """Count the messages of each kind, and those of each producer."""
    by_producer = groups.groupBy("kind", "topic", "producer").agg(
        F.sum("rows").alias("rows"),
        F.sum("live").alias("live"),
        F.sum("numbers").alias("numbers"),
        F.coalesce(F.sum(F.when(F.col("confirmed"), F.col("numbers"))), F.lit(0)).alias("there"),
        F.max("last").alias("last"),
    )
    rows = by_producer.collect()
    found = by_name([row for row in rows if row["kind"] == NUMBERED])
    audits = []
    for topic, producer in sorted({*found, *(wanted or ())}):
        row = found.get((topic, producer))
        messages, _, distinct, there, last = row[3:] if row else (0, 0, 0, 0, -1)
        confirmed = (wanted or {}).get((topic, producer))
        audits.append(
            ProducerAudit(
                topic=topic,
                producer=producer,
                messages=messages,
                distinct=distinct,
                last=last,
                confirmed=confirmed,
                lost=(last + 1 if confirmed is None else confirmed) - there,
                duplicated=messages - distinct,
                out_of_order=0,
                unconfirmed=distinct - there,
                unexpected=wanted is not None and topic in topics and (topic, producer) not in wanted,
            )
        )
    messages, live = sum(row["rows"] for row in rows), sum(row["live"] for row in rows)
    totals = {"messages": messages, "live": live, "archived": messages - live}
    for kind in (FOREIGN, DAMAGED):
        totals[kind] = sum(row["rows"] for row in rows if row["kind"] == kind)
    return totals, audits


def by_name(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """Index rows by topic and producer.

    Raises:
        Corrupt: two rows have the same names in Python: one would replace the other.
    """
    found = {(row["topic"], row["producer"]): row for row in rows}
    if len(found) < len(rows):
        twice = [row for row in rows if found[row["topic"], row["producer"]] is not row]
        raise Corrupt(
            f"Spark returned two producers {twice[0]['producer']!r} of {twice[0]['topic']}, whose names are "
            "equal in Python; they cannot be audited: report this"
        )
    return found


def _order(good: DataFrame, repeated: bool) -> tuple[list[Found], dict[tuple[str, str], int]]:
    """Find messages after a later one of the same producer and key, without duplicates."""
    place = F.struct("position", "batchIndex", "partition")
    rows = good.select("topic", "partition", "producer", "key", "number", place.alias("place"))
    before = Window.partitionBy("topic", "partition", "producer", "key").orderBy("place")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    late = rows.withColumn("highest", F.max("number").over(before)).where("number < highest")
    if repeated:
        it = ["topic", "producer", "number"]
        again = rows.select(*it, "place").join(late.select(*it).distinct(), it)
        late = late.join(again.groupBy(*it).agg(F.min("place").alias("first")), it).where("place = first")
    late = late.cache()
    try:
        counts = late.groupBy("topic", "producer").count().collect()
        shown = late.orderBy("topic", "place").limit(SHOWN).collect() if counts else []
    finally:
        late.unpersist()
    return (
        [Found(row["topic"], row["producer"], row["number"], row["place"]["position"]) for row in shown],
        {who: row["count"] for who, row in by_name(counts).items()},
    )


def _latency(spark: SparkSession, good: DataFrame) -> dict[str, Any]:
    """Compute latencies by topic, over time, and as a histogram. Percentiles are exact to 1/10,000.

    No value is clamped: a message that was stored before it was sent has a latency below 0.
    """
    sent = good.where("sent_ns IS NOT NULL").select(
        "topic", "at", F.expr("at - sent_ns DIV 1000").alias("took")
    )
    timed = sent.where("at IS NOT NULL")
    shares = F.percentile_approx("took", list(SHARES), 10_000)
    ends = [F.array(end("took")) for end in (F.min, F.max)]
    overall = sent.groupBy("topic").agg(
        F.count("took").alias("n"),
        F.count_if(F.col("at").isNull()).alias("untimed"),
        F.concat(ends[0], shares, ends[1], F.array(F.count_if(F.col("took") < 0))).alias("took"),
        F.min("at").alias("begin"),
        F.max("at").alias("end"),
    )
    rows = sorted(overall.collect(), key=lambda row: str(row["topic"]))
    untimed = sum(row["untimed"] for row in rows)
    rows = [row for row in rows if row["n"]]
    latency = [Latency(row["topic"], row["n"], *row["took"]) for row in rows]
    if not rows:
        return {"latency": [], "step_s": 1, "series": [], "histogram": [], "untimed": untimed}
    span_s = (max(row["end"] for row in rows) - min(row["begin"] for row in rows)) / 1e6
    step_s = max(1, int(-(-span_s // POINTS)))
    at = F.floor(F.col("at") / (step_s * 1_000_000)) * step_s
    tenth = F.signum("took") * (F.floor(F.log10(F.greatest(F.abs("took"), F.lit(1))) * 10) + 1)
    placed = timed.select("topic", "took", at.alias("at_s"), tenth.cast("int").alias("tenth"))
    sets = [[F.col("topic"), F.col("at_s")], [F.col("topic"), F.col("tenth")]]
    with settings(spark, {"spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "2048"}):
        both = placed.groupingSets(sets, "topic", "at_s", "tenth").agg(
            F.count("*").alias("n"), F.percentile_approx("took", [0.5, 0.99], 1_000).alias("shares")
        )
        told = sorted(
            both.collect(), key=lambda row: (str(row["topic"]), row["at_s"] or 0, row["tenth"] or 0)
        )
    series = [
        Moment(row["topic"], row["at_s"], row["n"], *row["shares"]) for row in told if row["at_s"] is not None
    ]
    bars = [Bar.of(row["topic"], row["tenth"], row["n"]) for row in told if row["tenth"] is not None]
    return {
        "latency": latency, "step_s": step_s, "series": series, "histogram": bars, "untimed": untimed
    }  # fmt: skip


def _gaps(groups: DataFrame, producers: list[ProducerAudit]) -> list[Gap]:
    """Find the missing numbers of confirmed messages: between groups, in groups, at the end."""
    holed = F.col("numbers") < F.col("last") - F.col("first") + 1
    mine = groups.where("confirmed").where(F.col("kind") == NUMBERED)
    mine = mine.select(
        "topic", "producer", "group", "first", "last", F.when(holed, F.col("there")).alias("there")
    )
    losers = {(each.topic, each.producer): each.confirmed for each in producers if each.lost}
    ends = dict.fromkeys(losers, -1)
    found: list[Gap] = []
    for row in mine.orderBy("topic", "producer", "group").toLocalIterator():
        who = row["topic"], row["producer"]
        if who not in losers:
            continue
        if len(found) > SHOWN:
            break
        if row["first"] > ends[who] + 1:
            found.append(Gap(*who, ends[who] + 1, row["first"] - 1))
        if row["there"] is not None:
            base = row["group"] << GROUP_BITS
            inside = holes(bytes(row["there"]), row["first"] - base, row["last"] - base)
            found += [Gap(*who, base + first, base + last) for first, last in inside]
        ends[who] = row["last"]
    for who, confirmed in losers.items():
        if confirmed is not None and ends[who] + 1 < confirmed and len(found) <= SHOWN:
            found.append(Gap(*who, ends[who] + 1, confirmed - 1))
    return sorted(found, key=lambda gap: (gap.topic, gap.producer, gap.first))[:SHOWN]


def holes(bitmap: bytes, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Find the runs of zeros between two ones, from the lowest bit of each byte.

    Example:
        >>> list(holes(bytes([0b01001001]), 0, 6))
        [(1, 2), (4, 5)]
    """
    bits = int.from_bytes(bitmap, "little")
    missing = ~bits & ((1 << last) - 1) & ~((1 << first) - 1)
    while missing:
        begin = (missing & -missing).bit_length() - 1
        run = ~(missing >> begin)
        end = begin + (run & -run).bit_length() - 1
        yield begin, end - 1
        missing = missing >> end << end


def _repeated(groups: DataFrame, good: DataFrame) -> list[Found]:
    """List some of the duplicates, with their last position."""
    full = (
        groups.where((F.col("kind") == NUMBERED) & (F.col("rows") > F.col("numbers")))
        .limit(SHOWN)
        .select("topic", "producer", "group")
        .distinct()
    )
    rows = good.withColumn("group", F.shiftright("number", GROUP_BITS))
    rows = rows.join(F.broadcast(full), ["topic", "producer", "group"])
    times = [F.count("*").alias("times"), F.max("position").alias("position")]
    again = rows.groupBy("topic", "producer", "number").agg(*times).where("times > 1")
    shown = again.drop("times").orderBy("topic", "producer", "number").limit(SHOWN).collect()
    return [Found(*row) for row in shown]


def _strange(narrow: DataFrame) -> list[Strange]:
    """List some of the messages that are not numbered, or damaged."""
    rows = narrow.where(F.col("kind") != NUMBERED).select("topic", "position", "kind")
    shown = rows.orderBy("topic", "position").limit(SHOWN).collect()
    return [Strange(row["topic"], row["position"], WORDS[row["kind"]]) for row in shown]
