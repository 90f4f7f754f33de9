"""Convert between positions of Pulsar and ordinals of a topic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import islice

from holdfast.broker import Start, SubscriptionState, Topic
from holdfast.ids import MessageId
from holdfast.ledger import AckState
from holdfast.server.http.answers import CursorPosition, Target
from holdfast.server.steps import Steps

RANGES_SHOWN = 1000
"""Acknowledged ranges in an answer, at most: a subscription may have a million."""

RANGES_AT_ONCE = 100
"""Acknowledged ranges read at once: an acknowledgement in between ends an iteration over them."""

SPAN = 1 << 16
"""Ordinals whose ranges are counted at once."""


def place_of(target: Target) -> tuple[Start, bool]:
    """Return the place that a target names, and whether the message there is excluded.

    Null is the end.
    """
    if isinstance(target, CursorPosition):
        return MessageId(target.ledger_id, target.entry_id), target.is_excluded or target.excluded
    return target or "latest", False


def before(topic: Topic, ordinal: int) -> MessageId:
    """Return the position before an ordinal; entry −1 is before the first ledger."""
    if topic.first < ordinal <= topic.ledgers.end:
        return topic.id_of(ordinal - 1)
    front = topic.ledgers.front
    return MessageId(-1, -1) if front is None else MessageId(front.id, -1)


def next_of(topic: Topic, ordinal: int) -> MessageId:
    """Return the position of an ordinal, or of the next entry to be published."""
    ledgers = topic.ledgers
    if ledgers.first <= ordinal < ledgers.end:
        return topic.id_of(ordinal)
    last = ledgers.last
    return MessageId(-1, -1) if last is None else MessageId(last.id, last.entries)


async def holes(
    topic: Topic, subscription: SubscriptionState, steps: Steps
) -> AsyncIterator[tuple[MessageId, MessageId]]:
    """Yield ranges acknowledged above the mark-delete position, in steps; at most `RANGES_SHOWN`.

    As in Pulsar: (before the first, the last), each range within one ledger.
    """
    shown, at, ledgers = 0, 0, topic.ledgers
    while ranges := [*islice(subscription.acks.ranges(at), RANGES_AT_ONCE)]:
        for first, end in ranges:
            while (first := max(first, ledgers.first)) < end:  # entries may be trimmed meanwhile
                if shown == RANGES_SHOWN:
                    return
                info = ledgers.at(first)
                stop = min(end, info.end)
                yield (
                    MessageId(info.id, first - info.first - 1),
                    MessageId(info.id, stop - info.first - 1),
                )
                first, shown = stop, shown + 1
                await steps.did(0.5)
        at = ranges[-1][1]


async def count_ranges(acks: AckState, steps: Steps) -> int:
    """Count the acknowledged ranges, in steps: acknowledgements may come meanwhile."""
    count, at = 0, acks.next_hole(0)
    while at is not None:
        end = (at | (SPAN - 1)) + 1
        count += acks.ranges_begun(at, end)
        await steps.did(5)
        at = acks.next_hole(end)
    return count
