"""Broken brokers in a group: the storms of tests/simulation/test_broker.py must notice each."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.broker.api.sessions import Sessions
from holdfast.broker.engine import Engine
from holdfast.broker.events import Ack, Context, PolicySet, ProducerOpen, Published, ViewChange
from holdfast.broker.housekeeping import Housekeeping
from holdfast.broker.machine import Applied
from holdfast.broker.state import BrokerState
from holdfast.broker.topic import Topic
from holdfast.broker.topic_kinds import ring_floor
from holdfast.group import Position
from tests.kit.broker import cluster as broker_cluster
from tests.kit.broker import exchange_cluster, movers, settling
from tests.kit.group.checker import Broken
from tests.kit.sim.loop import CURRENT

SEEDS = (1, 2, 3, 4, 5, 6)
"""The first is that of tests/simulation/test_broker.py in `make check`, and finds each of them."""


def caught(*words: str) -> None:
    for seed in SEEDS:
        complaint = ""
        try:
            broker_cluster.run(seed)
        except Broken as broken:
            complaint = str(broken)
        if complaint:
            assert any(word in complaint for word in words), complaint
            return
    pytest.fail(f"no storm of {SEEDS} noticed")


def test_apply_looks_at_the_local_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = PolicySet.apply

    def timely(self: PolicySet, state: BrokerState, context: Context) -> Any:
        life = CURRENT.get()
        assert life is not None
        node = broker_cluster.REPLICAS[life.name].sim_node
        assert node is not None
        context.time = node.clock.now_ns()
        state.log.next_ledger += context.time // 10**9 % 2
        return apply(self, state, context)

    monkeypatch.setattr(PolicySet, "apply", timely)
    caught("I27")


def test_confirm_before_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publish is confirmed as soon as one member has applied it."""
    track = Engine._track

    def hasty(
        self: Engine, pos: Position, applied: Applied, futures: list[asyncio.Future[Any]], *rest: Any
    ) -> None:
        track(self, pos, applied, futures, *rest)
        for future, outcome in zip(futures, applied.outcomes, strict=False):
            if isinstance(outcome, Published) and not future.done():
                future.set_result(outcome)

    monkeypatch.setattr(Engine, "_track", hasty)
    caught("lost", "confirmed", "I27", "were acknowledged", "resets", "had the id")


def test_sessions_of_those_who_left_stay_on_one_member(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = ViewChange.apply

    def forgetful(self: ViewChange, state: BrokerState, context: Context) -> Any:
        life = CURRENT.get()
        if life is not None and life.name.startswith("node 2"):
            everybody = {*self.members, *state.members}
            return apply(replace(self, members=sorted(everybody)), state, context)
        return apply(self, state, context)

    monkeypatch.setattr(ViewChange, "apply", forgetful)
    caught("I27")


def test_an_ack_that_some_members_ignore(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Ack.apply

    def deaf(self: Ack, state: BrokerState, context: Context) -> Any:
        life = CURRENT.get()
        if life is not None and life.name.startswith("node 3"):
            state.touch()
            return None
        return apply(self, state, context)

    monkeypatch.setattr(Ack, "apply", deaf)
    caught("I27")


# -- a producer that moves: tests/simulation/test_moving_producers.py ----------------------------------


def caught_while_it_moves(*words: str) -> None:
    complaints = []
    for seed in SEEDS:
        try:
            movers.run(seed, seconds=3.0)
        except Broken as broken:
            complaints.append(str(broken))
    assert complaints, f"no storm of {SEEDS} noticed"
    assert all(any(word in each for word in words) for each in complaints), complaints


def test_the_epoch_of_an_open_is_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next exclusive producer gets the same epoch: a fenced one is not refused."""
    apply = ProducerOpen.apply

    def forgetful(self: ProducerOpen, state: BrokerState, context: Context) -> Any:
        topic = state.require_topic(self.topic)
        before = topic.epoch
        opened = apply(self, state, context)
        topic.epoch = before
        return opened

    monkeypatch.setattr(ProducerOpen, "apply", forgetful)
    caught_while_it_moves("the epoch", "of the producer's numbers", "as the last number")


def test_the_last_sequence_told_is_that_of_the_members_own_past(monkeypatch: pytest.MonkeyPatch) -> None:
    open_producer, own = Sessions.open_producer, dict[tuple[Sessions, str], int]()

    async def past(self: Sessions, topic: Topic, name: str, *more: Any) -> Any:
        opened = await open_producer(self, topic, name, *more)
        last = own.setdefault((self, name), opened.last_sequence)
        return msgspec.structs.replace(opened, last_sequence=last)

    monkeypatch.setattr(Sessions, "open_producer", past)
    caught_while_it_moves("as the last number")


# -- rings and last-value topics: tests/simulation/test_exchanges.py ----------------------------------


def caught_while_entries_are_dropped(*words: str) -> None:
    with pytest.raises(Broken) as broken:
        exchange_cluster.run(1, seconds=3.0)
    assert any(word in str(broken.value) for word in words), broken.value


def test_one_node_drops_entries_and_its_successor_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    thin = Housekeeping._thin

    def fixed(self: Housekeeping, topic: Topic) -> None:
        if self._broker.membership.node == 1:
            thin(self, topic)

    monkeypatch.setattr(Housekeeping, "_thin", fixed)
    caught_while_entries_are_dropped("entries are not dropped")


def test_each_member_drops_entries_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A side effect on each member, without an event of the owner."""

    def side_effect(self: Housekeeping, topic: Topic) -> None:
        most = self._broker.machine.state.effective(topic.state).ring_entries
        if most is not None:
            floor = ring_floor(topic.state.ledgers, most, None)
            for each in topic.state.subscriptions.values():
                if each.acks.acked_to < floor:
                    each.acks.advance(floor)
                    self._broker.machine.state.touch(each)

    monkeypatch.setattr(Housekeeping, "_thin", side_effect)
    caught_while_entries_are_dropped("I27")


# -- waiting for a majority: tests/unit/broker/test_engine.py ------------------------------------------


def test_settle_ignores_the_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the answers to this member, and not for frames of others."""
    monkeypatch.setattr(Engine, "settle", Engine.answered)
    with pytest.raises(AssertionError, match="no majority"):
        asyncio.run(settling.frames_of_others_must_be_stable())


def test_settle_waits_for_the_own_disk_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def settle(self: Engine) -> None:
        self._flush()
        await self._group.drain()
        await self._store.flush()

    monkeypatch.setattr(Engine, "settle", settle)
    for scene in (settling.frames_of_others_must_be_stable, settling.own_frames_must_be_stable):
        with pytest.raises(AssertionError, match="no majority"):
            asyncio.run(scene())
