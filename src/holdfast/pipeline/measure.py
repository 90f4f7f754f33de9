"""Measurements to figures per window of time: late ones count, repeated ones count once. Batch and stream.

A measurement is a message whose value is JSON; which of its fields is the value, the key, the time and the
identity is said by `Fields`. The default is what `numbered.encode_json` makes with a field `value`.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import math
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import Misuse
from holdfast.pipeline.archive import LITERALLY, read_archive
from holdfast.pipeline.jobs.inputs import COUNTED, Origin, Told, settings, silent
from holdfast.pipeline.jobs.summary import plural, text_table

SHOWN = 20
FIGURES = ("least", "mean", "p95", "most")
OBSERVED = "measured"
"""What a stream counts on its way, as its progress has it."""
ASKED = "holdfast.json"
"""In a checkpoint: what the figures of its stream are."""
_SPAN = re.compile(r"(\d+) (second|minute|hour|day|week)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


FIGURES_SCHEMA = (
    "start TIMESTAMP, end TIMESTAMP, key STRING, count BIGINT, least DOUBLE, mean DOUBLE, deviation DOUBLE, "
    "p95 DOUBLE, most DOUBLE"
)


def require_span(span: str) -> int:
    """Its seconds.

    Raises:
        Misuse: it is no span of time.

    Example:
        >>> require_span("2 minutes")
        120
    """
    found = _SPAN.fullmatch(span)
    if found is None:
        raise Misuse(f"{span!r} is no span of time; say it as 10 seconds, 5 minutes or 1 hour")
    return int(found[1]) * _SECONDS[found[2]]


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
    """That came too late for their window, as a stream counts them: see `stream_report`."""
    not_finite: int
    """Messages whose value is NaN or infinite, which is no measurement; a stream counts them as `late`."""
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
            (each["start"], each["key"], each["count"], *(_short(each[name]) for name in FIGURES))
            for each in self.rows
        ]
        late = f", {self.late:,} were too late" if self.late else ""
        late += f", {self.not_finite:,} were not finite" if self.not_finite else ""
        measured = plural(self.measurements, "measurement")
        total = f"{self.to}: {plural(self.windows, 'window')} of {measured}{late}"
        note = [f"note: {self.note}"] if self.note else []
        return "\n".join([*(text_table(head, rows) if rows else ()), *note, f"{total}; {self.seconds:.1f} s"])


COLUMNS = ("value", "topic", "messageId", "eventTime", "publishTime")
"""Of the source, that are needed here."""


def measurements(
    messages: DataFrame,
    fields: Fields = Fields(),  # noqa: B008  # immutable
    seen: Observation | str | None = None,
) -> DataFrame:
    """The typed measurements of messages: key, value, at, identity. What is none is left out; `seen` has the
    number of those that are not finite, which would make NaN of all figures of their window."""
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
    finite = F.abs("value") < F.lit(math.inf)  # to Spark, NaN is more than everything
    if seen is not None:
        typed = typed.observe(seen, F.count_if(~finite).alias("not_finite"))
    return typed.where(finite & F.col("at").isNotNull())


def aggregates(found: DataFrame, windows: Windows = Windows()) -> DataFrame:  # noqa: B008  # immutable
    """One row for each window and key, of a batch or a stream of `measurements`."""
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
    """Figures of everything that is there now, as Parquet; what was in `to` before is replaced as a whole."""
    began, seen = time.monotonic(), Observation()
    require_figures(to)
    if archive is not None and not topics:
        messages = read_archive(spark, archive)
    elif archive is not None:
        raise Misuse("measure reads either an archive or topics")
    else:
        messages = Origin(path, url, token, options or {}).messages(spark, topics, columns=COLUMNS)
    told("measure", str(to))
    with settings(spark, COUNTED), replaced(to) as place:
        aggregates(measurements(messages, fields, seen), windows).write.mode("overwrite").parquet(place)
    found = report(spark, to, 0, began, seen.get["not_finite"])
    if found.measurements == 0 and (count := messages.count()):
        # A wrong name of a field would else look like a topic without measurements.
        note = f"of {plural(count, 'message')} none is JSON with a number in {fields.value!r}"
        return replace(found, note=note)
    return found


@contextlib.contextmanager
def replaced(to: str | Path) -> Iterator[str]:
    """A place to write beside `to`, which becomes `to` when all went well; else `to` is what it was.

    A run that is killed leaves its place, or between two renames what was in `to` before, beside it: the next
    run removes the one, and brings the other back. A place is locked while its run lives.
    """
    if "://" in str(to):
        yield str(to)  # there Spark replaces as it can
        return
    there = Path(to).resolve()
    there.parent.mkdir(parents=True, exist_ok=True)
    recover(there)
    place = there.with_name(f".{there.name}.new-{uuid.uuid4().hex}")
    place.mkdir()
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield str(place / "figures")
        if there.exists():
            there.rename(place.with_name(f".{there.name}.old-{uuid.uuid4().hex}"))
        (place / "figures").rename(there)
    finally:
        os.close(lock)
        shutil.rmtree(place, ignore_errors=True)
    recover(there)


def recover(there: Path) -> None:
    """What runs that are dead have left beside `there`."""
    for old in there.parent.glob(f".{glob.escape(there.name)}.old-*"):
        if there.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(there)
    for new in there.parent.glob(f".{glob.escape(there.name)}.new-*"):
        with contextlib.suppress(OSError):  # locked, or just removed by whom it belongs to
            lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(new, ignore_errors=True)
            finally:
                os.close(lock)


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
    if there.is_mount():
        raise Misuse(f"{there} is where something is mounted, and cannot be replaced; name a directory in it")
    for each in there.iterdir():
        if each.name == "_temporary":
            continue  # of Spark's own, killed while it wrote here
        if each.is_dir() or not each.name.lstrip("._").startswith(("part-", "SUCCESS")):
            raise Misuse(f"{there} holds {each.name}, which is not a file of figures; name a new directory")


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

    Raises:
        Misuse: the checkpoint is of a stream with other windows or fields, or `to` is none of a stream's.
    """
    require_stream(to)
    require_same(checkpoint, windows, fields)
    if messages is None:
        messages = Origin(path, url, token, options or {}).stream(spark, topics).load()
    writer = (
        aggregates(measurements(messages, fields, OBSERVED), windows)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(to))
        .option("checkpointLocation", str(checkpoint))
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=every).start()


