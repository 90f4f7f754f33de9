"""Remember how often messages were delivered: over restarts, and at the next owner.

The dispatcher counts in memory. It notes counts that have changed, many in one event and at most a few events
per second, and no journal round starts for them. So what a crash forgets is bounded by that interval.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.outcomes import Done
from holdfast.broker.ranges import Ranges, merged
from holdfast.broker.state import COUNTS_MAX, BrokerState, SubscriptionState

COUNT_MOST = (1 << 32) - 2
"""The largest count; the tables of the dispatcher stop there, too."""

Counts = list[tuple[int, int]]
"""Ordinals, each with the number of its deliveries so far."""


def note_counts(state: BrokerState, subscription: SubscriptionState, counts: Counts) -> bool:
    """Remember counts of entries that are not acknowledged; return whether that changed any.

    Counts only rise. Of more than `COUNTS_MAX` entries, those that come last are not remembered.
    """
    acks, known = subscription.acks, subscription.counts
    end = state.topics[subscription.topic].ledgers.end
    changed = False
    if len(known) + len(counts) > COUNTS_MAX:
        for ordinal in [each for each in known if acks.is_acked(each)]:
            del known[ordinal]
    for ordinal, count in counts:
        if not acks.acked_to <= ordinal < end or acks.is_acked(ordinal):
            continue
        if known.get(ordinal, 0) >= count or (ordinal not in known and len(known) >= COUNTS_MAX):
            continue
        known[ordinal] = min(count, COUNT_MOST)
        changed = True
    return changed


def forget_counts(subscription: SubscriptionState, ranges: Ranges = ()) -> None:
    """Forget counts of entries below the mark-delete position, and in these ranges."""
    known = subscription.counts
    if not known:
        return
    few = sum(end - first for first, end in ranges) <= len(known)
    for first, end in ranges if few else ():
        for ordinal in range(first, end):
            known.pop(ordinal, None)
    acked_to = subscription.acks.acked_to
    # Each count is looked up in the ranges, not each range in the counts: both may be 10,000.
    ordered = [] if few else merged(ranges)
    for ordinal in [each for each in known if each < acked_to or _is_in(ordered, each)]:
        del known[ordinal]


def _is_in(ranges: Ranges, ordinal: int) -> bool:
    at = bisect_right(ranges, ordinal, key=lambda each: each[0]) - 1
    return at >= 0 and ordinal < ranges[at][1]


@event(36, base=0, guarded=False, urgent=False)
class RedeliveryNote(Event, frozen=True):
    """Remember how often entries of a subscription were delivered."""

    subscription: int
    reset_number: int
    """Of the counts. After another reset they are void."""
    counts: Counts = msgspec.field(default_factory=list)

    def apply(self, state: BrokerState, context: Context) -> Done:
        subscription = state.require_subscription(self.subscription)
        if self.reset_number != subscription.reset_number:
            return Done(changed=False)
        if not note_counts(state, subscription, self.counts):
            return Done(changed=False)
        state.touch(subscription)
        return Done()
