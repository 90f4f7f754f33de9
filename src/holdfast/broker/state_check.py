"""Check the subscriptions and stages of a broker's state."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.broker.key_shared import count
from holdfast.broker.ranges import merged

COUNTS_MAX = 10_000
"""Entries of a subscription whose number of deliveries is remembered."""

if TYPE_CHECKING:
    from holdfast.broker.state import BrokerState, StageState, SubscriptionState


def check_subscription(state: BrokerState, subscription: SubscriptionState) -> None:
    """Assert the invariants of one subscription."""
    where = f"subscription {subscription.id}"
    assert subscription.id < state.next_subscription, f"I42: {where} above its counter"
    topic = state.topics[subscription.topic]
    assert topic.subscriptions[subscription.name] is subscription, f"I44: {where} is not with its topic"
    subscription.acks.check(topic.lowest, topic.ledgers.end)
    types = {each.type for each in subscription.consumers.values()}
    assert len(types) <= 1, f"I46: {where} has consumers of types {sorted(types)}"
    alone = types != {"exclusive"} or len(subscription.consumers) == 1
    assert alone, f"I46: {where} is exclusive and has {len(subscription.consumers)} consumers"
    counted = Counter(each.member for each in subscription.consumers.values())
    assert subscription.attached == counted, f"I46: {where} counts {subscription.attached}, not {counted}"
    owner, others = subscription.owner, subscription.attached.keys() - {subscription.owner}
    assert subscription.unready is topic.unready, f"I250: {where} does not know which members are ready"
    able = counted.keys() - topic.unready
    assert (owner in able) if able else owner is None, f"I66: {where} is owned by {owner}"
    assert subscription.taken <= subscription.owner_epoch, f"I66: {where} was taken in the future"
    aside = subscription.idle | subscription.held.keys()
    assert aside <= others, f"I67: {where} has {sorted(aside - others)} aside"
    counts = subscription.counts
    sound = len(counts) <= COUNTS_MAX and all(0 <= each < topic.ledgers.end for each in counts)
    assert sound, f"I272: {where} remembers counts of entries that are not there, or too many"
    assert 0 not in counts.values(), f"I272: {where} remembers a count of 0"
    for member, ranges in subscription.held.items():
        assert ranges == merged(ranges) != [], f"I67: {where}: {member} holds {ranges}"
    keyed = subscription.held.keys() if subscription.type == "key_shared" else set()
    assert subscription.hashes.keys() == keyed, f"I263: {where} has hashes of {subscription.hashes}"
    for member, hashes in subscription.hashes.items():
        known = count(subscription.held[member])
        assert len(hashes) == 2 * known, f"I263: {where}: {len(hashes)} bytes for {known} entries"
    full = {each for each in subscription.full if subscription.consumers[each].member != owner}
    assert subscription.full == full, f"I264: {where}: consumers of the owner are full"
    for each in subscription.consumers.values():
        keyed_alone = (each.keys is not None) == (each.type == "key_shared")
        assert keyed_alone, f"I46: {where}: {each.name} is {each.type} with keys {each.keys}"


def check_stage(state: BrokerState, stage: StageState) -> None:
    """Assert the invariants of one stage."""
    for part in stage.topics.values():
        where = f"stage {stage.id.hex()} for topic {part.topic}"
        if part.hidden:
            assert part.hidden < state.next_topic, f"I42: {where} above its counter"
            expected = (part.count, part.file, 0, part.count, part.file_size)
            tail = state.log.tail(part.hidden)
            assert tail == expected, f"I47: {where}: {expected}, in the log {tail}"
            assert not part.entries, f"I47: {where}: entries in memory and in a ledger"
        else:
            sizes = (len(part.entries), sum(map(len, part.entries)))
            assert sizes == (part.count, part.size), f"I47: {where} has {sizes}"
