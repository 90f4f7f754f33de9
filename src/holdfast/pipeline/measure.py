"""Measurements to figures per window of time: late ones count, repeated ones count once. Batch and stream.

A measurement is a message whose value is JSON; which of its fields is the value, the key, the time and the
identity is said by `Fields`. The default is what `numbered.encode_json` makes with a field `value`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import Misuse
from holdfast.pipeline.archive import read_archive
from holdfast.pipeline.inputs import Origin, Told, silent
from holdfast.pipeline.words import plural, text_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SHOWN = 20
FIGURES = ("least", "mean", "p95", "most")
_SPAN = re.compile(r"\d+ (second|minute|hour|day|week)s?")


FIGURES_SCHEMA = (
    "start TIMESTAMP, end TIMESTAMP, key STRING, count BIGINT, least DOUBLE, mean DOUBLE, deviation DOUBLE, "
    "p95 DOUBLE, most DOUBLE"
)


def require_span(span: str) -> None:
    """
    Raises:
        Misuse: it is no span of time.
    """
    if _SPAN.fullmatch(span) is None:
        raise Misuse(f"{span!r} is no span of time; say it as 10 seconds, 5 minutes or 1 hour")


@dataclass(frozen=True)
class Fields:
    """Where in the JSON what stands."""

    value: str = "value"
    key: str = "key"
    time_ns: str = "sent_ns"
    """Nanoseconds since 1970; where it is missing, the message's event time, or else its publish time."""
    identity: tuple[str, ...] = ("producer", "number")
    """A measurement with the same one is the same measurement."""

    def ddl(self) -> str:
        """The fields as `from_json` wants them."""
        kinds = {**dict.fromkeys(self.identity, "STRING"), self.key: "STRING"}
        kinds |= {self.time_ns: "BIGINT", self.value: "DOUBLE"}
        return ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())


@dataclass(frozen=True)
class Windows:
    """How time is cut, and how long late measurements are waited for."""

    length: str = "10 seconds"
    slide: str | None = None
    late: str = "1 minute"
    """A stream holds a window open so long behind the newest measurement; what comes later is dropped."""

    def __post_init__(self) -> None:
        for span in (self.length, self.slide, self.late):
            if span is not None:
                require_span(span)


