"""Scenes of backlog quotas: hold, exception and eviction, by size and by age.

`tests/mutants/test_policies.py` runs them on broken brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.broker.broker import Broker
from holdfast.errors import QuotaExceeded, QuotaHold, Terminated
from tests.kit.broker.life_checks import alone, announced
from tests.kit.broker.maximum_checks import refused, taken
from tests.kit.broker.trio import Trio, scene
from tests.kit.broker.worlds import SimWorld

QUOTA = 20_000
FULL = "persistent://public/default/orders"
HOLD, EXCEPTION, EVICTION = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
BY_SIZE: dict[str, Any] = {"backlog_bytes": QUOTA}
BY_AGE: dict[str, Any] = {"backlog_age_s": 600.0}


async def begun(broker: Broker, **policies: Any) -> None:
    await broker.admin.create_topic("orders", **policies)
    await broker.admin.create_subscription("orders", "s")


async def filled(broker: Broker, name: str = "orders") -> None:
    """Publish until the topic exceeds its quota."""
    await is_open(broker, name)
    async with broker.producer(name) as producer:
        for _ in range(100):
            try:
                await producer.send(b"x" * 1000)
            except QuotaExceeded:
                return
            await asyncio.sleep(0.1)
    raise AssertionError("the quota does not stop the producer")


async def grown(broker: Broker, seconds: float = 700) -> None:
    """Publish a message, and let it become old."""
    await is_open(broker)
    await asyncio.sleep(seconds)


async def is_held(broker: Broker, error: type[QuotaExceeded] = QuotaHold, by: str = "size") -> None:
    await refused(error, broker.producer("orders").open, f"exceeds its quota by {by}")


async def is_open(broker: Broker, name: str = "orders") -> None:
    """Publish a message: the topic is not held."""
    try:
        async with broker.producer(name) as producer:
            await producer.send(b"y")
    except QuotaExceeded as error:
        raise AssertionError(f"{name} is held, and should not be: {error}") from None


# -- by size -------------------------------------------------------------------------------------------


def holds_and_lifts(power: bool = False) -> None:
    """I321: producers end, and cannot open, also after a restart; consumption lifts the quota."""

    async def before(broker: Broker) -> None:
        await begun(broker, **BY_SIZE)
        await filled(broker)
        await is_held(broker)
        async with broker.consumer("orders", "s") as consumer:
            messages = await taken(consumer)
            assert 19 <= len(messages) <= 21
            await consumer.ack_many(messages[:-1])
            await asyncio.sleep(0.3)
            await is_open(broker)
        await filled(broker)
        await broker.settle()

    async def after(broker: Broker) -> None:
        await is_held(broker)
        await asyncio.sleep(3600)
        await is_held(broker)
        async with broker.consumer("orders", "s") as consumer:
            await consumer.ack_many(await taken(consumer))
        await asyncio.sleep(0.3)
        await is_open(broker)
        await filled(broker)
        await is_held(broker)

    alone(before, after, power=power)


def every_way_lifts() -> None:
    """I321: each way to a smaller backlog or a larger quota opens the topic."""

    async def consumed_cumulatively(broker: Broker) -> None:
        async with broker.consumer("orders", "s") as consumer:
            await consumer.ack_cumulative((await taken(consumer))[-1])

    ways: dict[str, Callable[[Broker], Awaitable[Any]]] = {
        "cumulative": consumed_cumulatively,
        "clear": lambda broker: broker.admin.clear("orders", "s"),
        "skip": lambda broker: broker.admin.skip("orders", "s", 15),
        "reset": lambda broker: broker.admin.reset("orders", "s", "latest"),
        "truncate": lambda broker: broker.admin.truncate("orders"),
        "no subscription": lambda broker: broker.admin.delete_subscription("orders", "s", force=True),
        "expire": lambda broker: broker.admin.expire("orders", "s", 0.0),
        "larger": lambda broker: broker.admin.set_policies("orders", backlog_bytes=1 << 30),
        "removed": lambda broker: broker.admin.set_policies("orders", backlog_bytes=None),
        "none": lambda broker: broker.admin.set_policies("orders", backlog_bytes=0),
        "evicts": lambda broker: broker.admin.set_policies("orders", backlog_bytes_action=EVICTION),
        "ring": lambda broker: broker.admin.set_policies("orders", ring_entries=3),
    }

    async def life(broker: Broker) -> None:
        for way, act in ways.items():
            await begun(broker, **BY_SIZE)
            await filled(broker)
            await is_held(broker)
            await act(broker)
            await asyncio.sleep(2.0)
            assert not any(broker.admin._topic("orders").state.over), f"{way} does not lift the quota"
            await is_open(broker)
            await broker.admin.delete_topic("orders", force=True)

    alone(life)


def excepts() -> None:
    """The action decides the error; a changed action has its effect during the hold."""

    async def life(broker: Broker) -> None:
        await begun(broker, backlog_bytes=QUOTA, backlog_bytes_action=EXCEPTION)
        await filled(broker)
        try:
            await broker.producer("orders").open()
        except QuotaHold:
            raise AssertionError("this action lets no client wait") from None
        except QuotaExceeded:
            pass
        await broker.admin.set_policies("orders", backlog_bytes_action=HOLD)
        await asyncio.sleep(0.3)
        await is_held(broker)

    alone(life)


def evicts(power: bool = False) -> None:
    """Producers go on; the oldest messages leave the backlog, the newest stay."""

    async def before(broker: Broker) -> None:
        await begun(broker, backlog_bytes=QUOTA, backlog_bytes_action=EVICTION)
        await broker.admin.create_subscription("orders", "fast")
        async with broker.producer("orders") as producer, broker.consumer("orders", "fast") as fast:
            for number in range(100):
                await producer.send(b"%d" % number + b"x" * 1000)
                await fast.ack(await fast.receive())
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        topic = broker.admin._topic("orders")
        assert 10 <= topic.backlog(topic.subscriptions["s"]) <= 20
        assert broker.limiting.evictions[topic.id] > 1
        await broker.settle()

    async def after(broker: Broker) -> None:
        async with broker.consumer("orders", "s") as consumer:
            found = await taken(consumer)
            assert 10 <= len(found) <= 20, len(found)
            assert found[-1].data.startswith(b"99x"), "the newest message is lost"
        await is_open(broker)

    alone(before, after, power=power)


def ended_during_a_hold() -> None:
    """A topic that is terminated, deleted or created again during a hold."""

    async def life(broker: Broker) -> None:
        await begun(broker, **BY_SIZE)
        await filled(broker)
        await broker.admin.terminate("orders")
        await refused(Terminated, broker.producer("orders").open, "terminated")
        async with broker.consumer("orders", "s") as consumer:
            await consumer.ack_many(await taken(consumer))
        await asyncio.sleep(1)
        await refused(Terminated, broker.producer("orders").open, "terminated")
        await broker.admin.delete_topic("orders", force=True)
        await begun(broker, **BY_SIZE)
        await filled(broker)
        await broker.admin.delete_topic("orders", force=True)
        assert not broker.limiting._looks
        await begun(broker, **BY_SIZE)
        await is_open(broker)

    alone(life)


def partitions_are_held_alone() -> None:
    """The quota is of each partition: others accept messages."""

    async def life(broker: Broker) -> None:
        await broker.admin.create_partitioned_topic("orders", 2, **BY_SIZE)
        await broker.admin.create_subscription("orders", "s")
        await filled(broker, "orders-partition-0")
        await refused(QuotaHold, broker.producer("orders-partition-0").open, "orders-partition-0")
        await is_open(broker, "orders-partition-1")
        await broker.admin.clear("orders-partition-0", "s")
        await asyncio.sleep(0.3)
        await is_open(broker, "orders-partition-0")

    alone(life)


def nearest_quota_decides() -> None:
    """The topic's quota wins over its namespace's, and that over the option."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        await begun(broker)
        await filled(broker)  # by the option
        await admin.set_namespace_policies("public/default", backlog_bytes=30_000)
        await asyncio.sleep(0.3)
        await filled(broker)
        assert admin.topic_stats("orders").size_bytes > 30_000
        await admin.set_policies("orders", backlog_bytes=40_000, backlog_bytes_action=EXCEPTION)
        await asyncio.sleep(0.3)
        await filled(broker)
        assert admin.topic_stats("orders").size_bytes > 40_000
        await is_held(broker, QuotaExceeded)
        await admin.set_policies("orders", backlog_bytes=0)
        await asyncio.sleep(0.3)
        for _ in range(30):
            await is_open(broker)
        shown = admin.applied_policies("orders")
        assert (shown.backlog_bytes, shown.backlog_bytes_action) == (0, EXCEPTION)

    alone(life, backlog_bytes=QUOTA)


