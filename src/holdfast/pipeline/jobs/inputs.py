"""What every pipeline reads: the messages of topics, as rows of the source's columns."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.columns.decoding import Wish
from holdfast.columns.files import Place, open_place, topic_and_partition
from holdfast.columns.open_chunks import Floor
from holdfast.columns.schema import COLUMNS, EXTRA
from holdfast.errors import Misuse
from holdfast.names import topic_name
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.offsets import Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())


class Told(Protocol):
    """Hears which step of a pipeline has begun, and in a few words what about it."""

    def __call__(self, step: str, words: str = "") -> None: ...


def silent(step: str, words: str = "") -> None:
    """Nobody wants to hear it."""


@dataclass(frozen=True)
class Extent:
    """What a topic holds: positions from `first` up to, without, `visible`."""

    incarnation: str
    """Made with the topic: another one means that it was deleted and made anew."""
    first: int
    visible: int


class Topics(Protocol):
    """Where messages come from. `Origin` is the real one."""

    def extents(self, topics: Sequence[str]) -> dict[str, Extent]:
        """What can be read now of each topic, or of each of its partitions, by full name."""

    def messages(
        self,
        spark: SparkSession,
        topics: Sequence[str],
        *,
        columns: Sequence[str] = tuple(COLUMNS),
        ranges: Mapping[str, tuple[int, int]] | None = None,
        accept_loss: bool = False,
    ) -> DataFrame:
        """Their messages, or those of these ranges of positions; by full name, the second is not in it. With
        `accept_loss` what was trimmed is left out, and chunked messages without their beginning."""

    def free_below(self, name: str, since: int, position: int, now_ns: int) -> int:
        """What may be trimmed when all below `position` was read: not the beginning of a chunked message
        whose end is still to come. `since`: nothing before it is needed any more. `now_ns`: see `Floor`."""

    def positions(self, name: str, start: int, stop: int) -> Iterator[Sequence[int]]:
        """The positions of a range that have a row, some more than one, as the topic itself says it."""


@dataclass(frozen=True)
class Origin:
    """A broker's data directory on this machine, or a broker that serves elsewhere."""

    path: str | None = None
    url: str | None = None
    """The HTTP address: what is read comes over Arrow Flight."""
    token: str | None = field(default=None, repr=False)
    more: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Other options of the source, such as tlsTrustCertsFilePath, or partitions."""

    def __post_init__(self) -> None:
        if (self.path is None) == (self.url is None):
            raise Misuse("say either path, a broker's data directory, or url, the address of one that serves")

    def options(self) -> dict[str, str]:
        """As the source wants to hear it."""
        if self.path is not None:
            return {"path": self.path, **self.more}
        shown = {} if self.token is None else {"token": self.token}
        return {"service.url": str(self.url), **shown, **self.more}

    def _parsed(self) -> dict[str, Any]:
        given = {name: value for name, value in self.options().items() if name != "path"}
        return parse(given, "source")

    def _place(self) -> Place:
        return open_place(self.path, self.url, self._parsed())

    def require(self) -> None:
        """Raises NotFound: there is no broker's directory."""
        self._place()

    def extents(self, topics: Sequence[str]) -> dict[str, Extent]:
        """See `Topics`.

        Raises:
            NotFound: there is no such topic, or nothing was ever published to it.
            BadConfiguration: a topic stands beside one that looks like its partition 0.
        """
        place, extents = self._place(), dict[str, Extent]()
        selection = Selection.of(full_names(topics), self._parsed())
        found = selection.find(place)
        for name in [*selection.missing(found), *found]:
            topic = place.open(name)
            first, visible = topic.plan()
            extents[name] = Extent(topic.incarnation.hex(), first, visible)
        return extents

    def messages(
        self,
        spark: SparkSession,
        topics: Sequence[str],
        *,
        columns: Sequence[str] = tuple(COLUMNS),
        ranges: Mapping[str, tuple[int, int]] | None = None,
        accept_loss: bool = False,
    ) -> DataFrame:
        """See `Topics`."""
        names, kinds = full_names(topics), {**COLUMNS, **EXTRA}
        groups = [
            [name for name in names if _is_plain(name)],
            *([name] for name in names if not _is_plain(name)),
        ]
        frames = []
        for group in filter(None, groups):
            reader = (
                spark.read.format("holdfast")
                .options(**self.options())
                .options(**_named(group))
                .option("failOnDataLoss", not accept_loss)
                .schema(", ".join(f"`{name}` {kinds[name]}" for name in columns))
            )
            if ranges is not None:
                reader = reader.options(**_from_to({name: ranges[name] for name in group}))
            frames.append(reader.load())
        return reduce(lambda left, right: left.unionByName(right), frames)

    def free_below(self, name: str, since: int, position: int, now_ns: int) -> int:
        """See `Topics`."""
        return Floor().below(self._place().open(name), since, position, now_ns)

    def positions(self, name: str, start: int, stop: int) -> Iterator[Sequence[int]]:
        """See `Topics`. Raises NotFound: they were trimmed."""
        for batch in self._place().open(name).decoding(start, stop, Wish(["position"])).batches():
            yield batch.column("position").to_numpy()

    def stream(self, spark: SparkSession, topics: Sequence[str]) -> DataStreamReader:
        """The same as a stream, from the earliest on; options may be added before `load`.

        Raises:
            Misuse: of several topics one has a comma in its name.
        """
        names = full_names(topics)
        if len(names) > 1 and (odd := [name for name in names if not _is_plain(name)]):
            raise Misuse(f"{odd[0]!r} has a comma or a blank at its end: stream it by itself")
        return (
            spark.readStream.format("holdfast")
            .options(**self.options())
            .options(**_named(names))
            .option("startingOffsets", "earliest")
            .schema(SCHEMA)
        )


def _is_plain(name: str) -> bool:
    """It can stand between commas."""
    return "," not in name and name == name.strip()


def _named(names: Sequence[str]) -> dict[str, str]:
    """As an option; one alone may have any name."""
    return {"topic": names[0]} if len(names) == 1 else {"topics": ",".join(names)}


def _from_to(ranges: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """As options: these and no others, though a partition may have come since they were planned."""
    found = {"partitions": "false"}
    for option, end in (("startingOffsets", 0), ("endingOffsets", 1)):
        told: dict[str, dict[str, int]] = {}
        for name, span in ranges.items():
            topic, partition = topic_and_partition(name)
            told.setdefault(topic, {})[str(partition)] = span[end]
        found[option] = json.dumps(told)
    return found


def full_names(topics: Sequence[str]) -> list[str]:
    """Each once, in full."""
    if not topics:
        raise Misuse("name one topic or more")
    return list(dict.fromkeys(topic_name(each) for each in topics))


def messages(
    spark: SparkSession,
    *,
    topics: Sequence[str],
    path: str | None = None,
    url: str | None = None,
    token: str | None = None,
) -> DataFrame:
    """All messages of topics: what a pipeline of your own begins with."""
    return Origin(path, url, token).messages(spark, topics)


COUNTED = {
    "spark.sql.adaptive.optimizer.excludedRules": (
        "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
    )
}
"""Where no row is left, Spark would drop all that led there, and with it what was counted on the way."""


@contextlib.contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Spark's own settings, for as long as this lasts; then what they were before."""
    before = {name: spark.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
