"""Read a topic through one of its compacted views, from a broker's files.

```
 ordinals   0 ............ first ........ horizon ........ visible
 topic      (trimmed)      ███████████████████████████████
 view       █  █    █         █   █   █ ▏
 read here  █  █    █         █   █   █ ▏█████████████████
```

A reader stays with one view (**I314**). Its number is chosen when a query is planned, and every task reads
that view and no other one. As long as the view is kept, all entries behind its horizon are kept, too (I311).
"""

from __future__ import annotations

import bisect
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from holdfast._core import Entries
from holdfast.columns.files import RUN_BYTES, FileTopic, OpenLedgers, Rows
from holdfast.columns.open_chunks import OpenChunks, scan
from holdfast.columns.tickets import NEWEST
from holdfast.errors import Corrupt, HoldfastError, NotFound, Outdated
from holdfast.ledger.files import (
    RUN_ENTRIES,
    TableEntry,
    TopicTable,
    ViewEntry,
    ViewFile,
    ViewPlace,
    read_table_view,
)

if TYPE_CHECKING:
    from holdfast.columns.decoding import Wish

GAP_MAX = 512
"""Ordinals of a run for each of its entries: places without an entry take memory, too ..."""
SPAN_MAX = 1 << 16
"""... and ordinals of a run altogether."""


def open_view(
    topic: FileTopic, directory: Path, ledgers: OpenLedgers, number: int
) -> FileTopic | CompactedTopic:
    """Return a topic through a view: the newest one, or that of a number.

    Without any view, the newest one is the topic itself.

    Raises:
        Outdated: the view of this number is gone.
        NotFound: the topic was deleted.
        Corrupt: the file of the view is damaged.
    """
    while True:
        _, visible = topic.plan()
        table = topic.table
        # A table may be newer than the visible end: then the view before stands for the topic.
        kept = (each for each in table.views if each.horizon <= visible)
        entry = next((each for each in kept if number in (NEWEST, each.number)), None)
        if entry is None:
            if number == NEWEST:
                return topic
            raise gone(topic.name, number)
        try:
            content, survivors = read_table_view(directory, table, entry)
        except NotFound as error:
            topic.plan()
            if topic.table.version == table.version:
                raise Corrupt(f"{topic.name}: {error}, and its table names it; restart the broker") from error
            continue  # it was removed just now
        return CompactedTopic(topic, directory, ledgers, entry, content, survivors)


def gone(name: str, number: int) -> Outdated:
    """Return the error that a view does not exist any more."""
    return Outdated(
        f"compacted view {number} of {name} is gone: a newer one has replaced it, or it was removed. Start "
        "the query again with a new load(), which reads the newest view. Option compaction_grace_s of the "
        "broker says how long a replaced view is kept"
    )


