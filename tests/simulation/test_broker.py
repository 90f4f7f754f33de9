"""Several brokers on the simulated group: equal states at equal positions, and nothing confirmed is lost.

Crashes, splits, pauses and slow disks; a member that comes back is fed what it missed. HOLDFAST_SEED=n runs
the storms of one seed; a failure prints the end of its trace.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import pytest

from holdfast.broker.engine import Engine
from holdfast.broker.events import Ack, Context, PolicySet, Published, ViewChange
from holdfast.broker.machine import Applied
from holdfast.broker.state import BrokerState
from holdfast.group import Position, View
from holdfast.group.sim import Sim
from holdfast.group.sim.loop import CURRENT
from tests.kit import KIT
from tests.kit.broker import cluster as broker_cluster
from tests.kit.broker.cluster import World
from tests.kit.broker.judge import Account, Judge
from tests.kit.group.checker import Broken
from tests.kit.group.machine import seeds, traces_of_two_processes


@cache
def first_run(seed: int, nodes: int = 3) -> tuple[World, bytes]:
    return broker_cluster.run(seed, nodes)


@pytest.mark.parametrize("seed", seeds(4))
def test_three_brokers_in_a_storm(seed: int) -> None:
    """I27 and I60: states are compared wherever two members are stable, and confirmed messages counted."""
    world, _ = first_run(seed)
    assert world.compared > 100
    assert world.account.confirmed > 100
    assert world.account.receipted > 20


@pytest.mark.parametrize("seed", seeds(2))
def test_one_broker_alone(seed: int) -> None:
    world, _ = first_run(seed, nodes=1)
    assert world.account.confirmed > 100


@pytest.mark.parametrize("seed", seeds(3))
def test_a_seed_repeats_byte_by_byte(seed: int) -> None:
    """I29: broker and all."""
    assert first_run(seed)[1] == broker_cluster.run(seed)[1]


def test_a_seed_repeats_in_another_process() -> None:
    """I29: where sets of strings have another order."""
    assert traces_of_two_processes(KIT / "broker/cluster.py") == 1


def test_a_member_with_a_slow_disk() -> None:
    """What the others hold is stable, and is not shown here before it can be read here."""
    with broker_cluster.watched(), Sim(1, 3) as sim:
        world = World(sim, pause_s=0.2)
        sim.platter(3).slow(30)
        sim.boot(world.program)
        sim.run(3)
        world.finish()
    assert world.account.confirmed > 100
    assert world.compared > 100


# -- brokers that must be noticed ---------------------------------------------------------------------

SEEDS = (6, 8, 9, 10, 1, 2, 3, 4, 5, 7)
"""Some notice sooner."""


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
    """Whoever published is told as soon as one member has applied it."""
    track = Engine._track

    def hasty(
        self: Engine, pos: Position, applied: Applied, futures: list[asyncio.Future[Any]], *rest: Any
    ) -> None:
        track(self, pos, applied, futures, *rest)
        for future, outcome in zip(futures, applied.outcomes, strict=False):
            if isinstance(outcome, Published) and not future.done():
                future.set_result(outcome)

    monkeypatch.setattr(Engine, "_track", hasty)
    caught("lost", "confirmed", "I27", "were acknowledged", "resets")


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


def test_a_joiner_is_not_fed_all_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    missed = World.missed

    async def short(self: World, after: Position, cut: View) -> Any:
        found = await missed(self, after, cut)
        return found[:-1] if len(found) > 3 and not isinstance(found[-1], View) else found

    monkeypatch.setattr(World, "missed", short)
    caught("I27", "I49")


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


def test_the_judge_can_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """A confirmed message that nobody sent is missed."""
    judge = Judge(Account("", 0))
    judge.take(["p", "kept", 1, 0, 1])
    judge.take(["P", "kept", 1, 0, 1, [[1, 0]], []])
    judge.look_for_lost("kept", [])
    assert judge.account.faults
