"""Claim entries that an event takes out of a backlog, in place of consumers.

Promises upward: while a claim holds, no consumer gets its entries. After a move was refused, they are
delivered again. Needs from below: the tables of the dispatcher, and its acknowledgements under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from holdfast._core import Dispatch
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.ranges import Ranges


class Claims:
    """The claims on entries of one subscription."""

    def __init__(
        self, table: Dispatch, acking: Acking, progress: Callable[[], None], rewind: Callable[[], None]
    ) -> None:
        self._table = table
        self._acking = acking
        self._progress = progress
        self._rewind = rewind

    def is_free(self, ordinal: int) -> bool:
        """Return whether no consumer holds an entry, or has acknowledged it."""
        return not self._table.holder_of(ordinal) and not self._acking.covered(ordinal, ordinal + 1)

    def is_held(self, ordinal: int) -> bool:
        """Return whether a consumer of this member holds an entry."""
        return bool(self._table.holder_of(ordinal))

    @contextmanager
    def hold(self, ordinals: Sequence[int]) -> Iterator[None]:
        """Deliver none of these entries inside the block; after an error they are delivered again."""
        drop = self._acking.claim(ordinals)
        try:
            yield
        except BaseException:
            drop()
            self._rewind()
            raise
        drop()

    def taken(self, ranges: Ranges, parts: Sequence[tuple[int, int]]) -> None:
        """Follow an event that has acknowledged entries, and parts of batches, for no consumer."""
        self._table.release_many(ranges)
        for ordinal, left in parts:
            self._table.shrink(ordinal, left.bit_count())
        self._progress()
