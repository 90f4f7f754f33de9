"""Acknowledgements in all their forms, on their way through a dispatcher (I58)."""

from __future__ import annotations

from holdfast._core import Batch
from holdfast.broker.events import Ack
from tests.kit.broker.dispatch_world import World, run


def test_the_acks_of_a_turn_are_one_event() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        for message in [*inbox.messages[:3], *inbox.messages[5:]]:
            world.dispatcher.ack([message])
        receipt = world.dispatcher.ack([inbox.messages[3]], receipt=True)
        assert receipt is not None
        await receipt
        (event,) = world.order.log
        assert isinstance(event, Ack)
        assert event.ranges == [(0, 4), (5, 10)]
        assert event.receipt
        world.dispatcher.ack([inbox.messages[4]])
        await world.settle()
        event = world.order.log[-1]
        assert isinstance(event, Ack)
        assert not event.receipt  # urgent only if a caller waits
        assert world.cursor.acks.acked_to == 10
        assert world.dispatcher.stats().pending_entries == 0

    run(scenario)


def test_messages_of_a_batch_are_acknowledged_one_by_one() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(1000)
        await world.settle()
        assert len(inbox.messages) == 12
        some = [each for each in inbox.messages if each.ordinal == 1 and each.batch_index in (0, 2)]
        receipt = world.dispatcher.ack(some, receipt=True)
        assert receipt is not None
        await receipt
        assert world.cursor.acks.bits_in(0, 3) == {1: 0b1010}
        assert world.dispatcher.stats().consumers[0].pending_messages == 10
        world.dispatcher.redeliver(inbox.id)
        await world.settle()
        received = [(each.ordinal, each.batch_index) for each in inbox.messages]
        assert received == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]
        (stats,) = world.dispatcher.stats().consumers
        assert stats.pending_messages == 10
        for message in inbox.messages[4:6]:  # in two turns, the rest of the batch
            world.dispatcher.ack([message])
            await world.settle()
        assert world.cursor.acks.acked_in(0, 3) == [(1, 2)]
        assert world.dispatcher.stats().pending_entries == 2

    run(scenario, entries=3, batch=4)


def test_parts_of_a_batch_under_way_count_as_acknowledged() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(1000)
        await world.settle()
        world.order.hold_apply = True
        world.dispatcher.ack(inbox.messages[0:2])
        await world.settle()
        world.dispatcher.ack(inbox.messages[3:4])
        await world.settle()
        inbox.messages.clear()
        world.dispatcher.redeliver(inbox.id)
        await world.settle()
        assert [(each.ordinal, each.batch_index) for each in inbox.messages] == [(0, 2)]
        world.dispatcher.ack(inbox.messages)
        world.order.release()
        await world.settle()
        assert world.cursor.acks.acked_to == 1

    run(scenario, entries=1, batch=4)


def test_cumulative_acks_up_to_a_message_of_a_batch() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(1000, type="exclusive")
        await world.settle()
        middle = next(each for each in inbox.messages if (each.ordinal, each.batch_index) == (1, 1))
        world.dispatcher.ack_cumulative(middle)
        await world.settle()
        assert world.cursor.acks.acked_to == 1
        assert world.cursor.acks.bits_in(0, 3) == {1: 0b1100}
        last = next(each for each in inbox.messages if (each.ordinal, each.batch_index) == (1, 3))
        receipt = world.dispatcher.ack_cumulative(last, receipt=True)
        assert receipt is not None
        await receipt
        assert world.cursor.acks.acked_to == 2
        assert world.dispatcher.stats().pending_entries == 1

    run(scenario, entries=3, batch=4)


def test_what_is_about_to_be_acknowledged_is_not_delivered_again() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10, type="exclusive")
        await world.settle()
        world.order.hold_apply = True
        world.dispatcher.ack_cumulative(inbox.message(3))
        world.dispatcher.ack([inbox.message(7)])
        world.dispatcher.redeliver(inbox.id)
        await world.settle()
        assert inbox.ordinals == [4, 5, 6, 8, 9]
        world.order.release()

    run(scenario)


def test_a_whole_batch_object_is_acknowledged_at_once() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(1000)
        await world.settle()
        (batch,) = inbox.batches
        assert isinstance(batch, Batch)
        receipt = world.dispatcher.ack(batch, receipt=True)
        assert receipt is not None
        await receipt
        assert world.cursor.acks.acked_to == 10

    run(scenario, batch=3)


def test_receipts_of_one_turn_do_not_depend_on_each_other() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        first, second = (world.dispatcher.ack([each], receipt=True) for each in inbox.messages[:2])
        assert first is not None
        assert second is not None
        first.cancel()
        await second
        assert world.cursor.acks.acked_to == 2

    run(scenario)
