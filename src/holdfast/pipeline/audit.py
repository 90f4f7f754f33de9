"""Audit the delivery of numbered messages: find lost, duplicated and out-of-order ones.

A message is (topic, producer, number). Archive and live topic are audited together, each position once: the
live rows begin where the archive ends. A topic that was deleted and created again is another topic, whose
producers count from 0 again. Rows of the former topic are counted under a name of their own.
`jobs/audit_counts.py` has the queries.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast.columns import topic_and_partition
from holdfast.errors import Corrupt, Misuse, NotFound
from holdfast.formatting import plural, text_table, time_words
from holdfast.names import topic_name
from holdfast.pipeline.archive import plan, read_archive
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Range, Run
from holdfast.pipeline.jobs.audit_counts import (
    Bar,
    Found,
    Gap,
    Latency,
    Moment,
    ProducerAudit,
    Strange,
    Wanted,
    counted,
)
from holdfast.pipeline.jobs.inputs import Extent, Origin, Told, Topics, ddl, full_names, silent, union
from holdfast.pipeline.jobs.summary import Report, readable, short

NEEDED = ("value", "topic", "partition", "messageId", "storedTime", "position")
TAKEN = ("tlsTrustCertsFilePath", "tlsCertificateFilePath", "tlsKeyFilePath", "timeout", "minPartitions")
"""Options of the source that do not filter messages."""
Expected = Mapping[str, int | None] | Mapping[str, Mapping[str, int | None]]
"""Producer → number of confirmed messages, or the same per topic. None: not known."""


@dataclass(frozen=True)
class AuditReport(Report):
    """The result of an audit."""

    archived: int
    live: int
    messages: int
    """Archived and live messages."""
    foreign: int
    """Messages that are not numbered."""
    damaged: int
    """Messages that begin as numbered ones, but do not decode."""
    producers: list[ProducerAudit]
    latency: list[Latency]
    step_s: int
    series: list[Moment]
    """Messages by `storedTime`, in steps of `step_s`."""
    histogram: list[Bar]
    untimed: int = 0
    """Messages of archived runs without `storedTime`: their latency is not known."""
    said: bool = False
    """The caller gave the expected counts."""
    unseen: int = 0
    """Positions that were trimmed and are not archived."""
    empty: list[str] = field(default_factory=list)
    """Topics without numbered messages, though the caller did not say that they are empty."""
    foreign_allowed: bool = False
    gaps: list[Gap] = field(default_factory=list)
    repeated: list[Found] = field(default_factory=list)
    overtaken: list[Found] = field(default_factory=list)
    strange: list[Strange] = field(default_factory=list)
    """Some of the messages that are not numbered, or damaged."""
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
        """Count the producers that are not in the expected counts."""
        return sum(each.unexpected for each in self.producers)

    @property
    def sound(self) -> bool:
        return not self.faults()

    def faults(self) -> list[str]:
        """List the faults in words; empty: the audit is sound."""
        known = [each.confirmed is not None for each in self.producers]
        if self.messages == 0 and not any(known):
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
        if self.unseen and not (self.said and all(known)):  # their producers are not known
            faults.append(f"{plural(self.unseen, 'position')} trimmed unseen")
        if self.empty or not self.producers:
            topics = f" in {', '.join(map(short, self.empty))}" if self.empty else ""
            faults.append(f"there is no numbered message{topics}")
        return faults

    def record(self) -> dict[str, Any]:
        found = super().record()
        for name in ("lost", "duplicated", "out_of_order", "unexpected", "sound"):
            found[name] = getattr(self, name)
        return {**found, "faults": self.faults()}

    def table(self) -> str:
        head = ["TOPIC", "PRODUCER", "MESSAGES", "LOST", "DUPLICATED", "OUT OF ORDER"]
        rows: list[list[object]] = [
            [
                short(each.topic),
                readable(each.producer),
                each.messages,
                each.lost,
                each.duplicated,
                each.out_of_order,
            ]
            for each in self.producers
        ]
        if self.said:
            head.insert(3, "CONFIRMED")
            for row, each in zip(rows, self.producers, strict=True):
                row.insert(3, each.confirmed_words)
        lines = text_table(head, rows, numbers=2, grouped=True) if rows else []
        if self.latency:
            columns = ("LATENCY", "MESSAGES", "LEAST", "50 %", "90 %", "99 %", "99.9 %", "MOST")
            times = [
                (short(each.topic), each.count, *map(time_words, (each.min, *each.shares, each.max)))
                for each in self.latency
            ]
            lines += ["", *text_table(columns, times, numbers=1, grouped=True)]
        if self.strange:
            shown = [(short(each.topic), each.position, each.what) for each in self.strange[:10]]
            lines += ["", *text_table(("NOT A NUMBERED MESSAGE", "AT POSITION", "WHAT"), shown, grouped=True)]
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
        topics: names of topics; empty: all topics of the archive.
        path, url, token, options: the live topics: a data directory, or a server's HTTP address, with other
            options of the source.
        source: the live topics, instead of `path` and `url`.
        archive: an archive's directory, audited together with the live topics, or alone.
        expected: the number of messages that were confirmed to each producer; for several topics, to each
            producer of each topic. Without it, all numbers up to a producer's highest are expected, and
            messages missing at the end are not noticed.
        foreign_allowed: messages that are not numbered are not a fault. Damaged ones are.
        told: called at every step.

    Raises:
        NotFound: the archive does not exist, or a topic is neither in it nor in the broker.
        Corrupt: a live topic ends before its archive does, or was deleted meanwhile; or the archive has other
            rows than its runs list.
    """
    began = time.monotonic()
    told("read")
    live = path is not None or url is not None
    origin = source or (Origin(path, url, token, options or {}) if live else None)
    looked = look(spark, topics, origin, archive)
    wanted = None if expected is None else by_topic(expected, looked.topics, looked.parts)
    found = counted(spark, looked.rows, looked.topics, wanted, told)
    if looked.archived is not None and found["archived"] != looked.archived:
        raise Corrupt(
            f"the archive {archive} has {plural(found['archived'], 'row')} of these topics, and its runs "
            f"have written {looked.archived}; restore it from a copy"
        )
    if origin is not None:
        require_same(origin, looked.live)
    return AuditReport(
        **found,
        said=expected is not None,
        unseen=looked.unseen,
        empty=empty(looked.topics, found["producers"], wanted),
        foreign_allowed=foreign_allowed,
        notes=[*looked.notes, *clock_notes(found["latency"], found["untimed"])],
        seconds=time.monotonic() - began,
    )


