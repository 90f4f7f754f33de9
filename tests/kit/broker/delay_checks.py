"""Scenes of delivery times and redelivery counts: over restarts, and on three members.

`tests/mutants/test_delays.py` runs them on broken brokers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.broker.api.consumer import Consumer
from holdfast.broker.broker import Broker
from holdfast.broker.state import SubscriptionType
from holdfast.errors import Timeout
from tests.kit.broker.trio import Trio, scene
from tests.kit.broker.worlds import SimWorld

SECOND = 1_000_000_000


async def arrived(consumer: Consumer, wait_s: float = 0.5) -> list[Any]:
    """Return all messages that arrive."""
    found: list[Any] = []
    try:
        while True:
            found += await consumer.receive_many(1000, timeout=wait_s)
    except Timeout:
        return found


async def due(consumer: Consumer, count: int) -> list[Any]:
    """Return so many messages, and those that arrive soon after them."""
    found: list[Any] = []
    while len(found) < count:
        found += await consumer.receive_many(count - len(found), timeout=10)
    return found + await arrived(consumer, 0.05)  # the others must not come meanwhile


def shared(broker: Broker) -> Consumer:
    return broker.consumer("orders", "billing", type="shared", start="earliest")


def delays_survive(power: bool = False, closed: bool = False) -> None:
    """After a restart, delayed messages come at their time, and only once."""
    world = SimWorld()

    async def before() -> Broker:
        broker = await world.open()
        async with broker.producer("orders", batch=2) as producer:
            await producer.send_many([b"a", b"b", b"c"], deliver_after=100)
            await producer.send(b"now")
            await producer.send(b"d", deliver_after=50)
        consumer = shared(broker)
        await consumer.open()
        found = await arrived(consumer)
        assert [each.data for each in found] == [b"now"], "the rest is delayed"
        await consumer.ack(found[0], receipt=True)
        if closed:
            await broker.close()
        return broker

    broker = world.run(before())
    if not closed:
        world.crash(broker, power)

    async def after() -> Broker:
        broker = await world.open()
        async with shared(broker) as consumer:
            assert await arrived(consumer) == [], "not due after the restart"
            (topic,) = broker.topics.values()
            (dispatcher,) = topic.dispatchers.values()
            assert dispatcher.stats().scheduled_entries == 3
            await asyncio.sleep(50)
            assert [each.data for each in await arrived(consumer)] == [b"d"]
            await asyncio.sleep(50)
            found = await arrived(consumer)
            assert [each.data for each in found] == [b"a", b"b", b"c"]
            assert dispatcher.stats().scheduled_entries == 0
        return broker

    broker = world.run(after())
    world.close(broker)


def counts_survive(power: bool = False, closed: bool = False) -> None:
    """Redelivery counts go on after a restart; an acknowledgement or a reset forgets them."""
    world = SimWorld(nack_first_s=0.05)

    async def before() -> Broker:
        broker = await world.open()
        async with broker.producer("orders") as producer:
            await producer.send_many([b"a", b"b", b"c"])
        consumer = shared(broker)
        await consumer.open()
        for count in range(3):
            found = await arrived(consumer)
            assert {each.redelivery_count for each in found} == {count}
            for each in found[: 3 - count]:
                consumer.nack(each, delay=0)
            for each in found[3 - count :]:
                await consumer.ack(each, receipt=True)
        await asyncio.sleep(1)
        if closed:
            await broker.close()
        return broker

    broker = world.run(before())
    if not closed:
        world.crash(broker, power)

    async def after() -> Broker:
        broker = await world.open()
        await asyncio.sleep(0.1)  # its tasks have begun
        (subscription,) = next(iter(broker.topics.values())).subscriptions.values()
        assert set(subscription.counts) == {0}, "acknowledged messages need no count"
        async with shared(broker) as consumer:
            found = await arrived(consumer)
            assert [(each.data, each.redelivery_count) for each in found] == [(b"a", 3)]
            await broker.admin.reset("orders", "billing", "earliest")
            found = await arrived(consumer)
            assert [each.redelivery_count for each in found] == [0, 0, 0], "a reset begins anew"
            assert not subscription.counts
        return broker

    broker = world.run(after())
    world.close(broker)


def counts_that_do_not_rise_are_not_looked_at() -> None:
    """Deliver beside a counted entry: no count has risen, so none is looked at."""
    world = SimWorld(nack_first_s=0.05)

    async def work() -> Broker:
        broker = await world.open()
        async with broker.producer("orders") as producer, shared(broker) as consumer:
            await producer.send(b"poison")
            (poison,) = await arrived(consumer)
            consumer.nack(poison, delay=0)
            (again,) = await arrived(consumer)
            (topic,) = broker.topics.values()
            dispatcher: Any = topic.dispatcher_of(topic.state.subscriptions["billing"])
            tenure = dispatcher.tenure
            note, looks = tenure._note_counts, 0

            def looked() -> None:
                nonlocal looks
                looks += 1
                note()

            tenure._note_counts = looked
            for _ in range(5):
                await producer.send(b"good")
                (each,) = await arrived(consumer)
                await consumer.ack(each, receipt=True)
            assert looks == 0, "no count has risen"
            consumer.nack(again, delay=0)
            assert [each.redelivery_count for each in await arrived(consumer)] == [2]
            assert looks == 1
            assert topic.state.subscriptions["billing"].counts == {poison.ordinal: 2}
        return broker

    world.close(world.run(work()))


def latest_ns(trio: Trio) -> int:
    """Return the time of the clock that is most ahead."""
    return max(each.log_time_now() for each in trio.brokers.values())


def delays_move_with_the_owner(type: SubscriptionType = "shared") -> None:  # noqa: A002
    """The owner dies: the next one delivers what waits, at its time."""

    async def work(trio: Trio) -> None:
        one, two = trio.consumer(1, type), trio.consumer(2, type)
        await one.open()
        due_ns = latest_ns(trio) + 30 * SECOND
        async with trio.brokers[3].producer("orders") as producer:
            await producer.send_many([b"late"] * 10, deliver_at=due_ns)
            await producer.send_many([b"now"] * 5)
        found = await trio.take(one)
        assert [each.data for each in found] == [b"now"] * 5
        await one.ack_many(found, receipt=True)
        assert trio.dispatcher(1).stats().scheduled_entries == 10
        await two.open()
        trio.crash(1)
        assert await trio.take(two) == []
        assert trio.owner() == 2
        assert trio.dispatcher(2).stats().scheduled_entries == 10
        while trio.brokers[2].log_time_now() < due_ns - SECOND:
            assert await trio.take(two) == [], "not due"  # half a second
        await asyncio.sleep(1)
        assert [each.data for each in await trio.take(two)] == [b"late"] * 10
        await two.close()

    scene(work)


def turns_do_not_read_again(type: SubscriptionType = "shared") -> None:  # noqa: A002
    """Members that take turns deliver nothing early or twice."""

    async def work(trio: Trio) -> None:
        few = {"receiver_queue": 4}
        async with trio.consumer(1, type, **few) as one, trio.consumer(2, type, **few) as two:
            due_ns = latest_ns(trio) + 30 * SECOND
            async with trio.brokers[3].producer("orders") as producer:
                for number in range(40):
                    at_ns, key = due_ns if number % 2 else None, b"%d" % (number // 2 % 5)
                    await producer.send(b"%d" % number, deliver_at=at_ns, key=key)
            taken: list[int] = []
            for _ in range(10):
                for consumer in (one, two):
                    found = await trio.take(consumer)
                    taken += [int(each.data) for each in found]
                    await consumer.ack_many(found, receipt=True)
            assert sorted(taken) == list(range(0, 40, 2))
            for _ in range(60):
                await asyncio.sleep(1)
                for consumer in (one, two):
                    found = await trio.take(consumer)
                    late = [int(each.data) for each in found]
                    assert not late or latest_ns(trio) >= due_ns
                    taken += late
                    await consumer.ack_many(found, receipt=True)
            assert sorted(taken) == list(range(40))

    scene(work)


def an_owner_with_a_clock_ahead() -> None:
    """A jump of the owner's clock makes messages at most a minute early."""

    async def work(trio: Trio) -> None:
        async with trio.consumer(1) as one:
            begin_ns = latest_ns(trio)
            async with trio.brokers[3].producer("orders") as producer:
                await producer.send(b"soon", deliver_at=begin_ns + 40 * SECOND)
                await producer.send(b"late", deliver_at=begin_ns + 200 * SECOND)
            await trio.settle()
            clock: Any = trio.brokers[1].clock
            clock.jump(3600)
            await asyncio.sleep(15)
            assert [each.data for each in await trio.take(one)] == [b"soon"], "at most 60 s early"
            await asyncio.sleep(100)
            assert await trio.take(one) == []
            await asyncio.sleep(100)
            assert [each.data for each in await trio.take(one)] == [b"late"]

    scene(work)


def counts_of_a_dead_owner() -> None:
    """The next owner knows how often the dead one has delivered a message."""

    async def work(trio: Trio) -> None:
        for number, broker in trio.brokers.items():
            broker.membership.announce(f"node{number}")  # else the others may not know such an event
        one = trio.consumer(1)
        await one.open()
        await trio.publish(1, 3)
        for count in range(4):
            found = await trio.take(one)
            assert {each.redelivery_count for each in found} == {count}
            for each in found:
                one.nack(each, delay=0)
        await trio.settle(1)
        trio.crash(1)
        async with trio.consumer(2) as two:
            found = await trio.take(two)
            assert {each.redelivery_count for each in found} == {4}, [each.redelivery_count for each in found]

    scene(work)
