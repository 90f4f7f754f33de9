"""A reset and a read at the same time, in scenarios (I54, I55).

Gates force each scenario, and the test knows its result. Then it runs again with an `is_outdated` that
returns False, and must have another result: so the test sees what revisions prevent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.broker.dispatch.revision import RevisionController
from tests.kit.broker.dispatch_world import World, run

Scenario = Callable[[World], Coroutine[Any, Any, list[int]]]

ALL = list(range(10))


async def replay_read_and_reset(world: World) -> list[int]:
    """Scenario 1: a replay read of 5 and 6 meets a reset to 0."""
    inbox = world.join(10)
    await world.settle()
    assert inbox.ordinals == ALL
    world.topic.gate.shut = True
    world.dispatcher.flow(inbox.id, 10)
    world.dispatcher.redeliver(inbox.id, [5, 6])
    await world.settle()
    assert world.topic.reads[-1] == (5, 2)
    await world.dispatcher.reset(0)
    await world.settle()
    world.topic.gate.let(0)  # the replay read comes back first, then what the reset asked for
    await world.settle()
    world.topic.gate.open()
    await world.settle()
    return inbox.ordinals


async def sequential_read_and_reset(world: World) -> list[int]:
    """Scenario 2: a sequential read from 5 on meets a reset to 0."""
    inbox = world.join(5, again=False)
    await world.settle()
    assert inbox.ordinals == [0, 1, 2, 3, 4]
    world.topic.gate.shut = True
    world.dispatcher.flow(inbox.id, 5)
    await world.settle()
    assert world.topic.reads[-1] == (5, 5)
    await world.dispatcher.reset(0)
    assert world.dispatcher.read_position == 0
    world.topic.gate.open()
    await world.settle()
    world.dispatcher.flow(inbox.id, 100)
    await world.settle()
    return inbox.ordinals


async def half_in_flight_and_reset(world: World) -> list[int]:
    """Footnote 6: the read position has moved, the messages have not been sent."""
    inbox = world.join(5, again=False)
    await world.settle()
    world.throttle.shut = True
    world.dispatcher.flow(inbox.id, 5)
    await world.settle()
    assert world.dispatcher.read_position == 10
    assert inbox.ordinals == [0, 1, 2, 3, 4]
    await world.dispatcher.reset(0)
    world.dispatcher.flow(inbox.id, 10)
    await world.settle()
    world.throttle.open()
    await world.settle()
    return inbox.ordinals


async def joins_during_a_reset(world: World) -> list[int]:
    """Scenario 3: consumers leave and join during a reset from 3 to 1."""
    old = world.join()
    await world.settle()
    await world.ack(old, [0, 1, 2])
    world.topic.gate.shut = True
    world.order.hold_apply = True
    reset = asyncio.ensure_future(world.dispatcher.reset(1))
    await world.settle()
    assert world.dispatcher.revision.under_revision
    world.dispatcher.remove_consumer(old.id)
    first = world.join(10, again=False)
    await world.settle()
    second = world.join(10, again=False)
    await world.settle()
    world.order.release()
    await reset
    world.topic.gate.open()
    await world.settle()
    for inbox in (first, second):
        world.dispatcher.flow(inbox.id, 100)
    await world.settle()
    return sorted(first.ordinals + second.ordinals)


async def joins_during_a_rewind(world: World) -> list[int]:
    """Footnote 5: the last consumer leaves during a read; others join before its end."""
    old = world.join(5)
    await world.settle()
    assert old.ordinals == [0, 1, 2, 3, 4]
    world.topic.gate.shut = True
    world.dispatcher.flow(old.id, 5)
    await world.settle()
    assert world.topic.reads[-1] == (5, 5)
    world.dispatcher.remove_consumer(old.id)
    assert world.dispatcher.read_position == 0
    inboxes = [world.join(0) for _ in range(3)]
    world.topic.gate.open()
    await world.settle()
    for inbox in inboxes:
        world.dispatcher.flow(inbox.id, 100)
    await world.settle()
    return sorted(each for inbox in inboxes for each in inbox.ordinals)


async def replay_read_and_skip(world: World) -> list[int]:
    """An advance: 5 and 6 are being read again when everything below 6 is skipped."""
    inbox = world.join(10, again=False)
    await world.settle()
    world.topic.gate.shut = True
    world.dispatcher.flow(inbox.id, 10)
    world.dispatcher.redeliver(inbox.id, [5, 6])
    await world.settle()
    await world.dispatcher.advance(to=6)
    world.cursor.acks.reset(0)  # so that no filter, only the revision, can stop what was in flight
    await world.settle()
    world.topic.gate.let(0)
    await world.settle()
    inbox.messages, first = [], inbox.ordinals[10:]
    world.topic.gate.open()
    await world.settle()
    return first + inbox.ordinals


async def two_reads_and_two_resets(world: World) -> list[int]:
    """Both kinds of read are in flight over two resets."""
    inbox = world.join(5, again=False)
    await world.settle()
    world.topic.gate.shut = True
    world.dispatcher.flow(inbox.id, 5)
    await world.settle()  # sequential, from 5
    world.dispatcher.redeliver(inbox.id, [1, 2])
    await world.settle()
    assert world.topic.reads[-2:] == [(5, 5), (1, 2)]
    await asyncio.gather(world.dispatcher.reset(8), world.dispatcher.reset(0))
    world.topic.gate.open()
    await world.settle()
    world.dispatcher.flow(inbox.id, 100)
    await world.settle()
    return inbox.ordinals


SCENARIOS: list[tuple[Scenario, list[int], dict[str, Any]]] = [
    (replay_read_and_reset, ALL, {}),
    (sequential_read_and_reset, ALL, {}),
    (half_in_flight_and_reset, ALL, {"throttle": True}),
    (joins_during_a_reset, ALL[1:], {}),
    (joins_during_a_rewind, ALL, {}),
    (replay_read_and_skip, [6], {}),
    (two_reads_and_two_resets, ALL, {}),
]


@pytest.mark.parametrize(
    ("scenario", "expected", "options"), SCENARIOS, ids=[each[0].__name__ for each in SCENARIOS]
)
def test_what_was_in_flight_is_dropped(
    scenario: Scenario, expected: list[int], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(scenario, **options) == expected
    monkeypatch.setattr(RevisionController, "is_outdated", lambda self, revision: False)
    assert run(scenario, **options) != expected


def test_without_revisions_consumption_gets_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without revisions, scenario 2 loses entries: [0 .. 4] are not delivered."""
    monkeypatch.setattr(RevisionController, "is_outdated", lambda self, revision: False)
    assert run(sequential_read_and_reset) == [5, 6, 7, 8, 9]
    assert run(joins_during_a_reset) == ALL[3:]
    assert run(joins_during_a_rewind) == [5, 6, 7, 8, 9]


