"""Aggregate measurements per window of time and key, as a batch or a stream.

A measurement is a message whose value is JSON. `Fields` names its fields for value, key, time and identity;
the defaults fit `numbered.encode_json` with a field `value`. Late measurements count, and repeated ones count
once.
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
from holdfast.formatting import plural, text_table
from holdfast.pipeline.archive import LITERALLY, read_archive
from holdfast.pipeline.jobs.inputs import COUNTED, Origin, Told, settings, silent
from holdfast.pipeline.jobs.summary import Report

SHOWN = 20
FIGURES = ("least", "mean", "p95", "most")
OBSERVED = "measured"
"""Name of the metrics that a stream observes, in its progress."""
ASKED = "holdfast.json"
"""File in a checkpoint with the windows and fields of its stream."""
_SPAN = re.compile(r"(\d+) (second|minute|hour|day|week)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


FIGURES_SCHEMA = (
    "start TIMESTAMP, end TIMESTAMP, key STRING, count BIGINT, least DOUBLE, mean DOUBLE, deviation DOUBLE, "
    "p95 DOUBLE, most DOUBLE"
)


def require_span(span: str) -> int:
    """Return the seconds of a span of time.

    Raises:
        Misuse: it is not a span of time.

    Example:
        >>> require_span("2 minutes")
        120
    """
    found = _SPAN.fullmatch(span)
    if found is None:
        raise Misuse(f"{span!r} is not a span of time such as 10 seconds, 5 minutes or 1 hour")
    return int(found[1]) * _SECONDS[found[2]]


@dataclass(frozen=True)
class Fields:
    """Names of the JSON fields."""

    value: str = "value"
    key: str = "key"
    time_ns: str = "sent_ns"
    """Nanoseconds since 1970. If missing: the message's event time, or else its publish time."""
    identity: tuple[str, ...] = ("producer", "number")
    """Measurements with the same values in these fields are the same measurement."""

    def ddl(self) -> str:
        """Return the fields as a schema for `from_json`."""
        kinds = {**dict.fromkeys(self.identity, "STRING"), self.key: "STRING"}
        kinds |= {self.time_ns: "BIGINT", self.value: "DOUBLE"}
        return ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())


@dataclass(frozen=True)
class Windows:
    """Length and slide of windows, and the wait for late measurements."""

    length: str = "10 seconds"
    slide: str | None = None
    late: str = "1 minute"
    """How long after the newest measurement a stream keeps a window open; later ones are dropped."""

    def __post_init__(self) -> None:
        for span in (self.length, self.slide, self.late):
            if span is not None:
                require_span(span)


