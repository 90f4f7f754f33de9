"""Topics to Parquet: only what is new, all of it or nothing, read back before the broker may trim.

    lock → finish an earlier run → hold the subscription → plan → write → read back → commit → move → advance

Positions are planned once; everything behind that is the same however often it is done. A run that is killed
anywhere is as if it had not been, or is finished by the next one (`archived.py` has the table).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast.client import Progress
from holdfast.columns.files import topic_and_partition
from holdfast.columns.schema import COLUMNS, EXTRA
from holdfast.errors import Corrupt, CursorModifying, Misuse, NoSpace, NotFound
from holdfast.pipeline.jobs.archive_completeness import Span, Spans, require_all, require_in_range
from holdfast.pipeline.jobs.archive_digest import Digest, aggregates
from holdfast.pipeline.jobs.archive_directory import (
    VERSION,
    ArchiveDirectory,
    Kind,
    Part,
    Range,
    Recovered,
    Run,
)
from holdfast.pipeline.jobs.inputs import Extent, Origin, Told, Topics, full_names, settings, silent
from holdfast.pipeline.jobs.subscriptions import Subscriptions, subscriptions
from holdfast.pipeline.jobs.summary import plural, size_words, text_table

ROWS_PER_FILE = 2_000_000
WRITERS = 64
"""Days and topics that a task may have open: up to so many it writes as it reads, without sorting first."""
KEPT = {**COLUMNS, **{name: EXTRA[name] for name in ("keyEncoding", "orderingKey", "encryption")}}
"""What is kept of a message: all that a replay needs to write it as it was (I184)."""
ARCHIVED = {**KEPT, "date": "DATE"}
ARCHIVED_SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in ARCHIVED.items())
DAY_US = 86_400_000_000
HALF = 20
LITERALLY = {"__globPaths__": "false"}
"""For Spark's readers of files: a path is what it is, whatever brackets, stars and braces it has in it."""
FOLDER_BYTES_MAX = 255
_ESCAPED = set("\"#%'*/:=?\\{[]^")
"""What Spark writes as %3A in the name of a folder, beside characters that no topic has."""


@dataclass(frozen=True)
class ArchivedTopic:
    """What a run did with a topic."""

    topic: str
    start: int
    stop: int
    """Positions from `start` up to, without, `stop`."""
    rows: int
    lost: int
    """Positions that were trimmed before they could be archived, as the caller accepted."""
    acked_to: int | None = None
    """Where the subscription stands now; None: none was named."""
    note: str = ""


@dataclass(frozen=True)
class ArchiveReport:
    """What a run of `archive` did."""

    directory: str
    run: int | None
    """None: nothing was new."""
    rows: int
    size_bytes: int
    files: int
    partitions: int
    seconds: float
    recovered: Recovered
    topics: list[ArchivedTopic] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)

    def table(self) -> str:
        """For people."""
        rows = [
            (
                each.topic,
                each.start,
                each.stop,
                each.rows,
                "" if each.acked_to is None else each.acked_to,
                each.note
                if not each.lost
                else f"{plural(each.lost, 'position')} lost, {each.note}".rstrip(", "),
            )
            for each in self.topics
        ]
        lines = text_table(("TOPIC", "FROM", "TO", "ROWS", "ACKED TO", "NOTE"), rows)
        if self.recovered.moved or self.recovered.removed:
            lines.append(
                f"finished what was left: {plural(self.recovered.moved, 'file')} moved, "
                f"{plural(self.recovered.removed, 'unfinished run')} removed"
            )
        done = (
            "nothing is new"
            if self.run is None
            else f"run {self.run}: {plural(self.rows, 'row')} in {plural(self.files, 'file')} of "
            f"{plural(self.partitions, 'partition')}, {size_words(self.size_bytes)}, read back and right"
        )
        return "\n".join([*lines, f"{self.directory}: {done}; {self.seconds:.1f} s"])