def test_dropped_entries_are_released_and_counted() -> None:
    async def scenario(world: World) -> None:
        await sequential_read_and_reset(world)
        stats = world.dispatcher.stats()
        assert (stats.reads_dropped, stats.entries_released) == (1, 5)
        assert stats.revision == (1, 0, 0)
        assert stats.revisions == 1

    run(scenario)


def test_reads_are_refused_while_under_revision() -> None:
    async def scenario(world: World) -> None:
        world.order.hold_apply = True
        reset = asyncio.ensure_future(world.dispatcher.reset(4))
        await world.settle()
        inbox = world.join(3)
        world.dispatcher.flow(inbox.id, 3)
        world.dispatcher.wake()
        await world.settle()
        stats = world.dispatcher.stats()
        assert stats.under_revision
        assert stats.under_revision_s > 0
        assert stats.reads_refused > 0
        assert world.topic.reads == []
        assert stats.diagnosis.reason == "under revision"
        world.order.release()
        await reset
        await world.settle()
        assert inbox.ordinals == [4, 5, 6]
        assert not world.dispatcher.stats().under_revision

    run(scenario)


def test_only_sequential_reads_move_the_read_position() -> None:
    """I54."""

    async def scenario(world: World) -> None:
        inbox = world.join(6)
        await world.settle()
        assert world.dispatcher.read_position == 6
        world.dispatcher.redeliver(inbox.id, [2, 3])
        world.dispatcher.flow(inbox.id, 2)
        await world.settle()
        assert inbox.ordinals == [0, 1, 2, 3, 4, 5, 2, 3]
        assert world.dispatcher.read_position == 6
        assert len(await world.topic.read(8, 1, 1 << 20)) == 1  # direct
        assert world.dispatcher.read_position == 6
        stats = world.dispatcher.stats()
        assert (stats.reads_sequential, stats.reads_replay) == (1, 1)

    run(scenario)


def test_one_read_of_each_kind_is_in_flight() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(5)
        await world.settle()
        world.topic.gate.shut = True
        for _ in range(3):
            world.dispatcher.flow(inbox.id, 5)
            world.dispatcher.wake()
            await world.settle()
        world.dispatcher.redeliver(inbox.id, [0])
        world.dispatcher.redeliver(inbox.id, [3])
        await world.settle()
        assert world.topic.reads == [(0, 5), (5, 5), (0, 4)]  # 1 and 2 are read along, and not handed out
        world.dispatcher.redeliver(inbox.id, [4])
        await world.settle()
        assert len(world.topic.gate.waiting) == 2
        world.topic.gate.open()
        await world.settle()
        assert sorted(inbox.ordinals) == sorted([*ALL, 0, 3, 4])

    run(scenario)


def test_a_new_owner_epoch_drops_what_was_being_read() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(5)
        await world.settle()
        world.topic.gate.shut = True
        world.dispatcher.flow(inbox.id, 5)
        await world.settle()
        world.dispatcher.redeliver(inbox.id, [1])
        await world.settle()
        world.cursor.owner_epoch += 1
        world.dispatcher.owned()
        world.dispatcher.owned()
        world.topic.gate.open()
        await world.settle()
        stats = world.dispatcher.stats()
        assert stats.revision == (0, 1, 0)
        assert stats.reads_dropped == 2
        assert sorted(inbox.ordinals) == sorted([0, 1, 2, 3, 4, 1, 5, 6, 7, 8])

    run(scenario)


def test_a_half_read_run_survives_an_advance() -> None:
    """An entry that the position has passed, but was not delivered, is read again."""

    async def scenario(world: World) -> None:
        inbox = world.join(5)
        await world.settle()
        world.throttle.shut = True
        world.dispatcher.flow(inbox.id, 5)
        await world.settle()
        assert world.dispatcher.read_position == 10
        await world.dispatcher.advance(to=7)
        world.throttle.open()
        await world.settle()
        assert inbox.ordinals == [0, 1, 2, 3, 4, 7, 8, 9]
        assert world.dispatcher.stats().reads_dropped == 1

    run(scenario, throttle=True)
