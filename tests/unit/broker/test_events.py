"""Each kind of event: its effect, its refusals, and that a refusal changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.broker.events import (
    Ack,
    Advance,
    ConsumerGone,
    ConsumerJoin,
    DeduplicationForget,
    Event,
    Fence,
    LedgerRoll,
    LedgersGone,
    LedgerTrim,
    PolicySet,
    ProducerClose,
    ProducerGone,
    ProducerOpen,
    Published,
    Reset,
    Revised,
    SubscriptionCreate,
    SubscriptionDelete,
    SubscriptionGone,
    SubscriptionMoved,
    TopicAdded,
    TopicClosed,
    TopicCreate,
    TopicDelete,
    TopicGone,
    TopicTerminate,
    TopicTruncate,
    decode,
    kinds,
)
from holdfast.broker.state import Policies, SubscriptionState, TopicState
from holdfast.errors import (
    Busy,
    Corrupt,
    CursorModifying,
    Exists,
    Misuse,
    NotFound,
    Outdated,
    Terminated,
    Unsupported,
)
from holdfast.ids import EARLIEST, LATEST, MessageId
from holdfast.names import TopicName, topic_name
from tests.kit.broker.events import ME, SECOND, Publish, Rig, frame_of, nothing_happens, refused

# -- the register --------------------------------------------------------------------------------------


KINDS = {
    2: "ViewChange",
    3: "MemberHello",
    4: "TransferMark",
    5: "UpdateBegin",
    6: "TopicsReady",
    10: "TopicCreate",
    11: "TopicDelete",
    12: "TopicTerminate",
    13: "TopicTruncate",
    14: "PolicySet",
    15: "PartitionsSet",
    16: "PartitionsDelete",
    17: "AutoCreationSet",
    18: "PartitionsSubscribe",
    19: "PartitionsUnsubscribe",
    20: "LedgerRoll",
    21: "LedgerTrim",
    30: "SubscriptionCreate",
    31: "SubscriptionDelete",
    32: "Ack",
    33: "Reset",
    34: "Fence",
    35: "Advance",
    36: "RedeliveryNote",
    40: "ProducerOpen",
    41: "ProducerClose",
    42: "DeduplicationForget",
    43: "DeduplicationExpire",
    50: "ConsumerJoin",
    51: "ConsumerLeave",
    52: "OwnershipRelease",
    53: "OwnershipAsk",
    54: "OwnershipReturn",
    55: "AckOffer",
    56: "MoveAsk",
    57: "OwnerAnswer",
    60: "StageOpen",
    61: "StageAppend",
    62: "StageDrop",
    63: "SinkCommit",
    64: "SinkForget",
    65: "ExchangeCreate",
    66: "ExchangeDelete",
    67: "Bind",
    68: "Unbind",
    70: "TenantCreate",
    71: "TenantUpdate",
    72: "TenantDelete",
    73: "NamespaceCreate",
    74: "NamespaceUpdate",
    75: "NamespaceDelete",
    76: "AlternateSet",
    77: "Move",
    78: "RingTrim",
    79: "Supersede",
    80: "SchemaAdd",
    86: "SchemaDelete",
    81: "MemberAnnounce",
    82: "OptionsSet",
    83: "UnreplicatedSet",
    84: "Unload",
    85: "OptionsChange",
    90: "TimeRepair",
    94: "BacklogCheck",
    95: "BacklogEvict",
    100: "SubscriptionExpire",
    101: "TopicQuiet",
    102: "TopicExpire",
    103: "UptimeTick",
    104: "PropertiesSet",
    105: "PermissionSet",
    106: "SubscriptionRolesSet",
    107: "SubscriptionAuthSet",
    110: "CompactionRequest",
    111: "CompactionBegin",
    112: "CompactionAppend",
    113: "CompactionDone",
    114: "CompactionSettle",
    115: "CompactionDrop",
    116: "CompactionForget",
}
"""Numbers stand in journals. Add to this list; never change it."""


def test_numbers_of_kinds_are_for_ever() -> None:
    assert {number: kind.__name__ for number, kind in kinds().items()} == KINDS


def test_events_survive_encoding() -> None:
    for event in (
        Ack(1, 2, [(3, 4), (5, 9)], 7, [(11, b"\x05")], True),
        Reset(1, b"token", 2, 3),
        TopicCreate("persistent://a/b/c", bytes(16), Policies(ttl_s=1.5, deduplication=True)),
        ProducerOpen(1, "p", "exclusive", ME, 2, 3),
        ConsumerJoin(1, "c", "shared", 0, ME),
        SubscriptionCreate(1, "s", 0, {"a": "b"}),
    ):
        again = decode(event.kind, event.version, event.encode())
        assert again == event
        assert type(again) is type(event)


@pytest.mark.parametrize(
    "event",
    [
        ProducerOpen(1, "p", "greedy", ME),  # type: ignore[arg-type]
        ConsumerJoin(1, "c", "shared", "high", ME),  # type: ignore[arg-type]
        Reset(1, b"t", 0, 1 << 70),
        TopicCreate("x", "not bytes"),  # type: ignore[arg-type]
        SubscriptionCreate(1, "s", 0, {"a": object()}),  # type: ignore[dict-item]
    ],
)
def test_what_members_could_not_read_is_never_sent(event: Event) -> None:
    with pytest.raises(Misuse, match=type(event).__name__):
        event.encode()


def test_an_event_of_an_older_program_lacks_the_last_fields() -> None:
    assert decode(Ack.kind, 1, b"\x92\x01\x02") == Ack(1, 2)


def test_unknown_kinds_and_versions_stop_a_member(rig: Rig) -> None:
    for kind, version, name in (
        (99, 1, "kind 99"),
        (255, 255, "kind 255"),
        (Ack.kind, 77, "Ack in version 77"),
        (Ack.kind, 255, "Ack in version 255"),
    ):
        with pytest.raises(Unsupported, match=name):
            decode(kind, version, b"\x90")
    with pytest.raises(Corrupt, match="Ack"):
        decode(Ack.kind, 1, b"\x93\x01")
    with pytest.raises(Corrupt, match="Ack"):
        decode(Ack.kind, 1, b"\x92\xa1x\x02")


# -- names and ids -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("shop/eu/orders", "persistent://shop/eu/orders"),
        ("persistent://shop/eu/a/b", "persistent://shop/eu/a/b"),
    ],
)
def test_topic_names(name: str, full: str) -> None:
    assert topic_name(name) == full
    assert TopicName.parse(full) == TopicName.parse(name)


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "persistent://orders", "a//b", "a/b/", "a b/c/d", "x\n", "\ud800", "a/b/" + "c" * 1025],
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(Misuse):
        topic_name(name)


def test_other_kinds_of_topics() -> None:
    with pytest.raises(Unsupported):
        topic_name("non-persistent://a/b/c")


def test_message_ids() -> None:
    assert MessageId.parse("3:4") == MessageId(3, 4)
    assert MessageId.parse("3:4:5") == (3, 4, 5)
    assert MessageId.parse("earliest") == EARLIEST < MessageId(0, 0) < MessageId.parse("latest") == LATEST
    assert MessageId(3, 4) < MessageId(3, 4, 0) < MessageId(3, 5)
    for text in ("", "3", "3:", "a:b", "-1:2", "1:2:3:4", "1:²"):
        with pytest.raises(Misuse, match="3:5"):
            MessageId.parse(text)


# -- topics --------------------------------------------------------------------------------------------


def test_create_and_delete(rig: Rig) -> None:
    topic = rig.topic("orders")
    assert (topic.id, topic.name) == (1, topic_name("orders"))
    assert rig.last is not None
    assert rig.last.notices == [TopicAdded(topic)]
    refused(rig, TopicCreate(topic.name, bytes(16)), Exists, "orders")
    refused(rig, TopicCreate("orders", bytes(16)), Misuse, "in full")
    refused(rig, TopicCreate(topic_name("x"), b""), Misuse, "16")
    rig.do(TopicDelete(topic.id))
    assert rig.last.notices == [TopicGone(topic)]
    refused(rig, TopicDelete(topic.id), NotFound)
    assert rig.topic("orders").id == 2  # ids are never used again


def test_delete_asks_who_is_there(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    refused(rig, TopicDelete(topic.id), Busy, "0 producers and 1 subscription;")
    rig.do(SubscriptionDelete(subscription.id))
    session = rig.filled(topic, 3)
    refused(rig, TopicDelete(topic.id), Busy, "1 producer and 0 subscriptions")
    subscription = rig.subscription(topic)
    consumer = rig.do(ConsumerJoin(subscription.id, "c", "shared", 0, ME)).session
    left, closed = subscription.consumers[consumer], topic.producers[session]
    rig.do(TopicDelete(topic.id, force=True))
    assert rig.last is not None
    assert rig.last.notices == [
        ProducerGone(topic, closed, "the topic was deleted"),
        ConsumerGone(subscription, left, "the topic was deleted"),
        SubscriptionGone(subscription),
        TopicGone(topic),
    ]
    assert not rig.state.sessions
    assert rig.machine.capture().ledgers == {}
    with pytest.raises(NotFound):
        rig.do(Publish(topic.id, session, [b"x"]))


def test_terminate(rig: Rig) -> None:
    topic = rig.topic()
    session = rig.filled(topic, 3)
    assert rig.do(TopicTerminate(topic.id)).last == MessageId(1, 2)
    assert rig.last is not None
    assert rig.last.notices == [TopicClosed(topic)]
    assert nothing_happens(rig, TopicTerminate(topic.id)).end == 3
    with pytest.raises(Terminated):
        rig.do(Publish(topic.id, session, [b"x"]))
    refused(rig, ProducerOpen(topic.id, "q", "shared", ME), Terminated)
    empty = rig.topic("empty")
    assert rig.do(TopicTerminate(empty.id)).last == MessageId(-1, -1)


def test_truncate(rig: Rig) -> None:
    topic = rig.topic()
    nothing_happens(rig, TopicTruncate(topic.id))
    rig.filled(topic, 10, ledgers=2)
    subscription = rig.subscription(topic, start=4)
    rig.do(Ack(subscription.id, 0, [(6, 8)]))
    ids = [each.id for each in topic.ledgers]
    assert rig.do(TopicTruncate(topic.id)).ledgers == ids
    assert rig.last is not None
    assert rig.last.notices == [
        SubscriptionMoved(subscription, 0, 10),
        LedgersGone(topic, ids),
    ]
    assert (topic.ledgers.first, topic.ledgers.end, len(topic.ledgers)) == (10, 10, 0)
    assert (subscription.acks.acked_to, subscription.acks.holes_count) == (10, 0)
    rig.filled(topic, 1)
    assert topic.ledgers.id_of(10) == MessageId(max(ids) + 1, 0)


def test_policies(rig: Rig) -> None:
    topic = rig.topic(ttl_s=5.0)
    assert nothing_happens(rig, PolicySet(topic.id, Policies(ttl_s=5.0))).changed is False
    rig.do(PolicySet(topic.id, Policies(retention_bytes=-1, retention_s=0)))
    assert topic.policies == Policies(retention_bytes=-1, retention_s=0)
    for bad in (
        Policies(ttl_s=-1),
        Policies(roll_bytes=0),
        Policies(retention_s=-2.0),
        Policies(retention_s=float("nan")),
        Policies(ttl_s=float("inf")),
    ):
        refused(rig, PolicySet(topic.id, bad), Misuse, "cannot be")
        refused(rig, TopicCreate(topic_name("other"), bytes(16), bad), Misuse, "cannot be")


# -- ledgers -------------------------------------------------------------------------------------------


def test_roll_is_conditional(rig: Rig) -> None:
    topic = rig.topic()
    assert nothing_happens(rig, LedgerRoll(topic.id, 1)).changed is False
    session = rig.filled(topic, 2)
    assert nothing_happens(rig, LedgerRoll(topic.id, 7)).changed is False
    outcomes = rig.apply(LedgerRoll(topic.id, 1), LedgerRoll(topic.id, 1)).outcomes
    assert [each.changed for each in outcomes] == [True, False]
    name = next(iter(topic.producers.values())).name
    published = rig.do(Publish(topic.id, session, [b"x"], producer=name))
    assert published.first == MessageId(2, 0)
    assert (published.ordinal, sum(each.sealed for each in topic.ledgers)) == (2, 1)


def test_what_an_event_sees_of_its_own_frame(rig: Rig) -> None:
    """The end is that of the moment, not of the frame before."""
    topic = rig.topic()
    name, session = "p", rig.producer(topic).session
    applied = rig.apply(
        Publish(topic.id, session, [b"a", b"b"], producer=name),
        SubscriptionCreate(topic.id, "one", -1),
        LedgerRoll(topic.id, 1),
        Publish(topic.id, session, [b"c"], producer=name),
        SubscriptionCreate(topic.id, "two", -1),
        SubscriptionCreate(topic.id, "one", -1),
        Publish(topic.id, session, [b"d"], producer=name),
    )
    assert [type(each).__name__ for each in applied.outcomes] == [
        "Published", "SubscriptionCreated", "Done", "Published", "SubscriptionCreated", "Exists", "Published"
    ]  # fmt: skip
    assert [each is None for each in applied.events] == [True, False, False, True, False, False, True]
    assert [each.acks.acked_to for each in topic.subscriptions.values()] == [2, 3]
    assert [(each.id, each.first, each.entries) for each in topic.ledgers] == [(1, 0, 2), (2, 2, 2)]
    assert applied.tails == [(topic.id, 4)]
    assert applied.last_d - applied.first_d == 5  # six of seven


class TestTrim:
    def test_only_what_everybody_has_acknowledged(self, rig: Rig) -> None:
        topic = rig.topic()
        rig.filled(topic, 30, ledgers=3)
        one, two = rig.subscription(topic, "one"), rig.subscription(topic, "two")
        rig.do(Ack(one.id, 0, cumulative=30))
        assert nothing_happens(rig, LedgerTrim(topic.id)).ledgers == []
        rig.do(Ack(two.id, 0, cumulative=19))
        assert rig.do(LedgerTrim(topic.id)).ledgers == [1]
        assert rig.last is not None
        assert rig.last.notices == [LedgersGone(topic, [1])]
        rig.do(Ack(two.id, 0, cumulative=30))
        assert rig.do(LedgerTrim(topic.id)).ledgers == [2]  # the open one stays
        assert topic.ledgers.first == 20
        assert list(rig.machine.capture().ledgers) == [3]

    def test_without_a_subscription_everything_stays(self, rig: Rig) -> None:
        topic = rig.topic()
        rig.filled(topic, 30, ledgers=3)
        assert nothing_happens(rig, LedgerTrim(topic.id)).ledgers == []
        rig.do(PolicySet(topic.id, Policies(retention_s=0)))
        assert rig.do(LedgerTrim(topic.id)).ledgers == [1, 2]

    def test_what_is_within_either_limit_stays(self, rig: Rig) -> None:
        topic = rig.topic()
        rig.filled(topic, 40, ledgers=4)
        rig.subscription(topic, start=40)
        size = next(iter(topic.ledgers)).size
        for event in (LedgerTrim(topic.id, -1, 0), LedgerTrim(topic.id, 0, -1)):
            assert nothing_happens(rig, event).ledgers == []
        assert nothing_happens(rig, LedgerTrim(topic.id, 0, 60 * SECOND)).ledgers == []
        assert rig.do(LedgerTrim(topic.id, 2 * size, 0)).ledgers == [1]  # two acknowledged ones are kept
        rig.time += 61 * SECOND
        assert nothing_happens(rig, LedgerTrim(topic.id, 2 * size, 60 * SECOND)).ledgers == []
        rig.do(PolicySet(topic.id, Policies(retention_bytes=0)))  # the topic's own word goes first
        assert rig.do(LedgerTrim(topic.id, -1, 60 * SECOND)).ledgers == [2, 3]


# -- subscriptions -------------------------------------------------------------------------------------


def test_subscriptions_begin_where_asked(rig: Rig, topic: TopicState) -> None:
    rig.do(PolicySet(topic.id, Policies(retention_bytes=0)))
    rig.do(LedgerTrim(topic.id))
    for name, start, expected in (("a", 0, 10), ("b", 15, 15), ("c", 99, 20), ("d", -1, 20)):
        assert rig.do(SubscriptionCreate(topic.id, name, start)).acked_to == expected
    refused(rig, SubscriptionCreate(topic.id, "a", 0), Exists)
    refused(rig, SubscriptionCreate(topic.id, ""), Misuse)
    refused(rig, SubscriptionCreate(99, "a"), NotFound)


def test_delete_a_subscription(rig: Rig, subscription: SubscriptionState) -> None:
    consumer = rig.do(ConsumerJoin(subscription.id, "c", "exclusive", 0, ME)).session
    refused(rig, SubscriptionDelete(subscription.id), Busy, "1 consumer;")
    left = subscription.consumers[consumer]
    rig.do(SubscriptionDelete(subscription.id, force=True))
    assert rig.last is not None
    assert rig.last.notices == [
        ConsumerGone(subscription, left, "the subscription was deleted"),
        SubscriptionGone(subscription),
    ]
    refused(rig, SubscriptionDelete(subscription.id), NotFound)
    refused(rig, Ack(subscription.id, 0, [(0, 1)]), NotFound)


def test_all_forms_of_acks_in_one_event(rig: Rig, subscription: SubscriptionState) -> None:
    rig.do(Ack(subscription.id, 0, [(5, 7), (9, 10)], 3, [(4, b"\x06"), (12, b"")]))
    acks = subscription.acks
    assert (acks.acked_to, list(acks.ranges()), acks.bits_in(0, 20)) == (
        3,
        [(5, 7), (9, 10), (12, 13)],
        {4: 6},
    )
    rig.do(Ack(subscription.id, 0, bits=[(4, b"\x01")]))  # with the open ones of before, none is left
    assert list(acks.ranges()) == [(4, 7), (9, 10), (12, 13)]
    rig.do(Ack(subscription.id, 0, [(0, 1 << 63)]))
    assert acks.acked_to == 20  # never beyond what was published
    assert not Ack(1, 0).urgent
    assert Ack(1, 0, receipt=True).urgent


def test_an_ack_from_before_a_reset_is_void(rig: Rig, subscription: SubscriptionState) -> None:
    rig.do(Ack(subscription.id, 0, [(0, 5), (7, 8)], bits=[(9, b"\x01")]))
    assert rig.do(Reset(subscription.id, b"t", 0, 2)) == Revised(1, 2)
    for event in (
        Ack(subscription.id, 0, [(2, 4)]),
        Ack(subscription.id, 0, cumulative=9),
        Ack(subscription.id, 2, [(2, 4)]),
    ):
        refused(rig, event, Outdated, "reset")
    assert (subscription.acks.acked_to, list(subscription.acks.ranges())) == (2, [])
    assert subscription.acks.bits_in(0, 20) == {}
    rig.do(Ack(subscription.id, 1, [(2, 4)]))
    assert subscription.acks.acked_to == 4


class TestReset:
    def test_goes_where_asked(self, rig: Rig, topic: TopicState, subscription: SubscriptionState) -> None:
        assert rig.do(Reset(subscription.id, b"a", 0, 99)) == Revised(1, 20)
        rig.do(LedgerTrim(topic.id))
        assert rig.do(Reset(subscription.id, b"b", 1, 0)) == Revised(2, 10)  # what was trimmed is gone
        assert rig.last is not None
        assert rig.last.notices == [SubscriptionMoved(subscription, 2, 10)]

    def test_of_two_one_is_refused(self, rig: Rig, subscription: SubscriptionState) -> None:
        first, second = rig.apply(
            Reset(subscription.id, b"a", 0, 5), Reset(subscription.id, b"b", 0, 9)
        ).outcomes
        assert first == Revised(1, 5)
        assert isinstance(second, CursorModifying)
        assert second.number == 1
        assert refused(rig, Reset(subscription.id, b"c", 2, 9), CursorModifying).number == 1

    def test_asked_again_it_is_answered_again(self, rig: Rig, subscription: SubscriptionState) -> None:
        event = Reset(subscription.id, b"a", 0, 5)
        assert rig.do(event) == Revised(1, 5)
        rig.do(Ack(subscription.id, 1, [(5, 8)]))
        assert nothing_happens(rig, event) == Revised(1, 5)
        assert subscription.acks.acked_to == 8

    def test_a_number_never_comes_twice(self, rig: Rig, subscription: SubscriptionState) -> None:
        for number in range(5):
            assert rig.do(Reset(subscription.id, b"%d" % number, number, 3)).reset_number == number + 1


class TestFence:
    def test_a_fenced_reset_never_happens(self, rig: Rig, subscription: SubscriptionState) -> None:
        rig.do(Ack(subscription.id, 0, [(0, 3)]))
        epoch = subscription.owner_epoch
        assert rig.do(Fence(subscription.id, b"a", 0)) == Revised(0, 3)
        assert subscription.owner_epoch == epoch + 1
        refused(rig, Reset(subscription.id, b"a", 0, 9), CursorModifying, "given up")
        rig.do(Ack(subscription.id, 0, [(3, 4)]))  # what was delivered can still be acknowledged
        nothing_happens(rig, Fence(subscription.id, b"a", 0))
        assert rig.do(Reset(subscription.id, b"b", 0, 9)) == Revised(1, 9)
        refused(rig, Reset(subscription.id, b"a", 1, 9), CursorModifying, "given up")

    def test_too_late_it_tells_what_happened(self, rig: Rig, subscription: SubscriptionState) -> None:
        rig.do(Reset(subscription.id, b"a", 0, 9))
        epoch = subscription.owner_epoch
        assert nothing_happens(rig, Fence(subscription.id, b"a", 0)) == Revised(1, 9)
        assert subscription.owner_epoch == epoch


class TestAdvance:
    def test_raises_only(self, rig: Rig, subscription: SubscriptionState) -> None:
        rig.do(Ack(subscription.id, 0, [(2, 4), (8, 9), (12, 13)], bits=[(3, b"\x01"), (10, b"\x02")]))
        assert rig.do(Advance(subscription.id, 0, to=8)) == Revised(0, 9)
        assert list(subscription.acks.ranges()) == [(12, 13)]
        assert subscription.acks.bits_in(0, 20) == {10: 2}
        assert nothing_happens(rig, Advance(subscription.id, 0, to=4)) == Revised(0, 9)
        rig.do(Ack(subscription.id, 0, [(10, 11)]))  # acknowledgements stay valid
        assert rig.do(Advance(subscription.id, 0, to=1 << 62)) == Revised(0, 20)

    def test_skips_what_is_open(self, rig: Rig, subscription: SubscriptionState) -> None:
        rig.do(Ack(subscription.id, 0, [(1, 4), (6, 7)]))
        assert rig.do(Advance(subscription.id, 0, skip=3, token=b"t")) == Revised(0, 7)  # 0, 4, 5
        assert nothing_happens(rig, Advance(subscription.id, 0, skip=3, token=b"t")) == Revised(0, 7)
        assert nothing_happens(rig, Advance(subscription.id, 0, skip=0)) == Revised(0, 7)
        assert rig.do(Advance(subscription.id, 0, skip=99)) == Revised(0, 20)

    def test_does_not_undo_a_reset(self, rig: Rig, subscription: SubscriptionState) -> None:
        rig.do(Reset(subscription.id, b"t", 0, 3))
        error = refused(rig, Advance(subscription.id, 0, to=20), CursorModifying, "number is 1, not 0")
        assert error.number == 1


# -- deduplication and urgency ------------------------------------------------------------------------


def test_deduplication(rig: Rig) -> None:
    topic = rig.topic("once", deduplication=True)
    session = rig.producer(topic).session
    rig.do(Publish(topic.id, session, [b"a", b"b"]))
    published = rig.do(Publish(topic.id, session, [b"b", b"c"], sequence=1))
    assert published == Published(MessageId(1, 2), 2, 1, (0,))
    d = rig.machine.log.next_d
    assert rig.do(Publish(topic.id, session, [b"a"])).first == MessageId(-1, -1)
    assert rig.machine.log.next_d == d
    refused(rig, DeduplicationForget(topic.id, "p"), Busy)
    rig.do(ProducerClose(session))
    assert rig.producer(topic, attempt=1).last_sequence == 2
    rig.do(ProducerClose(rig.state.next_session - 1))
    assert rig.do(DeduplicationForget(topic.id, "p")).changed
    assert nothing_happens(rig, DeduplicationForget(topic.id, "p")).changed is False
    assert rig.producer(topic).last_sequence == -1


def test_urgency_reaches_the_log(rig: Rig, topic: TopicState, subscription: SubscriptionState) -> None:
    def urgent(*events: Any) -> bool:
        rig.index += 1
        rig.machine.apply(rig.view, rig.index, ME, frame_of(events, rig.time))
        taken = rig.machine.log.take_round()
        assert taken is not None
        return taken.urgent

    session = rig.producer(topic, "p").session
    assert not urgent(Ack(subscription.id, 0, [(0, 1)]))
    assert urgent(Ack(subscription.id, 0, [(1, 2)], receipt=True))
    assert urgent(Ack(subscription.id, 0, [(2, 3)]), Publish(topic.id, session, [b"x"]))
    assert not urgent(Ack(subscription.id, 0, [(3, 4)]), LedgerRoll(topic.id, topic.ledgers.open_ledger or 0))
