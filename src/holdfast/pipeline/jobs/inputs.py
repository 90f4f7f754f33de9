"""Read the messages of topics for a job, as rows of the source's columns."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.columns import COLUMNS, EXTRA, Floor, Place, Wish, open_place, topic_and_partition
from holdfast.errors import Misuse
from holdfast.names import topic_name
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.offsets import Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader


class Told(Protocol):
    """Called when a step of a job begins, with a few words about it."""

    def __call__(self, step: str, words: str = "") -> None: ...


def silent(step: str, words: str = "") -> None:
    """Ignore the steps."""


@dataclass(frozen=True)
class Extent:
    """The positions of a topic: from `first` up to `visible`, which is excluded."""

    incarnation: str
    """Created with the topic. Another one means that the topic was deleted and created again."""
    first: int
    visible: int


class Topics(Protocol):
    """A place of topics. `Origin` is the real one; tests have others."""

    def extents(self, topics: Sequence[str]) -> dict[str, Extent]:
        """Return what can be read now of each topic or partition, by full name."""

    def messages(
        self,
        spark: SparkSession,
        topics: Sequence[str],
        *,
        columns: Sequence[str] = tuple(COLUMNS),
        ranges: Mapping[str, tuple[int, int]] | None = None,
        accept_loss: bool = False,
    ) -> DataFrame:
        """Read their messages, or ranges of positions by full name, the second excluded.

        With `accept_loss`, trimmed entries are left out, and chunked messages that lost their first chunks.
        """

    def free_below(self, name: str, since: int, position: int, now_ns: int) -> int:
        """Return the position below which the broker may trim after all below `position` was read.

        The first chunks of a message that is not complete are kept. Entries before `since` are not needed.
        `now_ns`: see `Floor`.
        """

    def positions(self, name: str, start: int, stop: int) -> Iterator[Sequence[int]]:
        """Read the positions of a range that have a row, without Spark; one per row."""

    def schemas(self, names: Iterable[str]) -> dict[str, tuple[bytes, ...]]:
        """Return the schemas of topics by version, as stored.

        An empty one stands for a deletion. Names are full names; partitions count as their topic. All schemas
        of messages that were readable before the call are there.
        """


@dataclass(frozen=True)
class Origin:
    """A broker's data directory on this machine, or a broker that serves elsewhere."""

    path: str | None = None
    url: str | None = None
    """The HTTP address. Messages come over Arrow Flight."""
    token: str | None = field(default=None, repr=False)
    more: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Other options of the source, such as tlsTrustCertsFilePath, or partitions."""

    def __post_init__(self) -> None:
        if (self.path is None) == (self.url is None):
            raise Misuse("give either path, a broker's data directory, or url, a server's address")

    def options(self) -> dict[str, str]:
        """Return the options for the source."""
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
        """Raises NotFound: the directory is not a broker's."""
        self._place()

    def extents(self, topics: Sequence[str]) -> dict[str, Extent]:
        """See `Topics`.

        Raises:
            NotFound: a topic does not exist, or no message was ever published to it.
            BadConfiguration: a topic and another topic both count as its partition 0.
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
        names = full_names(topics)
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
                .schema(ddl(columns))
            )
            if ranges is not None:
                reader = reader.options(**_from_to({name: ranges[name] for name in group}))
            frames.append(reader.load())
        return union(frames)

    def free_below(self, name: str, since: int, position: int, now_ns: int) -> int:
        """See `Topics`."""
        return Floor().below(self._place().open(name), since, position, now_ns)

    def positions(self, name: str, start: int, stop: int) -> Iterator[Sequence[int]]:
        """See `Topics`. Raises NotFound: positions were trimmed."""
        for batch in self._place().open(name).decoding(start, stop, Wish(["position"])).batches():
            yield batch.column("position").to_numpy()

    def schemas(self, names: Iterable[str]) -> dict[str, tuple[bytes, ...]]:
        """See `Topics`. Raises Corrupt: the file with the schemas is damaged."""
        place, found = self._place(), dict[str, tuple[bytes, ...]]()
        for name in names:
            topic, _ = topic_and_partition(name)
            found[topic] = max(found.get(topic, ()), place.open(name).schemas(), key=len)
        return found

    def stream(self, spark: SparkSession, topics: Sequence[str]) -> DataStreamReader:
        """Return a stream of the topics from the earliest entry; add options before `load`.

        Raises:
            Misuse: one of several topics has a comma in its name.
        """
        names = full_names(topics)
        if len(names) > 1 and (odd := [name for name in names if not _is_plain(name)]):
            raise Misuse(f"{odd[0]!r} has a comma, or a blank at an end; stream it by itself")
        return (
            spark.readStream.format("holdfast")
            .options(**self.options())
            .options(**_named(names))
            .option("startingOffsets", "earliest")
            .schema(ddl(COLUMNS))
        )


def _is_plain(name: str) -> bool:
    """Tell whether a name can be in a list with commas."""
    return "," not in name and name == name.strip()


def _named(names: Sequence[str]) -> dict[str, str]:
    """Return the option that names these topics; a single topic may have any name."""
    return {"topic": names[0]} if len(names) == 1 else {"topics": ",".join(names)}


def _from_to(ranges: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Return the options for these ranges alone; partitions created since are not read."""
    found = {"partitions": "false"}
    for option, end in (("startingOffsets", 0), ("endingOffsets", 1)):
        told: dict[str, dict[str, int]] = {}
        for name, span in ranges.items():
            topic, partition = topic_and_partition(name)
            told.setdefault(topic, {})[str(partition)] = span[end]
        found[option] = json.dumps(told)
    return found


def full_names(topics: Sequence[str]) -> list[str]:
    """Return the full names without duplicates."""
    if not topics:
        raise Misuse("name one topic or more")
    return list(dict.fromkeys(topic_name(each) for each in topics))


def ddl(columns: Iterable[str]) -> str:
    """Return columns of the source or of an archive as a schema."""
    kinds = {**COLUMNS, **EXTRA, "date": "DATE"}
    return ", ".join(f"`{name}` {kinds[name]}" for name in columns)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames, with columns matched by name."""
    return reduce(lambda left, right: left.unionByName(right), frames)


COUNTED = {
    "spark.sql.adaptive.optimizer.excludedRules": (
        "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
    )
}
"""Without it, Spark drops a plan that yields no row, together with its observed counts."""


@contextlib.contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Change settings of Spark within a block, and restore them afterwards."""
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
