"""The ledgers of a topic: translate positions to ids, and back.

An ordinal counts a topic's entries over its whole life; a ledger holds a run of them. Users see
`ledger:entry`. Both searches are binary, over a few ledgers.
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
    """The id for users. Rises along a topic."""
    file: int
    """The number in its file's name. It differs from `id` only for a ledger that was adopted from a stage:
    its file is older than the ledgers before it."""
    first: int
    """The ordinal of its entry 0."""
    entries: int
    size: int
    """Bytes of its data file."""
    sealed: bool
    opened_time: int
    """Log time, in ns since the epoch. Readers see no entry with an earlier time: in an adopted file the
    blocks carry the times of their staging."""
    last_time: int
    """Log time of its last entry."""

    @property
    def end(self) -> int:
        return self.first + self.entries


class LedgerTable:
    """The ledgers that a topic still has, in order, without a gap (I40).

    Only the last can be open.

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
        """The first kept ordinal; `end` if the topic is empty."""
        return self._infos[0].first if self._infos else self._end

    @property
    def end(self) -> int:
        """The ordinal of the next entry."""
        return self._end

    @property
    def last(self) -> LedgerInfo | None:
        return self._infos[-1] if self._infos else None

    @property
    def front(self) -> LedgerInfo | None:
        """The oldest kept ledger."""
        return self._infos[0] if self._infos else None

    @property
    def open_ledger(self) -> int | None:
        """The id of the ledger that grows; `None` if the next publish opens one."""
        return None if not self._infos or self._infos[-1].sealed else self._infos[-1].id

    @property
    def size(self) -> int:
        """Bytes of all ledgers."""
        return sum(info.size for info in self._infos)

    # -- where is what ---------------------------------------------------------------------------------

    def at(self, ordinal: int) -> LedgerInfo:
        """Return the ledger that holds an ordinal.

        Raises:
            NotFound: the entry was trimmed, or is not published yet.
        """
        if not self.first <= ordinal < self._end:
            raise NotFound(f"entry {ordinal} does not exist; the topic has [{self.first}, {self._end})")
        return self._infos[bisect_right(self._infos, ordinal, key=_first) - 1]

    def id_of(self, ordinal: int) -> MessageId:
        """Return the id of an ordinal.

        Raises:
            NotFound: the entry was trimmed, or is not published yet.
        """
        info = self.at(ordinal)
        return MessageId(info.id, ordinal - info.first)

    def ordinal(self, ledger: int, entry: int) -> int:
        """Return the first ordinal at or after an id, which need not exist."""
        at = bisect_left(self._infos, ledger, key=_id)
        if at == len(self._infos):
            return self._end
        info = self._infos[at]
        return info.first + min(max(entry, 0), info.entries) if info.id == ledger else info.first

    def find(self, ledger: int) -> LedgerInfo | None:
        """Return the ledger of this id, if it is kept."""
        at = bisect_left(self._infos, ledger, key=_id)
        return self._infos[at] if at < len(self._infos) and self._infos[at].id == ledger else None

    def since(self, time: int) -> list[LedgerInfo]:
        """Return the ledgers that can hold entries of this log time or later."""
        return self._infos[bisect_left(self._infos, time, key=_last_time) :]

    # -- changes ---------------------------------------------------------------------------------------

    def grow(self, ledger: int, first: int, entries: int, size: int, time: int) -> None:
        """Set the size of the open ledger; open it if it is new."""
        last = self.last
        if last is None or last.sealed:
            last = LedgerInfo(ledger, ledger, first, 0, 0, False, time, time)
            self._infos.append(last)
        assert (last.id, last.first) == (ledger, first), f"I40: ledger {ledger} grows, {last.id} is open"
        last.entries, last.size, last.last_time = entries, size, time
        self._end = first + entries

    def seal(self) -> None:
        """Close the open ledger: it does not grow any more."""
        if self._infos:
            self._infos[-1].sealed = True

    def limit_times(self, time: int) -> None:
        """Lower all times to this one, after log time was set back."""
        for info in self._infos:
            info.opened_time, info.last_time = min(info.opened_time, time), min(info.last_time, time)

    def adopt(self, ledger: int, file: int, entries: int, size: int, time: int) -> None:
        """Append a sealed ledger that a stage has written."""
        self.seal()
        self._infos.append(LedgerInfo(ledger, file, self._end, entries, size, True, time, time))
        self._end += entries

    def drop(self, count: int) -> list[LedgerInfo]:
        """Remove the oldest ledgers, and return them."""
        gone, self._infos = self._infos[:count], self._infos[count:]
        return gone

    def check(self) -> None:
        """Check I40: no gaps between ledgers; ids rise; all but the last are sealed."""
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
