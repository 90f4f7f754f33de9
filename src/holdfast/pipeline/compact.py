"""Compaction by key: the last message of each key, and no key whose last message says that it is gone.

Two passes, as Pulsar's compaction has them: the first finds, with keys and positions alone, which message is
each key's last one; the second takes these. The next run reads what is new, and the last result instead of
all that it was made of. The directory has the form of an archive: `replay` and `read_archive` read it, too.

Of encrypted messages the metadata can be read, and that is read before both passes:

| an encrypted row is            | its key       | so                                                      |
|--------------------------------|---------------|---------------------------------------------------------|
| a message by itself            | is known      | it is a message like any other                          |
| a part of a whole message      | is known      | one message with the other parts, where the last one is |
| a part, and others are missing | does not help | it is kept: the others may come                         |
| a client's batch               | is inside     | it is kept, and so is what says later that a key is gone |
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from holdfast.columns.files import topic_and_partition
from holdfast.pipeline.archive import KEPT, add_run, plan, read_archive, require_folders, require_same
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Range
from holdfast.pipeline.jobs.inputs import COUNTED, Origin, Told, Topics, settings, silent
from holdfast.pipeline.jobs.summary import plural, text_table
from holdfast.protocol import pulsar_pb2 as pb

NARROW = ("topic", "partition", "position", "encryption")
"""What is read of all rows to find the encrypted ones."""


@dataclass(frozen=True)
class CompactedTopic:
    """What became of a topic, or of one of its partitions."""

    topic: str
    horizon: int
    """Everything below this position is in the result."""
    messages: int
    """Read by this run: what was new, as rows of the source. A position may be many, or none."""


@dataclass(frozen=True)
class CompactReport:
    """What a run of `compact` did."""

    directory: str
    run: int | None
    """None: nothing was new."""
    read: int
    """Messages that were new, and those of the last result."""
    keys: int
    """Rows of the result: one of each key, `unopened`, and those without a key, where they are kept."""
    tombstones: int
    """Keys that are gone: their last message had no value."""
    keyless: int
    """Messages without a key."""
    unopened: int
    """Encrypted batches, and parts of encrypted messages that are not whole yet: kept as they are."""
    seconds: float
    topics: list[CompactedTopic]

    def record(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)

    def table(self) -> str:
        """For people."""
        rows = [(each.topic, each.horizon, each.messages) for each in self.topics]
        lines = text_table(("TOPIC", "UP TO", "NEW"), rows)
        done = (
            "nothing is new"
            if self.run is None
            else f"{plural(self.read, 'message')} became {self.keys:,}; keys that are gone: "
            f"{self.tombstones:,}, messages without a key: {self.keyless:,}"
            + (f", encrypted and kept as they are: {self.unopened:,}" if self.unopened else "")
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
        topics: which; a key is a key of its topic.
        to: the result's directory; made if it is not there. A run replaces the result as a whole.
        path, url, token: a data directory, or a server's HTTP address; or `source`, who knows topics.
        options: others of the source that say how to reach a server, such as tlsTrustCertsFilePath.
        keep_keyless: keep messages without a key, all of them; they are dropped otherwise.
        accept_loss: go on when positions were trimmed before they were seen.
        told: hears of every step.

    Raises:
        Corrupt: positions are missing, or what was read back is not what was written; nothing was changed.
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
        # Made anew, and perhaps still empty: what is there of the old one goes.
        anew = [
            name for name in before.keys() & ranges if before[name].incarnation != ranges[name].incarnation
        ]
        if not fresh and not anew:
            done = [CompactedTopic(name, each.stop, 0) for name, each in ranges.items()]
            return CompactReport(str(directory.path), None, 0, 0, 0, 0, 0, time.monotonic() - began, done)

        def parts(columns: Sequence[str]) -> list[DataFrame]:
            """Of the last result, and what is new: the latter is the last one, if there is any."""
            both = [last_result(spark, directory, anew).select(*columns)] if before else []
            if fresh:
                both.append(
                    known.messages(spark, list(fresh), columns=columns, ranges=fresh, accept_loss=accept_loss)
                )
            return both

        def rows(columns: Sequence[str]) -> DataFrame:
            return reduce(lambda one, other: one.unionByName(other), parts(columns))

        # Others than these were compacted before and are not named now: they stay as they are.
        reach = {**before, **{name: Range(each.incarnation, 0, each.stop) for name, each in ranges.items()}}
        seen = Seen(Observation(), Observation())
        read = {name: ranges[name] for name in [*fresh, *anew]}
        told("read", "what is new, and what is encrypted")
        new, sealed = tally(parts(NARROW), bool(fresh))
        unsealed = opened(rows(NARROW)) if sealed else contextlib.nullcontext()
        with settings(spark, COUNTED), unsealed as headers:
            run, _ = add_run(
                spark,
                directory,
                "compacted",
                compacted(rows(list(KEPT)), headers, keep_keyless, seen),
                reach,
                told,
                lambda: require_same(known, read),
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


def last_result(spark: SparkSession, directory: ArchiveDirectory, anew: Sequence[str]) -> DataFrame:
    """What the last run has made; of a topic that was deleted and made anew, nothing."""
    rows = read_archive(spark, directory.path).select(*KEPT)
    for topic, partition in map(topic_and_partition, anew):
        rows = rows.where((F.col("topic") != topic) | (F.col("partition") != partition))
    return rows


def tally(parts: Sequence[DataFrame], fresh: bool) -> tuple[dict[tuple[str, int], int], bool]:
    """How many rows of the last part there are by topic and partition, if that is what is new; and whether
    anything is encrypted."""
    marked = [each.withColumn("new", F.lit(int(fresh and each is parts[-1]))) for each in parts]
    every = reduce(lambda one, other: one.unionByName(other), marked)
    counted = every.groupBy("topic", "partition").agg(
        F.sum("new").alias("new"), F.count("encryption").alias("sealed")
    )
    found = counted.collect()
    new = {(row["topic"], row["partition"]): row["new"] for row in found}
    return new, any(row["sealed"] for row in found)


@dataclass
class Seen:
    """What the passes count on their way."""

    first: Observation
    second: Observation

    def counts(self) -> dict[str, int]:
        return {**self.first.get, **self.second.get}


def gone() -> Column:
    """No value, or an empty one: the key is deleted."""
    return F.col("value").isNull() | (F.length("value") == 0)


HEADER = "batch BOOLEAN, gone BOOLEAN, uuid STRING, chunk INT, chunks INT"


def header(encryption: bytes) -> tuple[bool, bool, str | None, int, int]:
    """What an encrypted entry's metadata says, as HEADER has it. What says nothing is taken for a batch."""
    try:
        told = pb.MessageMetadata.FromString(bytes(encryption))
    except DecodeError:
        return True, False, None, 0, 1
    # Encrypted, nothing is a few bytes, too.
    none = told.null_value or (told.HasField("uncompressed_size") and told.uncompressed_size == 0)
    uuid = told.uuid if told.num_chunks_from_msg > 1 else None
    return told.HasField("num_messages_in_batch"), none, uuid, told.chunk_id, told.num_chunks_from_msg


@contextlib.contextmanager
def opened(rows: DataFrame) -> Iterator[DataFrame]:
    """Of each encrypted row: `at`, the position of its message, NULL where it is kept whatever comes; whether
    it says that its key is gone; whether it is a batch.

    A chunked message is where its last part is. Its parts have one uuid, and stand in their order; if it was
    sent again, its first part begins it anew. Whatever is otherwise is not whole (I188).
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
    """Rows with the position of their message, whether they say that their key is gone, and whether they are
    kept whatever comes."""
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
    """The first pass: of each key the place of its last message, and whether that says that it is gone."""
    last = F.max(F.struct("at", "batchIndex", "gone")).alias("last")
    keys = rows.where("key IS NOT NULL AND NOT unopened").groupBy("topic", "partition", "key").agg(last)
    return keys.select("topic", "partition", "last.*")


def compacted(
    rows: DataFrame, headers: DataFrame | None = None, keep_keyless: bool = False, seen: Seen | None = None
) -> DataFrame:
    """The second pass: the messages that the first one has found."""
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
        # A key that an encrypted batch may have is gone for its readers only if they are told so behind it.
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
