"""Broken brokers in a group: the storms of tests/simulation/test_broker.py must notice each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.broker.engine import Engine
from holdfast.broker.events import Ack, Context, PolicySet, Published, ViewChange
from holdfast.broker.machine import Applied
from holdfast.broker.state import BrokerState
from holdfast.group import Position
from tests.kit.broker import cluster as broker_cluster
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
            return apply(ViewChange(sorted(everybody)), state, context)
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
