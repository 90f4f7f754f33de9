"""Where the source reads: an interface, and its implementation over a broker's files.

`Place` is where topics are, `TopicReader` is one of them. What they hand over is below `visible`, and
verified. The other implementation, over the network, is `holdfast.columns.remote`.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._core import Entries, LedgerFiles, TopicViewReader
from holdfast.columns.open_chunks import OpenChunks, scan
from holdfast.errors import BadConfiguration, Corrupt, HoldfastError, Misuse, NotFound
from holdfast.ledger.files.table import (
    RUN_ENTRIES,
    TableEntry,
    directory_incarnation,
    name_in,
    read_table,
    read_table_file,
    table_path,
    view_path,
)
from holdfast.ledger.layout import FILE_HEADER, TOPICS

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.columns.decoding import Wish

log = logging.getLogger("holdfast.pipeline.reading")

PARTITIONS_TRIED = 1000
"""Whether a damaged table is of a partition of some topic is tried with so many."""
RUN_BYTES = 1 << 20
"""What is read at once: it fits into the processor's cache, and is decoded there."""
OPEN_LEDGERS = 64
"""Ledgers that are held open for all topics of a place, two descriptors each ..."""
OPEN_ALONE = 4
"""... and for a topic by itself, as one read opens it: one after the other is needed."""
STEPS_OF_ONE = 64
"""So many damaged entries in a row are passed one by one in a search by time; then in larger steps."""
POINTS_MAX = 4096
"""For so many ordinals weights are asked for within ledgers, at most about twice as many are told."""
_PARTITION = re.compile(r"(.*)-partition-(0|[1-9][0-9]{0,8})")  # 007 is no number of a partition


def topic_and_partition(name: str) -> tuple[str, int]:
    """A topic's name, and which of its partitions; 0 where it has none.

    Example:
        >>> topic_and_partition("persistent://public/default/orders-partition-3")
        ('persistent://public/default/orders', 3)
        >>> topic_and_partition("persistent://public/default/orders")
        ('persistent://public/default/orders', 0)
    """
    found = _PARTITION.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, 0)


def is_among(name: str, among: set[str]) -> bool:
    """Whether a topic, or the topic of a partition, is one of these; all are, if none is named."""
    return not among or name in among or topic_and_partition(name)[0] in among


class Rows(Protocol):
    """One range of one topic, while it is read."""

    at: int
    """All before it was handed over."""

    @property
    def damaged(self) -> int:
        """Entries that were left out (mode=permissive)."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In the order of positions. Raises NotFound, Corrupt as `EntryReader.run` does."""


class TopicReader(Protocol):
    """One topic, or one partition of one."""

    name: str
    incarnation: bytes
    home: bytes
    """The incarnation of its directory; empty: it is elsewhere, and not known."""

    def plan(self) -> tuple[int, int]:
        """What can be read now: ordinals from the first, up to, without, the second."""

    def at_time(self, time_ms: int) -> int:
        """The ordinal of the first entry that was stored at this time or later."""

    def weights(self, start: int, stop: int, step: int = 0) -> list[tuple[int, int]]:
        """(ordinal, bytes before it) for some ordinals of the range, both its ends included.

        A hint, and never an error: what was trimmed since the plan weighs nothing, and reading says so.

        Args:
            step: there is one for about so many bytes, or for each larger entry, but not many more than
                POINTS_MAX in all; 0: one for each ledger.
        """

    def open_chunks(self, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]:
        """The chunked messages that are open at `stop`, given those at `start`."""

    def decoding(self, start: int, stop: int, wish: Wish) -> Rows:
        """A range that `plan` gave, as rows: decoded here, or where the topic is."""


class EntryReader(TopicReader, Protocol):
    """One whose entries are here."""

    def locate(self, ordinal: int) -> tuple[int, int]:
        """The ledger and the entry of an ordinal that `plan` gave."""

    def run(self, start: int, stop: int) -> Entries:
        """The first entries of a range that `plan` gave: some, in one ledger.

        Raises:
            NotFound: the beginning was trimmed meanwhile; plan again.
            Corrupt: the first block is damaged; the text names file and offset.
        """


class Place(Protocol):
    """Where topics are."""

    def topics(self, among: Collection[str] = ()) -> list[str]:
        """The full names of those that have something to read; a damaged one, too, of which `open` says so.

        Args:
            among: the topics that are looked for, if not all; their partitions are meant, too.

        Raises:
            Corrupt: one is damaged so that its name is not known, and it may be looked for.
        """

    def open(self, name: str) -> TopicReader:
        """Raises NotFound."""


