"""Events that take entries out of backlogs: move, reject, get, rings and last values."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._core import encode_messages
from holdfast.broker.events import (
    ALTERNATE,
    NOWHERE,
    Ack,
    AlternateSet,
    Bind,
    EntriesTaken,
    ExchangeCreate,
    LedgerRoll,
    Move,
    Moved,
    PolicySet,
    Reset,
    RingTrim,
    Row,
    SubscriptionDelete,
    Supersede,
    TopicDelete,
    TopicTerminate,
)
from holdfast.broker.state import Policies, SubscriptionState, TopicState
from holdfast.broker.topic_kinds import ring_floor
from holdfast.errors import Busy, Misuse, NotFound, Outdated, Terminated
from holdfast.names import topic_name
from tests.kit.broker import thinned_checks
from tests.kit.broker.events import Rig, nothing_happens, refused

[ENTRY] = encode_messages([b"m"], "p", 0, 0, key="k")


def row(ordinal: int) -> Row:
    return Row(ordinal, ENTRY)


def move(of: SubscriptionState, to: int, *rows: Row, **more: Any) -> Move:
    return Move([of.id], [more.get("number", of.reset_number)], to, list(rows))


def end(rig: Rig, topic: TopicState) -> int:
    return int(rig.machine.state.require_topic(topic.id).ledgers.end)


def exchange(rig: Rig, name: str = "dead", kind: str = "fanout") -> int:
    return int(rig.do(ExchangeCreate(topic_name(name), bytes(16), kind)).topic)


# -- move ----------------------------------------------------------------------------------------------


def test_a_move_appends_and_acknowledges(rig: Rig, subscription: SubscriptionState) -> None:
    """I243: both in one event; a repetition does neither."""
    other = rig.topic("other")
    assert rig.do(move(subscription, other.id, row(0), row(3))) == Moved((0, 1))
    assert rig.last is not None
    assert rig.last.notices == [EntriesTaken(subscription, [(0, 1), (3, 4)], [])]
    assert [tail.topic for tail in rig.last.tails] == [other.id]
    assert (end(rig, other), subscription.acks.acked_to, subscription.acks.is_acked(3)) == (2, 1, True)
    assert nothing_happens(rig, move(subscription, other.id, row(0), row(3))) == Moved()
    assert rig.do(move(subscription, other.id, row(3), row(4))) == Moved((1,))
    assert end(rig, other) == 3
    assert rig.restarted().digest() == rig.machine.digest()


def test_a_row_stands_twice(rig: Rig, subscription: SubscriptionState) -> None:
    other = rig.topic("other")
    assert rig.do(move(subscription, other.id, row(1), row(1))) == Moved((0,))
    assert end(rig, other) == 1


def test_positions_that_the_topic_does_not_have(rig: Rig, subscription: SubscriptionState) -> None:
    other = rig.topic("other")
    assert nothing_happens(rig, move(subscription, other.id, row(20), row(999))) == Moved()
    assert end(rig, other) == 0


def test_get_acknowledges_and_appends_nothing(rig: Rig, subscription: SubscriptionState) -> None:
    assert rig.do(move(subscription, NOWHERE, Row(0))) == Moved((0,))
    assert subscription.acks.acked_to == 1
    assert nothing_happens(rig, move(subscription, NOWHERE, Row(0))) == Moved()


def test_messages_of_a_batch(rig: Rig, subscription: SubscriptionState) -> None:
    """Each message of a batch moves once, whichever were acknowledged before."""
    other = rig.topic("other")
    rig.do(Ack(subscription.id, 0, bits=[(0, b"\x06")]))  # of three messages, the first
    assert nothing_happens(rig, move(subscription, other.id, Row(0, ENTRY, 3, b"\x01"))) == Moved()
    assert nothing_happens(rig, move(subscription, other.id, row(0))) == Moved(), "not the whole entry"
    assert rig.do(move(subscription, other.id, Row(0, ENTRY, 3, b"\x02"))) == Moved((0,))
    assert rig.last is not None
    assert rig.last.notices == [EntriesTaken(subscription, [], [(0, 4)])]
    assert subscription.acks.bits_of(0) == 4
    assert rig.do(move(subscription, other.id, Row(0, ENTRY, 3, b"\x04"))) == Moved((0,))
    assert (subscription.acks.acked_to, end(rig, other)) == (1, 2)
    rows = [Row(1, ENTRY, 2, b"\x01"), Row(1, ENTRY, 2, b"\x02"), Row(1, ENTRY, 2, b"\x02")]
    assert rig.do(move(subscription, other.id, *rows)) == Moved((0, 1))
    assert (subscription.acks.acked_to, end(rig, other)) == (2, 4)


def test_subscriptions_share_a_move(rig: Rig, topic: TopicState, subscription: SubscriptionState) -> None:
    """An entry that any of them needs is moved once, and acknowledged in all."""
    second, other = rig.subscription(topic, "second"), rig.topic("other")
    rig.do(Ack(subscription.id, 0, [(0, 1)]))
    rig.do(Ack(second.id, 0, [(0, 2)]))
    event = Move([subscription.id, second.id], [0, 0], other.id, [row(0), row(1), row(2)])
    assert rig.do(event) == Moved((1, 2))
    assert (subscription.acks.acked_to, second.acks.acked_to, end(rig, other)) == (3, 3, 2)


def test_refusals_of_a_move(rig: Rig, topic: TopicState, subscription: SubscriptionState) -> None:
    other = rig.topic("other")
    strange = rig.subscription(other, "s")
    refused(rig, Move([], [], other.id, []), Misuse, "one subscription or more")
    refused(rig, Move([subscription.id], [], other.id, []), Misuse)
    refused(rig, Move([subscription.id, strange.id], [0, 0], other.id, []), Misuse, "one topic")
    refused(rig, Move([99], [0], other.id, []), NotFound)
    refused(rig, move(subscription, other.id, row(0), number=1), Outdated, "was reset")
    refused(rig, move(subscription, 99, row(0)), NotFound)
    refused(rig, move(subscription, topic.id, row(0)), Misuse, "itself")
    refused(rig, move(subscription, ALTERNATE, row(0)), NotFound, "alternate exchange")
    refused(rig, move(subscription, other.id, Row(0, ENTRY, 2, b"\x04")), Misuse, "batch of 2")
    refused(rig, move(subscription, other.id, Row(0, ENTRY, 2, b"")), Misuse)
    refused(rig, move(subscription, exchange(rig, "keys", "direct"), Row(0, b"damaged")), Misuse)
    rig.do(TopicTerminate(other.id))
    refused(rig, move(subscription, other.id, row(0)), Terminated)


# -- reject --------------------------------------------------------------------------------------------


def test_a_reject_goes_to_the_alternate_once(
    rig: Rig, topic: TopicState, subscription: SubscriptionState
) -> None:
    x, morgue = exchange(rig), rig.topic("morgue")
    rig.do(Bind(x, morgue.id))
    rig.do(AlternateSet(x, topic=topic.id))
    event = move(subscription, ALTERNATE, row(5))
    assert rig.do(event) == Moved((0,))
    assert nothing_happens(rig, event) == Moved()
    assert end(rig, morgue) == 1
    own, grave = exchange(rig, "own"), rig.topic("grave")
    rig.do(Bind(own, grave.id))
    rig.do(AlternateSet(own, subscription=subscription.id))
    rig.do(move(subscription, ALTERNATE, row(6)))
    assert (end(rig, morgue), end(rig, grave)) == (1, 1)
    assert rig.restarted().digest() == rig.machine.digest()


def test_a_reject_that_nothing_takes_is_counted(
    rig: Rig, topic: TopicState, subscription: SubscriptionState
) -> None:
    x = exchange(rig)
    rig.do(AlternateSet(x, topic=topic.id))
    assert rig.do(move(subscription, ALTERNATE, row(0))) == Moved((0,))
    count = rig.machine.state.exchanges.all[x].count
    assert (count.published, count.dropped, subscription.acks.acked_to) == (1, 1, 1)


def test_a_reset_brings_a_rejected_message_back(
    rig: Rig, topic: TopicState, subscription: SubscriptionState
) -> None:
    """As with every acknowledged message. A reject from before the reset has no effect then."""
    x, morgue = exchange(rig), rig.topic("morgue")
    rig.do(Bind(x, morgue.id))
    rig.do(AlternateSet(x, topic=topic.id))
    event = move(subscription, ALTERNATE, row(0))
    rig.do(event)
    rig.do(Reset(subscription.id, b"t", 0, 0))
    refused(rig, event, Outdated)
    assert rig.do(move(subscription, ALTERNATE, row(0))) == Moved((0,))
    assert end(rig, morgue) == 2


# -- destroy -------------------------------------------------------------------------------------------


def test_a_drained_delete_needs_an_empty_backlog(
    rig: Rig, topic: TopicState, subscription: SubscriptionState
) -> None:
    refused(rig, TopicDelete(topic.id, True, True), Busy, "backlog of 20")
    refused(rig, SubscriptionDelete(subscription.id, True, True), Busy, "backlog of 20")
    rig.do(Ack(subscription.id, 0, cumulative=20))
    rig.do(SubscriptionDelete(subscription.id, drained=True))
    rig.do(TopicDelete(topic.id, True, True))


# -- rings ---------------------------------------------------------------------------------------------


def test_a_ring_drops_the_oldest_entries_by_its_event(rig: Rig) -> None:
    thinned_checks.a_ring_drops_by_its_event_alone(rig)


def test_a_ring_counts_only_what_was_open(rig: Rig) -> None:
    topic = rig.topic("ring", ring_entries=2)
    slow = rig.subscription(topic)
    rig.filled(topic, 10)
    rig.do(Ack(slow.id, 0, [(1, 4)]))
    assert rig.do(RingTrim(topic.id)).entries == 5
    assert slow.acks.acked_to == 8


def test_a_topic_that_is_no_ring_drops_nothing(
    rig: Rig, topic: TopicState, subscription: SubscriptionState
) -> None:
    assert nothing_happens(rig, RingTrim(topic.id)).entries == 0
    assert subscription.acks.count(20) == 20
    refused(rig, RingTrim(99), NotFound)


def test_a_ring_of_bytes(rig: Rig) -> None:
    topic = rig.topic("ring")
    rig.filled(topic, 100, ledgers=4)
    total = sum(info.size for info in topic.ledgers)
    assert ring_floor(topic.ledgers, None, total) == 0
    floors = [ring_floor(topic.ledgers, None, size) for size in range(0, total, 500)]
    assert floors == sorted(floors, reverse=True)
    assert floors[0] == 100
    assert abs(ring_floor(topic.ledgers, None, total // 2) - 50) <= 2
    assert ring_floor(topic.ledgers, 10, total) == 90
    rig.do(PolicySet(topic.id, Policies(ring_bytes=total // 2), ["ring_bytes"]))
    slow = rig.subscription(topic)
    rig.do(RingTrim(topic.id))
    assert abs(slow.acks.acked_to - 50) <= 2


@pytest.mark.parametrize("policies", [{"ring_entries": 0}, {"ring_bytes": -1}])
def test_a_ring_keeps_something(rig: Rig, topic: TopicState, policies: dict[str, Any]) -> None:
    refused(rig, PolicySet(topic.id, Policies(**policies), sorted(policies)), Misuse, "ring_")


# -- last values ---------------------------------------------------------------------------------------


def test_superseded_entries_leave_every_backlog(rig: Rig) -> None:
    """I244."""
    thinned_checks.superseded_entries_leave_every_backlog(rig)


def test_superseded_entries_end_with_their_ledgers(rig: Rig) -> None:
    topic = rig.topic("prices", last_value=True, ring_entries=2)
    rig.filled(topic, 10, ledgers=5)
    rig.do(Supersede(topic.id, [(1, 2), (7, 8)]))
    rig.do(LedgerRoll(topic.id, topic.ledgers.open_ledger or 0))
    rig.do(RingTrim(topic.id))
    assert (topic.ledgers.first, rig.machine.state.thinned[topic.id].superseded.acked_to) == (8, 8)


def test_a_topic_without_last_values_supersedes_nothing(
    rig: Rig, topic: TopicState, subscription: SubscriptionState
) -> None:
    assert nothing_happens(rig, Supersede(topic.id, [(0, 5)])).entries == 0
    rig.do(PolicySet(topic.id, Policies(last_value=True), ["last_value"]))
    assert nothing_happens(rig, Supersede(topic.id, [(20, 25)])).entries == 0, (
        "positions that are not used yet"
    )
    assert rig.do(Supersede(topic.id, [(19, 25)])).entries == 1
    assert subscription.acks.count(20) == 19
    refused(rig, Supersede(99, []), NotFound)
