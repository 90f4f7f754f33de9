"""Compact topics: keep the last message of each key, unless it deletes the key.

There are two passes, as in Pulsar's compaction. The first finds the last message of each key, from keys and
positions alone. The second selects these messages. The next run reads the new entries and the last result.
The directory has the form of an archive: `replay` and `read_archive` can read it.

The metadata of encrypted messages can be read, and is read before both passes:

| an encrypted row is               | its key     | the row                                                |
|-----------------------------------|-------------|--------------------------------------------------------|
| a message                         | is known    | counts as a message like any other                     |
| a chunk of a complete message     | is known    | belongs to the message where its last chunk is          |
| a chunk of an incomplete message  | is not used | is kept: the other chunks may follow                   |
| a client's batch                  | is unknown  | is kept, and so are later messages that delete a key   |
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from holdfast.columns import topic_and_partition
from holdfast.formatting import plural, text_table
from holdfast.pipeline.archive import (
    KEPT,
    add_run,
    folders_of,
    plan,
    read_archive,
    require_folders,
    require_same,
)
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Range
from holdfast.pipeline.jobs.archive_schemas import stage_schemas
from holdfast.pipeline.jobs.inputs import COUNTED, Origin, Told, Topics, settings, silent, union
from holdfast.pipeline.jobs.summary import Report
from holdfast.protocol import pulsar_pb2 as pb

NARROW = ("topic", "partition", "position", "encryption")
"""Columns that are read of all rows to find the encrypted ones."""


@dataclass(frozen=True)
class CompactedTopic:
    """The result for one topic or partition."""

    topic: str
    horizon: int
    """The result covers all positions below this one."""
    messages: int
    """New rows that this run read. A position may have several rows, or no row."""


@dataclass(frozen=True)
class CompactReport(Report):
    """The result of a run of `compact`."""

    directory: str
    run: int | None
    """None: the topics had no new entries."""
    read: int
    """New messages, and those of the last result."""
    keys: int
    """Rows of the result: one per key, `unopened`, and with `keep_keyless` those without a key."""
    tombstones: int
    """Deleted keys: their last message has no value."""
    keyless: int
    """Messages without a key."""
    unopened: int
    """Encrypted batches, and chunks of incomplete encrypted messages: kept unchanged."""
    seconds: float
    topics: list[CompactedTopic]

    def table(self) -> str:
        rows = [(each.topic, each.horizon, each.messages) for each in self.topics]
        lines = text_table(("TOPIC", "UP TO", "NEW"), rows, grouped=True)
        done = (
            "no new entries"
            if self.run is None
            else f"{plural(self.read, 'message')} became {self.keys:,}; deleted keys: "
            f"{self.tombstones:,}, messages without a key: {self.keyless:,}"
            + (f", encrypted and kept unchanged: {self.unopened:,}" if self.unopened else "")
        )
        return "\n".join([*lines, f"{self.directory}: {done}; {self.seconds:.1f} s"])


def compact(
    spark: SparkSession,
    *,
    topics: Sequence[str],
    to: str | Path,
    path: str | None = None,
    url: str | None = None,
    token: str | None = None,
    options: Mapping[str, str] | None = None,
    source: Topics | None = None,
    keep_keyless: bool = False,
    accept_loss: bool = False,
    told: Told = silent,
) -> CompactReport:
    """Keep the last message of each key.

    Args:
        spark: a session that knows `format("holdfast")`.
        topics: names of topics; the same key in two topics is two keys.
        to: the result's directory; created if it does not exist. A run replaces the result as a whole.
        path, url, token: a data directory, or a server's HTTP address and an authentication token.
        options: other options of the source to reach a server, such as tlsTrustCertsFilePath.
        source: the topics, instead of `path` and `url`.
        keep_keyless: keep all messages without a key; they are dropped otherwise.
        accept_loss: continue if positions were trimmed before they were read.
        told: called at every step.

    Raises:
        Corrupt: positions are missing, or the rows read back differ from those written; nothing was changed.
    """
    require_folders(topics)
    began, known = time.monotonic(), source or Origin(path, url, token, options or {})
    directory = ArchiveDirectory(to, "compacted")
    told("recover", str(directory.path))
    with directory.changing():
        told("plan")
        before = directory.positions()
        ranges = plan(before, known.extents(topics), accept_loss)
        fresh = {name: (each.start, each.stop) for name, each in ranges.items() if each.stop > each.start}
        # Created again, and perhaps still empty: rows of the former topic are dropped.
        anew = [
            name for name in before.keys() & ranges if before[name].incarnation != ranges[name].incarnation
        ]
        if not fresh and not anew:
            done = [CompactedTopic(name, each.stop, 0) for name, each in ranges.items()]
            return CompactReport(str(directory.path), None, 0, 0, 0, 0, 0, time.monotonic() - began, done)

        def parts(columns: Sequence[str]) -> list[DataFrame]:
            """Return the last result and then the new rows, if any."""
            both = [last_result(spark, directory, anew).select(*columns)] if before else []
            if fresh:
                both.append(
                    known.messages(spark, list(fresh), columns=columns, ranges=fresh, accept_loss=accept_loss)
                )
            return both

        def rows(columns: Sequence[str]) -> DataFrame:
            return union(parts(columns))

        # Topics that were compacted before and are not named now stay unchanged.
        reach = {**before, **{name: Range(each.incarnation, 0, each.stop) for name, each in ranges.items()}}
        seen = Seen(Observation(), Observation())
        read = {name: ranges[name] for name in [*fresh, *anew]}
        told("read", "new entries, encrypted entries")
        new, sealed = tally(parts(NARROW), bool(fresh))
        unsealed = opened(rows(NARROW)) if sealed else contextlib.nullcontext()
        with settings(spark, COUNTED), unsealed as headers:
            rows_kept = compacted(rows(KEPT), headers, keep_keyless, seen)
            run, _ = add_run(
                spark,
                directory,
                "compacted",
                rows_kept,
                reach,
                told,
                require=lambda: require_same(known, read),
                schemas=lambda ident: with_schemas(directory, ident, known.schemas(ranges)),
            )
        counts = seen.counts()
        done = [
            CompactedTopic(name, each.stop, new.get(topic_and_partition(name), 0))
            for name, each in ranges.items()
        ]
        directory.superseded()
        told("done")
    return CompactReport(
        directory=str(directory.path),
        run=run.number,
        read=counts["read"],
        keys=run.rows,
        tombstones=counts["tombstones"],
        keyless=counts["keyless"],
        unopened=counts["unopened"],
        seconds=time.monotonic() - began,
        topics=done,
    )


def with_schemas(
    directory: ArchiveDirectory, run: str, known: Mapping[str, Sequence[bytes]]
) -> dict[str, dict[int, str]]:
    """Stage the schemas of a result; those of topics that are not named now stay."""
    before = [each.schemas for each in directory.current()]
    return {**(before[-1] if before else {}), **stage_schemas(directory, run, folders_of(known), known)}


def last_result(spark: SparkSession, directory: ArchiveDirectory, anew: Sequence[str]) -> DataFrame:
    """Read the result of the last run, without topics that were deleted and created again."""
    rows = read_archive(spark, directory.path).select(*KEPT)
    for topic, partition in map(topic_and_partition, anew):
        rows = rows.where((F.col("topic") != topic) | (F.col("partition") != partition))
    return rows


def tally(parts: Sequence[DataFrame], fresh: bool) -> tuple[dict[tuple[str, int], int], bool]:
    """Count the new rows by topic and partition, and tell whether any row is encrypted.

    With `fresh`, the last part has the new rows.
    """
    marked = [each.withColumn("new", F.lit(int(fresh and each is parts[-1]))) for each in parts]
    counted = (
        union(marked)
        .groupBy("topic", "partition")
        .agg(F.sum("new").alias("new"), F.count("encryption").alias("sealed"))
    )
    found = counted.collect()
    new = {(row["topic"], row["partition"]): row["new"] for row in found}
    return new, any(row["sealed"] for row in found)


@dataclass
class Seen:
    """Counts that both passes make."""

    first: Observation
    second: Observation

    def counts(self) -> dict[str, int]:
        return {**self.first.get, **self.second.get}


def gone() -> Column:
    """Test for a message that deletes its key: the value is null or empty."""
    return F.col("value").isNull() | (F.length("value") == 0)


HEADER = "batch BOOLEAN, gone BOOLEAN, uuid STRING, chunk INT, chunks INT"


def header(encryption: bytes) -> tuple[bool, bool, str | None, int, int]:
    """Read an encrypted entry's metadata into HEADER; if it does not decode, as a batch."""
    try:
        told = pb.MessageMetadata.FromString(bytes(encryption))
    except DecodeError:
        return True, False, None, 0, 1
    # An empty value has some bytes when encrypted.
    none = told.null_value or (told.HasField("uncompressed_size") and told.uncompressed_size == 0)
    uuid = told.uuid if told.num_chunks_from_msg > 1 else None
    return told.HasField("num_messages_in_batch"), none, uuid, told.chunk_id, told.num_chunks_from_msg


