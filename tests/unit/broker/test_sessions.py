"""Sessions: access modes, takeovers, types of subscriptions, and members that leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.broker.events import (
    ConsumerGone,
    ConsumerJoin,
    ConsumerLeave,
    OwnerChanged,
    ProducerClose,
    ProducerGone,
    ProducerOpen,
    ProducerReady,
)
from holdfast.broker.state import Producer, SubscriptionState, TopicState
from holdfast.errors import Busy, Fenced, Misuse
from holdfast.group import Member, View
from holdfast.ids import MessageId
from tests.kit.broker.events import ME, OTHER, Publish, Rig, nothing_happens, refused

# -- consumers -----------------------------------------------------------------------------------------


def test_one_exclusive_consumer(rig: Rig, subscription: SubscriptionState) -> None:
    first = rig.do(ConsumerJoin(subscription.id, "a", "exclusive", 0, ME)).session
    refused(rig, ConsumerJoin(subscription.id, "b", "exclusive", 0, ME), Busy, "'a' has it")
    refused(rig, ConsumerJoin(subscription.id, "b", "shared", 0, ME), Misuse, "is exclusive while")
    rig.do(ConsumerLeave(first))
    assert nothing_happens(rig, ConsumerLeave(first)).changed is False
    rig.do(ConsumerJoin(subscription.id, "b", "shared", 0, ME))
    rig.do(ConsumerJoin(subscription.id, "c", "shared", 1, OTHER), member=OTHER)
    assert subscription.type == "shared"
    assert [each.name for each in subscription.consumers.values()] == ["b", "c"]


def test_nobody_speaks_for_another_member(
    rig: Rig, topic: TopicState, subscription: SubscriptionState
) -> None:
    refused(rig, ConsumerJoin(subscription.id, "c", "shared", 0, OTHER), Misuse, "only for itself")
    refused(rig, ProducerOpen(topic.id, "p", "shared", OTHER), Misuse, "only for itself")


def test_sessions_end_with_their_member(rig: Rig, topic: TopicState, subscription: SubscriptionState) -> None:
    mine = rig.do(ConsumerJoin(subscription.id, "a", "shared", 0, ME)).session
    theirs = rig.do(ConsumerJoin(subscription.id, "b", "shared", 0, OTHER), member=OTHER).session
    producer = rig.producer(topic, "x", member=OTHER).session
    epoch = subscription.owner_epoch
    left, closed = subscription.consumers[theirs], topic.producers[producer]
    rig.enter(ME)
    assert rig.last is not None
    assert rig.last.notices == [
        ConsumerGone(subscription, left, "its member has left the group"),
        ProducerGone(topic, closed, "its member has left the group"),
        OwnerChanged(subscription, ME, epoch + 1, 0, [], [], None),
    ]
    assert list(subscription.consumers) == [mine]
    assert subscription.owner_epoch == epoch + 1
    with pytest.raises(Fenced):
        rig.do(Publish(topic.id, producer, [b"x"], producer="x"))
    rig.enter(Member(1, 2))  # a restart is another member
    assert not rig.state.sessions


def test_an_unclean_start_seals_and_skips(rig: Rig, topic: TopicState) -> None:
    rig.topic("empty")
    before = rig.machine.log.next_ledger
    rig.enter(ME, unclean=True)
    assert topic.ledgers.open_ledger is None
    assert rig.machine.log.next_ledger == before + 1000 + 10 * 2
    rig.filled(topic, 1)
    assert topic.ledgers.id_of(20) == MessageId(before + 1020, 0)


# -- producers -----------------------------------------------------------------------------------------


class TestAccess:
    def test_shared(self, rig: Rig, topic: TopicState) -> None:
        one, two = rig.producer(topic, "one"), rig.producer(topic, "")
        assert two.name == f"producer-{two.session}"
        assert (one.epoch, two.epoch) == (0, 0)
        refused(rig, ProducerOpen(topic.id, "one", "shared", ME), Busy, "has a producer 'one'")
        refused(rig, ProducerOpen(topic.id, "x", "exclusive", ME), Busy)
        rig.do(ProducerClose(one.session))
        assert nothing_happens(rig, ProducerClose(one.session)).changed is False
        with pytest.raises(Fenced):
            rig.do(Publish(topic.id, one.session, [b"x"], producer="one"))

    def test_exclusive(self, rig: Rig) -> None:
        topic = rig.topic("alone")
        one = rig.producer(topic, "one", "exclusive")
        assert one.epoch == 1
        refused(rig, ProducerOpen(topic.id, "x", "shared", ME), Busy)
        refused(rig, ProducerOpen(topic.id, "x", "exclusive", ME), Busy)
        rig.do(ProducerClose(one.session))
        assert rig.producer(topic, "one", "exclusive", epoch=1).epoch == 1  # no other one came since
        rig.do(ProducerClose(rig.state.next_session - 1))
        two = rig.producer(topic, "two", "exclusive")
        assert two.epoch == 2
        rig.do(ProducerClose(two.session))
        refused(rig, ProducerOpen(topic.id, "one", "exclusive", ME, epoch=1), Fenced, "epoch is 2, not 1")

    def test_waiting(self, rig: Rig) -> None:
        topic = rig.topic("alone")
        one = rig.producer(topic, "one", "wait-for-exclusive")
        two = rig.producer(topic, "two", "wait-for-exclusive")
        three = rig.producer(topic, "three", "wait-for-exclusive")
        four = rig.producer(topic, "four", "wait-for-exclusive")
        assert [each.waiting for each in (one, two, three, four)] == [False, True, True, True]
        refused(rig, ProducerOpen(topic.id, "x", "shared", ME), Busy, "waits")
        with pytest.raises(Fenced):
            rig.do(Publish(topic.id, two.session, [b"x"], producer="two"))
        rig.do(ProducerClose(two.session))  # it waited, and gave up
        assert rig.last is not None
        assert rig.last.notices == []
        rig.do(ProducerClose(one.session))
        assert rig.last.notices == [ProducerReady(topic, topic.producers[three.session], -1)]
        assert topic.producers[three.session].epoch == 2
        rig.do(Publish(topic.id, three.session, [b"x"], epoch=2, producer="three"))
        with pytest.raises(Fenced):
            rig.do(Publish(topic.id, three.session, [b"x"], epoch=1, producer="three"))

    def test_a_view_costs_the_same_for_each_that_waits(self, rig: Rig) -> None:
        """All members apply a view in one step: many sessions must not stop them."""

        class Counted(dict[int, Producer]):
            looks = 0

            def __iter__(self) -> Iterator[int]:
                for session in super().__iter__():
                    Counted.looks += 1
                    yield session

            def values(self) -> Any:
                Counted.looks += len(self)
                return super().values()

        topic, count = rig.topic("many"), 300
        rig.producer(topic, "first", "wait-for-exclusive")
        for number in range(count):
            rig.producer(topic, f"p{number}", "wait-for-exclusive", member=OTHER)
        topic.waiting = Counted(topic.waiting)
        rig.machine.view(View(rig.view + 1, (ME,), (), (OTHER,), True))
        assert not topic.waiting
        assert Counted.looks < 5 * count

    def test_waiting_for_shared_ones(self, rig: Rig, topic: TopicState) -> None:
        waits = rig.producer(topic, "w", "wait-for-exclusive")
        assert waits.waiting
        refused(rig, ProducerOpen(topic.id, "x", "shared", ME), Busy)
        rig.enter(ME)
        assert topic.waiting
        for session in sorted(topic.producers):
            rig.do(ProducerClose(session))
        assert list(topic.producers) == [waits.session]

    def test_waiting_for_a_member_that_dies(self, rig: Rig) -> None:
        topic = rig.topic("alone")
        rig.producer(topic, "one", "exclusive", member=OTHER)
        rig.producer(topic, "two", "wait-for-exclusive", member=OTHER)
        mine = rig.producer(topic, "three", "wait-for-exclusive")
        rig.enter(ME)
        assert rig.last is not None
        ready = [each.session for each in rig.last.notices if isinstance(each, ProducerReady)]
        assert ready == [mine.session]
        assert (list(topic.producers), list(topic.waiting)) == ([mine.session], [])

    def test_fencing(self, rig: Rig, topic: TopicState) -> None:
        one = rig.producer(topic, "one")
        waits = rig.producer(topic, "w", "wait-for-exclusive")
        fencing = rig.producer(topic, "f", "exclusive-with-fencing")
        assert rig.last is not None
        gone = [each.producer.session for each in rig.last.notices if isinstance(each, ProducerGone)]
        assert set(gone) >= {one.session, waits.session}
        assert (list(topic.producers), list(topic.waiting), fencing.epoch) == ([fencing.session], [], 1)
        with pytest.raises(Fenced):
            rig.do(Publish(topic.id, one.session, [b"x"], producer="one"))
        again = rig.producer(topic, "g", "exclusive-with-fencing")
        assert again.epoch == 2
        refused(rig, ProducerOpen(topic.id, "f", "exclusive-with-fencing", ME, epoch=1), Fenced)

    def test_a_later_attempt_takes_the_place(self, rig: Rig) -> None:
        topic = rig.topic("alone", deduplication=True)
        one = rig.producer(topic, "one", "exclusive")
        rig.do(Publish(topic.id, one.session, [b"a", b"b"], epoch=1, producer="one", sequence=5))
        waits = rig.producer(topic, "two", "wait-for-exclusive")
        refused(rig, ProducerOpen(topic.id, "one", "exclusive", ME, attempt=0), Busy)
        replaced = topic.producers[one.session]
        again = rig.producer(topic, "one", "exclusive", attempt=1, member=OTHER)
        assert (again.epoch, again.last_sequence) == (1, 6)
        assert rig.last is not None
        assert rig.last.notices == [ProducerGone(topic, replaced, "a later attempt took its place")]
        assert list(topic.waiting) == [waits.session]
        with pytest.raises(Fenced):
            rig.do(Publish(topic.id, one.session, [b"x"], epoch=1, producer="one", sequence=7))