def clock_notes(latency: Sequence[Latency], untimed: int) -> Iterator[str]:
    """Describe clock skew and missing times, which make latencies unreliable."""
    for each in latency:
        if each.skewed:
            some = f"{each.skewed:,} of {plural(each.count, 'message')}"
            yield (
                f"{each.topic}: clock skew: {some} were stored up to {time_words(-each.min)} before they "
                "were sent. The clocks of producer and broker differ by at least that, and all latencies of "
                "this topic are wrong by as much"
            )
    if untimed:
        yield (
            f"{plural(untimed, 'archived message')} without storedTime, from archives of former versions: "
            "their latency is not known"
        )


def by_topic(
    expected: Expected, topics: Sequence[str], parts: Sequence[str] = ()
) -> dict[tuple[str, str], int | None]:
    """Arrange the expected counts by topic and producer. `parts`: the audited topics and partitions.

    Raises:
        Misuse: a count is without a topic, of a topic that is not audited, of one partition among several, or
            given twice.
    """
    require_counts(expected)
    nested = {name: each for name, each in expected.items() if isinstance(each, Mapping)}
    if nested and len(nested) < len(expected):
        raise Misuse("expected mixes producers and topics; give all counts by topic")
    if not nested:
        if len(topics) != 1:
            raise Misuse(
                f"{len(topics)} topics are audited; give the expected counts by topic, "
                'such as {"orders": {"rig-1": 1000}}'
            )
        return {
            (topics[0], name): count for name, count in expected.items() if not isinstance(count, Mapping)
        }
    found: dict[tuple[str, str], int | None] = {}
    names: dict[str, str] = {}
    for name, producers in nested.items():
        full = topic_name(name)
        topic = topic_and_partition(full)[0]
        if topic not in topics:
            raise Misuse(f"expected names {name}, which is not audited; audited are {', '.join(topics)}")
        if topic in names:
            raise Misuse(f"expected names {topic} twice, as {names[topic]} and as {name}; name it once")
        if full != topic and [each for each in parts if topic_and_partition(each)[0] == topic] != [full]:
            raise Misuse(
                f"expected names {name}, one of the audited partitions; a producer counts over all "
                f"partitions, so give the counts of {topic}"
            )
        names[topic] = name
        found |= {(topic, producer): count for producer, count in producers.items()}
    unsaid = set(topics) - set(names)
    if unsaid:
        raise Misuse(
            f"expected lacks {', '.join(sorted(unsaid))}; name the topics to audit, or give {{}} for each"
        )
    return found