class CompactedTopic:
    """A topic through one view. Positions and ids are those of the topic.

    Example:
        >>> import holdfast, tempfile
        >>> with tempfile.TemporaryDirectory() as path, holdfast.Broker.open(path) as broker:
        ...     with broker.producer("prices") as p:
        ...         for price in (b"3", b"4"):
        ...             _ = p.send(price, key="rope")
        ...     broker.admin.compact("prices", wait=True)
        ...     topic = FileTopic(Path(path), "persistent://public/default/prices").through(NEWEST)
        ...     print(topic.view, topic.horizon, topic.plan(), topic.next(0, 2), len(topic.run(1, 2)))
        1 2 (0, 2) 1 1
    """

    def __init__(
        self,
        topic: FileTopic,
        directory: Path,
        ledgers: OpenLedgers,
        entry: ViewEntry,
        content: ViewFile,
        survivors: BitMap64,
    ) -> None:
        self._topic = topic
        self._directory = directory
        self._ledgers = ledgers
        self._entry = entry
        self._places = content.places
        self._survivors = survivors
        self._last = survivors.max() if content.entries else -1
        self._held: tuple[int, Entries] | None = None
        """The run that was read last, and the rank of its first entry."""
        self.name = topic.name
        self.incarnation = topic.incarnation
        self.home = topic.home
        self.view = entry.number
        self.horizon = entry.horizon

    def plan(self) -> tuple[int, int]:
        """See TopicReader.

        It begins at 0: the view has entries that the topic has trimmed.

        Raises:
            NotFound: the topic was deleted or replaced.
            Outdated: the view is gone.
        """
        first, visible = self._topic.plan()
        entry = next((each for each in self._topic.table.views if each.number == self.view), None)
        if entry is None or first > self.horizon:
            raise gone(self.name, self.view)
        self._entry = entry  # its ledger may be in another file
        return 0, visible

    # -- the entries of the view -----------------------------------------------------------------------

    def next(self, ordinal: int, stop: int) -> int:
        """See EntryReader."""
        if ordinal >= self.horizon or ordinal >= stop:
            return ordinal
        # pyroaring leaks an iterator that finds nothing, so the last one is compared first.
        found = self._survivors.next_set_bit(ordinal) if ordinal <= self._last else self.horizon
        return min(stop, int(found))

    def locate(self, ordinal: int) -> tuple[int, int]:
        """See EntryReader."""
        if ordinal >= self.horizon:
            return self._topic.locate(ordinal)
        place = self._place(ordinal)
        return place.ledger, ordinal - place.first

    def _place(self, ordinal: int) -> ViewPlace:
        return self._places[bisect.bisect_right(self._places, ordinal, key=lambda each: each.first) - 1]

    def run(self, start: int, stop: int) -> Entries:
        """See EntryReader. `start` is an entry, as `next` returns it.

        Raises:
            Outdated: the view is gone.
        """
        if start >= self.horizon:
            try:
                return self._topic.run(start, stop)
            except NotFound:
                self.plan()  # raises why
                raise
        place, rank = self._place(start), self._rank(start)
        count = min(RUN_ENTRIES, self._rank(min(stop, place.end)) - rank)
        entries = self._read(start, rank, count)
        ordinals = array("Q", self._survivors[rank : rank + len(entries)].to_array())
        some = len(entries)
        while (span := ordinals[some - 1] + 1 - start) > min(SPAN_MAX, GAP_MAX * some) and some > 1:
            some = (some + 1) // 2
        told = (place.ledger, start - place.first, start, span)
        return entries.slice(0, some).spread(ordinals[:some].tobytes(), *told)

    def _rank(self, ordinal: int) -> int:
        """Return the number of surviving entries below an ordinal: the entry in the file."""
        return self._survivors.range_cardinality(0, ordinal) if ordinal else 0

    def _read(self, start: int, rank: int, count: int) -> Entries:
        """Read entries of the view's ledger: at least one. Raises like `run`."""
        if self._held is not None:
            first, held = self._held
            if first <= rank < first + len(held):
                return held.slice(rank - first, rank - first + count)
        while True:
            entry = self._entry
            try:
                run = self._ledgers.read(
                    entry.file, 0, rank, RUN_ENTRIES, RUN_BYTES, True, entry.generation, 0, True
                )
                assert run is not None
            except HoldfastError as error:
                self.plan()  # raises if the view is gone
                if self._entry != entry:
                    continue  # its ledger was rewritten
                if not isinstance(error, (Corrupt, NotFound)):
                    raise
                words = f"{self.name}, position {start}, in compacted view {self.view}"
                raise Corrupt(f"{words}: {error}") from error
            self._held = rank, run
            return run.slice(0, count)

    # -- positions -------------------------------------------------------------------------------------

    def at_time(self, time_ms: int) -> int:
        """See TopicReader.

        Of ledgers that were trimmed, only the time of the last entry is known. So a time within them leads to
        the beginning of a ledger.
        """
        first, _ = self._topic.plan()
        found = self._topic.at_time(time_ms)
        if found > first:
            return found
        at = bisect.bisect_left(self._places, time_ms * 1_000_000, key=lambda each: each.last_time)
        return min(found, self._places[at].first if at < len(self._places) else self.horizon)

    def weights(self, start: int, stop: int, step: int = 0) -> list[tuple[int, int]]:
        """See TopicReader."""
        found, total, end = [(start, 0)], 0, min(stop, self.horizon)
        if start < end:
            low, high = self._rank(start), self._rank(end)
            inside = _Ranked(self._directory, self._entry).weights(low, high, step)
            found += [(self._survivors[rank], before) for rank, before in inside[1:-1]]
            total = inside[-1][1]
            found.append((end, total))
        if end < stop:
            more = self._topic.weights(max(start, end), stop, step)
            found += [(at, total + before) for at, before in more[1:]]
        return found

    # -- as TopicReader --------------------------------------------------------------------------------

    def open_chunks(self, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]:
        """See TopicReader."""
        return scan(self, start, stop, before)

    def schemas(self) -> tuple[bytes, ...]:
        """See TopicReader."""
        return self._topic.schemas()

    def decoding(self, start: int, stop: int, wish: Wish) -> Rows:
        """See TopicReader."""
        from holdfast.columns.decoding import Decoding

        return Decoding(self, start, stop, wish)


class _Ranked(FileTopic):
    """The ledger of a view as a topic of its own, to weigh ranks."""

    def __init__(self, directory: Path, entry: ViewEntry) -> None:
        self._directory = directory
        self._table = TopicTable(0, "", b"", 1, (TableEntry(0, entry.file, entry.generation, 0, 0),))
        self._firsts = [0]


__all__ = ["CompactedTopic", "gone", "open_view"]
