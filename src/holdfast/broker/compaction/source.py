"""Read the entries of a compaction in order: the view before, then the topic.

The position is that of a cursor with a revision (**I313**). Between two passes it is set back to the start,
which changes the revision. A read that was under way meanwhile is dropped, as a dispatcher drops it. Else the
second pass would begin where the first one ended, and lose all entries before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core import Entries, packed_batches
from holdfast.broker.compaction.reading import CompactedReading
from holdfast.broker.dispatch.revision import RevisionController
from holdfast.errors import Outdated
from holdfast.packing import Unpackable, unpack
from holdfast.system import Clock

if TYPE_CHECKING:
    from holdfast.broker.topic import Topic

READ_ENTRIES = 4096
READ_BYTES = 512 << 10
OPENED_MAX = 32 << 20
"""Bytes of the largest batch that is opened: more would hold up the broker's loop."""


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


def opened(entries: Entries) -> tuple[list[tuple[int, bytes]], str]:
    """Open the compressed batches of a run.

    Returns place and payload of each, and why the first of the others does not open; "" if all do.
    """
    found: list[tuple[int, bytes]] = []
    fault = ""
    for place, compression, size, payload in packed_batches(entries):
        try:
            if size > OPENED_MAX:
                raise Unpackable(f"its payload would have {size} bytes; the limit is {OPENED_MAX}")
            found.append((place, bytes(unpack(compression, size, payload))))
        except Unpackable as error:
            fault = fault or f"position {entries.first_ordinal + place}: {error}"
    return found, fault


__all__ = ["OPENED_MAX", "CompactionSource", "opened"]
