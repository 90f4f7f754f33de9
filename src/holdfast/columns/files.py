"""Read topics from a broker's files, and the interface that network reads share.

`Place` holds topics, `TopicReader` is one topic. They return verified entries below `visible`. The network
implementation is `holdfast.columns.remote`.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

from holdfast._core import Entries, LedgerFiles, TopicViewReader
from holdfast.columns.open_chunks import OpenChunks, scan
from holdfast.errors import BadConfiguration, Corrupt, HoldfastError, Misuse, NotFound
from holdfast.ledger import FILE_HEADER, LEDGERS, TOPICS, LedgerFile
from holdfast.ledger.files import (
    RUN_ENTRIES,
    TableEntry,
    TopicTable,
    directory_incarnation,
    name_in,
    read_schemas,
    read_table,
    read_table_file,
    table_path,
    view_path,
)
from holdfast.names import partition_of

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.columns.compacted import CompactedTopic
    from holdfast.columns.decoding import Wish

log = logging.getLogger("holdfast.pipeline.reading")

PARTITIONS_TRIED = 1000
"""How many partitions of a topic are tried to find the topic of a damaged table."""
RUN_BYTES = 1 << 20
"""How many bytes are read at once: they fit into the processor's cache, and are decoded there."""
OPEN_LEDGERS = 64
"""Ledgers that stay open for all topics of a place, with two descriptors each ..."""
OPEN_ALONE = 4
"""... and for a single topic, which needs them one after the other."""
STEPS_OF_ONE = 64
"""How many damaged entries in a row a search by time passes one by one; then in larger steps."""
POINTS_MAX = 4096
"""Weights within ledgers are returned for about this many ordinals, at most about twice as many."""


def topic_and_partition(name: str) -> tuple[str, int]:
    """Return a topic's name and the partition's number; 0 if it has no partitions.

    Example:
        >>> topic_and_partition("persistent://public/default/orders-partition-3")
        ('persistent://public/default/orders', 3)
        >>> topic_and_partition("persistent://public/default/orders")
        ('persistent://public/default/orders', 0)
    """
    return partition_of(name) or (name, 0)


def is_among(name: str, among: set[str]) -> bool:
    """Return whether a topic or its partitioned topic is among these; empty means all."""
    return not among or name in among or topic_and_partition(name)[0] in among


class Rows(Protocol):
    """Reads one range of one topic as rows."""

    at: int
    """All entries before this one were returned."""

    @property
    def damaged(self) -> int:
        """How many entries were left out (mode=permissive)."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows by position. Raises NotFound, Corrupt like `EntryReader.run`."""


class TopicReader(Protocol):
    """A topic, or a partition of one."""

    name: str
    incarnation: bytes
    home: bytes
    """The incarnation of its directory; empty if the directory is on another machine."""
    view: int
    """The number of the compacted view that it is read through; 0: none."""
    horizon: int
    """The ordinal below which this view stands for the topic."""

    def plan(self) -> tuple[int, int]:
        """Return the range that can be read now: the first ordinal, and the end."""

    def at_time(self, time_ms: int) -> int:
        """Return the ordinal of the first entry that was stored at this time or later."""

    def weights(self, start: int, stop: int, step: int = 0) -> list[tuple[int, int]]:
        """Return (ordinal, bytes before it) for some ordinals of the range, and for both ends.

        A hint, and never an error: entries that were trimmed since the plan have no weight, and a read
        reports it.

        Args:
            step: bytes between ordinals, roughly; at least one entry. At most about twice POINTS_MAX ordinals
                are returned. 0: one ordinal for each ledger.
        """

    def open_chunks(self, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]:
        """Return the chunked messages that are open at `stop`, given those at `start`."""

    def schemas(self) -> tuple[bytes, ...]:
        """Return the topic's schemas by version, as stored; an empty one stands for a deletion.

        They include those of every message below `plan`.
        """

    def decoding(self, start: int, stop: int, wish: Wish) -> Rows:
        """Return a range of `plan` as rows: decoded here, or by the topic's broker."""


