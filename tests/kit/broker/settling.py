"""Scenes of `settle` in a cluster. The test tells what a majority holds."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.broker.events import TopicCreate
from holdfast.errors import Closed
from holdfast.group import Position
from tests.kit.broker.crowd import B, CrowdedGroup
from tests.kit.broker.engine_world import World, started, turn

ORDERS = "persistent://public/default/orders"


class SlowMajority(CrowdedGroup):
    """A group whose other members hold what the test says."""

    def _holds_changed(self) -> None:
        pass

    def hold_elsewhere(self, position: Position) -> None:
        """Let a majority hold everything up to a position."""
        self._tell_stable(position)


async def _started() -> tuple[World, SlowMajority]:
    group = SlowMajority()
    world = await started(group)
    group.hold_elsewhere(world.engine.position)
    await asyncio.wait_for(world.engine.settle(), 5)
    return world, group


async def frames_of_others_must_be_stable() -> None:
    """A frame of another member is applied and durable here, and no majority has it."""
    world, group = await _started()
    group.say(B, TopicCreate(ORDERS, bytes(16)))
    world.durable()
    await asyncio.wait_for(world.engine.answered(), 5)  # this member has asked for nothing
    settling = asyncio.create_task(world.engine.settle())
    await turn()
    assert not settling.done(), "no majority has it"
    group.hold_elsewhere(world.engine.position)
    await asyncio.wait_for(settling, 5)


async def own_frames_must_be_stable() -> None:
    world, group = await _started()
    created = world.submit("create", TopicCreate(ORDERS, bytes(16)))
    waits = [asyncio.create_task(each()) for each in (world.engine.settle, world.engine.answered)]
    await turn()
    assert world.engine.position > world.engine.stable
    assert not any(each.done() for each in (*waits, created)), "no majority has it"
    group.hold_elsewhere(world.engine.position)
    await asyncio.wait_for(asyncio.gather(*waits), 5)
    assert created.done()


async def later_frames_may_wait() -> None:
    """Only frames that were applied before the call are waited for."""
    world, group = await _started()
    group.say(B, TopicCreate(ORDERS, bytes(16)))
    world.durable()
    settling, first = asyncio.create_task(world.engine.settle()), world.engine.position
    await turn()
    group.say(B, TopicCreate(ORDERS + "2", bytes(16)))
    world.durable()
    group.hold_elsewhere(first)
    await asyncio.wait_for(settling, 5)
    assert world.engine.position > world.engine.stable


async def the_end_is_told() -> None:
    world, group = await _started()
    group.say(B, TopicCreate(ORDERS, bytes(16)))
    settling = asyncio.create_task(world.engine.settle())
    await turn()
    world.engine.on_lost("a majority is gone")
    with pytest.raises(Closed, match="a majority is gone"):
        await settling