def require_counts(expected: Mapping[str, Any], by_topic: bool = True) -> None:
    """Check that the expected counts are numbers of messages.

    Raises:
        Misuse: a count is not a number, or a name is not text.
    """
    for name, count in expected.items():
        if by_topic and isinstance(count, Mapping):
            require_counts(count, by_topic=False)
        elif count is not None and (type(count) is not int or not 0 <= count < 1 << 63):
            raise Misuse(
                f"expected has {count!r} for {name}; a number of messages is whole, 0 or more, and less than "
                "2^63, or null if it is not known"
            )
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Misuse(f"expected names {name!r}, which is not valid text; correct the name") from None


def empty(topics: Sequence[str], producers: Sequence[ProducerAudit], wanted: Wanted | None) -> list[str]:
    """List the topics that have no numbered message and no expected count."""
    shown = {each.topic for each in producers if each.messages or each.confirmed is not None}
    if wanted is not None:  # {}: no producer is expected
        shown |= set(topics) - {topic for topic, _ in wanted}
    return [topic for topic in topics if topic not in shown]


# -- the audited rows --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Looked:
    """The rows of an audit, with a column `live` of 0 and 1."""

    rows: DataFrame
    topics: list[str]
    """All audited topics, also empty ones."""
    notes: list[str]
    parts: list[str] = field(default_factory=list)
    """Their names, with each of their partitions."""
    unseen: int = 0
    """Positions that were trimmed and are not archived."""
    archived: int | None = None
    """Rows of these topics by the archive's runs; None: the runs do not count them."""
    live: Mapping[str, Range] = field(default_factory=dict)
    """The positions that are read from the broker."""


def look(
    spark: SparkSession, topics: Sequence[str], origin: Topics | None, archive: str | Path | None
) -> Looked:
    """Select the archived rows, and the live rows after them."""
    if origin is None and archive is None:
        raise Misuse("an audit reads an archive, live topics, or both; say which")
    taken = {name.lower() for name in TAKEN}
    for name in origin.more if isinstance(origin, Origin) else ():
        if name.lower() not in taken:
            raise Misuse(
                f"an audit reads all messages: option {name} is not allowed; allowed are {', '.join(TAKEN)}"
            )
    runs = [] if archive is None else _runs(archive)
    everything = {topic: reach for run in runs for topic, reach in run.topics.items()}
    names = _names(topics, everything, archive, origin is not None)
    reached = {
        name: reach
        for name, reach in everything.items()
        if name in names or topic_and_partition(name)[0] in names
    }
    there = {} if origin is None else still_there(origin, names, reached)[0]
    ranges = plan(
        reached, there, accept_loss=True
    )  # only after the archived positions; refuses a topic that lost its end
    newest = {name: reach.incarnation for name, reach in {**reached, **ranges}.items()}
    bases = list(dict.fromkeys(topic_and_partition(name)[0] for name in [*names, *there]))
    others = [name for name in everything if name not in reached and topic_and_partition(name)[0] in bases]
    frames = [] if archive is None else _archived(spark, archive, runs, bases, others, newest)
    frames = [frame.withColumn("live", F.lit(0)) for frame in frames]
    live = {name: reach for name, reach in ranges.items() if reach.start < reach.stop}
    if origin is not None and live:
        spans = {name: (reach.start, reach.stop) for name, reach in live.items()}
        rows = origin.messages(spark, list(spans), columns=NEEDED, ranges=spans)
        frames.append(rows.withColumn("live", F.lit(1)))
    if not frames:
        frames = [spark.createDataFrame([], f"{ddl(NEEDED)}, live INT")]
    trimmed = list(_trimmed(runs, reached, ranges))
    notes = [note for _, note in trimmed]
    if origin is not None:
        notes += [
            f"{name} is archived, and the broker no longer has it" for name in reached if name not in there
        ]
    return Looked(
        union(frames),
        bases,
        notes,
        parts=list(dict.fromkeys([*reached, *there])),
        unseen=sum(count for count, _ in trimmed),
        archived=None
        if others
        else sum(part.rows for run in runs for part in run.parts if part.topic in bases),
        live=live,
    )


def require_same(origin: Topics, read: Mapping[str, Range]) -> None:
    """Check that no topic was replaced while it was read.

    Raises:
        Corrupt: a topic was deleted, and perhaps created again.
    """
    for name, reach in read.items():
        try:
            now = origin.extents([name]).get(name)
        except NotFound:
            now = None
        if now is None or now.incarnation != reach.incarnation:
            raise Corrupt(f"{name} was deleted while it was read; audit again")


