"""Read the entries of a compaction in order: the view before, then the topic.

The position is that of a cursor with a revision (**I313**). Between two passes it is set back to the start,
which changes the revision. A read that was under way meanwhile is dropped, as a dispatcher drops it. Else the
second pass would begin where the first one ended, and lose all entries before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast._core import Entries, compressed_entry, packed_batches
from holdfast.broker.compaction.reading import CompactedReading
from holdfast.broker.dispatch.revision import RevisionController
from holdfast.errors import Outdated
from holdfast.packing import Unpackable, pack, unpack
from holdfast.system import Clock

if TYPE_CHECKING:
    from holdfast.broker.topic import Topic

READ_ENTRIES = 4096
READ_BYTES = 512 << 10
OPENED_MAX = 8 << 20
"""Bytes of the largest batch that is opened: more would hold up the broker's loop."""
PIECE_BYTES = 1 << 20
"""Bytes of opened batches that are worked on without a turn for others."""
HEADER = 10
"""Bytes of an entry before its metadata; the last four are the size of that."""


class CompactionSource:
    """A cursor over the entries below a horizon."""

    def __init__(self, topic: Topic, horizon: int, clock: Clock) -> None:
        self._topic = topic
        self._reading = CompactedReading(topic)
        self._horizon = horizon
        self._revision = RevisionController(0, 0, clock)
        self._position = 0
        self.dropped = 0
        """Reads that were under way when the position was set back."""

    @property
    def base(self) -> int:
        """The number of the view before; 0: without one."""
        self._reading.index(0)
        return self._reading.number

    def rewind(self) -> None:
        """Set the position back to the start."""

        def edit() -> None:
            self._position = 0

        self._revision.revise(edit)

    async def next(self) -> Entries | None:
        """Return the next run of entries, which may have gaps; `None` at the horizon.

        Raises:
            Outdated: the view before is gone, or entries were deleted; the compaction has to begin again.
            Corrupt: an entry is damaged; the text names file and position.
        """
        while True:
            revision = self._revision.begin_read()
            at = self._reading.next_kept(self._position)
            if at >= self._horizon:
                return None
            entries = await self._reading.read(at, min(READ_ENTRIES, self._horizon - at), READ_BYTES)
            if self._reading.gone:
                raise Outdated(f"the compacted view of {self._topic.name} was removed; compact again")
            if self._revision.is_outdated(revision):
                self.dropped += 1
                continue
            self._position = entries.end_ordinal
            return entries.slice(0, self._horizon - entries.first_ordinal)


class Piece(NamedTuple):
    """A part of a run, of which compressed batches are opened."""

    entries: Entries
    payloads: list[tuple[int, bytes]]
    """Place and opened payload of each of these batches."""
    compressions: dict[int, int]
    """By their places."""
    fault: str
    """Why a batch does not open; empty: all do."""


def pieces(entries: Entries) -> Iterator[Piece]:
    """Yield a run in parts, each with about `PIECE_BYTES` of opened payloads at most.

    A few KiB can open to many MiB, so not all of a run is open at once. Others have a turn between two parts.
    """
    start, size, fault = 0, 0, ""
    payloads, compressions = list[tuple[int, bytes]](), dict[int, int]()
    for place, compression, told, payload in packed_batches(entries):
        try:
            if told > OPENED_MAX:
                raise Unpackable(f"its payload would have {told} bytes; the limit is {OPENED_MAX}")
            data = bytes(unpack(compression, told, payload))
        except Unpackable as error:
            fault = fault or f"position {entries.first_ordinal + place}: {error}"
            continue
        payloads.append((place - start, data))
        compressions[place - start] = compression
        size += told
        if size >= PIECE_BYTES:
            yield Piece(entries.slice(start, place + 1), payloads, compressions, fault)
            start, size, payloads, compressions = place + 1, 0, [], {}
    if start < len(entries):
        yield Piece(entries.slice(start), payloads, compressions, fault)


def repacked(piece: Piece, ordinal: int, entry: bytes) -> bytes:
    """Return a surviving entry, compressed again if its batch was opened and lost messages."""
    place = ordinal - piece.entries.first_ordinal
    compression = piece.compressions.get(place, 0)
    if not compression or entry == piece.entries.entry(place):
        return entry
    payload = entry[HEADER + int.from_bytes(entry[HEADER - 4 : HEADER], "big") :]
    return compressed_entry(entry, compression, pack(compression, payload))


__all__ = ["OPENED_MAX", "CompactionSource", "Piece", "pieces", "repacked"]
