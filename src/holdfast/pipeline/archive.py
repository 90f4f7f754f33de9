"""Archive the new entries of topics as Parquet, and let the broker trim them.

    lock → recover earlier runs → hold the subscription → plan → write → read back → commit → move → advance

A run is added as a whole or not at all, and it is read back before the broker may trim. Its positions are
planned once; every later step can be repeated. The next run discards or finishes a run that was killed
(`jobs/archive_directory.py` has the table).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import msgspec
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast.client import Progress
from holdfast.columns import COLUMNS, topic_and_partition
from holdfast.errors import Corrupt, CursorModifying, Misuse, NoSpace, NotFound
from holdfast.formatting import plural, size_words, text_table
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
from holdfast.pipeline.jobs.archive_schemas import read_schema, stage_schemas
from holdfast.pipeline.jobs.inputs import (
    Extent,
    Origin,
    Told,
    Topics,
    ddl,
    full_names,
    settings,
    silent,
    union,
)
from holdfast.pipeline.jobs.subscriptions import Subscriptions, subscriptions
from holdfast.pipeline.jobs.summary import Report

ROWS_PER_FILE = 2_000_000
WRITERS = 64
"""Folders (topic and day) that a task has open at once; with more, Spark sorts the rows first."""
KEPT = (*COLUMNS, "keyEncoding", "orderingKey", "encryption", "schemaVersion")
"""Columns of an archive: all that a replay needs to publish the same message (I184)."""
ARCHIVED = (*KEPT, "date")
DAY_US = 86_400_000_000
HALF = 20
LITERALLY = {"__globPaths__": "false"}
"""Option for Spark's file readers: brackets, stars and braces in a path are not patterns."""
FOLDER_BYTES_MAX = 255
_ESCAPED = set("\"#%'*/:=?\\{[]^")
"""Characters of topic names that Spark escapes in a folder's name, a colon as %3A."""


@dataclass(frozen=True)
class ArchivedTopic:
    """The result of a run for one topic."""

    topic: str
    start: int
    stop: int
    """The run covers the positions from `start` up to `stop`, which is excluded."""
    rows: int
    lost: int
    """Positions that were trimmed before they were archived; the caller accepted that."""
    acked_to: int | None = None
    """The subscription's cursor now; None: no subscription was named."""
    note: str = ""