@contextlib.contextmanager
def opened(rows: DataFrame) -> Iterator[DataFrame]:
    """Yield of each encrypted row `at`, `gone` (it deletes its key) and `batch`.

    `at` is the position of its message; NULL: the row is kept in any case. A chunked message has the position
    of its last chunk. Its chunks have one uuid and stand in order. If the message was sent again, chunk 0
    begins it again. In all other cases the message is incomplete (I188).
    """
    with contextlib.ExitStack() as kept:

        def keep(rows: DataFrame) -> DataFrame:
            kept.callback(rows.persist(StorageLevel.DISK_ONLY).unpersist)
            return rows

        place, message = ["topic", "partition"], ["topic", "partition", "uuid", "time"]
        found = rows.where("encryption IS NOT NULL")
        found = found.withColumn("h", F.udf(header, HEADER, useArrow=False)("encryption"))
        found = keep(found.select(*place, "position", "h.*"))
        singles = found.where("uuid IS NULL").withColumn("at", F.expr("IF(batch, NULL, position)"))
        so_far = Window.partitionBy(*place, "uuid").orderBy("position")
        begun = F.expr("count_if(chunk = 0)").over(so_far)
        parts = found.where("uuid IS NOT NULL").withColumn("time", begun)
        whole = F.expr(
            "count(*) = max(chunks) AND forall("
            "transform(array_sort(collect_list(struct(position, chunk))), (e, i) -> e.chunk = i), e -> e)"
        )
        ends = parts.groupBy(*message).agg(F.when(whole, F.max("position")).alias("at"))
        columns = [*place, "position", "at", "gone", "batch"]
        yield keep(singles.select(columns).unionByName(parts.join(ends, message).select(columns)))


