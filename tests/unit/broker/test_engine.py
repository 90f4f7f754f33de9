"""The confirm path, with a store whose durability the test controls."""

from __future__ import annotations

import asyncio

import pytest

from holdfast._core import Frame
from holdfast.broker.engine import Engine
from holdfast.broker.events import ProducerOpen, SubscriptionCreate, TopicCreate
from holdfast.errors import Closed, Exists, HoldfastError, NoSpace
from tests.kit.broker import settling
from tests.kit.broker.engine_world import started, turn

ORDERS = "persistent://public/default/orders"


def test_nothing_is_told_before_it_is_durable() -> None:
    """I60, I61: futures are done when durable, not when applied; in order, refusals included."""

    async def main() -> None:
        world = await started()
        created = world.submit("create", TopicCreate(ORDERS, bytes(16)))
        await turn()
        again = world.submit("again", TopicCreate(ORDERS, bytes(16)))
        other = world.submit("other", TopicCreate(ORDERS + "2", bytes(16)))
        await turn()
        assert len(world.machine.state.topics) == 2  # applied ...
        assert world.told == []  # ... and not told, the refusal neither
        world.durable(world.machine.log.next_d - 2)
        await turn()
        assert world.told == ["create"]
        world.durable()
        await turn()
        assert world.told == ["create", "again", "other"]
        assert (await created).topic == 1
        assert (await other).topic == 2
        with pytest.raises(Exists):
            await again

    asyncio.run(main())


def test_what_is_published_is_seen_when_it_is_durable() -> None:
    """I63: the end that observers get never runs ahead of the disk."""

    async def main() -> None:
        world = await started()
        await_topic = world.engine.submit(TopicCreate(ORDERS, bytes(16)))
        await turn()
        world.durable()
        topic = (await await_topic).topic
        opening = world.engine.submit(ProducerOpen(topic, "p", "shared", world.group.member))
        await turn()
        world.durable()
        opened = await opening
        before = len(world.settlements)
        receipts = []
        for number in range(3):

            def put(frame: Frame, number: int = number) -> object:
                return frame.publish_messages(topic, opened.session, opened.epoch, "p", number, [b"x"], 1)

            receipts.append(world.engine.add(put))
            await turn()
        assert world.machine.state.require_topic(topic).ledgers.end == 3
        assert len(world.settlements) == before
        for number in range(3):
            world.durable(world.machine.log.next_d - 3 + number)
            await turn()
            assert world.settlements[-1].tails == [(topic, number + 1)]
            assert [receipt.done() for receipt in receipts] == [at <= number for at in range(3)]

    asyncio.run(main())


def test_stable_elsewhere_is_not_readable_here() -> None:
    """I63: a stable frame that this member's disk does not have is not settled."""

    async def main() -> None:
        world = await started()
        created = world.submit("create", TopicCreate(ORDERS, bytes(16)))
        await turn()
        world.engine.on_stable(world.engine.position)
        await turn()
        assert not created.done()
        world.durable()
        await turn()
        assert created.done()

    asyncio.run(main())


def test_a_frame_without_durable_events_waits_for_those_before_it() -> None:
    async def main() -> None:
        world = await started()
        world.submit("create", TopicCreate(ORDERS, bytes(16)))
        await turn()
        refused = world.submit("refused", SubscriptionCreate(99, "s"))
        await turn()
        assert world.told == []
        world.durable()
        await turn()
        assert world.told == ["create", "refused"]
        assert isinstance(refused.exception(), HoldfastError)
        world.submit("alone", SubscriptionCreate(99, "s"))
        await turn()
        assert world.told[-1] == "alone"  # nothing waits before it

    asyncio.run(main())


def test_the_end_is_told_to_all_that_waits() -> None:
    """I62: requests in flight, in the group and in the frame fail, and later ones."""

    async def main() -> None:
        world = await started()
        applied = world.submit("applied", TopicCreate(ORDERS, bytes(16)))
        await turn()
        waiting = world.submit("waiting", TopicCreate(ORDERS + "2", bytes(16)))
        world.engine.end(NoSpace("the disk is full"))
        await turn()
        for future in (applied, waiting):
            with pytest.raises(NoSpace, match="the disk is full"):
                await future
        with pytest.raises(NoSpace, match="the disk is full"):
            world.engine.submit(TopicCreate(ORDERS, bytes(16)))
        with pytest.raises(NoSpace):
            await world.engine.room()
        assert [str(reason) for reason in world.ends] == ["the disk is full"]
        settled = len(world.settlements)
        world.durable()
        await turn()
        assert len(world.settlements) == settled

    asyncio.run(main())


def test_who_does_not_wait_any_more_disturbs_nobody() -> None:
    async def main() -> None:
        world = await started()
        gone = world.engine.submit(TopicCreate(ORDERS, bytes(16)))
        stays = world.submit("stays", TopicCreate(ORDERS + "2", bytes(16)))
        gone.cancel()
        await turn()
        world.durable()
        await turn()
        assert world.told == ["stays"]
        assert (await stays).topic == 2

    asyncio.run(main())


def test_a_group_that_is_lost_ends_the_engine() -> None:
    async def main() -> None:
        world = await started()
        future = world.submit("create", TopicCreate(ORDERS, bytes(16)))
        await turn()
        world.engine.on_lost("a majority is gone")
        with pytest.raises(Closed, match="a majority is gone"):
            await future

    asyncio.run(main())


def test_whoever_publishes_waits_while_the_disk_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine counts frames that it has sent and not settled, and nothing else."""

    async def main() -> None:
        world = await started()
        await world.engine.room()
        world.engine.submit(TopicCreate(ORDERS, bytes(16)))
        await turn()
        one = world.engine._under_way
        monkeypatch.setattr("holdfast.broker.engine.UNDER_WAY_BYTES", one * 3 // 2)
        await asyncio.wait_for(world.engine.room(), 5)
        world.engine.submit(TopicCreate(ORDERS + "2", bytes(16)))
        await turn()
        waiters = [asyncio.create_task(world.engine.room()) for _ in range(3)]
        await turn()
        assert not any(waiter.done() for waiter in waiters)
        world.durable()
        await asyncio.wait_for(asyncio.gather(*waiters), 5)

    asyncio.run(main())


def test_settle_waits_for_a_majority() -> None:
    asyncio.run(settling.frames_of_others_must_be_stable())


def test_settle_waits_for_own_frames() -> None:
    asyncio.run(settling.own_frames_must_be_stable())


def test_settle_does_not_wait_for_later_frames() -> None:
    asyncio.run(settling.later_frames_may_wait())


def test_settle_ends_with_the_engine() -> None:
    asyncio.run(settling.the_end_is_told())


def confirm_early(engine: Engine) -> None:
    """A mutant: what was applied counts as durable."""
    engine._durable_d = 1 << 62


def test_an_engine_that_confirms_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Engine._hold

    def early(engine: Engine) -> None:
        confirm_early(engine)
        hold(engine)

    monkeypatch.setattr(Engine, "_hold", early)
    for test in (
        test_nothing_is_told_before_it_is_durable,
        test_what_is_published_is_seen_when_it_is_durable,
    ):
        with pytest.raises(AssertionError):
            test()
