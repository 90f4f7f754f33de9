"""Checks of rings and last-value topics, for their tests and for broken ones."""

from __future__ import annotations

from holdfast.broker.events import (
    Ack,
    EntriesTaken,
    LedgersGone,
    Reset,
    RingTrim,
    SubscriptionMoved,
    Supersede,
)
from tests.kit.broker.events import Rig, nothing_happens


def a_ring_drops_by_its_event_alone(rig: Rig) -> None:
    topic = rig.topic("ring", ring_entries=6)
    slow, fast = rig.subscription(topic, "slow"), rig.subscription(topic, "fast")
    rig.filled(topic, 10, ledgers=5)
    rig.do(Ack(fast.id, 0, cumulative=9))
    assert (slow.acks.count(10), topic.ledgers.first) == (10, 0), "a publish drops nothing"
    assert rig.do(RingTrim(topic.id)).entries == 4
    assert rig.last is not None
    assert [type(each) for each in rig.last.notices] == [SubscriptionMoved, LedgersGone]
    assert (slow.acks.count(10), fast.acks.count(10), topic.ledgers.first) == (6, 1, 4)
    assert rig.machine.state.thinned[topic.id].dropped == 4
    assert nothing_happens(rig, RingTrim(topic.id)).entries == 0
    assert rig.restarted().digest() == rig.machine.digest()


def superseded_entries_leave_every_backlog(rig: Rig) -> None:
    """I244: for each subscription, also one that is created or reset later."""
    topic = rig.topic("prices", last_value=True)
    early = rig.subscription(topic, "early")
    rig.filled(topic, 10)
    assert rig.do(Supersede(topic.id, [(0, 3), (5, 6)])).entries == 4
    assert rig.last is not None
    assert rig.last.notices == [EntriesTaken(early, [(0, 3), (5, 6)], [])]
    assert (early.acks.acked_to, early.acks.count(10)) == (3, 6)
    late = rig.subscription(topic, "late")
    assert late.acks.count(10) == 6
    rig.do(Reset(early.id, b"t", 0, 0))
    assert early.acks.count(10) == 6
    assert nothing_happens(rig, Supersede(topic.id, [(0, 2), (5, 6)])).entries == 0
    assert rig.do(Supersede(topic.id, [(3, 5)])).entries == 4
    assert rig.machine.state.thinned[topic.id].dropped == 8
    assert rig.restarted().digest() == rig.machine.digest()
    snapshot = rig.machine.capture().parts
    assert rig.restarted(snapshot, len(rig.journal)).digest() == rig.machine.digest()