@dataclass(frozen=True)
class MeasureReport:
    """What a run of `measure` did."""

    to: str
    windows: int
    """Rows that are there now."""
    measurements: int
    """In them."""
    late: int
    """That came too late for their window, as a stream counts them."""
    seconds: float
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The newest windows."""
    note: str = ""

    def record(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)

    def table(self) -> str:
        """For people."""
        head = ("WINDOW", "KEY", "COUNT", "LEAST", "MEAN", "P95", "MOST")
        rows = [
            (each["start"], each["key"], each["count"], *(f"{each[name]:.4g}" for name in FIGURES))
            for each in self.rows
        ]
        late = f", {self.late:,} were too late" if self.late else ""
        measured = plural(self.measurements, "measurement")
        total = f"{self.to}: {plural(self.windows, 'window')} of {measured}{late}"
        note = [f"note: {self.note}"] if self.note else []
        return "\n".join([*(text_table(head, rows) if rows else ()), *note, f"{total}; {self.seconds:.1f} s"])


COLUMNS = ("value", "topic", "messageId", "eventTime", "publishTime")
"""Of the source, that are needed here."""


def measurements(messages: DataFrame, fields: Fields = Fields()) -> DataFrame:  # noqa: B008  # immutable
    """The typed measurements of messages: key, value, at, identity. What is none is left out."""
    from pyspark.sql import functions as F  # noqa: N812

    parsed = messages.select(
        F.from_json(F.col("value").cast("string"), fields.ddl()).alias("m"),
        "topic",
        "messageId",
        "eventTime",
        "publishTime",
    )
    at = F.coalesce(F.timestamp_micros(F.expr(f"m.`{fields.time_ns}` DIV 1000")), "eventTime", "publishTime")
    identity: list[Column] = [F.col(f"m.`{name}`") for name in fields.identity]
    typed = parsed.select(
        F.col(f"m.`{fields.key}`").alias("key"),
        F.col(f"m.`{fields.value}`").alias("value"),
        at.alias("at"),
        # Numbers count within a topic; what has none is itself.
        F.when(reduce(and_, (each.isNotNull() for each in identity)), F.to_json(F.struct("topic", *identity)))
        .otherwise(F.to_json(F.struct("topic", "messageId")))
        .alias("identity"),
    )
    return typed.where("value IS NOT NULL AND at IS NOT NULL")


def aggregates(found: DataFrame, windows: Windows = Windows()) -> DataFrame:  # noqa: B008  # immutable
    """One row for each window and key, of a batch or a stream of `measurements`."""
    from pyspark.sql import functions as F  # noqa: N812

    unique = (
        found.withWatermark("at", windows.late).dropDuplicatesWithinWatermark(["identity"])
        if found.isStreaming
        else found.dropDuplicates(["identity"])
    )
    grouped = unique.groupBy(F.window("at", windows.length, windows.slide), "key").agg(
        F.count("*").alias("count"),
        F.min("value").alias("least"),
        F.avg("value").alias("mean"),
        F.stddev_samp("value").alias("deviation"),
        F.percentile_approx("value", 0.95).alias("p95"),
        F.max("value").alias("most"),
    )
    return grouped.select("window.start", "window.end", "*").drop("window")


def measure(
    spark: SparkSession,
    *,
    to: str | Path,
    topics: Sequence[str] = (),
    path: str | None = None,
    url: str | None = None,
    token: str | None = None,
    options: Mapping[str, str] | None = None,
    archive: str | Path | None = None,
    fields: Fields = Fields(),  # noqa: B008
    windows: Windows = Windows(),  # noqa: B008
    told: Told = silent,
) -> MeasureReport:
    """Figures of everything that is there now, as Parquet; what was in `to` before is replaced."""
    began = time.monotonic()
    require_figures(to)
    if archive is not None and not topics:
        messages = read_archive(spark, archive)
    elif archive is not None:
        raise Misuse("measure reads either an archive or topics")
    else:
        messages = Origin(path, url, token, options or {}).messages(spark, topics, columns=COLUMNS)
    told("measure", str(to))
    aggregates(measurements(messages, fields), windows).write.mode("overwrite").parquet(str(to))
    found = report(spark, to, 0, began)
    if found.measurements == 0 and (count := messages.count()):
        # A wrong name of a field would else look like a topic without measurements.
        note = f"of {plural(count, 'message')} none is JSON with a number in {fields.value!r}"
        return replace(found, note=note)
    return found


def require_figures(to: str | Path) -> None:
    """What is replaced is what an earlier run has written, and nothing else.

    Raises:
        Misuse: there is something that Spark did not write as a table: an archive, a broker's directory.
    """
    there = Path(to)
    if "://" in str(to) or not there.exists():
        return
    if not there.is_dir():
        raise Misuse(f"{there} is a file; name a directory for the figures")
    for each in there.iterdir():
        if each.is_dir() or not each.name.lstrip("._").startswith(("part-", "SUCCESS")):
            raise Misuse(
                f"{there} holds {each.name}, which is none of the figures that are replaced here; "
                "name a new directory"
            )


def require_stream(to: str | Path) -> None:
    """A stream adds to what a stream has written, or begins anew.

    Raises:
        Misuse: there is something else.
    """
    there = Path(to)
    if "://" in str(to) or not there.exists():
        return
    if not there.is_dir():
        raise Misuse(f"{there} is a file; name a directory for the figures")
    if any(there.iterdir()) and not (there / "_spark_metadata").is_dir():
        raise Misuse(f"{there} was written by no stream of this kind; name a new directory")


def measure_stream(
    spark: SparkSession,
    *,
    to: str | Path,
    checkpoint: str | Path,
    topics: Sequence[str] = (),
    path: str | None = None,
    url: str | None = None,
    token: str | None = None,
    options: Mapping[str, str] | None = None,
    messages: DataFrame | None = None,
    fields: Fields = Fields(),  # noqa: B008
    windows: Windows = Windows(),  # noqa: B008
    every: str | None = None,
) -> StreamingQuery:
    """The same as a stream that adds each window once, when nothing of it is waited for any more.

    Without `every`, it takes what is there and ends; windows that are still open are added by the next run.
    """
    require_stream(to)
    if messages is None:
        messages = Origin(path, url, token, options or {}).stream(spark, topics).load()
    writer = (
        aggregates(measurements(messages, fields), windows)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(to))
        .option("checkpointLocation", str(checkpoint))
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=every).start()


def dropped(query: StreamingQuery) -> int:
    """How many measurements came too late, in the progress that Spark still remembers."""
    operators = (each for progress in query.recentProgress for each in progress.stateOperators)
    return sum(each.numRowsDroppedByWatermark for each in operators)


def in_utc(micros: int) -> str:
    """
    Example:
        >>> in_utc(1_794_744_000_000_000)
        '2026-11-15T12:00:00+00:00'
    """
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()


def report(spark: SparkSession, to: str | Path, late: int, began: float) -> MeasureReport:
    """What is in `to` now."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = spark.read.schema(FIGURES_SCHEMA).parquet(str(to))  # said: there may be no window yet
    measured = F.coalesce(F.sum("count"), F.lit(0)).alias("measured")
    total = rows.agg(F.count("*").alias("windows"), measured).first()
    assert total is not None
    newest = rows.orderBy(F.desc("start"), F.desc("key")).limit(SHOWN)
    # As numbers: Spark would hand them over in the zone of this machine, and not say so.
    newest = newest.withColumns({name: F.unix_micros(name) for name in ("start", "end")})
    shown = [
        {**row.asDict(), "start": in_utc(row["start"]), "end": in_utc(row["end"])}
        for row in reversed(newest.collect())
    ]
    return MeasureReport(str(to), total["windows"], total["measured"], late, time.monotonic() - began, shown)
