"""The delivery audit: of numbered messages, which are lost, which are there twice, which overtook another.

A message is (topic, producer, number). Archive and live topic are looked at together, each position once: the
archive's runs are read once, and what is live begins where they end. A topic that was deleted and made anew
is another topic, whose producers count from 0 again: rows of the older one are accounted for under a name of
their own. What Spark counts is in `accounting.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.broker.names import topic_name
from holdfast.errors import Misuse, NotFound
from holdfast.pipeline.accounting import Found, Gap, Latency, Moment, ProducerAudit, Strange, counted
from holdfast.pipeline.archive import plan, read_archive
from holdfast.pipeline.archived import ArchiveDirectory, Range, Run
from holdfast.pipeline.inputs import Extent, Origin, Told, Topics, full_names, silent
from holdfast.pipeline.reading import topic_and_partition
from holdfast.pipeline.words import latency_words, plural, short, text_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEEDED = ("value", "topic", "partition", "messageId", "publishTime", "position")
Expected = Mapping[str, int | None] | Mapping[str, Mapping[str, int | None]]
"""Producer → how many were confirmed to it; or the same for each topic. None: it is not known."""


@dataclass(frozen=True)
class AuditReport:
    """The account."""

    archived: int
    live: int
    messages: int
    """All that were looked at: archived and live."""
    foreign: int
    """Not numbered."""
    damaged: int
    """Begins as a numbered message, and is none."""
    producers: list[ProducerAudit]
    latency: list[Latency]
    step_s: int
    series: list[Moment]
    """The messages by publish time, in steps of `step_s`."""
    histogram: list[tuple[str, float, int]]
    """Topic, latency in µs from which on, how many."""
    said: bool = False
    """What was confirmed was said."""
    foreign_allowed: bool = False
    gaps: list[Gap] = field(default_factory=list)
    repeated: list[Found] = field(default_factory=list)
    overtaken: list[Found] = field(default_factory=list)
    strange: list[Strange] = field(default_factory=list)
    """Some of what is not numbered or damaged."""
    notes: list[str] = field(default_factory=list)
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
    def unexpected(self) -> int:
        """Producers that are there, and not in what was expected."""
        return sum(each.unexpected for each in self.producers)

    @property
    def sound(self) -> bool:
        return not self.faults()

    def faults(self) -> list[str]:
        """What is wrong, in words; nothing: all is well."""
        if self.messages == 0 and all(each.confirmed is None for each in self.producers):
            return ["there is no message to account for"]
        faults = [
            f"{name} {count:,}"
            for name, count in (
                ("lost", self.lost),
                ("duplicated", self.duplicated),
                ("out of order", self.out_of_order),
                ("damaged", self.damaged),
                ("not numbered", 0 if self.foreign_allowed else self.foreign),
            )
            if count
        ]
        if self.unexpected:
            faults.append(f"{plural(self.unexpected, 'producer')} not expected")
        return faults

    def record(self) -> dict[str, Any]:
        """For machines."""
        found = asdict(self)
        for name in ("lost", "duplicated", "out_of_order", "unexpected", "sound"):
            found[name] = getattr(self, name)
        return {**found, "faults": self.faults()}

    def table(self) -> str:
        """For people."""
        head = ["TOPIC", "PRODUCER", "MESSAGES", "LOST", "DUPLICATED", "OUT OF ORDER"]
        rows: list[list[object]] = [
            [short(each.topic), each.producer, each.messages, each.lost, each.duplicated, each.out_of_order]
            for each in self.producers
        ]
        if self.said:
            head.insert(3, "CONFIRMED")
            for row, each in zip(rows, self.producers, strict=True):
                row.insert(3, each.confirmed_words)
        lines = text_table(head, rows, numbers=2) if rows else []
        if self.latency:
            columns = ("LATENCY", "MESSAGES", "50 %", "90 %", "99 %", "99.9 %", "MOST")
            times = [
                (short(each.topic), each.count, *map(latency_words, each.shares), latency_words(each.max))
                for each in self.latency
            ]
            lines += ["", *text_table(columns, times, numbers=1)]
        if self.strange:
            shown = [(short(each.topic), each.position, each.what) for each in self.strange[:10]]
            lines += ["", *text_table(("NO NUMBERED MESSAGE", "AT POSITION", "WHAT"), shown)]
        lines += [*([""] if lines else []), *(f"note: {note}" for note in self.notes)]
        looked = f"{plural(self.messages, 'message')} ({self.archived:,} archived, {self.live:,} live)"
        if self.faults():
            verdict = f"NOT SOUND: {', '.join(self.faults())}; of {looked}"
        else:
            other = f"; {self.foreign:,} are not numbered" if self.foreign else ""
            verdict = f"sound: {looked}, lost 0, duplicated 0, out of order 0{other}"
        return "\n".join([*lines, f"{verdict}; {self.seconds:.1f} s"])


def audit(
    spark: SparkSession,
    *,
    topics: Sequence[str] = (),
    path: str | None = None,
    url: str | None = None,
    token: str | None = None,
    options: Mapping[str, str] | None = None,
    source: Topics | None = None,
    archive: str | Path | None = None,
    expected: Expected | None = None,
    foreign_allowed: bool = False,
    told: Told = silent,
) -> AuditReport:
    """Account for every numbered message.

    Args:
        spark: a session that knows `format("holdfast")`.
        topics: which; none: all of the archive.
        path, url, token, options: where they are live: a data directory, or a server's HTTP address, with
            other options of the source; or `source`.
        archive: an archive's directory, to be looked at together with the live topics, or alone.
        expected: how many messages were confirmed to each producer, or, for several topics, to each producer
            of each topic. Without it, all numbers up to the highest are expected, and what is missing at the
            end is not noticed.
        foreign_allowed: messages that are not numbered are no fault. What is damaged is one all the same.
        told: hears of every step.

    Raises:
        NotFound: there is no such archive, or no such topic in it or in the broker.
        Corrupt: a live topic ends before its archive does.
    """
    began = time.monotonic()
    told("read")
    looked = look(spark, topics, source or _origin(path, url, token, options), archive)
    wanted = None if expected is None else by_topic(expected, looked.topics)
    found = counted(spark, looked.rows, looked.topics, wanted, told)
    return AuditReport(
        **found,
        said=expected is not None,
        foreign_allowed=foreign_allowed,
        notes=looked.notes,
        seconds=time.monotonic() - began,
    )


def _origin(
    path: str | None, url: str | None, token: str | None, options: Mapping[str, str] | None
) -> Topics | None:
    return None if path is None and url is None else Origin(path, url, token, options or {})


def by_topic(expected: Expected, topics: Sequence[str]) -> dict[tuple[str, str], int | None]:
    """What is expected, by topic and producer.

    Raises:
        Misuse: it does not say of which topic, or of one that is not looked at.
    """
    nested = {name: each for name, each in expected.items() if isinstance(each, Mapping)}
    if nested and len(nested) < len(expected):
        raise Misuse("expected names producers beside topics: say all of it by topic")
    if not nested:
        if len(topics) > 1:
            raise Misuse(
                f"{len(topics)} topics are looked at: say what is expected of each, "
                f'as {{"{topics[0]}": {{"rig-1": 1000}}}}'
            )
        return {
            (topics[0], name): count for name, count in expected.items() if not isinstance(count, Mapping)
        }
    found: dict[tuple[str, str], int | None] = {}
    for name, producers in nested.items():
        topic = topic_and_partition(topic_name(name))[0]
        if topic not in topics:
            raise Misuse(f"expected names {name}, which is not looked at; there are {', '.join(topics)}")
        found |= {(topic, producer): count for producer, count in producers.items()}
    unsaid = set(topics) - {topic_and_partition(topic_name(name))[0] for name in nested}
    if unsaid:
        raise Misuse(
            f"expected says nothing of {', '.join(sorted(unsaid))}; name the topics to look at, or say {{}}"
        )
    return found


# -- what is looked at --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Looked:
    """The rows of an audit, with a column `live` of 0 and 1."""

    rows: DataFrame
    topics: list[str]
    """All that are accounted for, even if there is nothing of them."""
    notes: list[str]


def look(
    spark: SparkSession, topics: Sequence[str], origin: Topics | None, archive: str | Path | None
) -> Looked:
    """Archived rows, and those of the live topics that are behind them."""
    from pyspark.sql import functions as F  # noqa: N812

    if origin is None and archive is None:
        raise Misuse("an audit looks at an archive, at topics, or at both; say which")
    runs = [] if archive is None else _runs(archive)
    reached = {topic: reach for run in runs for topic, reach in run.topics.items()}
    names = _names(topics, reached, archive, origin is not None)
    there, gone = ({}, []) if origin is None else still_there(origin, names, reached)
    ranges = plan(reached, there, accept_loss=True)  # only behind the archive; it refuses what lost its end
    newest = {name: reach.incarnation for name, reach in {**reached, **ranges}.items()}
    bases = list(dict.fromkeys(topic_and_partition(name)[0] for name in [*names, *there]))
    frames = [] if archive is None else _archived(spark, archive, runs, bases, newest)
    frames = [frame.withColumn("live", F.lit(0)) for frame in frames]
    spans = {name: (reach.start, reach.stop) for name, reach in ranges.items() if reach.start < reach.stop}
    if origin is not None and spans:
        live = origin.messages(spark, list(spans), columns=NEEDED, ranges=spans)
        frames.append(live.withColumn("live", F.lit(1)))
    if not frames:
        frames = [spark.createDataFrame([], f"{read_schema()}, live INT")]
    notes = [note for name, reach in ranges.items() for note in _trimmed(name, reach, name in reached)]
    notes += [f"{name} is archived, and the broker has it no longer" for name in gone]
    return Looked(reduce(lambda left, right: left.unionByName(right), frames), bases, notes)


def still_there(
    origin: Topics, names: Sequence[str], archived: Mapping[str, Range]
) -> tuple[dict[str, Extent], list[str]]:
    """What is live of these topics; and which of them are archived, and deleted in the broker since then.

    Raises:
        NotFound: a topic is neither live nor archived.
    """
    try:
        return origin.extents(names), []
    except NotFound:  # which of them?
        if isinstance(origin, Origin):
            origin.require()  # a directory that is not there has not deleted anything
        known = set(archived) | {topic_and_partition(name)[0] for name in archived}
        there, gone = dict[str, Extent](), list[str]()
        for name in names:
            try:
                there |= origin.extents([name])
            except NotFound:
                if name not in known:
                    raise
                gone.append(name)
        return there, gone


def _trimmed(name: str, reach: Range, archived: bool) -> Iterator[str]:
    if reach.lost:
        yield f"{name}: {plural(reach.lost, 'position')} behind the archive were trimmed and never archived"
    elif reach.start > 0 and not archived:
        yield f"{name}: the first {plural(reach.start, 'position')} were trimmed, and are in no archive"


def _runs(archive: str | Path) -> list[Run]:
    directory = ArchiveDirectory.there(archive)
    if directory.kind == "compacted":
        raise Misuse(f"{directory.path} is compacted: it lacks messages on purpose; audit the topic itself")
    return directory.runs()


def _names(
    topics: Sequence[str], archived: Mapping[str, Range], archive: str | Path | None, live: bool
) -> list[str]:
    """Full names of what is looked at.

    Raises:
        NotFound: a topic is not in the archive, and nobody says where else it would be.
    """
    if not topics:
        if archive is None:
            raise Misuse("name the topics that are to be audited")
        return list(dict.fromkeys(archived))
    names = full_names(topics)
    known = set(archived) | {topic_and_partition(name)[0] for name in archived}
    for name in names:
        if not live and name not in known:
            raise NotFound(f"{archive} holds no topic {name}; it holds {', '.join(sorted(archived))}")
    return names


def _archived(
    spark: SparkSession,
    archive: str | Path,
    runs: Sequence[Run],
    topics: Sequence[str],
    newest: Mapping[str, str],
) -> list[DataFrame]:
    """The rows of these runs. Rows of a topic that was made anew since then are given a name of their own."""
    from pyspark.sql import functions as F  # noqa: N812

    alike: dict[frozenset[tuple[str, str]], list[Run]] = {}
    for run in runs:
        lives = {(name, reach.incarnation) for name, reach in run.topics.items()}
        alike.setdefault(frozenset(lives - set(newest.items())), []).append(run)
    frames = []
    for older, some in alike.items():
        rows = read_archive(spark, archive, runs=some).select(*NEEDED).where(F.col("topic").isin(*topics))
        label = F.col("topic")
        for name, incarnation in older:
            topic, partition = topic_and_partition(name)
            it = (F.col("topic") == topic) & (F.col("partition") == partition)
            label = F.when(it, F.lit(f"{topic} (incarnation {incarnation[:8]})")).otherwise(label)
        frames.append(rows.withColumn("topic", label))
    return frames


def read_schema() -> str:
    from holdfast.pipeline.columns import COLUMNS

    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in NEEDED)