def still_there(
    origin: Topics, names: Sequence[str], archived: Mapping[str, Range]
) -> tuple[dict[str, Extent], list[str]]:
    """Return the live topics, and archived topics that the broker no longer has.

    Raises:
        NotFound: a topic is neither live nor archived.
    """
    try:
        return origin.extents(names), []
    except NotFound:  # find which of them
        if isinstance(origin, Origin):
            origin.require()  # a missing directory does not mean that topics were deleted
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


def _trimmed(
    runs: Sequence[Run], looked: Collection[str], live: Mapping[str, Range]
) -> Iterator[tuple[int, str]]:
    """Count the positions that are neither archived nor live, with a note for each topic."""
    before: dict[str, str] = {}
    kept = [(each, "between two runs") for run in runs for each in run.topics.items() if each[0] in looked]
    for (name, reach), where in [*kept, *((each, "after the archive") for each in live.items())]:
        new, before[name] = before.get(name) != reach.incarnation, reach.incarnation
        if reach.lost:
            yield (
                reach.lost,
                f"{name}: {plural(reach.lost, 'position')} {where} were trimmed and not archived",
            )
        elif new and reach.start > 0:
            yield (
                reach.start,
                f"{name}: the first {plural(reach.start, 'position')} were trimmed and not archived",
            )


def _runs(archive: str | Path) -> list[Run]:
    directory = ArchiveDirectory.there(archive)
    if directory.kind == "compacted":
        raise Misuse(f"{directory.path} is compacted and lacks messages on purpose; audit the topic itself")
    return directory.runs()


def _names(
    topics: Sequence[str], archived: Mapping[str, Range], archive: str | Path | None, live: bool
) -> list[str]:
    """Return the full names of the audited topics.

    Raises:
        NotFound: a topic is not in the archive, and no live topics are given.
    """
    if not topics:
        if archive is None:
            raise Misuse("name the topics to audit")
        if live:  # also partitions that were added since
            return list(dict.fromkeys(topic_and_partition(name)[0] for name in archived))
        return list(archived)
    names = full_names(topics)
    known = set(archived) | {topic_and_partition(name)[0] for name in archived}
    for name in names:
        if not live and name not in known:
            raise NotFound(f"the archive {archive} has no topic {name}; it has {', '.join(sorted(archived))}")
    return names


def _archived(
    spark: SparkSession,
    archive: str | Path,
    runs: Sequence[Run],
    topics: Sequence[str],
    others: Sequence[str],
    newest: Mapping[str, str],
) -> list[DataFrame]:
    """Read the rows of runs, except those of `others`, partitions that are not audited.

    Rows of a topic that was created again since get a name of their own.
    """
    labels = older_names(runs, newest)
    alike: dict[frozenset[tuple[str, str]], list[Run]] = {}
    for run in runs:
        lives = {(name, reach.incarnation) for name, reach in run.topics.items()}
        alike.setdefault(frozenset(lives & labels.keys()), []).append(run)
    frames = []
    for older, some in alike.items():
        rows = read_archive(spark, archive, runs=some).select(*NEEDED).where(F.col("topic").isin(*topics))
        for topic, partition in map(topic_and_partition, others):
            rows = rows.where((F.col("topic") != topic) | (F.col("partition") != partition))
        label = F.col("topic")
        for name, incarnation in older:
            topic, partition = topic_and_partition(name)
            it = (F.col("topic") == topic) & (F.col("partition") == partition)
            label = F.when(it, F.lit(labels[name, incarnation])).otherwise(label)
        frames.append(rows.withColumn("topic", label))
    return frames


def older_names(runs: Sequence[Run], newest: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Name former topics that were created again since, by name and incarnation.

    Partitions have incarnations of their own. Incarnations of partitions belong to the same topic if equally
    many came after them. They get the name of the first one, because a producer counts over all partitions.
    """
    lives: dict[str, list[str]] = {name: [] for name in sorted(newest, key=topic_and_partition)}
    archived = ((name, reach.incarnation) for run in runs for name, reach in run.topics.items())
    for name, incarnation in [*(each for each in archived if each[0] in newest), *newest.items()]:
        lives[name] = [*(each for each in lives[name] if each != incarnation), incarnation]
    found: dict[tuple[str, str], str] = {}
    first: dict[tuple[str, int], str] = {}
    for name, mine in lives.items():
        topic = topic_and_partition(name)[0]
        for after, incarnation in enumerate(reversed(mine)):
            if after:
                called = first.setdefault((topic, after), incarnation)
                found[name, incarnation] = f"{topic} (incarnation {called[:8]})"
    return found
