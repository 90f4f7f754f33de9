"""Members that lack ledgers of a topic: the decisions when events are applied (I250)."""

from __future__ import annotations

from holdfast.broker import state_codec
from holdfast.broker.events import OwnershipWanted, TopicsReady, UpdateBegin
from holdfast.broker.membership import owner_of_topic
from holdfast.errors import Misuse
from tests.kit.broker.events import refused
from tests.kit.broker.owner_checks import A, B, C, Table


def begin(table: Table, *members: object) -> None:
    for member in (A, B, C):
        if member in members:
            table.rig.do(UpdateBegin(member, [table.of.topic, 99]), member)


def test_a_member_that_lacks_ledgers_does_not_own() -> None:
    """`Table` checks I66 and I250 after every event."""
    table = Table()
    begin(table, A)
    table.join(A)
    assert (table.of.owner, table.notices) == (None, [])
    table.join(B)
    assert table.of.owner == B
    table.release(B)
    assert table.of.owner == B, "no other member is ready"
    table.rig.do(TopicsReady(A, [table.of.topic]), A)
    assert (table.of.owner, table.notices) == (B, [OwnershipWanted(table.of)])
    table.release(B)
    assert table.of.owner == A


def test_a_member_that_becomes_ready_takes_what_has_no_owner() -> None:
    table = Table("failover")
    begin(table, A, B)
    first = table.join(A)
    table.join(B, priority=1)
    table.leave(first)
    assert table.of.owner is None
    table.join(A)
    table.rig.do(TopicsReady(B, [table.of.topic, 99]), B)
    assert table.of.owner == B
    table.rig.do(TopicsReady(A, [table.of.topic]), A)
    assert (table.of.owner, table.notices) == (B, [OwnershipWanted(table.of)]), "its consumer is the best"


def test_it_is_forgotten_with_its_member_and_kept_in_snapshots() -> None:
    table = Table()
    begin(table, A, C)
    table.join(A)
    state = table.rig.machine.state
    assert state.topics[table.of.topic].unready == {A, C}
    again = state_codec.unpack(state_codec.pack(state))
    assert again.topics[table.of.topic].unready == {A, C}
    assert again.subscriptions[table.of.id].owner is None
    again.check()
    assert state_codec.digest(again) == state_codec.digest(state)
    table.rig.enter(A, B)
    assert table.of.unready == {A}
    assert table.of.owner is None
    table.rig.enter(B, C)
    assert table.of.unready == set()


def test_the_topic_belongs_to_a_member_that_is_ready() -> None:
    table = Table()
    state = table.rig.machine.state
    topic = state.topics[table.of.topic]
    first = owner_of_topic(state, topic.name)
    assert first is not None
    table.rig.do(UpdateBegin(first, [topic.id]), first)
    second = owner_of_topic(state, topic.name)
    assert second is not None
    assert second != first
    begin(table, *({A, B, C} - {first}))
    assert owner_of_topic(state, topic.name) == first, "none is ready: the same on all members"


def test_an_update_begins_before_the_member_has_consumers() -> None:
    table = Table()
    table.join(A)
    refused(table.rig, UpdateBegin(A, [table.of.topic]), Misuse, "has consumers already", A)
    refused(table.rig, UpdateBegin(B, [table.of.topic]), Misuse, "only for itself", A)
    refused(table.rig, TopicsReady(B, [table.of.topic]), Misuse, "only for itself", A)


def test_an_unknown_topic_changes_nothing() -> None:
    table = Table()
    assert not table.rig.do(UpdateBegin(B, [99]), B).changed
    assert not table.rig.do(TopicsReady(B, [table.of.topic]), B).changed
