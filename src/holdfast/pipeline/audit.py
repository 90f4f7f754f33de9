"""The delivery audit: of numbered messages, which are lost, which are there twice, which overtook another.

A message is (topic, producer, number). Archive and live topic are looked at together, each position once: the
archive's runs are read once, and what is live begins where they end. A topic that was deleted and made anew
is another topic, whose producers count from 0 again: rows of the older one are accounted for under a name of
their own. What Spark counts is in `accounting.py`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast.columns.files import topic_and_partition
from holdfast.errors import Corrupt, Misuse, NotFound
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
from holdfast.pipeline.jobs.inputs import Extent, Origin, Told, Topics, full_names, silent
from holdfast.pipeline.jobs.summary import plural, readable, short, text_table, time_words

NEEDED = ("value", "topic", "partition", "messageId", "storedTime", "position")
TAKEN = ("tlsTrustCertsFilePath", "tlsCertificateFilePath", "tlsKeyFilePath", "timeout", "minPartitions")
"""Options of the source that leave nothing out."""
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
    """The messages by `storedTime`, in steps of `step_s`."""
    histogram: list[Bar]
    untimed: int = 0
    """Of a run of an archive that has no `storedTime`: their latency is not known."""
    said: bool = False
    """What was confirmed was said."""
    unseen: int = 0
    """Positions that were trimmed, and are in no archive."""
    empty: list[str] = field(default_factory=list)
    """Topics that have nothing to account for, though nobody said so."""
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
        if self.unseen and not (self.said and all(known)):  # of whom, nobody can tell
            faults.append(f"{plural(self.unseen, 'position')} trimmed unseen")
        if self.empty or not self.producers:
            topics = f" in {', '.join(map(short, self.empty))}" if self.empty else ""
            faults.append(f"there is no numbered message{topics}")
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
        lines = text_table(head, rows, numbers=2) if rows else []
        if self.latency:
            columns = ("LATENCY", "MESSAGES", "LEAST", "50 %", "90 %", "99 %", "99.9 %", "MOST")
            times = [
                (short(each.topic), each.count, *map(time_words, (each.min, *each.shares, each.max)))
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
        Corrupt: a live topic ends before its archive does, or was deleted meanwhile; the archive has other
            rows than its runs say.
    """
    began = time.monotonic()
    told("read")
    origin = source or _origin(path, url, token, options)
    looked = look(spark, topics, origin, archive)
    wanted = None if expected is None else by_topic(expected, looked.topics, looked.parts)
    found = counted(spark, looked.rows, looked.topics, wanted, told)
    if looked.archived is not None and found["archived"] != looked.archived:
        raise Corrupt(
            f"{archive} has {found['archived']} rows of these topics, and its runs have written "
            f"{looked.archived}; restore it from a copy"
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
    """What must be known of the clocks before a latency is believed."""
    for each in latency:
        if each.skewed:
            some = f"{each.skewed:,} of {plural(each.count, 'message')}"
            yield (
                f"{each.topic}: clock skew: {some} were stored up to {time_words(-each.min)} before they "
                "were sent; the clocks of producer and broker differ by that or more, and all latencies of "
                "this topic are as wrong"
            )
    if untimed:
        yield (
            f"{plural(untimed, 'archived message')} have no storedTime, which archives of former versions "
            "lack: their latency is not known"
        )


def _origin(
    path: str | None, url: str | None, token: str | None, options: Mapping[str, str] | None
) -> Topics | None:
    return None if path is None and url is None else Origin(path, url, token, options or {})


def by_topic(
    expected: Expected, topics: Sequence[str], parts: Sequence[str] = ()
) -> dict[tuple[str, str], int | None]:
    """What is expected, by topic and producer. `parts`: what is looked at of them, also partitions.

    Raises:
        Misuse: it does not say of which topic, or of one that is not looked at, or twice of one, or of one
            of its partitions.
    """
    require_counts(expected)
    nested = {name: each for name, each in expected.items() if isinstance(each, Mapping)}
    if nested and len(nested) < len(expected):
        raise Misuse("expected names producers beside topics: say all of it by topic")
    if not nested:
        if len(topics) != 1:
            raise Misuse(
                f"{len(topics)} topics are looked at: say what is expected of each, "
                'as {"orders": {"rig-1": 1000}}'
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
            raise Misuse(f"expected names {name}, which is not looked at; there are {', '.join(topics)}")
        if topic in names:
            raise Misuse(f"expected says it twice of {topic}, as {names[topic]} and as {name}; say it once")
        if full != topic and [each for each in parts if topic_and_partition(each)[0] == topic] != [full]:
            raise Misuse(
                f"expected names {name}, which is a part of what is looked at: a producer counts over all "
                f"partitions, so say it of {topic}"
            )
        names[topic] = name
        found |= {(topic, producer): count for producer, count in producers.items()}
    unsaid = set(topics) - set(names)
    if unsaid:
        raise Misuse(
            f"expected says nothing of {', '.join(sorted(unsaid))}; name the topics to look at, or say {{}}"
        )
    return found


def require_counts(expected: Mapping[str, Any], by_topic: bool = True) -> None:
    """What is expected are numbers of messages.

    Raises:
        Misuse: one is not, or a name is none.
    """
    for name, count in expected.items():
        if by_topic and isinstance(count, Mapping):
            require_counts(count, by_topic=False)
        elif count is not None and (type(count) is not int or not 0 <= count < 1 << 63):
            raise Misuse(
                f"expected says {count!r} of {name}: a number of messages is whole, 0 or more, and less than "
                "2^63; null means that it is not known"
            )
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Misuse(f"expected names {name!r}, which is no text that a message could hold") from None


def empty(topics: Sequence[str], producers: Sequence[ProducerAudit], wanted: Wanted | None) -> list[str]:
    """Topics of which nothing is there, and nobody has said how much there should be."""
    shown = {each.topic for each in producers if each.messages or each.confirmed is not None}
    if wanted is not None:  # {}: nobody is expected to be there
        shown |= set(topics) - {topic for topic, _ in wanted}
    return [topic for topic in topics if topic not in shown]


# -- what is looked at --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Looked:
    """The rows of an audit, with a column `live` of 0 and 1."""

    rows: DataFrame
    topics: list[str]
    """All that are accounted for, even if there is nothing of them."""
    notes: list[str]
    parts: list[str] = field(default_factory=list)
    """The same, with each of the partitions that they have."""
    unseen: int = 0
    """Positions that were trimmed, and are in no archive."""
    archived: int | None = None
    """Rows that there are of these topics as the archive's runs say; None: they do not tell."""
    live: Mapping[str, Range] = field(default_factory=dict)
    """What is read of the broker."""


def look(
    spark: SparkSession, topics: Sequence[str], origin: Topics | None, archive: str | Path | None
) -> Looked:
    """Archived rows, and those of the live topics that are behind them."""
    if origin is None and archive is None:
        raise Misuse("an audit looks at an archive, at topics, or at both; say which")
    taken = {name.lower() for name in TAKEN}
    for name in origin.more if isinstance(origin, Origin) else ():
        if name.lower() not in taken:
            raise Misuse(f"an audit looks at everything: {name} is not for it; it takes {', '.join(TAKEN)}")
    runs = [] if archive is None else _runs(archive)
    everything = {topic: reach for run in runs for topic, reach in run.topics.items()}
    names = _names(topics, everything, archive, origin is not None)
    reached = {
        name: reach
        for name, reach in everything.items()
        if name in names or topic_and_partition(name)[0] in names
    }
    there = {} if origin is None else still_there(origin, names, reached)[0]
    ranges = plan(reached, there, accept_loss=True)  # only behind the archive; it refuses what lost its end
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
        frames = [spark.createDataFrame([], f"{read_schema()}, live INT")]
    trimmed = list(_trimmed(runs, reached, ranges))
    notes = [note for _, note in trimmed]
    if origin is not None:
        notes += [
            f"{name} is archived, and the broker has it no longer" for name in reached if name not in there
        ]
    return Looked(
        reduce(lambda left, right: left.unionByName(right), frames),
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
    """What was read was of these topics, all of it.

    Raises:
        Corrupt: one was deleted meanwhile, and perhaps made anew.
    """
    for name, reach in read.items():
        try:
            now = origin.extents([name]).get(name)
        except NotFound:
            now = None
        if now is None or now.incarnation != reach.incarnation:
            raise Corrupt(f"{name} was deleted while it was read; do it again for what is there now")


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


def _trimmed(
    runs: Sequence[Run], looked: Collection[str], live: Mapping[str, Range]
) -> Iterator[tuple[int, str]]:
    """What is in neither place of the topics that are looked at: how many positions, and where."""
    before: dict[str, str] = {}
    kept = [(each, "before its next run") for run in runs for each in run.topics.items() if each[0] in looked]
    for (name, reach), where in [*kept, *((each, "behind the archive") for each in live.items())]:
        new, before[name] = before.get(name) != reach.incarnation, reach.incarnation
        if reach.lost:
            yield (
                reach.lost,
                f"{name}: {plural(reach.lost, 'position')} {where} were trimmed and never archived",
            )
        elif new and reach.start > 0:
            yield (
                reach.start,
                f"{name}: the first {plural(reach.start, 'position')} were trimmed, and are in no archive",
            )


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
        if live:  # also of partitions that were added since
            return list(dict.fromkeys(topic_and_partition(name)[0] for name in archived))
        return list(archived)
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
    others: Sequence[str],
    newest: Mapping[str, str],
) -> list[DataFrame]:
    """The rows of these runs, but for `others`: partitions that nobody has asked for. Rows of a topic that
    was made anew since then are given a name of their own."""
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
    """What topics that were made anew since then are called, by name and incarnation.

    Partitions have incarnations of their own. Those of one life of a topic are told by how many came after
    them, and are called by that of the first one: a producer counts over all of them.
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


def read_schema() -> str:
    from holdfast.columns.schema import COLUMNS

    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in NEEDED)