class EntryReader(TopicReader, Protocol):
    """A topic whose entries are on this machine."""

    def next(self, ordinal: int, stop: int) -> int:
        """Return the first ordinal of a range that has an entry, or `stop`.

        A compacted view has gaps.
        """

    def locate(self, ordinal: int) -> tuple[int, int]:
        """Return ledger and entry of an ordinal within `plan`."""

    def run(self, start: int, stop: int) -> Entries:
        """Return the first entries of a range within `plan`: at least one, in one ledger.

        `start` is an entry. There may be gaps behind it.

        Raises:
            NotFound: the beginning has been trimmed; plan again.
            Corrupt: the first block is damaged; the text names file and offset.
        """


class Place(Protocol):
    """Holds topics: a directory, or a serving broker."""

    def topics(self, among: Collection[str] = ()) -> list[str]:
        """Return the full names of topics with entries; also of damaged ones, which `open` reports.

        Args:
            among: the topics to look for, with their partitions; empty: all.

        Raises:
            Corrupt: a damaged table has lost its name, and may be one of these.
        """

    def open(self, name: str, view: int = 0) -> TopicReader:
        """Open a topic.

        Args:
            name: its full name.
            view: the number of the compacted view to read it through, or NEWEST; 0: none.

        Raises:
            NotFound: it does not exist.
            Outdated: the view is gone.
        """


class FilePlace:
    """A broker's directory on this machine. The broker may run: no lock is taken."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        incarnation = directory_incarnation(self.directory)  # raises if it is not a broker's
        self._ledgers = OpenLedgers(self.directory, incarnation, OPEN_LEDGERS)
        self._names: dict[str, str] = {}
        """Topic names by the table's file; a file has one name for good."""
        self._open: dict[str, FileTopic] = {}

    def topics(self, among: Collection[str] = ()) -> list[str]:
        """See Place."""
        names: dict[str, str] = {}
        for each in list(os.scandir(self.directory / TOPICS)):
            if each.name.endswith(".table"):
                # Not found: deleted during this call, or damaged and not one of these.
                with contextlib.suppress(NotFound):
                    names[each.name] = self._names.get(each.name) or self._name(Path(each.path), among)
        self._names = names
        there = set(names.values())
        self._open = {name: topic for name, topic in self._open.items() if name in there}
        wanted = set(among)
        return sorted(name for name in there if is_among(name, wanted))

    def _name(self, table: Path, among: Collection[str]) -> str:
        """Return the topic of a table.

        Raises:
            NotFound: the table is gone, or damaged and not of one of these.
            Corrupt: the table is damaged, and may be of any topic.
        """
        try:
            return read_table_file(table).name
        except (Corrupt, OSError) as error:
            name = None
            with contextlib.suppress(OSError):
                name = name_in(table)
            for each in among if name is None else ():
                parts = (f"{each}-partition-{number}" for number in range(PARTITIONS_TRIED))
                name = next((one for one in (each, *parts) if table_path(one).endswith(table.name)), name)
            if name is not None:
                return name
            words = f"{table}, of an unknown topic: {error}"
            if not among:
                raise Corrupt(f"{words}. Name the topics to read, instead of a pattern") from error
            log.warning("%s", words)
            raise NotFound(words) from error

    @overload
    def open(self, name: str) -> FileTopic: ...
    @overload
    def open(self, name: str, view: int = ...) -> FileTopic | CompactedTopic: ...
    def open(self, name: str, view: int = 0) -> FileTopic | CompactedTopic:
        """See Place.

        Raises:
            BadConfiguration: the directory is gone.
        """
        topic = self.topic(name)
        return topic.through(view) if view else topic

    def topic(self, name: str) -> FileTopic:
        """Return a topic; the same object again unless the topic was replaced. Raises like `open`."""
        held = self._open.pop(name, None)
        if held is None or held.moved():
            try:
                incarnation = directory_incarnation(self.directory)
            except NotFound as error:  # the topic may still exist: it must not count as deleted
                raise BadConfiguration(f"{error} any more; is its volume still mounted?") from None
            if held is not None or incarnation != self._ledgers.incarnation:
                self._ledgers.open(incarnation)  # under the old numbers there may be other files
            held = FileTopic(self.directory, name, incarnation, self._ledgers)
        self._open[name] = held
        return held