def archive(
    spark: SparkSession,
    *,
    topics: Sequence[str],
    to: str | Path,
    path: str | None = None,
    url: str | None = None,
    token: str | None = None,
    options: Mapping[str, str] | None = None,
    source: Topics | None = None,
    subscription: str | None = None,
    broker: str | None = None,
    holder: Subscriptions | None = None,
    accept_loss: bool = False,
    told: Told = silent,
) -> ArchiveReport:
    """Add to an archive what is new in topics, and then let the broker have the room.

    Args:
        spark: a session that knows `format("holdfast")`.
        topics: which.
        to: the archive's directory; made if it is not there.
        path, url: a data directory, or a server's HTTP address; or `source`, who knows topics.
        token: who this is, for the server and for the broker.
        options: others of the source, such as tlsTrustCertsFilePath, or partitions.
        subscription: made on every topic if it is not there, so that nothing is trimmed before it is
            archived; advanced behind what was archived and read back.
        broker: the address of the server that holds it; None: the one at `url`, or nobody has the directory
            `path` open.
        holder: instead of `broker`, somebody who knows subscriptions.
        accept_loss: go on when positions were trimmed before they were archived.
        told: hears of every step.

    Raises:
        Corrupt: what was read back is not what was written, or positions are missing; nothing was added.
        Locked: another process is at this archive.
    """
    began = time.monotonic()
    require_folders(topics)
    known = source or Origin(path, url, token, options or {})
    if subscription is not None and holder is None:
        holder = subscriptions(path, broker or url, {"token": token, **(options or {})})
    directory = ArchiveDirectory(to)
    told("recover", str(directory.path))
    with directory.changing() as recovered:
        names, holds = list(known.extents(topics)), dict[str, Progress]()
        if subscription is not None and holder is not None:
            told("hold", subscription)
            for name in names:  # before the plan: from now on nothing behind it is trimmed
                holds[name] = holder.progress(name, subscription, create=True, start="earliest")
        told("plan")
        there = known.extents(names)  # without a partition that has come since, which nobody holds
        ranges = plan(directory.positions(), {name: there[name] for name in names}, accept_loss)
        fresh = {name: reach for name, reach in ranges.items() if reach.stop > reach.start}
        run, spans = None, dict[str, Span]()
        if fresh:
            wanted = {name: (reach.start, reach.stop) for name, reach in fresh.items()}
            rows = known.messages(
                spark, list(fresh), columns=list(KEPT), ranges=wanted, accept_loss=accept_loss
            )
            run, spans = add_run(
                spark, directory, "archive", rows, fresh, told, lambda: require_same(known, fresh), known
            )
        # What is let go of is there, also of a run that was killed before it came to this.
        held = {name: (each.incarnation.hex(), each.acked_to) for name, each in holds.items()}
        directory.require_files(directory.reaching(held))
        done = []
        for name, reach in ranges.items():
            span = spans.get(name, Span())
            row = ArchivedTopic(name, reach.start, reach.stop, span.rows, reach.lost)
            if subscription is not None and holder is not None:
                told("advance", name)
                row = _advanced(row, holder, subscription, holds[name], reach, known, span)
            done.append(row)
        told("done")
    return ArchiveReport(
        directory=str(directory.path),
        run=None if run is None else run.number,
        rows=0 if run is None else run.rows,
        size_bytes=sum((directory.path / file).stat().st_size for file in (run.files if run else ())),
        files=0 if run is None else len(run.files),
        partitions=0 if run is None else len(run.parts),
        seconds=time.monotonic() - began,
        recovered=recovered,
        topics=done,
    )


def plan(archived: dict[str, Range], there: dict[str, Extent], accept_loss: bool) -> dict[str, Range]:
    """Which positions are new. A pure function.

    | archived up to | the topic has | so                                                |
    |----------------|---------------|---------------------------------------------------|
    | nothing        | first …       | all of it; what was trimmed before is not missed  |
    | a, another incarnation | first … | all of it: this is another topic                |
    | a              | first ≤ a ≤ visible | from a on                                   |
    | a              | first > a     | refused, or from first on with `accept_loss`      |
    | a              | visible < a   | refused: it was restored, or has lost its end     |
    """
    ranges: dict[str, Range] = {}
    owners = {topic_and_partition(name): name for name in archived}
    for name, extent in there.items():
        before, owner = archived.get(name), owners.get(topic_and_partition(name), name)
        if owner != name and before is None:
            raise Misuse(
                f"{owner} is archived there, and {name} would be the same partition of the same topic; use "
                "another directory"
            )
        if before is None or before.incarnation != extent.incarnation:
            ranges[name] = Range(extent.incarnation, extent.first, extent.visible)
            continue
        if extent.visible < before.stop:
            raise Corrupt(
                f"{name} ends at position {extent.visible}, and {before.stop} are archived: it was restored "
                "from a backup, or lost its end; archive it to another directory"
            )
        lost = max(0, extent.first - before.stop)
        if lost and not accept_loss:
            raise Corrupt(
                f"{name} begins at position {extent.first}, and only {before.stop} are archived: {lost} were "
                "trimmed in between; name a subscription, which holds them next time, and go on with "
                "accept_loss (--accept-loss)"
            )
        ranges[name] = Range(extent.incarnation, before.stop + lost, extent.visible, lost)
    return ranges


