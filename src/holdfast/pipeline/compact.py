"""Compaction by key: the last message of each key, and no key whose last message says that it is gone.

Two passes, as Pulsar's compaction has them: the first finds, with keys and positions alone, which message is
each key's last one; the second takes these. The next run reads what is new, and the last result instead of
all that it was made of. The directory has the form of an archive: `replay` and `read_archive` read it, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.pipeline.archive import KEPT, add_run, plan, read_archive, require_folders, require_same
from holdfast.pipeline.archived import ArchiveDirectory, Range
from holdfast.pipeline.inputs import Origin, Told, Topics, settings, silent
from holdfast.pipeline.reading import topic_and_partition
from holdfast.pipeline.words import plural, text_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession


COUNTED = {
    "spark.sql.adaptive.optimizer.excludedRules": (
        "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
    )
}
"""Where no key is left, Spark would drop all that led there, and with it what was counted on the way."""


@dataclass(frozen=True)
class CompactedTopic:
    """What became of a topic, or of one of its partitions."""

    topic: str
    horizon: int
    """Everything below this position is in the result."""
    messages: int
    """Read by this run: what was new."""


@dataclass(frozen=True)
class CompactReport:
    """What a run of `compact` did."""

    directory: str
    run: int | None
    """None: nothing was new."""
    read: int
    """Messages that were new, and those of the last result."""
    keys: int
    """Rows of the result: one of each key, and those without a key, where they are kept."""
    tombstones: int
    """Keys that are gone: their last message had no value."""
    keyless: int
    """Messages without a key."""
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
    from pyspark.sql import Observation

    require_folders(topics)
    began, known = time.monotonic(), source or Origin(path, url, token, options or {})
    directory = ArchiveDirectory(to, "compacted")
    told("recover", str(directory.path))
    with directory.changing():
        told("plan")
        before = directory.positions()
        ranges = plan(before, known.extents(topics), accept_loss)
        fresh = {name: (each.start, each.stop) for name, each in ranges.items() if each.stop > each.start}
        done = [CompactedTopic(name, each.stop, each.stop - each.start) for name, each in ranges.items()]
        if not fresh:
            return CompactReport(str(directory.path), None, 0, 0, 0, 0, time.monotonic() - began, done)
        rows = known.messages(spark, list(fresh), columns=list(KEPT), ranges=fresh, accept_loss=accept_loss)
        if before:
            rows = rows.unionByName(last_result(spark, directory, before, ranges))
        # Others than these were compacted before and are not named now: they stay as they are.
        reach = {**before, **{name: Range(each.incarnation, 0, each.stop) for name, each in ranges.items()}}
        seen = Seen(Observation(), Observation())
        read = {name: ranges[name] for name in fresh}
        with settings(spark, COUNTED):
            run, _ = add_run(
                spark,
                directory,
                "compacted",
                compacted(rows, keep_keyless, seen),
                reach,
                told,
                lambda: require_same(known, read),
            )
        counts = seen.counts()
        directory.superseded()
        told("done")
    return CompactReport(
        directory=str(directory.path),
        run=run.number,
        read=counts["read"],
        keys=run.rows,
        tombstones=counts["tombstones"],
        keyless=counts["keyless"],
        seconds=time.monotonic() - began,
        topics=done,
    )


def last_result(
    spark: SparkSession, directory: ArchiveDirectory, before: dict[str, Range], now: dict[str, Range]
) -> DataFrame:
    """What the last run has made; of a topic that was deleted and made anew, nothing."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = read_archive(spark, directory.path).select(*KEPT)
    for name in before.keys() & now.keys():
        if before[name].incarnation != now[name].incarnation:
            topic, partition = topic_and_partition(name)
            rows = rows.where((F.col("topic") != topic) | (F.col("partition") != partition))
    return rows


@dataclass
class Seen:
    """What the passes count on their way."""

    first: Observation
    second: Observation

    def counts(self) -> dict[str, int]:
        return {**self.first.get, **self.second.get}


def gone() -> Column:
    """No value, or an empty one: the key is deleted."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("value").isNull() | (F.length("value") == 0)


def last_ones(rows: DataFrame) -> DataFrame:
    """The first pass: of each key the place of its last message, and whether that says that it is gone."""
    from pyspark.sql import functions as F  # noqa: N812

    last = F.max(F.struct("position", "messageId.batchIndex", gone().alias("gone"))).alias("last")
    keys = rows.where("key IS NOT NULL").groupBy("topic", "partition", "key").agg(last)
    return keys.select("topic", "partition", "last.*")


def compacted(rows: DataFrame, keep_keyless: bool = False, seen: Seen | None = None) -> DataFrame:
    """The second pass: the messages that the first one has found."""
    from pyspark.sql import functions as F  # noqa: N812

    last, rows_seen = last_ones(rows), rows
    if seen is not None:
        last = last.observe(seen.first, F.count_if("gone").alias("tombstones"))
        keyless = F.count_if(F.col("key").isNull()).alias("keyless")
        rows_seen = rows.observe(seen.second, F.count("*").alias("read"), keyless)
    kept = last.where("NOT gone").drop("gone")
    place = ["topic", "partition", "position", "batchIndex"]
    joined = rows_seen.withColumn("batchIndex", F.col("messageId.batchIndex"))
    found = joined.join(kept, place, "left_semi").select(*rows.columns)
    return found.unionByName(rows.where("key IS NULL")) if keep_keyless else found
