"""Events that take entries out of backlogs: move, reject, get, and drop.

A move appends entries elsewhere and acknowledges them in one step. It carries their bytes, because an event
reads no file. An entry that was acknowledged meanwhile is not appended again, so a message moves exactly once
(**I243**), however often the event is submitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.cursors import advance_all, note_use
from holdfast.broker.events.exchanges import Routing
from holdfast.broker.events.notices import EntriesTaken, LedgersGone
from holdfast.broker.events.outcomes import Dropped, Moved
from holdfast.broker.state import BrokerState, SubscriptionState, TopicState
from holdfast.broker.topic_kinds import Thinned, ring_floor
from holdfast.errors import Misuse, NotFound, Outdated, Terminated

if TYPE_CHECKING:
    from collections.abc import Iterable

NOWHERE = 0
ALTERNATE = -1
"""Destinations of a move beside the ids of topics and exchanges."""


class Row(msgspec.Struct, array_like=True, frozen=True):
    """One entry of a move, or one message of a batch."""

    ordinal: int
    entry: bytes = b""
    """Bytes that are appended: the entry, or the message as an entry of its own. Empty: nothing."""
    size: int = 0
    """Messages of the batch, if only some are taken; 0: the whole entry."""
    mask: bytes = b""
    """Which messages, as little-endian bits."""

    @property
    def bits(self) -> int:
        return int.from_bytes(self.mask, "little")


@event(77)
class Move(Event, frozen=True):
    """Take entries out of the backlogs of subscriptions of one topic, and append them elsewhere.

    A row takes effect if its messages are open in at least one of the subscriptions; then it is acknowledged
    in all of them. The outcome says which rows did.
    """

    subscriptions: list[int]
    reset_numbers: list[int]
    """Of each subscription, under which its messages were read."""
    to: int
    """A topic, an exchange, `NOWHERE` (get), or `ALTERNATE`: that of the first subscription (reject)."""
    rows: list[Row]

    def apply(self, state: BrokerState, context: Context) -> Moved:
        sources = self._sources(state)
        topic = state.require_topic(sources[0].topic)
        rows = self._open_rows(sources, topic)
        routing = self._routing(state, sources[0], [row for _, row in rows])
        if not rows:
            return Moved()
        for source in sources:
            take(state, context, source, [row for _, row in rows], topic.ledgers.end)
        routing.carry_out(context)
        return Moved(tuple(index for index, _ in rows))

    def _sources(self, state: BrokerState) -> list[SubscriptionState]:
        if not self.subscriptions or len(self.subscriptions) != len(self.reset_numbers):
            raise Misuse("a move names one subscription or more, each with its reset number")
        sources = [state.require_subscription(each) for each in self.subscriptions]
        if len({each.topic for each in sources}) > 1:
            raise Misuse("a move is of subscriptions of one topic; move from each topic by itself")
        for source, number in zip(sources, self.reset_numbers, strict=True):
            if source.reset_number != number:
                raise Outdated(
                    f"the subscription {source.name!r} was reset: these messages were read under number "
                    f"{number}, it is {source.reset_number} now; read them again"
                )
        return sources

    def _open_rows(self, sources: list[SubscriptionState], topic: TopicState) -> list[tuple[int, Row]]:
        """Return the rows that take effect, with their indexes."""
        found: list[tuple[int, Row]] = []
        taken: dict[int, int] = {}
        for index, row in enumerate(self.rows):
            if row.size < 0 or (row.size and not 0 < row.bits < 1 << row.size):
                raise Misuse(f"a move of messages {row.bits:b} of a batch of {row.size}; name some of them")
            if not topic.ledgers.first <= row.ordinal < topic.ledgers.end:
                continue
            wanted = row.bits if row.size else -1
            union = 0
            for source in sources:
                union |= open_of(source, row.ordinal)
            union &= ~taken.get(row.ordinal, 0)
            if (union & wanted) != wanted:
                continue
            taken[row.ordinal] = taken.get(row.ordinal, 0) | wanted
            found.append((index, row))
        return found

    def _routing(self, state: BrokerState, source: SubscriptionState, rows: list[Row]) -> Routing:
        routing = Routing(state)
        to = self.to
        if to == ALTERNATE:
            to = state.exchanges.alternates.of(source.id, source.topic)
            if not to:
                raise NotFound(
                    f"neither the subscription {source.name!r} nor its topic "
                    f"{state.topics[source.topic].name} has an alternate exchange; set one, or acknowledge"
                )
        if to == NOWHERE:
            return routing
        exchange = state.exchanges.all.get(to)
        if exchange is None:
            where = state.require_topic(to)
            if where.terminated:
                raise Terminated(f"{where.name} was terminated; nothing can be moved there")
            if to == source.topic:
                raise Misuse(f"messages of {where.name} cannot be moved to itself; name another topic")
        for row in rows:
            if exchange is None:
                routing.to_topic(to, row.entry)
            else:
                routing.to_exchange(exchange, row.entry)
        routing.require_room()
        return routing


def open_of(subscription: SubscriptionState, ordinal: int) -> int:
    """Return the mask of an entry's messages that are not acknowledged; −1: all of them."""
    acks = subscription.acks
    if acks.is_acked(ordinal):
        return 0
    bits = acks.bits_of(ordinal)
    return -1 if bits is None else bits


