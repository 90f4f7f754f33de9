"""A dispatcher that begins and stops to dispatch, beside members that hold entries."""

from __future__ import annotations

import pytest

from holdfast.broker.events import Ack
from tests.kit.broker.dispatch_world import World, run


def test_entries_of_other_members_are_left_out() -> None:
    """Also by reads: a consumer with one permit does not read through what others hold."""

    async def scenario(world: World) -> None:
        world.dispatcher.take([(0, 40), (41, 90)])
        inbox = world.join(1)
        await world.settle()
        assert inbox.ordinals == [40]
        world.dispatcher.flow(inbox.id, 100)
        await world.settle()
        assert inbox.ordinals == [40, *range(90, 100)]
        assert [start for start, _ in world.topic.reads] == [40, 90]

    run(scenario, entries=100)


@pytest.mark.parametrize("moved", [True, False])
def test_an_entry_is_returned_while_a_read_passes_it(moved: bool) -> None:
    """I54: entries before the start of a read count as passed."""

    async def scenario(world: World) -> None:
        world.dispatcher.take([(0, 4)])
        world.topic.gate.shut = True
        inbox = world.join(20)
        await world.settle()
        assert world.topic.reads == [(4, 6)]
        if not moved:  # the broken way
            world.dispatcher._reading.position = 0
        world.dispatcher.returned([(1, 3)])
        world.topic.gate.open()
        await world.settle()
        assert (sorted(inbox.ordinals) == [1, 2, *range(4, 10)]) is moved

    run(scenario)


def test_returned_entries_before_and_behind_the_position() -> None:
    async def scenario(world: World) -> None:
        world.dispatcher.take([(1, 2), (8, 10)])
        inbox = world.join(3)
        await world.settle()
        assert inbox.ordinals == [0, 2, 3]
        world.dispatcher.returned([(1, 2), (5, 6), (8, 9)])
        assert list(world.dispatcher.elsewhere) == [(9, 10)]
        world.dispatcher.flow(inbox.id, 20)
        await world.settle()
        assert sorted(inbox.ordinals) == [*range(9)], "5 was not with another member"

    run(scenario)


def test_to_stop_and_to_begin_again() -> None:
    """Shared: what consumers hold stays with them, and nothing is delivered twice."""

    async def scenario(world: World) -> None:
        inbox = world.join(4)
        await world.settle()
        world.topic.gate.shut = True
        world.dispatcher.flow(inbox.id, 3)
        await world.settle()
        world.dispatcher.halt()
        world.topic.gate.open()
        await world.settle()
        assert inbox.ordinals == [0, 1, 2, 3], "a read in flight is dropped"
        assert world.dispatcher._table.held() == [(0, 4)]
        world.dispatcher.take([(4, 6)])
        await world.settle()
        assert inbox.ordinals == [0, 1, 2, 3, 6, 7, 8]
        assert inbox.cleared_at == []

    run(scenario)


def test_one_active_consumer_stops_and_begins() -> None:
    """Failover: it loses what it has not acknowledged, and gets it again in order."""

    async def scenario(world: World) -> None:
        inbox = world.join(20, type="failover")
        await world.settle()
        assert inbox.active_told == [True]
        await world.ack(inbox, [0, 1])
        world.dispatcher.halt()
        await world.settle()
        assert (inbox.active_told, inbox.cleared_at, inbox.ordinals) == ([True, False], [0], [])
        late = world.join(20, type="failover")
        assert late.active_told == [False]
        world.dispatcher.take([])
        await world.settle()
        assert inbox.active_told == [True, False, True]
        assert inbox.ordinals == [*range(2, 10)]
        assert set(inbox.counts) == {1}

    run(scenario)


def test_a_reset_forgets_what_others_hold() -> None:
    async def scenario(world: World) -> None:
        world.dispatcher.take([(0, 5)])
        inbox = world.join(20)
        await world.settle()
        assert inbox.ordinals == [5, 6, 7, 8, 9]
        await world.dispatcher.reset(2)
        await world.settle()
        assert inbox.ordinals == [*range(2, 10)]

    run(scenario)


def test_acknowledgements_of_other_members_are_followed() -> None:
    async def scenario(world: World) -> None:
        world.join(20)
        await world.settle()
        world.dispatcher.acked(Ack(7, 1, [(0, 9)]))
        assert world.dispatcher.stats().pending_entries == 10, "of another reset"
        world.dispatcher.acked(Ack(7, 0, [(4, 6)], cumulative=2))
        assert world.dispatcher.stats().pending_entries == 6

    run(scenario)