class OpenLedgers:
    """Open files of ledgers, for one topic or for many. Any thread may read."""

    def __init__(self, directory: Path, incarnation: bytes, count: int) -> None:
        self._directory = directory
        self._count = count
        self.open(incarnation)

    def open(self, incarnation: bytes) -> None:
        """Open the files anew, for example of a directory that replaced the first one."""
        self.incarnation = incarnation
        files = LedgerFiles(os.fspath(self._directory), incarnation, self._count)
        self.read, self.time = files.read, files.time


class FileTopic:
    """A topic's ledgers, read beside the broker: no lock, no socket, nothing above `visible`.

    Example:
        >>> import holdfast, tempfile
        >>> with tempfile.TemporaryDirectory() as path, holdfast.Broker.open(path) as broker:
        ...     with broker.producer("orders") as p:
        ...         ids = p.send_many([b"rope", b"tar"])
        ...     topic = FileTopic(Path(path), "persistent://public/default/orders")
        ...     first, visible = topic.plan()
        ...     print(first, visible, len(topic.run(first, visible)))
        0 2 2
    """

    view = horizon = 0

    def __init__(
        self,
        directory: Path,
        name: str,
        incarnation: bytes | None = None,
        ledgers: OpenLedgers | None = None,
    ) -> None:
        incarnation = directory_incarnation(directory) if incarnation is None else incarnation
        self._directory = directory
        self._table = read_table(directory, name)
        self._firsts = [each.first for each in self._table.ledgers]
        self._view = TopicViewReader(
            str(directory / view_path(self._table.topic)), self._table.topic, incarnation
        )
        self._files = ledgers or OpenLedgers(directory, incarnation, OPEN_ALONE)
        self.name = name
        self.incarnation = self._table.incarnation
        self.home = incarnation

    @property
    def table(self) -> TopicTable:
        """The table at the last `plan`."""
        return self._table

    def through(self, view: int) -> FileTopic | CompactedTopic:
        """Return the topic through a compacted view, by its number or NEWEST. Raises like `open_view`."""
        from holdfast.columns.compacted import open_view  # few readers need it

        return open_view(self, self._directory, self._files, view)

    def moved(self) -> bool:
        """Return whether topic or view was replaced, and must be opened again."""
        if self._view.moved():
            return True
        incarnation, _, _, _, state = self._view.read()
        return state == "gone" or incarnation != self.incarnation

    def plan(self) -> tuple[int, int]:
        """See TopicReader. Raises NotFound: the topic was deleted or replaced."""
        incarnation, first, visible, version, state = self._view.read()
        if state == "gone" or incarnation != self.incarnation:
            raise NotFound(f"{self.name} was deleted or replaced; open it again")
        if version != self._table.version:
            table = read_table(self._directory, self.name)
            if table.incarnation != incarnation:
                raise NotFound(f"{self.name} was deleted and created again; open it again")
            self._table = table
            self._firsts = [each.first for each in table.ledgers]
        # A table may be newer than its view, for good if its broker was killed just then. Ledgers that it
        # does not list were trimmed.
        return max(first, min([visible, *self._firsts[:1]])), visible

    def at_time(self, time_ms: int) -> int:
        """See TopicReader. All readable entries before the result are older.

        If entries are damaged, the result may be before them. It is never after a readable entry of that time
        or later.
        """
        low, high = self.plan()
        wanted = time_ms * 1_000_000
        while low < high:  # log time never goes back
            middle = (low + high) // 2
            try:
                found = self._time(middle, high)
            except NotFound:  # its ledger was trimmed or rewritten: search again
                low, high = self.plan()
                continue
            if found is not None and found[0] < wanted:
                low = found[1] + 1
            else:
                high = middle
        return low

    def _time(self, ordinal: int, stop: int) -> tuple[int, int] | None:
        """Return the time of an entry and its ordinal; `None` if all are damaged.

        If the entry is damaged, a whole one behind it is used: the next one if the damage is in one piece.

        Raises:
            NotFound: the list of ledgers was out of date, and has been read again.
        """
        step, damaged, place = 1, ordinal, ordinal
        while (time_ns := self._time_of(place, stop)) is None:
            if place + 1 >= stop:
                return None
            damaged = place
            step = step if place < ordinal + STEPS_OF_ONE else 2 * step
            place = min(place + step, stop - 1)
        found = time_ns, place
        while place - damaged > 1:  # find the end of the damage, if it is in one piece
            middle = (damaged + place) // 2
            if (time_ns := self._time_of(middle, stop)) is None:
                damaged = middle
            else:
                found = time_ns, (place := middle)
        return found

    def _time_of(self, ordinal: int, stop: int) -> int | None:
        """Return when an entry was stored; `None` if it is damaged. Raises NotFound like `_time`."""
        entry, _ = self._at(ordinal, stop)
        version = self._table.version
        try:
            return self._files.time(entry.file, ordinal - entry.first, entry.generation)
        except (Corrupt, NotFound):
            first, _ = self.plan()
            if first > ordinal or version != self._table.version:
                raise NotFound(f"{self.name}: entry {ordinal} was moved or trimmed") from None
            return None

    def schemas(self) -> tuple[bytes, ...]:
        """See TopicReader. Raises Corrupt: their file is damaged."""
        return read_schemas(self._directory, self.name, self.incarnation)

    def next(self, ordinal: int, stop: int) -> int:
        """See EntryReader."""
        return ordinal

    def locate(self, ordinal: int) -> tuple[int, int]:
        """See EntryReader."""
        entry, _ = self._at(ordinal, ordinal + 1)
        return entry.id, ordinal - entry.first

    def weights(self, start: int, stop: int, step: int = 0) -> list[tuple[int, int]]:
        """See TopicReader. Read from the indexes, without verification: it is a hint."""
        found, total = [(start, 0)], 0
        if start < stop and start < (first := self._firsts[0] if self._firsts else stop):
            start = min(first, stop)
            found.append((start, total))
        while start < stop:
            entry, end = self._at(start, stop)
            size = self._size(entry)
            high = size if end < stop else self._offset(entry, stop, size)
            total += max(1, high - self._offset(entry, start, size))
            start = min(end, stop)
            found.append((start, total))
        return self._finer(found, max(step, total // POINTS_MAX)) if step else found

    def _finer(self, weights: list[tuple[int, int]], step: int) -> list[tuple[int, int]]:
        """Add ordinals within each ledger."""
        found = weights[:1]
        for (low, before), (high, after) in pairwise(weights):
            if after - before > step and high - low > 1:
                entry, _ = self._at(low, high)
                at = self._offset(entry, low, self._size(entry))
                inside = self._inside(entry, (low, at), (high, at + after - before), step)
                found += [(ordinal, before + offset - at) for ordinal, offset in inside]
            found.append((high, after))
        return found

    def _inside(
        self, entry: TableEntry, low: tuple[int, int], high: tuple[int, int], step: int
    ) -> list[tuple[int, int]]:
        """Return ordinals between two of a ledger, with their offsets in its file.

        An index may have millions of entries: it is bisected, and not read as a whole.
        """
        ends, todo, last = list[tuple[int, int]](), [(low, high)], low[1]
        with contextlib.suppress(OSError), Path(self._stem(entry) + ".index").open("rb") as file:
            while todo:
                low, high = todo.pop()
                if high[1] - low[1] > step and high[0] - low[0] > 1:
                    middle = (low[0] + high[0]) // 2
                    told = os.pread(file.fileno(), 8, FILE_HEADER + 8 * (middle - entry.first))
                    at = int.from_bytes(told, "little")
                    if low[1] < at < high[1]:  # otherwise damaged, or not written yet
                        todo += [((middle, at), high), (low, (middle, at))]
                        continue
                ends.append(high)
        found = []
        for this, following in pairwise(ends):
            if following[1] - last > step:  # otherwise the next one serves for both
                found.append(this)
                last = this[1]
        return found

    def _stem(self, entry: TableEntry) -> str:
        return f"{self._directory}/{LEDGERS}/{LedgerFile(entry.file, entry.generation).stem}"

    def _size(self, entry: TableEntry) -> int:
        try:
            return Path(self._stem(entry) + ".data").stat().st_size
        except OSError:
            return 0

    def _offset(self, entry: TableEntry, ordinal: int, size: int) -> int:
        """Return the offset of an ordinal's block, or the file's size if unknown."""
        if ordinal == entry.first:
            return min(FILE_HEADER, size)
        try:
            with Path(self._stem(entry) + ".index").open("rb") as file:
                file.seek(FILE_HEADER + 8 * (ordinal - entry.first))
                found = file.read(8)
        except (OSError, ValueError):  # gone, or an offset far too large
            return 0
        return min(size, int.from_bytes(found, "little")) if len(found) == 8 else size

    def open_chunks(self, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]:
        """See TopicReader."""
        return scan(self, start, stop, before)

    def decoding(self, start: int, stop: int, wish: Wish) -> Rows:
        """See TopicReader."""
        from holdfast.columns.decoding import Decoding

        return Decoding(self, start, stop, wish)

    def run(self, start: int, stop: int) -> Entries:
        """See EntryReader."""
        while True:
            entry, end = self._at(start, stop)
            version = self._table.version
            try:
                run = self._files.read(
                    entry.file,
                    entry.first,
                    start - entry.first,
                    min(stop, end, start + RUN_ENTRIES) - start,
                    RUN_BYTES,
                    True,
                    entry.generation,
                    entry.id,
                    True,
                )
                assert run is not None
                return run
            except HoldfastError as error:
                # Its ledger was trimmed, or rewritten into another file; otherwise the error is final.
                first, _ = self.plan()
                if first > start:
                    raise NotFound(
                        f"{self.name}: entry {start} was trimmed while it was read; the oldest is {first}"
                    ) from error
                if version == self._table.version:
                    if not isinstance(error, (Corrupt, NotFound)):
                        raise  # not damage: too many open files, no memory
                    raise Corrupt(f"{self.name}, position {start}: {error}") from error

    def _at(self, ordinal: int, stop: int) -> tuple[TableEntry, int]:
        index = bisect.bisect_right(self._firsts, ordinal) - 1
        if index < 0:
            raise NotFound(f"{self.name}: entry {ordinal} was trimmed; plan again")
        end = self._firsts[index + 1] if index + 1 < len(self._firsts) else stop
        return self._table.ledgers[index], max(end, ordinal + 1)


def open_place(path: str | None, url: str | None, options: Mapping[str, Any] | None = None) -> Place:
    """Open the directory in the options if it is given, otherwise the serving broker.

    Raises:
        Misuse: neither is given.
        BadConfiguration: the address is not one to read from.
        NotFound: the path is not a broker's directory.
    """
    if path is not None:
        return FilePlace(path)
    if url is None:
        raise Misuse(
            "the source does not know where to read. Set option path to a broker's data directory on this "
            "machine, or service.url to a broker's address, such as http://127.0.0.1:8080 or "
            "holdfast://127.0.0.1:6650"
        )
    from holdfast.columns.remote import RemotePlace  # loads Flight, which readers of files do not need

    return RemotePlace.of({**(options or {}), "service.url": url})