def judged(rows: DataFrame, headers: DataFrame | None) -> DataFrame:
    """Add the columns `at`, `gone` and `unopened`.

    `at` is the position of the message, `gone`: it deletes its key, `unopened`: it is kept in any case.
    """
    rows = rows.withColumn("batchIndex", F.col("messageId.batchIndex"))
    if headers is None:
        return rows.withColumns({"at": F.col("position"), "gone": gone(), "unopened": F.lit(False)})
    sealed = F.col("encryption").isNotNull()
    return rows.join(headers.drop("batch"), ["topic", "partition", "position"], "left").withColumns(
        {
            "unopened": sealed & F.col("at").isNull(),
            "gone": F.when(sealed, F.col("gone")).otherwise(gone()),
            "at": F.coalesce("at", "position"),
        }
    )


def last_ones(rows: DataFrame) -> DataFrame:
    """Find the last message of each key, and whether it deletes the key (first pass)."""
    last = F.max(F.struct("at", "batchIndex", "gone")).alias("last")
    keys = rows.where("key IS NOT NULL AND NOT unopened").groupBy("topic", "partition", "key").agg(last)
    return keys.select("topic", "partition", "last.*")


def compacted(
    rows: DataFrame, headers: DataFrame | None = None, keep_keyless: bool = False, seen: Seen | None = None
) -> DataFrame:
    """Select the messages that the first pass found (second pass)."""
    columns, rows = rows.columns, judged(rows, headers)
    last, rows_seen = last_ones(rows), rows
    if seen is not None:
        last = last.observe(seen.first, F.count_if("gone").alias("tombstones"))
        rows_seen = rows.observe(
            seen.second,
            F.count("*").alias("read"),
            F.expr("count_if(key IS NULL AND NOT unopened)").alias("keyless"),
            F.count_if("unopened").alias("unopened"),
        )
    if headers is not None:
        # An encrypted batch may have the key: its readers need the later message that deletes it.
        batches = headers.where("batch").groupBy("topic", "partition").agg(F.min("position").alias("since"))
        last = last.join(batches, ["topic", "partition"], "left")
        last = last.withColumn("gone", F.expr("gone AND (since IS NULL OR at < since)")).drop("since")
    kept = last.where("NOT gone").drop("gone")
    found = rows_seen.join(kept, ["topic", "partition", "at", "batchIndex"], "left_semi")
    also = [] if headers is None else ["unopened"]
    also += ["key IS NULL AND NOT unopened"] if keep_keyless else []
    if also:
        found = found.unionByName(rows.where(" OR ".join(also)))
    return found.select(*columns)