def require_folders(topics: Sequence[str]) -> None:
    """Each topic can be a folder.

    Raises:
        Misuse: its name is too long for that.
    """
    for name in full_names(topics):
        if (size := len(folder_of(topic_and_partition(name)[0]).encode())) > FOLDER_BYTES_MAX:
            raise Misuse(
                f"{name} cannot be archived: its folder would have a name of {size} bytes, and a file system "
                f"takes {FOLDER_BYTES_MAX}; copy it to a topic with a shorter name"
            )


def require_same(known: Topics, ranges: Mapping[str, Range]) -> None:
    """These topics are still what they were when they were planned, so what was read since is theirs, all of
    it.

    Raises:
        Corrupt: one was deleted meanwhile, and perhaps made anew, or trimmed, or has lost its end.
    """
    for name, reach in ranges.items():
        try:
            now = known.extents([name])[name]
        except (NotFound, KeyError):
            now = Extent("", 0, 0)
        same = now.incarnation == reach.incarnation
        if same and now.first <= reach.start and now.visible >= reach.stop:
            continue
        what = "deleted and made anew" if now.incarnation else "deleted"
        if same:
            cut = f"cut at position {now.visible}"
            what = f"trimmed up to position {now.first}" if now.first > reach.start else cut
        raise Corrupt(
            f"{name} was {what} while it was read; nothing was added: do it again for what is there now"
        )


def add_run(
    spark: SparkSession,
    directory: ArchiveDirectory,
    kind: Kind,
    rows: DataFrame,
    ranges: dict[str, Range],
    told: Told,
    require: Callable[[], None],
    known: Topics | None = None,
) -> tuple[Run, dict[str, Span]]:
    """Write rows as a new run of a directory that is being changed: all of it, or nothing.

    `require` is asked when everything was read, and raises what speaks against it. `known`: the rows are to
    be all that these topics have in the ranges.

    Raises:
        Corrupt: what was read back is not what was written, or not what the topics have; nothing was added.
        NoSpace: the disk is full.
    """
    runs = directory.runs()
    number, ident = (runs[-1].number if runs else 0) + 1, uuid.uuid4().hex
    told("write", f"{sum(reach.stop - reach.start for reach in ranges.values()):,} entries")
    try:
        sent = write(spark, with_date(rows), directory.staging(ident))
        require()
        told("verify", f"{sent.rows:,} rows")
        parts, spans = read_back(spark, directory, ident)
        require_right(sent, parts)
        if known is not None:
            require_in_range(spans, ranges)
            files = [str(directory.staging(ident) / file) for part in parts for file in part.files]
            back = parquet(spark, files, directory.staging(ident)) if files else None
            require_all(known, back, spans, ranges)
            require()  # the topic that was asked is still the one that was read
    except BaseException as error:
        directory.discard(ident)  # the disk may be full of it
        if "No space left on device" in str(error):
            raise NoSpace(f"{directory.path} has no room for these rows; nothing was added") from error
        raise
    made = datetime.now(UTC).isoformat(timespec="seconds")
    run = Run(VERSION, kind, number, ident, made, ranges, parts)
    told("commit", f"run {number}")
    directory.commit(run)
    told("move", f"{len(run.files)} files")
    directory.place(run)
    directory.require_files([run])
    return run, {name: spans[place] for name in ranges if (place := topic_and_partition(name)) in spans}


