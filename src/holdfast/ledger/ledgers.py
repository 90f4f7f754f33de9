"""The ledgers of a topic: which ordinals are where.

An ordinal counts a topic's entries over its whole life; a ledger holds a run of them. Users see
`ledger:entry`. Both ways are a binary search over the ledgers, of which there are few.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.errors import NotFound
from holdfast.ids import MessageId


class LedgerInfo(msgspec.Struct, array_like=True):
    """One ledger of a topic."""

    id: int
    """What users see. Rises along a topic."""
    file: int
    """The number in the name of its file: another than `id` only for a ledger that was adopted from a stage,
    whose file is older than the ledgers before it."""
    first: int
    """The ordinal of its entry 0."""
    entries: int
    size: int
    """Bytes of its data file."""
    sealed: bool
    opened_time: int
    """Log time, in ns since the epoch. No entry is older for its readers: in an adopted file the blocks carry
    the times of their staging."""
    last_time: int
    """Log time of its last entry."""

    @property
    def end(self) -> int:
        return self.first + self.entries


class LedgerTable:
    """The ledgers that a topic still has, in order, without a gap (I40). Only the last can be open.

    Example:
        >>> table = LedgerTable()
        >>> table.grow(ledger=7, first=0, entries=3, size=400, time=1)
        >>> table.seal()
        >>> table.grow(ledger=9, first=3, entries=2, size=300, time=2)
        >>> print(table.id_of(3), table.ordinal(7, 2), table.first, table.end)
        9:0 2 0 5
        >>> [each.id for each in table.drop(1)]
        [7]
        >>> table.first, table.ordinal(7, 2)
        (3, 3)
    """

    __slots__ = ("_end", "_infos")

    def __init__(self, infos: Iterable[LedgerInfo] = (), end: int = 0) -> None:
        self._infos = list(infos)
        self._end = end

    def __iter__(self) -> Iterator[LedgerInfo]:
        return iter(self._infos)

    def __reversed__(self) -> Iterator[LedgerInfo]:
        return reversed(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    @property
    def first(self) -> int:
        """The first ordinal that is kept; `end` where nothing is."""
        return self._infos[0].first if self._infos else self._end

    @property
    def end(self) -> int:
        """The next entry's ordinal."""
        return self._end

    @property
    def last(self) -> LedgerInfo | None:
        return self._infos[-1] if self._infos else None

    @property
    def front(self) -> LedgerInfo | None:
        """The oldest that is kept."""
        return self._infos[0] if self._infos else None

    @property
    def open_ledger(self) -> int | None:
        """The id of the ledger that grows; None: the next publish opens one."""
        return None if not self._infos or self._infos[-1].sealed else self._infos[-1].id

    @property
    def sealed_count(self) -> int:
        return len(self._infos) - (self.open_ledger is not None)

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(info.size for info in self._infos)

    # -- where is what ---------------------------------------------------------------------------------

    def at(self, ordinal: int) -> LedgerInfo:
        """The ledger that holds an ordinal.

        Raises:
            NotFound: it was trimmed, or never published.
        """
        if not self.first <= ordinal < self._end:
            raise NotFound(f"there is no entry {ordinal}; there are [{self.first}, {self._end})")
        return self._infos[bisect_right(self._infos, ordinal, key=_first) - 1]

    def id_of(self, ordinal: int) -> MessageId:
        """The id that users know for an ordinal.

        Raises:
            NotFound: it was trimmed, or never published.
        """
        info = self.at(ordinal)
        return MessageId(info.id, ordinal - info.first)

    def ordinal(self, ledger: int, entry: int) -> int:
        """The first ordinal at or after an id, which need not exist (any more)."""
        at = bisect_left(self._infos, ledger, key=_id)
        if at == len(self._infos):
            return self._end
        info = self._infos[at]
        return info.first + min(max(entry, 0), info.entries) if info.id == ledger else info.first

    def find(self, ledger: int) -> LedgerInfo | None:
        """The ledger of this id, if it is kept."""
        at = bisect_left(self._infos, ledger, key=_id)
        return self._infos[at] if at < len(self._infos) and self._infos[at].id == ledger else None

    def since(self, time: int) -> list[LedgerInfo]:
        """The ledgers that can hold entries of this log time or later."""
        return self._infos[bisect_left(self._infos, time, key=_last_time) :]

    # -- changes ---------------------------------------------------------------------------------------

    def grow(self, ledger: int, first: int, entries: int, size: int, time: int) -> None:
        """The open ledger, perhaps a new one, is now so long."""
        last = self.last
        if last is None or last.sealed:
            last = LedgerInfo(ledger, ledger, first, 0, 0, False, time, time)
            self._infos.append(last)
        assert (last.id, last.first) == (ledger, first), f"I40: ledger {ledger} grows, {last.id} is open"
        last.entries, last.size, last.last_time = entries, size, time
        self._end = first + entries

    def seal(self) -> None:
        """The open ledger grows no more."""
        if self._infos:
            self._infos[-1].sealed = True

    def limit_times(self, time: int) -> None:
        """Log time was set back: no ledger was opened, or ends, later than that."""
        for info in self._infos:
            info.opened_time, info.last_time = min(info.opened_time, time), min(info.last_time, time)

    def adopt(self, ledger: int, file: int, entries: int, size: int, time: int) -> None:
        """Entries that were written elsewhere are the next ledger, sealed."""
        self.seal()
        self._infos.append(LedgerInfo(ledger, file, self._end, entries, size, True, time, time))
        self._end += entries

    def drop(self, count: int) -> list[LedgerInfo]:
        """Take the oldest ledgers away."""
        gone, self._infos = self._infos[:count], self._infos[count:]
        return gone

    def check(self) -> None:
        """I40: each ledger begins where the one before ends; ids rise; all but the last are sealed."""
        previous: LedgerInfo | None = None
        for info in self._infos:
            assert info.id >= info.file > 0, f"I40: ledger {info.id} in the later file {info.file}"
            assert info.entries > 0, f"I40: ledger {info.id} is empty"
            assert info.opened_time <= info.last_time, f"I40: ledger {info.id} ends before it was opened"
            if previous is not None:
                assert previous.sealed, f"I40: ledger {previous.id} is open and not the last"
                assert previous.id < info.id, f"I40: ledger {info.id} follows {previous.id}"
                assert previous.end == info.first, f"I40: a gap at {previous.end} before ledger {info.id}"
                assert previous.last_time <= info.last_time, f"I40: ledger {info.id} is older than the last"
            previous = info
        if previous is not None:
            assert previous.end == self._end, f"I40: ledgers end at {previous.end}, not {self._end}"


def _first(info: LedgerInfo) -> int:
    return info.first


def _id(info: LedgerInfo) -> int:
    return info.id


def _last_time(info: LedgerInfo) -> int:
    return info.last_time
