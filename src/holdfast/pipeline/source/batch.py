"""Read topics as a batch: the present entries, in ranges of positions, one task each."""

from __future__ import annotations

import bisect
import functools
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.columns import NEWEST, Place, TopicReader, Wish, open_place
from holdfast.errors import BadConfiguration, Corrupt, NotFound
from holdfast.ledger.files import directory_incarnation
from holdfast.pipeline.options import EARLIEST, LATEST
from holdfast.pipeline.source.offsets import (
    DataLoss,
    Selection,
    after_loss,
    before_end,
    require_behind_view,
    require_known,
    resolve,
    starting_at,
    wanted_position,
)

log = logging.getLogger("holdfast.pipeline.batch")

SPLIT_BYTES = 64 << 20
"""Approximate most bytes per task, so that all cores are busy until the end."""
NAMES_TOLD = 20
"""Topics that an error lists if a topic was not found."""
SPLIT_BYTES_MIN = 256 << 10
"""Fewest bytes per task, unless minPartitions asks for more tasks."""
STEPS = 16
"""Task sizes differ by at most 1/16 plus one entry."""


@dataclass(frozen=True)
class Split(InputPartition):
    """One task: positions of a topic from `start` up to `stop`, which is excluded."""

    name: str
    incarnation: str
    start: int
    stop: int
    whole: int = 0
    """As `Wish.whole`."""
    view: int = 0
    """The compacted view to read through; 0: none."""
    home: str = field(default="", compare=False)
    """The incarnation of the directory; empty: over the network. Not compared: the rows are the same."""


class Planned(NamedTuple):
    """The range to read of a topic."""

    topic: TopicReader
    start: int
    stop: int
    whole: int