def take(
    state: BrokerState, context: Context, source: SubscriptionState, rows: Iterable[Row], end: int
) -> None:
    """Acknowledge rows in one subscription, and tell its dispatcher."""
    whole: list[tuple[int, int]] = []
    parts: dict[int, int] = {}
    for row in rows:
        if source.acks.is_acked(row.ordinal):
            continue
        left = open_of(source, row.ordinal)
        left = 0 if not row.size else (left & ((1 << row.size) - 1)) & ~row.bits
        if left:
            source.acks.ack_batch(row.ordinal, left, end)
            parts[row.ordinal] = left
        else:
            source.acks.ack_ranges([(row.ordinal, row.ordinal + 1)], end)
            whole.append((row.ordinal, row.ordinal + 1))
            parts.pop(row.ordinal, None)
    if whole or parts:
        note_use(state, source, state.log.time)
        state.touch(source)
        context.notices.append(EntriesTaken(source, sorted(whole), sorted(parts.items())))


def thinned_of(state: BrokerState, topic: TopicState) -> Thinned:
    """Return the record of entries that a topic has dropped."""
    if topic.id not in state.thinned:
        state.thinned[topic.id] = Thinned(topic.id, topic.ledgers.first)
    return state.thinned[topic.id]


@event(78, urgent=False)
class RingTrim(Event, frozen=True):
    """Drop the oldest entries of a ring topic, down to its policy. Otherwise do nothing.

    Several members may submit this: the policy and the topic's end decide when it is applied.
    """

    topic: int

    def apply(self, state: BrokerState, context: Context) -> Dropped:
        topic = state.require_topic(self.topic)
        policies = state.effective(topic)
        floor = ring_floor(topic.ledgers, policies.ring_entries, policies.ring_bytes)
        dropped = advance_all(state, context, topic, floor)
        kept = floor if topic.compaction is None else topic.compaction.keeps(floor)
        old = [info for info in topic.ledgers if info.sealed and info.end <= kept]
        if old:
            context.notices.append(LedgersGone(topic, state.drop_ledgers(topic, len(old))))
        if dropped:
            thinned = thinned_of(state, topic)
            thinned.dropped += dropped
            state.touch(thinned)
        return Dropped(dropped)


@event(79, urgent=False)
class Supersede(Event, frozen=True):
    """Drop entries of a last-value topic whose keys have newer values, for all subscriptions.

    The sender has read the keys. A position is never used again, so the event needs no other condition.
    """

    topic: int
    ranges: list[tuple[int, int]]
    """By ordinals, half-open, sorted and disjoint."""

    def apply(self, state: BrokerState, context: Context) -> Dropped:
        topic = state.require_topic(self.topic)
        if not state.effective(topic).last_value:
            return Dropped(0)
        end = topic.ledgers.end
        known = state.thinned.get(topic.id)
        fresh = [
            (low, high)
            for low, high in self.ranges
            if low < min(high, end) and (known is None or known.superseded.next_unacked(low) < min(high, end))
        ]
        if not fresh:
            return Dropped(0)
        thinned = thinned_of(state, topic)
        thinned.superseded.ack_ranges(fresh, end)
        dropped = 0
        for _, each in sorted(topic.subscriptions.items()):
            before = each.acks.count(end)
            each.acks.ack_ranges(fresh, end)
            if left := before - each.acks.count(end):
                dropped += left
                state.touch(each)
                context.notices.append(EntriesTaken(each, [(low, min(high, end)) for low, high in fresh], []))
        thinned.dropped += dropped
        state.touch(thinned)
        return Dropped(dropped)
