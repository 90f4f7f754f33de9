"""Read a topic through its compacted view, in place of the topic itself.

```
 ordinals   0 ............ first ........ horizon ........ visible
 topic      (trimmed)      ███████████████████████████████
 view       █  █    █         █   █   █ ▏
 read here  █  █    █         █   █   █ ▏████████████████          █ an entry, · a gap
```

Below the horizon only surviving entries exist; the others are gaps. A run that is read there has its entries
at the places of the topic, so that ids and acknowledgements are those of the topic. Dispatchers treat gaps as
acknowledged.

A reading stays with the view in which it began, until it is repositioned, or until that view is gone
(**I312**). Otherwise a reader that has passed a key's value would miss that the key was deleted since.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from holdfast._core import Entries, parse_run
from holdfast.broker.compaction.state import CompactedView, Place, decode_survivors
from holdfast.errors import NotFound
from holdfast.ids import EARLIEST, LATEST, MessageId

if TYPE_CHECKING:
    from holdfast.broker.api.consumer import Start
    from holdfast.broker.topic import Topic

SPAN_MAX = 4096
"""Ordinals of one run, gaps included."""


class ViewIndex:
    """The ordinals of a view's entries, and their ids.

    Example:
        >>> place = Place(ledger=7, first=0, entries=9, last_time=5)
        >>> survivors = BitMap64([2, 5]).serialize()
        >>> index = ViewIndex(CompactedView(1, 9, 8, 2, 99, survivors, (place,), 5))
        >>> index.next(0), index.next(3), index.next(6), index.rank(5), index.id_of(5)
        (2, 5, 9, 1, MessageId(ledger=7, entry=5, batch=-1))
    """

    def __init__(self, view: CompactedView) -> None:
        self.view = view
        self._survivors: BitMap64 = decode_survivors(view.survivors, view.entries, view.horizon)
        self._end = self._survivors.max() + 1 if view.entries else 0

    def next(self, ordinal: int) -> int:
        """Return the first surviving ordinal from here on; the horizon behind the last."""
        # pyroaring leaks an iterator that finds nothing, so the last one is compared first.
        return self._survivors.next_set_bit(ordinal) if ordinal < self._end else self.view.horizon

    def rank(self, ordinal: int) -> int:
        """Return the number of surviving entries below an ordinal: the entry in the file."""
        return self._survivors.range_cardinality(0, ordinal) if ordinal else 0

    def count(self, first: int, end: int) -> int:
        """Return the number of surviving entries in a range."""
        return self._survivors.range_cardinality(first, end) if first < end else 0

    def take(self, first: int, end: int) -> array[int]:
        """Return the surviving ordinals in a range, in order."""
        if not self.count(first, end):
            return array("Q")
        window = BitMap64()
        window.add_range(first, end)
        window &= self._survivors
        return array("Q", window.to_array())

    def from_rank(self, rank: int, count: int) -> array[int]:
        """Return `count` surviving ordinals from this entry of the file on."""
        return array("Q", self._survivors[rank : rank + count].to_array())

    def gaps(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges without entries, in order, within a range below the horizon."""
        found, at = list[tuple[int, int]](), first
        for ordinal in self.take(first, end):
            if ordinal > at:
                found.append((at, ordinal))
            at = ordinal + 1
        if at < end:
            found.append((at, end))
        return found

    def place(self, ordinal: int) -> Place:
        """Return the ledger of a surviving ordinal.

        Raises:
            NotFound: the view has no entries of its ledger.
        """
        places = self.view.places
        at = bisect_right(places, ordinal, key=lambda each: each.first) - 1
        if at < 0 or ordinal >= places[at].end:
            raise NotFound(f"position {ordinal} is not in compacted view {self.view.number}")
        return places[at]

    def id_of(self, ordinal: int) -> MessageId:
        """Return the id of a surviving ordinal. Raises NotFound for others of other ledgers."""
        place = self.place(ordinal)
        return MessageId(place.ledger, ordinal - place.first)

    def ordinal_of(self, ledger: int, entry: int) -> int:
        """Return the first ordinal at or after an id, which need not exist."""
        places = self.view.places
        at = bisect_left(places, ledger, key=lambda each: each.ledger)
        if at == len(places):
            return self.view.horizon
        place = places[at]
        return place.first + (min(max(entry, 0), place.entries) if place.ledger == ledger else 0)

    def extent(self, ledger: int) -> tuple[int, int] | None:
        """Return first ordinal and number of entries of a ledger; `None`: unknown."""
        places = self.view.places
        at = bisect_left(places, ledger, key=lambda each: each.ledger)
        if at == len(places) or places[at].ledger != ledger:
            return None
        return places[at].first, places[at].entries

    def since(self, time_ns: int) -> int:
        """Return where the first ledger begins that can have entries since a time."""
        at = bisect_left(self.view.places, time_ns, key=lambda each: each.last_time)
        return self.view.places[at].first if at < len(self.view.places) else self.view.horizon


