"""Claim entries that an event takes out of a backlog, in place of consumers.

Promises upward: while a claim holds, no consumer gets its entries. Afterwards consumers get those that are
open: after a refused move all of them. After one message of a batch was taken, they get the other ones.
Needs from below: the tables of the dispatcher, its reads, and its acknowledgements under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from holdfast._core import Dispatch
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.dispatch.read_loops import Reading
from holdfast.broker.ranges import Ranges


class Claims:
    """The claims on entries of one subscription.

    `rewind` delivers all open entries again, `redeliver` those that a consumer holds; `progress` follows
    changes.
    """

    def __init__(
        self,
        table: Dispatch,
        acking: Acking,
        reading: Reading,
        progress: Callable[[], None],
        rewind: Callable[[], None],
        redeliver: Callable[[int], None],
    ) -> None:
        self._table = table
        self._acking = acking
        self._reading = reading
        self._progress = progress
        self._rewind = rewind
        self._redeliver = redeliver

    def is_free(self, ordinal: int) -> bool:
        """Return whether no consumer holds an entry, or has acknowledged it."""
        return not self._table.holder_of(ordinal) and not self._acking.covered(ordinal, ordinal + 1)

    def is_held(self, ordinal: int) -> bool:
        """Return whether a consumer of this member holds an entry."""
        return bool(self._table.holder_of(ordinal))

    def hold(self, ordinals: Sequence[int]) -> Callable[[bool], None]:
        """Deliver none of these entries until the returned function is called.

        Its argument tells whether the event was refused.
        """
        return partial(self._let_go, self._acking.claim(ordinals), ordinals)

    def _let_go(self, drop: Callable[[], None], ordinals: Sequence[int], refused: bool) -> None:
        """End a claim, and deliver its open entries if reads have left them out."""
        drop()
        table, end = self._table, 0 if self._reading.halted else self._reading.position
        passed = [each for each in sorted(set(ordinals)) if each < end and self.is_free(each)]
        if table.single:  # in order
            if refused or passed:
                self._rewind()
            return
        if refused:
            for consumer in sorted({table.holder_of(each) for each in ordinals} - {0}):
                self._redeliver(consumer)
        if passed:
            table.come_back([(each, each + 1) for each in passed])
            self._reading.pump()

    def taken(self, ranges: Ranges, parts: Sequence[tuple[int, int]]) -> None:
        """Follow an event that has acknowledged entries, and parts of batches, for no consumer."""
        self._table.release_many(ranges)
        for ordinal, left in parts:
            self._table.shrink(ordinal, left.bit_count())
        self._progress()