def cut(ranges: list[Planned], at_least: int | None, cores: int | None = None) -> list[Split]:
    """Divide ranges of topics into tasks of about the same number of bytes."""
    weighed = [(each, each.topic.weights(each.start, each.stop)) for each in ranges if each.start < each.stop]
    total = sum(weights[-1][1] for _, weights in weighed)
    tasks = at_least or max(1, min(cores or os.cpu_count() or 1, total // SPLIT_BYTES_MIN))
    size = max(1, min(SPLIT_BYTES, -(-total // tasks)))
    out = []
    for (topic, start, stop, whole), weights in weighed:
        if weights[-1][1] > size:  # entries differ in size: the ends of ledgers are too coarse
            weights = topic.weights(start, stop, max(1, size // STEPS))
        ordinals, before = zip(*weights, strict=True)
        parts = max(1, -(-before[-1] // size))
        edges = [start]
        for part in range(1, parts):
            wanted = before[-1] * part // parts
            right = bisect.bisect_right(before, wanted)
            low, high = ordinals[right - 1], ordinals[right]
            inside = (wanted - before[right - 1]) * (high - low) // (before[right] - before[right - 1])
            if low + inside > edges[-1]:
                edges.append(low + inside)
        edges.append(ordinals[-1])
        incarnation, home = topic.incarnation.hex(), topic.home.hex()
        out += [Split(topic.name, incarnation, *edge, whole, topic.view, home) for edge in pairwise(edges)]
    return out


class BatchReader(DataSourceReader):
    """For `spark.read`."""

    def __init__(self, options: dict[str, Any], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._selection = Selection(options)
        if options["predefinedSubscription"] is not None:
            raise BadConfiguration(
                "predefinedSubscription is for streams: a batch has no progress to move it by; "
                "give startingOffsets instead"
            )

    def partitions(self) -> list[Split]:
        """Plan the tasks, once per query.

        Raises:
            NotFound: a topic does not exist.
            BadConfiguration: the batch would end within a compacted view.
            DataLoss: wanted entries were trimmed.
        """
        options = self._options
        place = open_place(options["path"], options["service.url"], options)
        found = self._selection.find(place)
        if missing := self._selection.missing(found):
            where = options["path"] or options["service.url"]
            raise NotFound(
                f"{where} shows no topic {', '.join(missing)}; check the name. It shows: {_shown(place)}"
            )
        starting = options["startingOffsets"] or "earliest"
        ending = options["endingOffsets"]
        require_known(starting, found, "startingOffsets")
        require_known(ending, found, "endingOffsets")
        ranges = []
        for name in found:
            topic = place.open(name, NEWEST if options["readCompacted"] else 0)
            first, visible = topic.plan()
            wish = wanted_position(starting, name, EARLIEST)
            start, whole = starting_at(topic, wish, options)
            last = wanted_position(ending, name, LATEST)
            stop = resolve(topic, last, options["endingTimestamp"])
            start = after_loss(name, start, first, options["failOnDataLoss"])
            # Only a number can name a position after the end. Messages published since are not a loss.
            asked = options["endingTimestamp"] is None and last not in (EARLIEST, LATEST)
            if asked:
                stop = before_end(name, stop, visible, options["failOnDataLoss"], "endingOffsets")
            require_behind_view(topic, stop)
            ranges.append(Planned(topic, start, min(stop, visible), whole))
        return cut(ranges, options["minPartitions"], options.get("cores")) or [Split("", "", 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one range, in a task."""
        assert isinstance(partition, Split)
        return read_split(partition, self._options, self._schema)


def _shown(place: Place) -> str:
    """List some names for an error."""
    try:
        names = place.topics()
    except Corrupt as error:
        return f"unknown, because {error}"
    more = f", and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
    return (", ".join(names[:NAMES_TOLD]) or "no topics") + more


def read_split(split: Split, options: dict[str, Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Read the rows of one task as Arrow, in the types that Spark wants."""
    names = schema.fieldNames()
    if "value" not in names or not isinstance(schema["value"].dataType, StructType):
        return _entries(split, options, wish_of(options, names, split.whole))
    wanted = to_arrow_schema(schema, timezone="UTC")
    if options["valueFormat"] != "schema":
        return _decoded(_entries(split, options, wish_of(options, names, split.whole)), wanted)
    from holdfast.pipeline.source.typed_values import columns_for, decoded

    batches = _entries(split, options, wish_of(options, columns_for(names), split.whole))
    topic = functools.cache(lambda: _place(split, options).open(split.name))
    return decoded(batches, topic, wanted, options["mode"] == "permissive")


def wish_of(options: dict[str, Any], columns: list[str], whole: int) -> Wish:
    """Translate options to columns and filters. Rows that they leave out are read and dropped."""
    before = options["publishedBefore"]
    return Wish(
        columns,
        options["mode"] == "permissive",
        options["publishedFrom"],
        None if before is None else before - 1,
        options["keys"],
        whole if options["failOnDataLoss"] else None,
    )


def _decoded(batches: Iterator[pa.RecordBatch], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    from holdfast.pipeline.source.json_values import (
        decode_values,  # loads Arrow's functions only if they are needed
    )

    place = wanted.get_field_index("value")
    for batch in batches:
        columns = batch.columns
        columns[place] = decode_values(columns[place], wanted.field(place).type)
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _place(split: Split, options: dict[str, Any]) -> Place:
    """Open the place of a task, which may run on another machine than the driver.

    Raises:
        BadConfiguration: the directory is not a broker's here, or another broker's. failOnDataLoss does not
            matter, because no entry is lost.
    """
    path, here = options["path"], f"on {socket.gethostname()}, where this task runs"
    todo = "give a path that is the same directory for the driver and all executors, or service.url instead"
    try:
        if path is not None and directory_incarnation(Path(path)).hex() != split.home:
            raise BadConfiguration(f"{path} is another broker's directory {here} than in the driver; {todo}")
        return open_place(path, options["service.url"], options)
    except NotFound as error:
        raise BadConfiguration(f"{error} {here}; {todo}") from None


def _entries(split: Split, options: dict[str, Any], wish: Wish) -> Iterator[pa.RecordBatch]:
    """Read the messages of a range.

    Raises:
        Corrupt: a block is damaged, in mode failfast.
        DataLoss: the range was trimmed meanwhile, with failOnDataLoss.
        BadConfiguration: the directory does not exist on this machine.
        Outdated: the compacted view of the plan is gone. Another one would not fit the other tasks.
    """
    if split.start >= split.stop:
        return
    fail, at, stop = options["failOnDataLoss"], split.start, split.stop
    while at < stop:
        place = _place(split, options)
        try:
            topic = place.open(split.name, split.view)
            first, visible = topic.plan()  # the table is now at least as new as the driver's plan
            if topic.incarnation.hex() != split.incarnation:
                raise NotFound(f"{split.name} was created again")
        except NotFound as error:
            _place(split, options)  # raises if the directory is gone
            if fail:
                raise DataLoss(f"{split.name} was deleted while it was read: {error}") from error
            log.warning(
                "%s was deleted while it was read; entries %d to %d are lost", split.name, at, stop - 1
            )
            return
        stop = before_end(split.name, stop, visible, fail, "this task")  # restored from a backup meanwhile
        at = after_loss(split.name, at, first, fail)
        if at >= stop:
            return
        decoding = topic.decoding(at, stop, wish)
        try:
            yield from decoding.batches()
            return
        except DataLoss:
            raise
        except NotFound:
            at = decoding.at  # trimmed while it was read: continue after the last batch