class CompactedReading:
    """A topic as a compacted cursor reads it: ordinals in `[first, visible)`, with gaps."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._index: ViewIndex | None = None
        self._pinned = False
        self.last_index: tuple[int, int, int] | None = None
        """Ordinal of the last entry, its view, and the index of its last message; if it was read."""
        self.gone = 0
        """How often its view was gone before it was read to the end."""

    # -- the view --------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number of its view; 0: it reads the topic itself, or has not begun."""
        return 0 if self._index is None else self._index.view.number

    def renew(self) -> None:
        """Continue with the newest view: the cursor was put to another position."""
        self._pinned = False

    def index(self, ordinal: int) -> ViewIndex | None:
        """Return the view in which an ordinal is to be read; `None`: in the topic."""
        compaction = self.topic.state.compaction
        kept = () if compaction is None else compaction.kept
        if not self._pinned:
            self._pin(None if compaction is None else compaction.view)
        elif self._index is None:
            if ordinal < self.topic.first and compaction is not None and compaction.view is not None:
                self._lose(compaction.view)
        elif not any(each.number == self.number for each in kept) and ordinal < max(
            self._index.view.horizon, self.topic.first
        ):
            self._lose(None if compaction is None else compaction.view)
        index = self._index
        return index if index is not None and ordinal < index.view.horizon else None

    def _pin(self, view: CompactedView | None) -> None:
        self._index = None if view is None else self.topic.index_of(view)
        self._pinned = True

    def _lose(self, view: CompactedView | None) -> None:
        self.gone += 1
        self._pin(view)

    # -- as a dispatcher reads it ----------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def first(self) -> int:
        """The lowest ordinal: a view has entries that the topic has trimmed."""
        return self.topic.state.lowest

    @property
    def visible(self) -> int:
        return self.topic.visible

    def note_damage(self, ordinal: int) -> None:
        """Remember an entry that could not be read."""
        self.topic.note_damage(ordinal)

    def next_kept(self, ordinal: int) -> int:
        """Return the first ordinal from here on that has an entry, or may get one."""
        index = self.index(ordinal)
        if index is not None:
            ordinal = index.next(ordinal)
            if ordinal < index.view.horizon:
                return ordinal
        return max(ordinal, self.topic.first)

    def gaps(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges without entries within a range, in order."""
        index = self.index(first)
        at = first if index is None else min(end, index.view.horizon)
        found = [] if index is None else index.gaps(first, at)
        if at < min(end, self.topic.first):
            found.append((at, min(end, self.topic.first)))
        return found

    async def read(self, ordinal: int, count_max: int, size_max: int) -> Entries:
        """Read a run from an ordinal on, within one ledger, with its gaps.

        Raises:
            NotFound: the entry was trimmed, or is not visible yet.
        """
        while (index := self.index(ordinal)) is not None:
            try:
                return await self._read(index, ordinal, count_max, size_max)
            except (NotFound, FileNotFoundError):
                if self.index(ordinal) is index:
                    raise  # not because the view was replaced meanwhile
        return await self.topic.read(ordinal, count_max, size_max)

    async def _read(self, index: ViewIndex, ordinal: int, count_max: int, size_max: int) -> Entries:
        start = index.next(ordinal)
        if start >= index.view.horizon:  # nothing follows: a run of gaps
            return _gaps(0, ordinal, min(SPAN_MAX, index.view.horizon - ordinal))
        place = index.place(start)
        if ordinal < place.first:
            return _gaps(0, ordinal, min(SPAN_MAX, place.first - ordinal))
        end = min(ordinal + SPAN_MAX, place.end)
        wanted = index.take(ordinal, end)
        if not wanted:
            return _gaps(place.ledger, ordinal, end - ordinal, ordinal - place.first)
        count = min(len(wanted), count_max)
        entries = await self.topic.read_view(index.view, index.rank(wanted[0]), count, size_max)
        if len(entries) < len(wanted):
            end = wanted[len(entries)]
        of = (place.ledger, ordinal - place.first, ordinal, end - ordinal)
        return entries.spread(wanted[: len(entries)].tobytes(), *of)

    # -- positions -------------------------------------------------------------------------------------

    def last_id(self) -> MessageId:
        """Return the id of the last entry; `EARLIEST` without one."""
        last = self.last()
        return EARLIEST if last < 0 else self.id_of(last)

    def id_of(self, ordinal: int) -> MessageId:
        """Return the id of an entry, also of one that only the view has."""
        if ordinal >= self.topic.first:
            return self.topic.id_of(ordinal)
        return self._ids().id_of(ordinal)

    def extent(self, ledger: int) -> tuple[int, int] | None:
        """Return first ordinal and number of entries of a ledger of the view."""
        index = self._current()
        return None if index is None else index.extent(ledger)

    async def read_last(self) -> Entries | None:
        """Read the last entry; `None` without one.

        Raises:
            NotFound: the view was removed meanwhile.
        """
        last, index = self.last(), self._current()
        if last < 0:
            return None
        if index is not None and last < index.view.horizon:
            return await self._read(index, last, 1, 1)
        return await self.topic.read(last, 1, 1)

    def _ids(self) -> ViewIndex:
        index = self._current()
        if index is None:
            raise NotFound(f"{self.name} has no compacted view any more; read it from its first message")
        return index

    def _current(self) -> ViewIndex | None:
        """Return the view that it reads, or the newest one; it does not move."""
        compaction = self.topic.state.compaction
        kept = () if compaction is None else compaction.kept
        if self._pinned and (self._index is None or any(each.number == self.number for each in kept)):
            return self._index
        return self.topic.index_of(kept[0]) if kept else None

    def last(self) -> int:
        """Return the ordinal of the last entry; −1 without one."""
        topic, index = self.topic, self._current()
        if topic.visible > max(topic.first, 0 if index is None else index.view.horizon):
            return topic.visible - 1
        if index is None or not index.view.entries:
            return -1
        return index.from_rank(index.view.entries - 1, 1)[0]

    async def place(self, to: Start, *, exact: bool = False, after: bool = False) -> int:
        """Return the ordinal of a place, as `Topic.place`; entries of the view count.

        A time within the view leads to the beginning of a ledger: a view does not know the times of entries.
        """
        index = self._current()
        if index is None or to == "latest":
            return await self.topic.place(to, exact=exact, after=after)
        if to == "earliest" or to == EARLIEST:
            return 0
        if isinstance(to, MessageId):
            if to.ledger in (EARLIEST.ledger, LATEST.ledger):
                return 0 if to.ledger == EARLIEST.ledger else self.topic.visible
            last = index.view.places[-1].ledger if index.view.places else 0
            if to.ledger > last or self.topic.ledgers.find(to.ledger) is not None:
                return await self.topic.place(to, exact=exact, after=after)
            found = index.ordinal_of(to.ledger, to.entry)
            return found + (after and to.entry >= 0 and self._has(index, found, to))
        found = await self.topic.place(to)
        return found if found > self.topic.first else min(found, index.since(_time(to)))

    def _has(self, index: ViewIndex, ordinal: int, id: MessageId) -> bool:  # noqa: A002
        """Return whether an ordinal is that of the id, not of a later one."""
        try:
            return index.id_of(ordinal)[:2] == id[:2]
        except NotFound:
            return False


async def messages_at(topic: Topic, view: CompactedReading | None, ordinal: int) -> int:
    """Return the number of messages of an entry, for readers of this view.

    `None`: a reader of all messages.

    Raises:
        NotFound: the entry was trimmed or compacted, or is not visible yet.
    """
    if view is None or ordinal >= topic.first:
        return await topic.messages_at(ordinal)
    return (await view.read(ordinal, 1, 1)).messages(0)


def _time(to: object) -> int:
    from holdfast.broker.topic import time_of

    return time_of(to)


def _gaps(ledger: int, ordinal: int, count: int, entry: int = 0) -> Entries:
    """Return a run without entries."""
    return parse_run(ledger, ordinal - entry, entry, b"", b"").spread(b"", ledger, entry, ordinal, count)