# -- by age --------------------------------------------------------------------------------------------


def holds_by_age(power: bool = False) -> None:
    """A message that is not acknowledged in time holds the topic, also after a restart."""

    async def before(broker: Broker) -> None:
        await begun(broker, **BY_AGE)
        await grown(broker, 500)
        await is_open(broker)
        await asyncio.sleep(200)
        await is_held(broker, by="age")
        await broker.settle()

    async def after(broker: Broker) -> None:
        await is_held(broker, by="age")
        async with broker.consumer("orders", "s") as consumer:
            await consumer.ack_many(await taken(consumer))
        await asyncio.sleep(2)
        await is_open(broker)
        await grown(broker, 500)
        await is_open(broker)

    alone(before, after, power=power, outage_s=60)


def evicts_by_age() -> None:
    """Messages that are too old leave the backlog, younger ones stay."""

    async def life(broker: Broker) -> None:
        await begun(broker, **BY_AGE, backlog_age_action=EVICTION)
        for number in range(20):
            async with broker.producer("orders") as producer:
                await producer.send(b"%d" % number)
            await asyncio.sleep(100)
        async with broker.consumer("orders", "s") as consumer:
            found = [int(each.data) for each in await taken(consumer)]
        assert found[-1] == 19, "the newest message is lost"
        assert 5 <= len(found) <= 7, found

    alone(life)