class FilePlace:
    """A broker's directory on this machine. No lock is taken: the broker may run."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        incarnation = directory_incarnation(self.directory)  # it is a broker's
        self._ledgers = OpenLedgers(self.directory, incarnation, OPEN_LEDGERS)
        self._names: dict[str, str] = {}
        """By the table's file: a file is for one name for good."""
        self._open: dict[str, FileTopic] = {}

    def topics(self, among: Collection[str] = ()) -> list[str]:
        """As Place."""
        names: dict[str, str] = {}
        for each in list(os.scandir(self.directory / TOPICS)):
            if each.name.endswith(".table"):
                # A name that is not found: deleted while this looked, or damaged, and none of those.
                with contextlib.suppress(NotFound):
                    names[each.name] = self._names.get(each.name) or self._name(Path(each.path), among)
        self._names = names
        there = set(names.values())
        self._open = {name: topic for name, topic in self._open.items() if name in there}
        wanted = set(among)
        return sorted(name for name in there if is_among(name, wanted))

    def _name(self, table: Path, among: Collection[str]) -> str:
        """Raises NotFound: it is gone, or damaged and of none of these. Corrupt: it may be of any."""
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
            words = f"{table}, of a topic that cannot be told: {error}"
            if not among:
                raise Corrupt(f"{words}. Topics that are named, and not by a pattern, can be read") from error
            log.warning("%s", words)
            raise NotFound(words) from error

    def open(self, name: str) -> FileTopic:
        """The topic; the same one again as long as it is not another one under its name.

        Raises:
            NotFound: there is none.
            BadConfiguration: the directory is gone.
        """
        held = self._open.pop(name, None)
        if held is None or held.moved():
            try:
                incarnation = directory_incarnation(self.directory)
            except NotFound as error:  # which says nothing of the topic: nobody shall go on without it
                raise BadConfiguration(f"{error} any more; is its volume still mounted?") from None
            if held is not None or incarnation != self._ledgers.incarnation:
                self._ledgers.open(incarnation)  # under the old numbers there may be other files
            held = FileTopic(self.directory, name, incarnation, self._ledgers)
        self._open[name] = held
        return held


