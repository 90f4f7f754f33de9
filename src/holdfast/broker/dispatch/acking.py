"""Collect acknowledgements of one turn of the loop, and submit them as one event.

Entries whose acknowledgement is under way are not delivered again.

An acknowledgement is checked three times (**I58**):

1. Here, by the reset number under which its message was delivered.
2. Here, after a reset: whether the entry was delivered since.
3. When its event is applied, by the reset number again. A reset may have come first in the order.

A message carries the number under which it was delivered, so check 1 is exact. A network client knows only
the number of its session, and acknowledges messages of earlier sessions. Check 2 is for those.

In a cluster, the owner alone knows what was delivered since. A member that is not the owner offers entries
that fail check 2 to the owner (`AckOffer`), one event per turn. The owner checks and acknowledges them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast._core import Batch, Dispatch, TopicMessage, group_acks
from holdfast.broker.dispatch.revision import RevisionController
from holdfast.broker.dispatch.types import Cursor, Submit
from holdfast.broker.events import Ack
from holdfast.broker.ranges import Ranges, meeting, merged, without
from holdfast.errors import Fenced, HoldfastError, Misuse, Outdated, Timeout
from holdfast.ids import BATCH_MESSAGES_MAX
from holdfast.ledger import pack_bits

Receipt = asyncio.Future[None]


@dataclass(slots=True, eq=False)
class _Turn:
    """The acknowledgements of one turn of the loop: they become one event."""

    reset_number: int
    ranges: list[tuple[int, int]] = field(default_factory=list)
    cumulative: int = 0
    bits: dict[int, int] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    high: int = 0
    """The end of all that it covers."""
    offered: list[tuple[int, int]] = field(default_factory=list)
    """Entries that the owner is asked to acknowledge."""
    offered_bits: dict[int, int] = field(default_factory=dict)
    offer_receipts: list[Receipt] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.ranges or self.cumulative or self.bits)


class Offering(Protocol):
    """Offers acknowledgements to the owner; with `receipt` returns a future that has its answer."""

    def __call__(
        self, ranges: list[tuple[int, int]], bits: list[tuple[int, bytes]], reset_number: int, receipt: bool
    ) -> asyncio.Future[Any] | None: ...


class Acking:
    """The acknowledgements of one subscription between its consumers and its events."""

    def __init__(
        self,
        cursor: Cursor,
        table: Dispatch,
        revision: RevisionController,
        submit: Submit,
        progress: Callable[[], None],
    ) -> None:
        self._cursor = cursor
        self._table = table
        self._revision = revision
        self._submit = submit
        self._progress = progress
        self._turn: _Turn | None = None
        self._flying: list[_Turn] = []
        self._open: dict[int, int] = {}
        """By ordinal of a batch with acknowledgements under way: the mask of messages that stay open."""
        self.outdated = 0
        self._elsewhere: Ranges = ()
        self.held_max = 0
        """The most unacknowledged messages of all consumers, also of other members; 0: no limit."""
        self.is_foreign: Callable[[], bool] = lambda: False
        """Returns whether another member dispatches."""
        self.offer: Offering | None = None
        """Offers acknowledgements to the owner; None: no other member has the subscription."""

    # -- entries of other members ---------------------------------------------------------------------

    @property
    def elsewhere(self) -> Ranges:
        """Entries that consumers of other members hold."""
        return self._elsewhere

    @elsewhere.setter
    def elsewhere(self, ranges: Ranges) -> None:
        self._elsewhere = ranges
        self.share()

    @property
    def away(self) -> int:
        """Number of entries that consumers of other members hold, and have not acknowledged."""
        count = self._cursor.acks.count
        return sum(count(end) - count(first) for first, end in self._elsewhere)

    def share(self) -> None:
        """Leave this member the rest of the limit, and at least one message."""
        self._table.held_max = max(1, self.held_max - self.away) if self.held_max else 0

    # -- calls of consumers ----------------------------------------------------------------------------

    def messages(self, messages: Batch | Sequence[TopicMessage], receipt: bool) -> Receipt | None:
        """Acknowledge delivered messages: whole entries and parts of batches."""
        ranges, parts, outdated = group_acks(messages, self._revision.reset_number)
        turn = self._collect()
        self._take(turn, ranges)
        for ordinal, size, acked in parts:
            self._leave_open(turn, ordinal, _left(size, acked))
        return self._answer(turn, receipt, outdated)

    def ranges(self, ranges: Ranges, reset_number: int, receipt: bool) -> Receipt | None:
        """Acknowledge whole entries by ordinals; ranges are half-open, sorted and disjoint."""
        if reset_number != self._revision.reset_number:
            return self._answer(None, receipt, sum(end - first for first, end in ranges))
        turn = self._collect()
        filtered, offered = self._ranges(turn, ranges), len(turn.offered)
        if filtered and self._offers():
            delivered, _ = self._table.delivered_of(ranges)
            turn.offered += without(merged(ranges), merged(delivered))
            filtered = 0
        return self._answer(turn, receipt, filtered, len(turn.offered) > offered)

    def cumulative(
        self,
        ordinal: int,
        reset_number: int,
        receipt: bool,
        index: int = -1,
        size: int = 1,
        exact: bool = False,
    ) -> Receipt | None:
        """Acknowledge an entry and all before it; with `index`, up to that message.

        `exact`: the number is the one under which the message was delivered, not that of a session. Without
        it, a member that does not own the subscription accepts only what it has delivered itself.
        """
        require_index(self._cursor.name, ordinal, size, index)
        if not exact and self.is_foreign() and ordinal >= self._table.reach:
            return self._refuse(ordinal, receipt)
        void = not exact and self._table.undelivered(ordinal)
        if void or reset_number != self._revision.reset_number:
            return self._answer(None, receipt, 1)
        turn = self._collect()
        whole = index < 0 or index + 1 >= size
        to = ordinal + 1 if whole else ordinal
        if to > turn.cumulative:
            turn.cumulative = to
            turn.high = max(turn.high, to)
            self._table.release(min(self._cursor.acks.acked_to, to), to)
        if not whole:
            self._leave_open(turn, ordinal, _left(size, (2 << index) - 1))
        return self._answer(turn, receipt, 0)

    def all_but(self, parts: Sequence[tuple[int, int]], reset_number: int, receipt: bool) -> Receipt | None:
        """Acknowledge the messages of batches that are not in the mask of their batch."""
        if reset_number != self._revision.reset_number:
            return self._answer(None, receipt, len(parts))
        turn, undelivered = self._collect(), list[tuple[int, int]]()
        for ordinal, still_open in parts:
            if self._table.undelivered(ordinal):
                undelivered.append((ordinal, still_open))
            else:
                self._leave_open(turn, ordinal, still_open)
        if not undelivered or not self._offers():
            return self._answer(turn, receipt, len(undelivered))
        for ordinal, still_open in undelivered:
            before = turn.offered_bits.get(ordinal, still_open)
            turn.offered_bits[ordinal] = before & still_open
        return self._answer(turn, receipt, 0, offered=True)

    def offered(
        self, ranges: Ranges, bits: Sequence[tuple[int, bytes]], reset_number: int, receipt: bool
    ) -> Receipt | None:
        """Acknowledge what another member offers, without what was not delivered since the last reset."""
        if reset_number != self._revision.reset_number:
            return self._answer(None, receipt, len(bits) + sum(end - first for first, end in ranges))
        turn = self._collect()
        filtered = self._ranges(turn, ranges)
        for ordinal, still_open in bits:
            if self._table.undelivered(ordinal):
                filtered += 1
            else:
                self._leave_open(turn, ordinal, int.from_bytes(still_open, "little"))
        return self._answer(turn, receipt, filtered)

    def _offers(self) -> bool:
        return self.offer is not None and self.is_foreign()

    def narrow(self, ordinal: int, still_open: int) -> asyncio.Future[Any]:
        """Leave only these messages of an undelivered batch open. The future is done when durable."""
        bits = [(ordinal, pack_bits(still_open))]
        return self._submit(Ack(self._cursor.id, self._revision.reset_number, bits=bits, receipt=True))

    def leave_out(self, ranges: Ranges) -> None:
        """Acknowledge what cannot be read, or was compacted, in place of consumers. Again: nothing."""
        left = [each for each in ranges if not self._is_covered(*each)]
        if left:
            self._take(self._collect(), left)

    def leave_open(self, masks: Iterable[tuple[int, int]]) -> None:
        """Acknowledge the messages of batches that are not in their masks, in place of consumers."""
        for ordinal, mask in masks:
            known = self._open.get(ordinal, self._cursor.acks.bits_of(ordinal))
            if (known is None or known & ~mask) and not self._is_covered(ordinal, ordinal + 1):
                self._leave_open(self._collect(), ordinal, mask)

    def _is_covered(self, first: int, end: int) -> bool:
        """Return whether a range is acknowledged as a whole, or about to be."""
        return any(a <= first and end <= b for a, b in self.covered(first, end))

    def claim(self, ordinals: Sequence[int]) -> Callable[[], None]:
        """Deliver no entry of these until the returned function is called: another event takes them.

        Acknowledgements that were collected before are submitted first.
        """
        self.flush()
        claim = _Turn(self._revision.reset_number, [(each, each + 1) for each in sorted(set(ordinals))])
        claim.high = max(ordinals, default=-1) + 1
        self._flying.append(claim)
        return lambda: self._flying.remove(claim)

    # -- inside a turn ---------------------------------------------------------------------------------

    def _collect(self) -> _Turn:
        """Return the turn that is being filled; the loop submits it in its next iteration."""
        if self._turn is not None and self._turn.reset_number != self._revision.reset_number:
            self.flush()
        if self._turn is None:
            self._turn = _Turn(self._revision.reset_number)
            asyncio.get_running_loop().call_soon(self._leave, self._turn)
        return self._turn

    def _ranges(self, turn: _Turn, ranges: Ranges) -> int:
        """Acknowledge ranges without undelivered entries; return how many were filtered out."""
        filtered = 0
        if self._table.undelivered_entries:
            ranges, filtered = self._table.delivered_of(ranges)
        self._take(turn, ranges)
        return filtered

    def _take(self, turn: _Turn, ranges: Ranges) -> None:
        if not ranges:
            return
        turn.ranges += ranges
        turn.high = max(turn.high, ranges[-1][1])
        self._table.release_many(ranges)
        if self._open:
            self._close(ranges)

    def _close(self, ranges: Ranges) -> None:
        """Forget the open messages of whole entries that are acknowledged."""
        for first, end in ranges:
            few = end - first <= len(self._open)
            for ordinal in range(first, end) if few else [*self._open]:
                if first <= ordinal < end:
                    self._open.pop(ordinal, None)

    def _leave_open(self, turn: _Turn, ordinal: int, still_open: int) -> None:
        left = self._open.get(ordinal)
        if left is None:
            left = self._cursor.acks.bits_of(ordinal)
        left = still_open if left is None else left & still_open
        if left == 0:
            turn.bits.pop(ordinal, None)
            self._take(turn, [(ordinal, ordinal + 1)])
            return
        self._open[ordinal] = turn.bits[ordinal] = left
        turn.high = max(turn.high, ordinal + 1)
        self._table.shrink(ordinal, left.bit_count())

    def _refuse(self, ordinal: int, receipt: bool) -> Receipt | None:
        """Refuse to acknowledge everything up to an entry that another member delivered."""
        self.outdated += 1
        if not receipt:
            return None
        future: Receipt = asyncio.get_running_loop().create_future()
        _fail(
            future,
            Fenced(
                f"entry {ordinal} of subscription {self._cursor.name} was delivered by another member, which "
                "alone knows what is before it; acknowledge one by one, or when it arrives again"
            ),
        )
        return future

    def _answer(
        self, turn: _Turn | None, receipt: bool, ineffective: int, offered: bool = False
    ) -> Receipt | None:
        self._progress()
        self.outdated += ineffective
        if not receipt:
            return None
        if offered:
            assert turn is not None
            answer: Receipt = asyncio.get_running_loop().create_future()
            turn.offer_receipts.append(answer)
            return answer if turn.is_empty else self._after(turn, answer)
        future: Receipt = asyncio.get_running_loop().create_future()
        if ineffective:
            number = self._revision.reset_number
            error = Outdated(
                f"{ineffective} of these acknowledgements have no effect: their messages were delivered "
                f"before reset {number} of subscription {self._cursor.name}, which redelivers them; "
                "acknowledge them when they arrive again"
            )
            if turn is None or turn.is_empty:
                _fail(future, error)
                return future
            inner: Receipt = asyncio.get_running_loop().create_future()
            inner.add_done_callback(lambda done: _fail(future, done.exception() or error))
            turn.receipts.append(inner)
        else:
            assert turn is not None
            turn.receipts.append(future)
        return future

    def _after(self, turn: _Turn, answer: Receipt) -> Receipt:
        """Return a receipt for what this turn acknowledges itself, and then for what it offers."""
        future: Receipt = asyncio.get_running_loop().create_future()
        first: Receipt = asyncio.get_running_loop().create_future()
        turn.receipts.append(first)

        def both(done: Receipt) -> None:
            if (error := done.exception()) is not None:
                _fail(future, error)
            elif first.done() and answer.done() and not future.done():
                future.set_result(None)

        first.add_done_callback(both)
        answer.add_done_callback(both)
        return future

    # -- the event -------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Submit the collected acknowledgements now, before an event that must follow them."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        if turn.is_empty:
            self._told(turn, None)
        else:
            self._acknowledge(turn)
        if turn.offered or turn.offered_bits:
            self._pass_on(turn)

    def _pass_on(self, turn: _Turn) -> None:
        """Offer acknowledgements to the owner."""
        assert self.offer is not None
        bits = [(ordinal, pack_bits(left)) for ordinal, left in sorted(turn.offered_bits.items())]
        answered = self.offer(merged(turn.offered), bits, turn.reset_number, bool(turn.offer_receipts))
        if answered is not None:
            answered.add_done_callback(lambda done: self._passed_on(turn, done))

    def _passed_on(self, turn: _Turn, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        if isinstance(error, Timeout):
            error = Outdated(f"these acknowledgements may have no effect: {error}")
        if isinstance(error, Outdated):
            self.outdated += sum(end - first for first, end in turn.offered) + len(turn.offered_bits)
        _tell(turn.offer_receipts, error)

    def _acknowledge(self, turn: _Turn) -> None:
        event = Ack(
            self._cursor.id,
            turn.reset_number,
            merged(turn.ranges),
            turn.cumulative,
            [(ordinal, pack_bits(left)) for ordinal, left in sorted(turn.bits.items())],
            receipt=bool(turn.receipts),
        )
        try:
            future = self._submit(event)
        except HoldfastError as error:
            self._told(turn, error)
            return
        self._flying.append(turn)
        future.add_done_callback(lambda done: self._landed(turn, done))

    def _leave(self, turn: _Turn) -> None:
        if self._turn is turn:
            self.flush()

    def _landed(self, turn: _Turn, done: asyncio.Future[Any]) -> None:
        self._flying.remove(turn)
        for ordinal, left in turn.bits.items():
            if self._open.get(ordinal) == left:
                del self._open[ordinal]  # the state knows it now
        if done.cancelled():
            self._told(turn, Outdated("the broker stopped before the acknowledgement was durable"))
        else:
            self._told(turn, done.exception())

    def _told(self, turn: _Turn, error: BaseException | None) -> None:
        if isinstance(error, Outdated):
            self.outdated += sum(end - first for first, end in turn.ranges) + len(turn.bits)
        _tell(turn.receipts, error)

    def next_open(self, ordinal: int) -> int:
        """Return the first ordinal from here on that is open, and not with another member."""
        at = self._cursor.acks.next_unacked(ordinal)
        for each in meeting(self._elsewhere, at, at + 1) if self._elsewhere else ():
            at = each[1]
        return at

    # -- for the dispatcher ----------------------------------------------------------------------------

    def covered(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return ranges of a run that are acknowledged, or about to be; sorted by start."""
        found = self._cursor.acks.acked_in(first, end)
        coming = [turn for turn in self._flying if turn.high > first]
        if self._turn is not None and self._turn.high > first:
            coming.append(self._turn)
        if self._elsewhere:
            found += meeting(self._elsewhere, first, end)
        elif not coming:
            return found
        number = self._revision.reset_number
        for turn in coming:
            if turn.reset_number != number:
                continue  # its event will be refused
            if turn.cumulative > first:
                found.append((first, turn.cumulative))
            found += [each for each in turn.ranges if each[0] < end and each[1] > first]
        return sorted(found)

    def open_in(self, first: int, end: int) -> dict[int, int]:
        """Return masks of the messages still open, by ordinal of partly acknowledged batches."""
        bits = self._cursor.acks.bits_in(first, end)
        for ordinal, left in self._open.items():
            if first <= ordinal < end:
                bits[ordinal] = left
        return bits

    @property
    def parts(self) -> int:
        """Number of batches with acknowledgements of parts under way."""
        return len(self._open)

    def forget(self) -> None:
        """Forget open messages after a reset."""
        self._open.clear()


def require_index(subscription: str, ordinal: int, size: int, index: int) -> None:
    """Raise Misuse if the index is not in the batch; −1: the whole entry."""
    if size > BATCH_MESSAGES_MAX:
        raise Misuse(
            f"entry {ordinal} as a batch of {size} messages; a batch has at most {BATCH_MESSAGES_MAX} "
            f"messages. Nothing was acknowledged on subscription {subscription}"
        )
    if not -1 <= index < max(1, size):
        raise Misuse(
            f"entry {ordinal} is a batch of {size} messages, and has none of index {index}; nothing was "
            f"acknowledged on subscription {subscription}"
        )


def _left(size: int, acked: int) -> int:
    """Return the mask of a batch's messages that stay open."""
    return ((1 << size) - 1) & ~acked


def _tell(receipts: Sequence[Receipt], error: BaseException | None) -> None:
    for receipt in receipts:
        if error is not None:
            _fail(receipt, error)
        elif not receipt.done():
            receipt.set_result(None)


def _fail(future: Receipt, error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as seen: asyncio does not warn if the caller does not wait