def require_same(checkpoint: str | Path, windows: Windows, fields: Fields) -> None:
    """A checkpoint goes on with the windows and fields that it was begun with: others would mix with what it
    has open. They are kept in it, if it is on this machine.

    Raises:
        Misuse: it was begun with others.
    """
    if "://" in str(checkpoint):
        return
    kept = Path(checkpoint) / ASKED
    now = {
        "window": require_span(windows.length),
        "slide": require_span(windows.slide or windows.length),
        "late": require_span(windows.late),
        **json.loads(json.dumps(asdict(fields))),
    }
    if kept.exists() and any(Path(checkpoint).glob("offsets/[0-9]*")):
        before = json.loads(kept.read_bytes())
        others = [name for name in now if before.get(name) != now[name]]
        if others:
            told = ", ".join(f"{name} was {before.get(name)} and is {now[name]}" for name in others)
            raise Misuse(
                f"the checkpoint {checkpoint} is of other figures (spans in seconds): {told}. Go on as it "
                "was begun, or name another --checkpoint and --to"
            )
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = kept.with_name(f".{ASKED}.new")
    new.write_text(json.dumps(now))
    new.replace(kept)


def dropped(query: StreamingQuery) -> int:
    """How many measurements came too late, in the progress that Spark still remembers."""
    operators = (each for progress in query.recentProgress for each in progress.stateOperators)
    return sum(each.numRowsDroppedByWatermark for each in operators)


def stream_report(spark: SparkSession, to: str | Path, query: StreamingQuery, began: float) -> MeasureReport:
    """What is in `to` now, and what a stream has left out: in the batches that Spark remembers
    (`spark.sql.streaming.numRecentProgressUpdates`). If it has forgotten some, a note says so."""
    found = query.recentProgress
    rows = (progress.observedMetrics.get(OBSERVED) for progress in found)
    not_finite = sum(row["not_finite"] for row in rows if row is not None)
    note = ""
    if len(found) >= int(str(spark.conf.get("spark.sql.streaming.numRecentProgressUpdates"))):
        first = min(progress.batchId for progress in found)
        note = f"late measurements, and those that are not finite, are counted from batch {first} on"
    return replace(report(spark, to, dropped(query), began, not_finite), note=note)


def in_utc(micros: int) -> str:
    """
    Example:
        >>> in_utc(1_794_744_000_000_000)
        '2026-11-15T12:00:00+00:00'
    """
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()


def _short(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.4g}"


def _finite(value: Any) -> Any:
    """The mean of large numbers may not be; and JSON cannot say so."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def report(
    spark: SparkSession, to: str | Path, late: int, began: float, not_finite: int = 0
) -> MeasureReport:
    """What is in `to` now."""
    reader = spark.read.schema(FIGURES_SCHEMA)  # said: there may be no window yet
    rows = reader.options(**LITERALLY).parquet(str(to))
    measured = F.coalesce(F.sum("count"), F.lit(0)).alias("measured")
    total = rows.agg(F.count("*").alias("windows"), measured).first()
    assert total is not None
    newest = rows.orderBy(F.desc("start"), F.desc("key")).limit(SHOWN)
    # As numbers: Spark would hand them over in the zone of this machine, and not say so.
    newest = newest.withColumns({name: F.unix_micros(name) for name in ("start", "end")})
    shown = [
        {name: _finite(value) for name, value in row.asDict().items()}
        | {"start": in_utc(row["start"]), "end": in_utc(row["end"])}
        for row in reversed(newest.collect())
    ]
    took = time.monotonic() - began
    return MeasureReport(str(to), total["windows"], total["measured"], late, not_finite, took, shown)