class OpenLedgers:
    """The files of ledgers that stay open, for one topic or for many. Any thread may read."""

    def __init__(self, directory: Path, incarnation: bytes, count: int) -> None:
        self._directory = directory
        self._count = count
        self.open(incarnation)

    def open(self, incarnation: bytes) -> None:
        """From now on others: of a directory that was put in the place of the first, say."""
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

    def moved(self) -> bool:
        """Another topic has its name by now, or another file its view: open it again."""
        if self._view.moved():
            return True
        incarnation, _, _, _, state = self._view.read()
        return state == "gone" or incarnation != self.incarnation

    def plan(self) -> tuple[int, int]:
        """As TopicReader. Raises NotFound: the topic was deleted, or is another one under its name."""
        incarnation, first, visible, version, state = self._view.read()
        if state == "gone" or incarnation != self.incarnation:
            raise NotFound(f"{self.name} was deleted, and perhaps made again; open it anew")
        if version != self._table.version:
            table = read_table(self._directory, self.name)
            if table.incarnation != incarnation:
                raise NotFound(f"{self.name} was deleted, and made again; open it anew")
            self._table = table
            self._firsts = [each.first for each in table.ledgers]
        # A table may be newer than its view, for good if its broker was killed just then: what it does not
        # name was trimmed.
        return max(first, min([visible, *self._firsts[:1]])), visible

    def at_time(self, time_ms: int) -> int:
        """As TopicReader. All before the answer that can be read is older; where entries are damaged it may
        stand before them, and never behind one that can be read and is not older."""
        low, high = self.plan()
        wanted = time_ms * 1_000_000
        while low < high:  # log time never goes back
            middle = (low + high) // 2
            try:
                found = self._time(middle, high)
            except NotFound:  # its ledger went, or was written again into another file: all is searched anew
                low, high = self.plan()
                continue
            if found is not None and found[0] < wanted:
                low = found[1] + 1
            else:
                high = middle
        return low

    def _time(self, ordinal: int, stop: int) -> tuple[int, int] | None:
        """The time of an entry, and which one it is: one behind it that is whole, if it is damaged, and the
        next one if no others are whole among those that are damaged; None: there is none.

        Raises:
            NotFound: what is known of the ledgers is old; now it is new.
        """
        step, damaged, place = 1, ordinal, ordinal
        while (time_ns := self._time_of(place, stop)) is None:
            if place + 1 >= stop:
                return None
            damaged = place
            step = step if place < ordinal + STEPS_OF_ONE else 2 * step
            place = min(place + step, stop - 1)
        found = time_ns, place
        while place - damaged > 1:  # where the damage ends, if it is in one piece
            middle = (damaged + place) // 2
            if (time_ns := self._time_of(middle, stop)) is None:
                damaged = middle
            else:
                found = time_ns, (place := middle)
        return found

    def _time_of(self, ordinal: int, stop: int) -> int | None:
        """When an entry was stored; None: it is damaged. Raises NotFound as `_time`."""
        entry, _ = self._at(ordinal, stop)
        version = self._table.version
        try:
            return self._files.time(entry.file, ordinal - entry.first, entry.generation)
        except (Corrupt, NotFound):
            first, _ = self.plan()
            if first > ordinal or version != self._table.version:
                raise NotFound(f"{self.name}: entry {ordinal} is elsewhere by now, or trimmed") from None
            return None

    def locate(self, ordinal: int) -> tuple[int, int]:
        """As EntryReader."""
        entry, _ = self._at(ordinal, ordinal + 1)
        return entry.id, ordinal - entry.first

    def weights(self, start: int, stop: int, step: int = 0) -> list[tuple[int, int]]:
        """As TopicReader; from the indexes, which are a hint, as this is."""
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
        """The same with some ordinals within each ledger."""
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
        """Ordinals between two of a ledger, with their offsets in its file.

        An index may have millions of entries: it is halved where a half is too much, and not read.
        """
        ends, todo, last = list[tuple[int, int]](), [(low, high)], low[1]
        with contextlib.suppress(OSError), Path(self._stem(entry) + ".index").open("rb") as file:
            while todo:
                low, high = todo.pop()
                if high[1] - low[1] > step and high[0] - low[0] > 1:
                    middle = (low[0] + high[0]) // 2
                    told = os.pread(file.fileno(), 8, FILE_HEADER + 8 * (middle - entry.first))
                    at = int.from_bytes(told, "little")
                    if low[1] < at < high[1]:  # else it is damaged, or was not written yet
                        todo += [((middle, at), high), (low, (middle, at))]
                        continue
                ends.append(high)
        found = []
        for this, following in pairwise(ends):
            if following[1] - last > step:  # else the next one does for both
                found.append(this)
                last = this[1]
        return found

    def _stem(self, entry: TableEntry) -> str:
        generation = f".{entry.generation}" if entry.generation else ""
        return f"{self._directory}/ledgers/{entry.file:016x}{generation}"

    def _size(self, entry: TableEntry) -> int:
        try:
            return Path(self._stem(entry) + ".data").stat().st_size
        except OSError:
            return 0

    def _offset(self, entry: TableEntry, ordinal: int, size: int) -> int:
        """Where the block of an ordinal begins in a file of this size; its end if the index does not say."""
        if ordinal == entry.first:
            return min(FILE_HEADER, size)
        try:
            with Path(self._stem(entry) + ".index").open("rb") as file:
                file.seek(FILE_HEADER + 8 * (ordinal - entry.first))
                found = file.read(8)
        except (OSError, ValueError):  # gone, or far behind its end
            return 0
        return min(size, int.from_bytes(found, "little")) if len(found) == 8 else size

    def open_chunks(self, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]:
        """As TopicReader."""
        return scan(self, start, stop, before)

    def decoding(self, start: int, stop: int, wish: Wish) -> Rows:
        """As TopicReader."""
        from holdfast.columns.decoding import Decoding

        return Decoding(self, start, stop, wish)

    def run(self, start: int, stop: int) -> Entries:
        """As EntryReader."""
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
                # Its ledger went, or was written again into another file; otherwise it is what it is.
                first, _ = self.plan()
                if first > start:
                    raise NotFound(
                        f"{self.name}: entry {start} was trimmed while it was read; the oldest is {first}"
                    ) from error
                if version == self._table.version:
                    if not isinstance(error, (Corrupt, NotFound)):
                        raise  # the machine's trouble, and no damage: too many open files, no memory
                    raise Corrupt(f"{self.name}, position {start}: {error}") from error

    def _at(self, ordinal: int, stop: int) -> tuple[TableEntry, int]:
        index = bisect.bisect_right(self._firsts, ordinal) - 1
        if index < 0:
            raise NotFound(f"{self.name}: entry {ordinal} was trimmed; plan again")
        end = self._firsts[index + 1] if index + 1 < len(self._firsts) else stop
        return self._table.ledgers[index], max(end, ordinal + 1)


def open_place(path: str | None, url: str | None, options: Mapping[str, Any] | None = None) -> Place:
    """Where the options point to: a directory, which goes first, or a broker that serves.

    Raises:
        Misuse: neither is given.
        BadConfiguration: the address is not one to read from.
        NotFound: there is no broker's directory.
    """
    if path is not None:
        return FilePlace(path)
    if url is None:
        raise Misuse(
            "the source is not told where to read: give option path, a broker's data directory on this "
            "machine, or service.url, the address of one that serves, such as http://127.0.0.1:8080 or "
            "holdfast://127.0.0.1:6650"
        )
    from holdfast.columns.remote import RemotePlace  # brings Flight, which readers of files do not need

    return RemotePlace.of({**(options or {}), "service.url": url})