@dataclass(frozen=True)
class ArchiveReport(Report):
    """The result of a run of `archive`."""

    directory: str
    run: int | None
    """None: the topics had no new entries."""
    rows: int
    size_bytes: int
    files: int
    partitions: int
    seconds: float
    recovered: Recovered
    topics: list[ArchivedTopic] = field(default_factory=list)

    def table(self) -> str:
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
        lines = text_table(("TOPIC", "FROM", "TO", "ROWS", "ACKED TO", "NOTE"), rows, grouped=True)
        if self.recovered.moved or self.recovered.removed:
            lines.append(
                f"recovered: {plural(self.recovered.moved, 'file')} moved, "
                f"{plural(self.recovered.removed, 'unfinished run')} deleted"
            )
        done = (
            "no new entries"
            if self.run is None
            else f"run {self.run}: {plural(self.rows, 'row')} in {plural(self.files, 'file')} of "
            f"{plural(self.partitions, 'partition')}, {size_words(self.size_bytes)}, read back and equal"
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
    """Add the new entries of topics to an archive, then let the broker trim them.

    Args:
        spark: a session that knows `format("holdfast")`.
        topics: names of topics.
        to: the archive's directory; created if it does not exist.
        path, url: a data directory, or a server's HTTP address.
        token: authentication token.
        options: other options of the source, such as tlsTrustCertsFilePath or partitions.
        source: the topics, instead of `path` and `url`.
        subscription: created on every topic if it does not exist, so that the broker trims only archived
            entries. It advances after they were archived and read back.
        broker: address of the server that has the subscription. Default: `url`; without `url` no server may
            have the directory `path` open.
        holder: the subscriptions, instead of `broker`.
        accept_loss: continue if positions were trimmed before they were archived.
        told: called at every step.

    Raises:
        Corrupt: the rows read back differ from those written, or positions are missing; nothing was added.
        Locked: another process is changing this archive.
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
            for name in names:  # before the plan: from now on the broker trims no unarchived entry
                holds[name] = holder.progress(name, subscription, create=True, start="earliest")
        told("plan")
        there = known.extents(
            names
        )  # without partitions created since, on which the subscription is not held
        ranges = plan(directory.positions(), {name: there[name] for name in names}, accept_loss)
        fresh = {name: reach for name, reach in ranges.items() if reach.stop > reach.start}
        run, spans = None, dict[str, Span]()
        if fresh:
            wanted = {name: (reach.start, reach.stop) for name, reach in fresh.items()}
            rows = known.messages(spark, list(fresh), columns=KEPT, ranges=wanted, accept_loss=accept_loss)
            schemas = known.schemas(fresh)
            run, spans = add_run(
                spark,
                directory,
                "archive",
                rows,
                fresh,
                told,
                require=lambda: require_same(known, fresh),
                schemas=lambda ident: stage_schemas(directory, ident, folders_of(schemas), schemas),
                known=known,
            )
        # Also files of earlier runs that were killed before they advanced the subscription.
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
    """Choose the positions to archive. A pure function.

    | archived up to | the topic has | the run covers                                    |
    |----------------|---------------|---------------------------------------------------|
    | nothing        | first …       | all of it; positions trimmed before do not count  |
    | a, another incarnation | first … | all of it: this is another topic                |
    | a              | first ≤ a ≤ visible | from a on                                   |
    | a              | first > a     | refused; with `accept_loss`, from first on        |
    | a              | visible < a   | refused: restored from a backup, or lost its end  |
    """
    ranges: dict[str, Range] = {}
    owners = {topic_and_partition(name): name for name in archived}
    for name, extent in there.items():
        before, owner = archived.get(name), owners.get(topic_and_partition(name), name)
        if owner != name and before is None:
            raise Misuse(
                f"the archive has {owner}; {name} would be the same partition of the same topic; use another "
                "directory"
            )
        if before is None or before.incarnation != extent.incarnation:
            ranges[name] = Range(extent.incarnation, extent.first, extent.visible)
            continue
        if extent.visible < before.stop:
            raise Corrupt(
                f"{name} ends at position {extent.visible}, and {before.stop} are archived: the topic was "
                "restored from a backup, or lost its end; archive it to another directory"
            )
        lost = max(0, extent.first - before.stop)
        if lost and not accept_loss:
            raise Corrupt(
                f"{name} begins at position {extent.first}, and only {before.stop} are archived: {lost} were "
                "trimmed in between. Continue with accept_loss (--accept-loss), and name a subscription: "
                "it keeps entries until they are archived"
            )
        ranges[name] = Range(extent.incarnation, before.stop + lost, extent.visible, lost)
    return ranges


def require_folders(topics: Sequence[str]) -> None:
    """Check that each topic's name fits into the name of a folder.

    Raises:
        Misuse: a name is too long.
    """
    for name in full_names(topics):
        if (size := len(folder_of(topic_and_partition(name)[0]).encode())) > FOLDER_BYTES_MAX:
            raise Misuse(
                f"{name} cannot be archived: its folder would have a name of {size} bytes, over "
                f"{FOLDER_BYTES_MAX}; copy it to a topic with a shorter name"
            )


def require_same(known: Topics, ranges: Mapping[str, Range]) -> None:
    """Check that the topics still have the planned positions.

    Then the rows that were read since are complete.

    Raises:
        Corrupt: a topic was deleted, deleted and created again, trimmed, or has lost its end.
    """
    for name, reach in ranges.items():
        try:
            now = known.extents([name])[name]
        except (NotFound, KeyError):
            now = Extent("", 0, 0)
        same = now.incarnation == reach.incarnation
        if same and now.first <= reach.start and now.visible >= reach.stop:
            continue
        what = "deleted and created again" if now.incarnation else "deleted"
        if same:
            cut = f"cut at position {now.visible}"
            what = f"trimmed up to position {now.first}" if now.first > reach.start else cut
        raise Corrupt(f"{name} was {what} while it was read; nothing was added: run it again")


def add_run(
    spark: SparkSession,
    directory: ArchiveDirectory,
    kind: Kind,
    rows: DataFrame,
    ranges: dict[str, Range],
    told: Told,
    require: Callable[[], None],
    schemas: Callable[[str], dict[str, dict[int, str]]],
    known: Topics | None = None,
) -> tuple[Run, dict[str, Span]]:
    """Write rows as a new run of a locked directory: all or nothing.

    `require` is called after all rows were read, and raises if the run must not be added. `schemas` writes
    schemas into the staging of a run's id, and returns their files. With `known`, the rows must be all rows
    that these topics have in the ranges.

    Raises:
        Corrupt: the rows read back differ from those written, or from the topics; nothing was added.
        NoSpace: the disk is full.
    """
    runs = directory.runs()
    number, ident = (runs[-1].number if runs else 0) + 1, uuid.uuid4().hex
    told("write", plural(sum(reach.stop - reach.start for reach in ranges.values()), "entry"))
    try:
        sent = write(spark, with_date(rows), directory.staging(ident))
        require()
        told("verify", plural(sent.rows, "row"))
        parts, spans = read_back(spark, directory, ident)
        require_right(sent, parts)
        if known is not None:
            require_in_range(spans, ranges)
            files = [str(directory.staging(ident) / file) for part in parts for file in part.files]
            back = parquet(spark, files, directory.staging(ident)) if files else None
            require_all(known, back, spans, ranges)
            require()  # the topic that was asked is still the one that was read
        definitions = schemas(ident)
    except BaseException as error:
        directory.discard(ident)  # its files may have filled the disk
        if "No space left on device" in str(error):
            raise NoSpace(f"{directory.path} has no room for these rows; nothing was added") from error
        raise
    made = datetime.now(UTC).isoformat(timespec="seconds")
    run = Run(VERSION, kind, number, ident, made, ranges, parts, definitions)
    told("commit", f"run {number}")
    directory.commit(run)
    told("move", plural(len(run.files), "file"))
    directory.place(run)
    directory.require_files([run])
    return run, {name: spans[place] for name in ranges if (place := topic_and_partition(name)) in spans}


def with_date(rows: DataFrame) -> DataFrame:
    """Add the day of `publishTime` in UTC, not in the zone of the session."""
    days = F.floor(F.unix_micros(F.coalesce("publishTime", F.timestamp_micros(F.lit(0)))) / F.lit(DAY_US))
    return rows.select(*KEPT).withColumn("date", F.date_from_unix_date(days.cast("int")))


def write(spark: SparkSession, rows: DataFrame, place: Path) -> Digest:
    """Write rows by topic and day. Return their digest, computed in the same pass."""
    seen = Observation()
    # With few folders per task, Spark writes rows without sorting them.
    with settings(
        spark,
        {
            "spark.sql.maxConcurrentOutputFileWriters": str(WRITERS),
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        },
    ):
        (
            rows.observe(seen, *aggregates(ARCHIVED))
            .write.partitionBy("topic", "date")
            .option("maxRecordsPerFile", ROWS_PER_FILE)
            .option("compression", "zstd")
            .mode("error")
            .parquet(str(place))
        )
    return Digest.of(seen.get)


def read_back(spark: SparkSession, directory: ArchiveDirectory, run: str) -> tuple[list[Part], Spans]:
    """Read a run's staged files, and summarise them by folder and by topic."""
    files, staging = directory.written(run), directory.staging(run)
    if not files:
        return [], {}
    inside: dict[tuple[str, str], list[str]] = {}
    for file in files:
        inside.setdefault(partition_of(file), []).append(str(file))
    leads, place = F.col("messageId.batchIndex") <= 0, F.col("position")
    # The sum of positions in two halves: one sum could overflow.
    halves = {"high": F.shiftright(place, HALF), "low": place.bitwiseAND((1 << HALF) - 1)}
    found = (
        parquet(spark, [str(staging / file) for file in files], staging)
        .groupBy("topic", "date", "partition")
        .agg(
            F.min("position").alias("first"),
            F.max("position").alias("last"),
            F.count_if(leads).alias("entries"),
            *(F.coalesce(F.sum(F.when(leads, half)), F.lit(0)).alias(name) for name, half in halves.items()),
            *aggregates(ARCHIVED),
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
    """Return the folder's name as Spark writes it."""
    return "topic=" + "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in topic)


def folders_of(topics: Iterable[str]) -> dict[str, str]:
    """Return the folder's name of each topic."""
    return {topic: folder_of(topic) for topic in topics}


def partition_of(file: Path) -> tuple[str, str]:
    """Return topic and day of `topic=persistent%3A%2F%2Fa%2Fb%2Forders/date=2026-11-15/part-0.parquet`."""
    topic, date, _ = file.parts
    return unquote(topic.removeprefix("topic=")), date.removeprefix("date=")


def require_right(sent: Digest, parts: list[Part]) -> None:
    """Check that the rows of all folders together are those that were sent.

    Each row's hash includes topic and day, so a row in the wrong folder counts as another row.
    """
    found = Digest.total(Digest.parse(part.digest) for part in parts)
    if found != sent:
        raise Corrupt(
            f"{plural(sent.rows, 'row')} sent to Parquet (digest {sent}), and {found.rows} read back "
            f"(digest {found}); nothing was added: check the disk, and archive again"
        )


def parquet(spark: SparkSession, files: Sequence[str], base: Path, named: bool = False) -> DataFrame:
    """Read the archived rows of files; `named` adds a column `file`, the name without folders."""
    rows = spark.read.schema(ddl(ARCHIVED)).options(**LITERALLY, basePath=str(base)).parquet(*files)
    also = [F.col("_metadata.file_name").alias("file")] if named else []
    return rows.select(*ARCHIVED, *also)  # Spark puts the folders' columns last


def read_files(
    spark: SparkSession, there: ArchiveDirectory, files: Iterable[tuple[Run, str]], named: bool = False
) -> DataFrame:
    """Read files of runs, staged or in place. Raises Corrupt: a file is missing."""
    places: dict[Path, list[str]] = {}
    for run, file in files:
        found, staged = there.find(run, file), there.staging(run.id)
        places.setdefault(staged if found.is_relative_to(staged) else there.path, []).append(str(found))
    frames = [parquet(spark, names, base, named) for base, names in places.items()]
    if not frames:
        return spark.createDataFrame([], ddl(ARCHIVED) + (", `file` STRING" if named else ""))
    return union(frames)


def read_archive(
    spark: SparkSession, directory: str | Path, *, runs: Sequence[Run] | None = None
) -> DataFrame:
    """Read an archive or a compacted directory: the source's columns, and `date`.

    Only committed runs are read. `topic` and `date` are folders: a filter on them skips files.

    Raises:
        NotFound: the directory is not an archive.
        Corrupt: a file of it is missing.
    """
    there = ArchiveDirectory.there(directory)
    chosen = there.current() if runs is None else runs
    return read_files(spark, there, [(run, file) for run in chosen for file in run.files])


def verify_archive(spark: SparkSession, directory: str | Path) -> int:
    """Compare an archive with the digests of its runs, and count its rows.

    Raises:
        Corrupt: a partition or a schema has changed; the text names it.
    """
    there, rows = ArchiveDirectory.there(directory), 0
    for run in there.current():
        for file in run.schema_files:
            read_schema(there, run, file)
        _require_whole(spark, there, run)
        rows += run.rows
    return rows


def digested(run: Run) -> list[str]:
    """Return the columns that the digests of a run cover."""
    since = {"storedTime": 2, "schemaVersion": 3}
    return [name for name in ARCHIVED if run.version >= since.get(name, 1)]


def _require_whole(spark: SparkSession, there: ArchiveDirectory, run: Run) -> None:
    """Raises Corrupt: a partition of this run has changed."""
    try:
        found = read_archive(spark, there.path, runs=[run]).groupBy("topic", "date")
        rows = found.agg(*aggregates(digested(run))).collect()
    except (PySparkException, Py4JJavaError) as error:  # a file is not Parquet: find its partition
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
    """Advance the subscription behind the archived entries, unless it was reset meanwhile."""
    if held.incarnation.hex() != reach.incarnation:  # their positions do not correspond
        return replace(row, note="topic created again meanwhile; subscription not advanced")
    to = reach.stop
    # If each position has its row, no chunked message is open: the topic need not be read again.
    try:
        if held.acked_to < reach.start or span.entries < reach.stop - reach.start:
            to = known.free_below(row.topic, held.acked_to, reach.stop, held.log_time)
        if to < reach.stop:
            row = replace(row, note=f"a chunked message is open from {to} on: its first chunks are kept")
        at = holder.advance(row.topic, subscription, to, held.reset_number, held.incarnation)
    except NotFound:
        return replace(row, note="topic or subscription deleted meanwhile")
    except CursorModifying:
        at = holder.progress(row.topic, subscription)
        return replace(row, acked_to=at.acked_to, note="subscription reset meanwhile; not advanced")
    return replace(row, acked_to=at.acked_to)