def clock_is_ahead() -> None:
    """A clock that jumps a year ahead makes no message old."""
    world = SimWorld(housekeeping_s=1.0)

    async def life() -> Broker:
        broker = await world.open()
        clock: Any = world.clock
        await begun(broker, **BY_AGE, **BY_SIZE)
        await grown(broker, 100)
        clock.jump(365 * 86_400)
        await asyncio.sleep(100)
        await is_open(broker)
        clock.jump(-365 * 86_400)
        await asyncio.sleep(100)
        await is_open(broker)
        await asyncio.sleep(400)
        await is_held(broker, by="age")
        await broker.admin.clear("orders", "s")
        await asyncio.sleep(2)
        await is_open(broker)
        return broker

    world.close(world.run(life()))


# -- three members -------------------------------------------------------------------------------------


def owner_dies_during_a_hold() -> None:
    """Producers of all members end; the next owner lifts the quota."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        await trio.brokers[1].admin.set_policies("orders", **BY_SIZE)
        await trio.settle()
        producers = [each.producer("orders") for each in trio.brokers.values()]
        for each in producers:
            await each.open()
        await producers[0].send_many([b"x" * 1000] * 25)
        await trio.settle(1.0)
        for each in producers:
            await refused(QuotaHold, lambda each=each: each.send(b"y"), "by size")  # type: ignore[misc]
        for broker in trio.brokers.values():
            assert not broker.admin.topic_stats("orders").producers, "a producer goes on"
            await is_held(broker)
        owner = trio.brokers[1].membership.owner(FULL)
        assert owner is not None
        trio.crash(owner.node)
        await trio.settle(2.0)
        left = next(iter(trio.brokers.values()))
        await is_held(left)
        await left.admin.clear("orders", "billing")
        await trio.settle(3.0)
        for broker in trio.brokers.values():
            await is_open(broker)

    scene(work, housekeeping_s=1.0)
