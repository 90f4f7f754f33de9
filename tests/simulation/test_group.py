"""The simulated cluster repeats, is as hostile as Corosync, and loses nothing stable."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import Closed, Misuse, NoQuorum
from tests.kit.group import machine as group_machine
from tests.kit.group.checker import Checker, Recorder
from tests.kit.group.cluster import (
    Cluster,
    flood_a_paused_receiver,
    lose_a_majority_at_once,
    start_one_by_one,
    turns,
)
from tests.kit.sim import Delivered, Sim, SimNode, Trouble, storm
from tests.kit.slices import seeds

# -- it repeats ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds("group", test=1, nightly=10))
def test_a_seed_repeats_byte_by_byte(seed: int) -> None:
    """I29: two runs of a seed leave the same trace."""
    first = group_machine.first_run(seed)[1]
    assert first == group_machine.run(seed)[1]
    assert len(first.splitlines()) > 500


def test_another_seed_is_another_run() -> None:
    assert group_machine.run(1, seconds=1)[1] != group_machine.run(3, seconds=1)[1]


def test_a_failing_run_prints_its_seed_and_trace() -> None:

    async def failing(node: SimNode) -> None:
        node.trace("about to fail")
        raise ZeroDivisionError

    def run() -> None:
        with Sim(seed=77, nodes=1) as sim:
            sim.boot(failing)
            sim.run(1)

    with pytest.raises(ZeroDivisionError) as caught:
        run()
    note = "\n".join(caught.value.__notes__)
    assert "HOLDFAST_SEED=77" in note
    assert "about to fail" in note


# -- storms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds("group", test=2, nightly=80))
def test_storm(seed: int) -> None:
    """I20 to I27, for a toy broker with state transfer, under splits, crashes and pauses."""
    world, _ = group_machine.first_run(seed)
    assert world.compared > 100
    assert len(world.checker.stable) > 100


LINKS = Trouble(one_way=2.0, some_links=2.0, circle=1.0)


@pytest.mark.parametrize("seed", seeds("links", test=2, nightly=40))
def test_storm_of_single_links(seed: int) -> None:
    """I20 to I27, where links break one by one, and in one direction."""
    world, trace = group_machine.run(seed, trouble=LINKS)
    assert b" cut " in trace
    assert world.compared > 100
    assert len(world.checker.stable) > 100


def test_nodes_that_do_not_all_hear_each_other_form_rings_that_do() -> None:
    """A link in one direction counts as none: 2 is with 1 or with 3."""
    for links in ([(1, 3), (3, 1)], [(1, 3)]):
        with Sim(3, nodes=3) as sim:
            cluster = Cluster(sim)
            cluster.form(1, 2, 3)
            sim.cut(*links)
            sim.run_until(lambda: cluster.together(1, 2) or cluster.together(2, 3))  # noqa: B023
            sim.heal()


def test_storms_show_what_corosync_loses() -> None:
    """Like Corosync, the simulation loses members with events that no survivor got."""
    alone = 0
    for seed in (1, 2):
        world, _ = group_machine.first_run(seed)
        history = {(e.position, e.event) for e in world.sim.network.history if isinstance(e, Delivered)}
        last = max(pos.view for pos, _ in history)
        for story in world.checker.stories.values():
            alone += sum((pos, e) not in history for pos, (_, e) in story.events.items() if pos.view <= last)
    assert alone > 0


# -- views, quorum, incarnations ----------------------------------------------------------------------


def test_members_that_start_one_by_one() -> None:
    """I23."""
    start_one_by_one(Sim)


def test_a_minority_is_told_so_and_lost() -> None:
    """I23, I25: the others continue; a node that returns is a new member."""
    with Sim(3, nodes=3) as sim:
        cluster = Cluster(sim)
        cluster.form(1, 2, 3)
        gone = cluster.at[3]
        sim.split([3])
        sim.run_until(lambda: gone.story.ended is not None and cluster.together(1, 2))
        assert not gone.story.views[-1].quorate
        assert "quorate" in str(gone.story.ended)
        with pytest.raises(Closed):
            gone.group.mcast(b"stale")
        cluster.at[1].send(b"without 3")
        sim.heal()
        sim.crash(3)
        sim.boot(cluster.program, 3)
        sim.run_until(lambda: cluster.together(1, 2, 3))
        view = cluster.view(3)
        assert view is not None
        assert view.joined == (cluster.at[3].story.member,)
        assert cluster.at[3].story.member > gone.story.member
        assert not cluster.at[3].story.events
        cluster.checker.check()


def test_events_under_way_survive_a_change_of_view() -> None:
    """I20: the sender stays, so its events come in this view or the next."""
    with Sim(4, nodes=3) as sim:
        cluster = Cluster(sim)
        cluster.form(1, 2, 3)
        for number in range(200):
            cluster.at[1].send(b"%d" % number)
            if number == 100:
                sim.crash(3)
            sim.run(0.0005)
        sim.run_until(lambda: len(cluster.at[2].story.events) == 200)
        cluster.checker.check()
        cluster.checker.settled()


def test_who_cannot_vouch_for_the_last_view_does_not_go_on() -> None:
    """I26: otherwise its state, which lacks a stable event, would replace that of the others."""
    cluster, pos = lose_a_majority_at_once(5)
    assert "vouch" in str(cluster.at[3].story.ended)
    view = cluster.view(1)
    assert view is not None
    assert view.quorate
    assert view.joined == view.members
    assert pos in [item.position for item in cluster.sim.network.history]


def test_a_slow_receiver_holds_the_sender_back() -> None:
    """I28: a member that is paused is not flooded with events."""
    _, waiting = flood_a_paused_receiver(Sim)
    assert waiting <= (1 << 16) + (8 << 10)


@pytest.mark.parametrize("seed", seeds("group", test=1, nightly=30))
def test_many_members_come_and_go(seed: int) -> None:
    """I20 to I25: nine nodes join, send, leave and return, under crashes and splits."""
    with Sim(seed, nodes=9) as sim:
        checker = Checker(9)
        left: list[Recorder] = []

        async def program(node: SimNode) -> None:
            while True:
                recorder = Recorder(checker, node.group())
                try:
                    await recorder.group.start(recorder)
                    for _ in range(node.random.integer(30)):
                        await node.clock.sleep(0.3 * node.random.fraction())
                        recorder.send(node.random.token(node.random.integer(200)))
                        await recorder.group.drain()
                except (Closed, NoQuorum):
                    pass
                await recorder.group.leave()
                if recorder.story.ended is None:
                    recorder.story.ended = "it left"  # from here on the checker minds
                    left.append(recorder)
                await node.clock.sleep(node.random.fraction())

        sim.boot(program)
        sim.network.weather.detection_s = (0.01, 0.3)
        storm(sim, 15, every_s=(0.1, 1.0))
        checker.check()
        assert len(checker.stories) > 30
        assert len(left) > 10
        assert len(checker.stable) > 50


def test_a_crash_runs_no_further_instruction() -> None:
    done: list[str] = []

    async def program(node: SimNode) -> None:
        try:
            await node.clock.sleep(10)
        finally:
            done.append("finally")

    with Sim(1, nodes=1) as sim:
        sim.boot(program)
        sim.run(1)
        sim.crash(1)
        sim.run(20)
        assert not done
        sim.restart(1)
        with pytest.raises(Misuse, match="running"):
            sim.restart(1)


# -- the loop -----------------------------------------------------------------------------------------


def test_the_loop_runs_what_asyncio_offers() -> None:
    """Timeouts, queues, task groups and threads work, in virtual time."""

    async def slow() -> None:
        await asyncio.sleep(3600)

    async def program(node: SimNode) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await slow()
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(slow())
            for number in range(5):
                tasks.create_task(queue.put(number))
            assert [await queue.get() for _ in range(5)] == list(range(5))
        assert await asyncio.to_thread(lambda: 7) == 7
        assert 3660 <= node.clock.monotonic_ns() / 1e9 < 3661
        done.append(node.number)

    done: list[int] = []
    with Sim(1, nodes=3) as sim:
        sim.boot(program)
        sim.run_until(lambda: len(done) == 3, 4000)
    assert sorted(done) == [1, 2, 3]


def test_the_seed_decides_whose_turn_it_is() -> None:
    """I29."""
    assert turns(1) == turns(1)
    assert turns(1) != turns(2)
    assert sorted(turns(1)) == sorted(turns(2))


def test_a_program_that_spins_does_not_stop_the_clock() -> None:
    async def program(node: SimNode) -> None:
        while True:
            await asyncio.sleep(0)

    with Sim(1, nodes=2) as sim:
        sim.boot(program)
        sim.run(0.05)
        assert sim.now_s >= 0.05


def test_wall_clocks_differ_between_nodes() -> None:
    with Sim(1, nodes=5) as sim:

        async def program(node: SimNode) -> None:
            shown.append(node.clock.now_ns())

        shown: list[int] = []
        sim.boot(program)
        sim.run(1)
        assert max(shown) - min(shown) > 10**9