@dataclass(frozen=True)
class MeasureReport(Report):
    """The result of a run of `measure`."""

    to: str
    windows: int
    """Rows of the result now."""
    measurements: int
    """Measurements in these windows."""
    late: int
    """Measurements that a stream dropped because they came too late: see `stream_report`."""
    not_finite: int
    """Messages whose value is NaN or infinite; a stream counts them in recent batches, like `late`."""
    seconds: float
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The newest windows."""
    note: str = ""

    def table(self) -> str:
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
        return "\n".join(
            [*(text_table(head, rows, grouped=True) if rows else ()), *note, f"{total}; {self.seconds:.1f} s"]
        )


COLUMNS = ("value", "topic", "messageId", "eventTime", "publishTime")
"""Columns of the source that are needed."""


def measurements(
    messages: DataFrame,
    fields: Fields = Fields(),  # noqa: B008  # immutable
    seen: Observation | str | None = None,
) -> DataFrame:
    """Select the measurements of messages: key, value, at, identity.

    Other messages are left out. `seen` counts values that are not finite, which would make all figures of
    their window NaN.
    """
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
        # Identities are per topic; without one, each message counts as a measurement of its own.
        F.when(reduce(and_, (each.isNotNull() for each in identity)), F.to_json(F.struct("topic", *identity)))
        .otherwise(F.to_json(F.struct("topic", "messageId")))
        .alias("identity"),
    )
    finite = F.abs("value") < F.lit(math.inf)  # to Spark, NaN is greater than any number
    if seen is not None:
        typed = typed.observe(seen, F.count_if(~finite).alias("not_finite"))
    return typed.where(finite & F.col("at").isNotNull())


def aggregates(found: DataFrame, windows: Windows = Windows()) -> DataFrame:  # noqa: B008  # immutable
    """Aggregate `measurements`, a batch or a stream, to one row per window and key."""
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
    """Write the figures of all present messages as Parquet; they replace `to` as a whole."""
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
        # The name of the field may be wrong.
        note = f"not one of {plural(count, 'message')} is JSON with a number in {fields.value!r}"
        return replace(found, note=note)
    return found


@contextlib.contextmanager
def replaced(to: str | Path) -> Iterator[str]:
    """Yield a directory beside `to` that replaces `to` on success; otherwise `to` stays unchanged.

    A run that is killed leaves its directory beside `to`. If it was killed between the two renames, it also
    leaves the former content of `to`. The next run deletes the former and restores the latter. A directory is
    locked while its run lives.
    """
    if "://" in str(to):
        yield str(to)  # a remote file system: Spark replaces it, not atomically
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
    """Delete or restore the directories that dead runs left beside `there`."""
    for old in there.parent.glob(f".{glob.escape(there.name)}.old-*"):
        if there.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(there)
    for new in there.parent.glob(f".{glob.escape(there.name)}.new-*"):
        with contextlib.suppress(OSError):  # locked, or just deleted by its run
            lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(new, ignore_errors=True)
            finally:
                os.close(lock)


def _directory(to: str | Path) -> Path | None:
    """Return a directory of this machine that exists. Raises Misuse: it is a file."""
    there = Path(to)
    if "://" in str(to) or not there.exists():
        return None
    if not there.is_dir():
        raise Misuse(f"{there} is a file; name a directory for the figures")
    return there


def require_figures(to: str | Path) -> None:
    """Check that `to` has only files of an earlier run, because it will be replaced.

    Raises:
        Misuse: it has other files, such as those of an archive or a broker.
    """
    there = _directory(to)
    if there is None:
        return
    if there.is_mount():
        raise Misuse(f"{there} is a mount point and cannot be replaced; name a directory in it")
    for each in there.iterdir():
        if each.name == "_temporary":
            continue  # left by a Spark that was killed while it wrote
        if each.is_dir() or not each.name.lstrip("._").startswith(("part-", "SUCCESS")):
            raise Misuse(f"{there} holds {each.name}, which is not a file of figures; name a new directory")


def require_stream(to: str | Path) -> None:
    """Check that `to` is new, or was written by a stream.

    Raises:
        Misuse: it has other files.
    """
    there = _directory(to)
    if there is not None and any(there.iterdir()) and not (there / "_spark_metadata").is_dir():
        raise Misuse(f"{there} was not written by a stream of measure; name a new directory")


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
    """Run `measure` as a stream, which adds each window once, when it is closed.

    Without `every`, the stream reads the present messages and ends. The next run adds the windows that were
    still open.

    Raises:
        Misuse: the checkpoint has other windows or fields, or `to` was not written by a stream.
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
    """Check that a checkpoint continues with its windows and fields.

    Others would mix with its open windows. They are stored in a checkpoint on this machine.

    Raises:
        Misuse: the checkpoint was begun with others.
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
                f"the checkpoint {checkpoint} has other windows or fields (spans in seconds): {told}. Use "
                "those of the checkpoint, or name another --checkpoint and --to"
            )
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = kept.with_name(f".{ASKED}.new")
    new.write_text(json.dumps(now))
    new.replace(kept)


def dropped(query: StreamingQuery) -> int:
    """Count the measurements that came too late, in the batches that Spark remembers."""
    operators = (each for progress in query.recentProgress for each in progress.stateOperators)
    return sum(each.numRowsDroppedByWatermark for each in operators)


def stream_report(spark: SparkSession, to: str | Path, query: StreamingQuery, began: float) -> MeasureReport:
    """Report the content of `to`, and the messages that a stream left out.

    Those are counted in the last `spark.sql.streaming.numRecentProgressUpdates` batches. If there were more
    batches, a note says so.
    """
    found = query.recentProgress
    rows = (progress.observedMetrics.get(OBSERVED) for progress in found)
    not_finite = sum(row["not_finite"] for row in rows if row is not None)
    note = ""
    if len(found) >= int(str(spark.conf.get("spark.sql.streaming.numRecentProgressUpdates"))):
        first = min(progress.batchId for progress in found)
        note = f"late measurements, and those that are not finite, are counted from batch {first} on"
    return replace(report(spark, to, dropped(query), began, not_finite), note=note)


def in_utc(micros: int) -> str:
    """Format microseconds since 1970.

    Example:
        >>> in_utc(1_794_744_000_000_000)
        '2026-11-15T12:00:00+00:00'
    """
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()


def _short(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.4g}"


def _finite(value: Any) -> Any:
    """Replace an infinite mean by None, because JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def report(
    spark: SparkSession, to: str | Path, late: int, began: float, not_finite: int = 0
) -> MeasureReport:
    """Report the content of `to`."""
    reader = spark.read.schema(FIGURES_SCHEMA)  # given: there may be no window yet
    rows = reader.options(**LITERALLY).parquet(str(to))
    measured = F.coalesce(F.sum("count"), F.lit(0)).alias("measured")
    total = rows.agg(F.count("*").alias("windows"), measured).first()
    assert total is not None
    newest = rows.orderBy(F.desc("start"), F.desc("key")).limit(SHOWN)
    # As numbers: Spark would return times in the zone of this machine, without a zone.
    newest = newest.withColumns({name: F.unix_micros(name) for name in ("start", "end")})
    shown = [
        {name: _finite(value) for name, value in row.asDict().items()}
        | {"start": in_utc(row["start"]), "end": in_utc(row["end"])}
        for row in reversed(newest.collect())
    ]
    took = time.monotonic() - began
    return MeasureReport(str(to), total["windows"], total["measured"], late, not_finite, took, shown)