def with_date(rows: DataFrame) -> DataFrame:
    """The day in UTC on which a message was published, whatever zone the session is in."""
    days = F.floor(F.unix_micros(F.coalesce("publishTime", F.timestamp_micros(F.lit(0)))) / F.lit(DAY_US))
    return rows.select(*KEPT).withColumn("date", F.date_from_unix_date(days.cast("int")))


def write(spark: SparkSession, rows: DataFrame, place: Path) -> Digest:
    """Write by topic and day. The digest of what went in, taken on the way in the same pass."""
    seen = Observation()
    # With few days in a task, rows are written as they come; else Spark would sort all of them first.
    with settings(
        spark,
        {
            "spark.sql.maxConcurrentOutputFileWriters": str(WRITERS),
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        },
    ):
        (
            rows.observe(seen, *aggregates(list(ARCHIVED)))
            .write.partitionBy("topic", "date")
            .option("maxRecordsPerFile", ROWS_PER_FILE)
            .option("compression", "zstd")
            .mode("error")
            .parquet(str(place))
        )
    return Digest.of(seen.get)


def read_back(spark: SparkSession, directory: ArchiveDirectory, run: str) -> tuple[list[Part], Spans]:
    """What a run's staged files hold, by folder and by topic, as another reader finds it."""
    files, staging = directory.written(run), directory.staging(run)
    if not files:
        return [], {}
    inside: dict[tuple[str, str], list[str]] = {}
    for file in files:
        inside.setdefault(partition_of(file), []).append(str(file))
    leads, place = F.col("messageId.batchIndex") <= 0, F.col("position")
    # The sum of positions, in two halves: as one number it could be too large.
    halves = {"high": F.shiftright(place, HALF), "low": place.bitwiseAND((1 << HALF) - 1)}
    found = (
        parquet(spark, [str(staging / file) for file in files], staging)
        .groupBy("topic", "date", "partition")
        .agg(
            F.min("position").alias("first"),
            F.max("position").alias("last"),
            F.count_if(leads).alias("entries"),
            *(F.coalesce(F.sum(F.when(leads, half)), F.lit(0)).alias(name) for name, half in halves.items()),
            *aggregates(list(ARCHIVED)),
        )
        .orderBy("topic", "date", "partition")
    )
    folders: dict[tuple[str, str], tuple[Digest, Span]] = {}
    spans: Spans = {}
    for row in found.collect():
        folder, where = (row["topic"], row["date"].isoformat()), (row["topic"], row["partition"])
        total = (row["high"] << HALF) + row["low"]
        digest, span = Digest.of(row), Span(row["rows"], row["entries"], row["first"], row["last"], total)
        spans[where] = spans[where] | span if where in spans else span
        if folder in folders:
            digest, span = folders[folder][0] + digest, folders[folder][1] | span
        folders[folder] = digest, span
    parts = [
        Part(
            *(*folder, span.rows, span.first, span.last, str(digest), inside[folder]),
            [(staging / file).stat().st_size for file in inside[folder]],
        )
        for folder, (digest, span) in folders.items()
    ]
    return parts, spans


def folder_of(topic: str) -> str:
    """As Spark names it."""
    return "topic=" + "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in topic)


def partition_of(file: Path) -> tuple[str, str]:
    """Topic and day of topic=persistent%3A%2F%2Fpublic%2Fdefault%2Forders/date=2026-11-15/part-0.parquet."""
    topic, date, _ = file.parts
    return unquote(topic.removeprefix("topic=")), date.removeprefix("date=")


def require_right(sent: Digest, parts: list[Part]) -> None:
    """The rows of all folders together are those that were sent.

    Topic and day are in each row's hash: a row in the wrong folder is another row.
    """
    found = Digest.total(Digest.parse(part.digest) for part in parts)
    if found != sent:
        raise Corrupt(
            f"{sent.rows} rows were sent to Parquet (digest {sent}) and {found.rows} were read back "
            f"(digest {found}); nothing was added: look at the disk, and archive again"
        )


def parquet(spark: SparkSession, files: Sequence[str], base: Path, named: bool = False) -> DataFrame:
    """Archived rows of these files; `named`: with a column `file`, the name without its folders."""
    rows = spark.read.schema(ARCHIVED_SCHEMA).options(**LITERALLY, basePath=str(base)).parquet(*files)
    also = [F.col("_metadata.file_name").alias("file")] if named else []
    return rows.select(*ARCHIVED, *also)  # Spark puts the folders' columns last


