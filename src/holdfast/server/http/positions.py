"""Positions as Pulsar writes them, and the places that they mean."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from holdfast.broker.state import SubscriptionState
from holdfast.broker.topic import Topic
from holdfast.ids import MessageId
from holdfast.ledger.acks import AckState
from holdfast.server.http.answers import LATEST_LEDGER, CursorPosition, Target
from holdfast.server.http.refusals import Refusal

RANGES_SHOWN = 1000
"""Of acknowledged holes: a subscription may have a million."""

STRIDE = 10_000
"""Ranges that are counted before others have the loop."""


def ordinal_of(topic: Topic, target: Target) -> int:
    """The ordinal that a position means.

    Raises:
        Refusal: there is no such position (412).
    """
    if target is None or target == "latest":
        return topic.visible
    if target == "earliest":
        return topic.first
    assert isinstance(target, CursorPosition)
    if target.ledger_id < 0:
        return topic.first
    if target.ledger_id >= LATEST_LEDGER:
        return topic.visible
    info = topic.state.ledgers.find(target.ledger_id)
    count = 0 if info is None else min(info.end, topic.visible) - info.first
    if info is None or not -1 <= target.entry_id < count:
        position = f"{target.ledger_id}:{target.entry_id}"
        raise Refusal(412, f"{topic.name} has no position {position}; internalStats shows its ledgers")
    return min(info.first + max(target.entry_id, 0) + target.is_excluded, topic.visible)


def before(topic: Topic, ordinal: int) -> MessageId:
    """The position of the entry before an ordinal; entry −1: the ordinal is its ledger's first."""
    if topic.first < ordinal <= topic.state.ledgers.end:
        return topic.id_of(ordinal - 1)
    front = topic.state.ledgers.front
    return MessageId(-1, -1) if front is None else MessageId(front.id, -1)


def next_of(topic: Topic, ordinal: int) -> MessageId:
    """The position of an ordinal, which may be the next one of all."""
    ledgers = topic.state.ledgers
    if ledgers.first <= ordinal < ledgers.end:
        return topic.id_of(ordinal)
    last = ledgers.last
    return MessageId(-1, -1) if last is None else MessageId(last.id, last.entries)


def holes(topic: Topic, subscription: SubscriptionState) -> Iterator[tuple[MessageId, MessageId]]:
    """What is acknowledged above the mark-delete position, as (the one before, the last one), in one ledger
    each: so Pulsar writes them. The first ones only."""
    shown = 0
    for first, end in subscription.acks.ranges():
        while first < end and shown < RANGES_SHOWN:
            info = topic.state.ledgers.at(first)
            stop = min(end, info.end)
            yield (
                MessageId(info.id, first - info.first - 1),
                MessageId(info.id, stop - info.first - 1),
            )
            first, shown = stop, shown + 1
        if shown == RANGES_SHOWN:
            return


async def count_ranges(acks: AckState) -> int:
    """How many ranges of acknowledged holes there are."""
    count = 0
    for count, _ in enumerate(acks.ranges(), 1):
        if count % STRIDE == 0:
            await asyncio.sleep(0)
    return count