def read_files(
    spark: SparkSession, there: ArchiveDirectory, files: Iterable[tuple[Run, str]], named: bool = False
) -> DataFrame:
    """The rows of these files of these runs, wherever they are now. Raises Corrupt: one is missing."""
    places: dict[Path, list[str]] = {}
    for run, file in files:
        found, staged = there.find(run, file), there.staging(run.id)
        places.setdefault(staged if found.is_relative_to(staged) else there.path, []).append(str(found))
    frames = [parquet(spark, names, base, named) for base, names in places.items()]
    if not frames:
        return spark.createDataFrame([], ARCHIVED_SCHEMA + (", `file` STRING" if named else ""))
    return reduce(lambda left, right: left.unionByName(right), frames)


def read_archive(
    spark: SparkSession, directory: str | Path, *, runs: Sequence[Run] | None = None
) -> DataFrame:
    """The rows of an archive, or of a compacted directory: the source's columns, and `date`.

    Only what runs have committed. `topic` and `date` are folders: a filter on them skips files.

    Raises:
        NotFound: there is no archive.
        Corrupt: a file of it is missing.
    """
    there = ArchiveDirectory.there(directory)
    chosen = there.current() if runs is None else runs
    return read_files(spark, there, [(run, file) for run in chosen for file in run.files])


def verify_archive(spark: SparkSession, directory: str | Path) -> int:
    """Read all of an archive again and compare with what its runs say. How many rows it has.

    Raises:
        Corrupt: a partition is not what it was; the text names it.
    """
    there, rows = ArchiveDirectory.there(directory), 0
    for run in there.current():
        _require_whole(spark, there, run)
        rows += run.rows
    return rows


def digested(run: Run) -> list[str]:
    """The columns that the digests of a run are made of."""
    return [name for name in ARCHIVED if run.version > 1 or name != "storedTime"]


def _require_whole(spark: SparkSession, there: ArchiveDirectory, run: Run) -> None:
    """Raises Corrupt: a partition of this run is not what it was."""
    try:
        found = read_archive(spark, there.path, runs=[run]).groupBy("topic", "date")
        rows = found.agg(*aggregates(digested(run))).collect()
    except (PySparkException, Py4JJavaError) as error:  # a file that is no Parquet: whose?
        if len(run.parts) > 1:
            for part in run.parts:
                _require_whole(spark, there, msgspec.structs.replace(run, parts=[part]))
        where = ", ".join(run.files)
        raise Corrupt(
            f"{there.path}: run {run.number} cannot be read; restore {where} from a copy"
        ) from error
    got = {(row["topic"], row["date"].isoformat()): str(Digest.of(row)) for row in rows}
    for part in run.parts:
        digest = got.get((part.topic, part.date), "none")
        if digest != part.digest:
            raise Corrupt(
                f"{there.path}: run {run.number}, {part.topic} on {part.date} has digest {digest}, not "
                f"{part.digest}; restore {', '.join(part.files)} from a copy"
            )


def _advanced(
    row: ArchivedTopic,
    holder: Subscriptions,
    subscription: str,
    held: Progress,
    reach: Range,
    known: Topics,
    span: Span,
) -> ArchivedTopic:
    """Let go of what is archived; a subscription that was reset meanwhile stays where somebody wants it."""
    if held.incarnation.hex() != reach.incarnation:  # positions of one are none of the other
        return replace(row, note="was made anew meanwhile, and not let go of")
    to = reach.stop
    # Where each position has its row, nothing is in parts: no need to look at all of it once more.
    try:
        if held.acked_to < reach.start or span.entries < reach.stop - reach.start:
            to = known.free_below(row.topic, held.acked_to, reach.stop, held.log_time)
        if to < reach.stop:
            row = replace(row, note=f"a message in parts is open from {to} on: its beginning is kept")
        at = holder.advance(row.topic, subscription, to, held.reset_number, held.incarnation)
    except NotFound:
        return replace(row, note="was deleted meanwhile, or its subscription")
    except CursorModifying:
        at = holder.progress(row.topic, subscription)
        return replace(row, acked_to=at.acked_to, note="was reset meanwhile, and not moved")
    return replace(row, acked_to=at.acked_to)
