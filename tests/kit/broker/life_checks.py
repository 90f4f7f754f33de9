"""Scenes of subscriptions that expire and topics that are deleted.

They run over restarts, and on three members.
`tests/mutants/test_lives.py` runs them on broken brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.broker.broker import Broker
from tests.kit.broker.trio import Trio, scene
from tests.kit.broker.worlds import SimWorld

DAY = 86_400
CAUGHT_UP: dict[str, Any] = {
    "inactive_delete": True,
    "inactive_s": 600.0,
    "inactive_mode": "delete_when_subscriptions_caught_up",
}
NO_SUBSCRIPTIONS: dict[str, Any] = {
    "inactive_delete": True,
    "inactive_s": 600.0,
    "inactive_mode": "delete_when_no_subscriptions",
}
Work = Callable[[Broker], Coroutine[Any, Any, None]]


def alone(*lives: Work, power: bool = False, outage_s: float = 30 * DAY, **options: Any) -> None:
    """Run the lives of one broker; it crashes between them and stays away."""
    world = SimWorld(housekeeping_s=1.0, **options)
    broker = None
    for number, life in enumerate(lives):

        async def one(life: Work = life, number: int = number) -> Broker:
            if number:
                await asyncio.sleep(outage_s)
            opened = await world.open()
            await asyncio.sleep(0.01)  # its tasks begin
            await life(opened)
            return opened

        broker = world.run(one())
        broker.machine.check()
        if number < len(lives) - 1:
            world.crash(broker, power)
    world.close(broker)


def subscriptions(broker: Broker) -> list[str]:
    return broker.admin.subscriptions("orders")


async def is_here(broker: Broker, seconds: float, name: str = "billing") -> None:
    await asyncio.sleep(seconds)
    assert name in subscriptions(broker), f"{name} expired too early"


async def is_gone(broker: Broker, seconds: float, name: str = "billing") -> None:
    await asyncio.sleep(seconds)
    assert name not in subscriptions(broker), f"{name} did not expire"


async def with_policy(broker: Broker, **policies: Any) -> None:
    await broker.admin.create_topic("orders", **(policies or {"subscription_expiry_s": 600.0}))
    await broker.admin.create_subscription("orders", "billing")


# -- subscriptions, one broker -------------------------------------------------------------------------


def expiry_survives(power: bool = False) -> None:
    """I300, I301: the time before a crash counts, the outage does not."""

    async def before(broker: Broker) -> None:
        await with_policy(broker)
        await is_here(broker, 400)
        await broker.settle()

    async def after(broker: Broker) -> None:
        await is_here(broker, 100)
        await is_gone(broker, 150)

    alone(before, after, power=power)


def expiry_survives_a_snapshot() -> None:
    """A snapshot has the uptime, and since when a subscription is unused."""

    async def before(broker: Broker) -> None:
        await with_policy(broker)
        await is_here(broker, 400)
        await broker.admin.snapshot()

    async def after(broker: Broker) -> None:
        await is_here(broker, 100)
        await is_gone(broker, 150)

    alone(before, after)


def consumer_keeps_it() -> None:
    """I301: a consumer keeps a subscription; its end begins a new age."""

    async def life(broker: Broker) -> None:
        await with_policy(broker)
        await broker.admin.create_topic("other", subscription_expiry_s=1e6)
        await broker.admin.create_subscription("other", "unused")  # so uptime does not stand still
        for _ in range(2):
            await is_here(broker, 500)
            async with broker.consumer("orders", "billing"):
                await is_here(broker, 2000)
        await is_here(broker, 550)
        await broker.admin.reset("orders", "billing", "earliest")
        await is_here(broker, 550)
        await is_gone(broker, 100)

    alone(life)


def consumer_counts_after_a_restart() -> None:
    """The end of a consumer by a crash is the beginning of the age."""

    async def before(broker: Broker) -> None:
        await with_policy(broker)
        await broker.consumer("orders", "billing").open()
        await is_here(broker, 3000)
        await broker.settle()

    async def after(broker: Broker) -> None:
        await is_here(broker, 500)
        await is_gone(broker, 150)

    alone(before, after)


def clock_ahead() -> None:
    """I300: a clock that is a year ahead, and stays so, makes nothing older."""
    world = SimWorld(housekeeping_s=1.0)

    async def life() -> Broker:
        broker = await world.open()
        await with_policy(broker, subscription_expiry_s=2000.0)
        clock: Any = world.clock
        clock.jump(365 * DAY)
        await is_here(broker, 900)  # log time has accepted the new year (CONFIRM_S)
        clock.jump(365 * DAY)
        await is_here(broker, 900)
        await is_gone(broker, 300)
        return broker

    world.close(world.run(life()))


def topic_decides() -> None:
    """The topic's policy goes before that of its namespace, and this before the option."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        for name in ("own", "never", "inherits"):
            await admin.create_topic(name)
            await admin.create_subscription(name, "billing")
        await admin.set_namespace_policies("public/default", subscription_expiry_s=1000.0)
        await admin.set_policies("own", subscription_expiry_s=2000.0)
        await admin.set_policies("never", subscription_expiry_s=0.0)
        names = ("own", "never", "inherits")

        def found() -> list[str]:
            return [name for name in names if admin.subscriptions(name)]

        await asyncio.sleep(500)
        assert found() == ["own", "never", "inherits"], "the option does not apply"
        await asyncio.sleep(600)
        assert found() == ["own", "never"], "the namespace's policy applies to one topic"
        await asyncio.sleep(1000)
        assert found() == ["never"], "its own policy applies"
        await admin.set_namespace_policies("public/default", subscription_expiry_s=None)
        await admin.set_policies("never", subscription_expiry_s=None)
        await asyncio.sleep(10)
        assert found() == [], "the option applies"
        shown = admin.applied_policies("own")
        assert (shown.subscription_expiry_s, shown.inactive_delete) == (2000.0, False)

    alone(life, subscription_expiry_s=200.0)


# -- topics, one broker --------------------------------------------------------------------------------


def exists(broker: Broker, name: str = "orders") -> bool:
    full = f"persistent://public/default/{name}"
    return broker.has_topic(full) or broker.partitioned.count(full) > 0


async def stays(broker: Broker, seconds: float) -> None:
    await asyncio.sleep(seconds)
    assert exists(broker), "the topic was deleted too early"


async def goes(broker: Broker, seconds: float) -> None:
    await asyncio.sleep(seconds)
    assert not exists(broker), "the topic was not deleted"
    broker.machine.check()


def clients_keep_a_topic() -> None:
    """I302: a user keeps a topic; then its time begins anew."""

    async def life(broker: Broker) -> None:
        await broker.admin.create_topic("orders", **NO_SUBSCRIPTIONS)
        await stays(broker, 550)
        async with broker.producer("orders") as producer:
            await stays(broker, 1000)
            await producer.send(b"nails")
        await stays(broker, 550)
        async with broker.reader("orders"):
            await stays(broker, 1000)
        await stays(broker, 550)
        await broker.admin.create_subscription("orders", "billing")
        await stays(broker, 1000)
        await broker.admin.delete_subscription("orders", "billing")
        await stays(broker, 550)
        await goes(broker, 100)

    alone(life)


def backlog_keeps_a_topic() -> None:
    """I302: with caught-up subscriptions a topic is deleted, with a backlog it is not."""

    async def life(broker: Broker) -> None:
        await with_policy(broker, **CAUGHT_UP)
        async with broker.producer("orders") as producer:
            await producer.send(b"nails")
        await stays(broker, 2000)
        await broker.admin.clear("orders", "billing")
        await stays(broker, 550)
        await goes(broker, 100)

    alone(life)


def inactivity_survives(power: bool = False, snapshot: bool = False) -> None:
    """The time before a crash counts, the outage does not."""

    async def before(broker: Broker) -> None:
        await broker.admin.create_topic("orders", **NO_SUBSCRIPTIONS)
        await stays(broker, 400)
        await broker.settle()
        if snapshot:
            await broker.admin.snapshot()

    async def after(broker: Broker) -> None:
        await stays(broker, 100)
        await goes(broker, 150)

    alone(before, after, power=power)


def retention_keeps_a_topic() -> None:
    """A topic with retention is kept for that time, or for ever."""

    async def life(broker: Broker) -> None:
        await broker.admin.create_topic("orders", **NO_SUBSCRIPTIONS, retention_s=3000.0)
        await stays(broker, 2900)
        await broker.admin.set_policies("orders", retention_s=-1.0)
        await stays(broker, 2900)
        await broker.admin.set_policies("orders", retention_s=None)
        await goes(broker, 700)

    alone(life)


def partitions_go_together() -> None:
    """A partitioned topic is deleted when all its partitions are inactive, and not before."""

    async def life(broker: Broker) -> None:
        await broker.admin.create_partitioned_topic("orders", 3, **NO_SUBSCRIPTIONS)
        async with broker.producer("orders-partition-2"):
            await stays(broker, 2000)
            assert broker.partitioned.count("persistent://public/default/orders") == 3
        await stays(broker, 550)
        await goes(broker, 100)
        assert not broker.topics

    alone(life)


def option_deletes_topics() -> None:
    """The broker's options apply where no policy does, and a policy can exclude a topic."""

    async def life(broker: Broker) -> None:
        await with_policy(broker, inactive_delete=None)
        await broker.admin.create_topic("kept", inactive_delete=False)
        await stays(broker, 550)
        await goes(broker, 100)
        await asyncio.sleep(1000)
        assert exists(broker, "kept")

    alone(life, inactive_topic_s=600.0, inactive_topic_caught_up=True)


def nothing_ages() -> None:
    """Without something that ages, housekeeping writes nothing."""

    async def life(broker: Broker) -> None:
        await broker.admin.create_topic("orders", subscription_expiry_s=600.0, inactive_delete=False)
        async with broker.consumer("orders", "billing"):
            await asyncio.sleep(10)
            before = broker.machine.log.next_d
            await asyncio.sleep(4000)
            assert broker.machine.log.next_d == before, "events without need"

    alone(life)


# -- three members -------------------------------------------------------------------------------------


async def announced(trio: Trio) -> None:
    for number, broker in trio.brokers.items():
        broker.membership.announce(f"node{number}")  # else the others may not know such an event
    await trio.settle()


def names(trio: Trio) -> set[str]:
    """Return the subscriptions of the topic; all members must agree."""
    found = {tuple(subscriptions(broker)) for broker in trio.brokers.values()}
    (one,) = found
    return {*one}


def expiry_outlives_the_owner() -> None:
    """The owner of the topic dies: the next one knows the age."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        await trio.brokers[1].admin.set_policies("orders", subscription_expiry_s=600.0)
        await asyncio.sleep(400)
        owner = next(iter(trio.brokers.values())).membership.owner("persistent://public/default/orders")
        assert owner is not None
        trio.crash(owner.node)
        await asyncio.sleep(140)
        assert names(trio) == {"billing"}
        await asyncio.sleep(180)
        assert names(trio) == set()

    scene(work, housekeeping_s=1.0)


def consumer_elsewhere_keeps_it() -> None:
    """A consumer at another member than the topic's owner keeps the subscription."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        await trio.brokers[1].admin.set_policies("orders", subscription_expiry_s=600.0)
        for number in trio.brokers:
            async with trio.consumer(number):
                await asyncio.sleep(700)
                assert names(trio) == {"billing"}
        await asyncio.sleep(700)
        assert names(trio) == set()

    scene(work, housekeeping_s=1.0)


def reader_elsewhere_keeps_a_topic() -> None:
    """A reader at any member keeps the topic: others do not know of it."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        await trio.brokers[1].admin.set_policies("orders", **CAUGHT_UP)
        for number in trio.brokers:
            async with trio.brokers[number].reader("orders"):
                await asyncio.sleep(1000)
                assert all(exists(broker) for broker in trio.brokers.values())
        await asyncio.sleep(700)
        assert not any(exists(broker) for broker in trio.brokers.values())

    scene(work, housekeeping_s=5.0)


def partitions_of_many_owners() -> None:
    """The partitions of a topic have several owners, and are deleted together."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        admin, full = trio.brokers[1].admin, "persistent://public/default/many"
        await admin.create_partitioned_topic("many", 8, **NO_SUBSCRIPTIONS)
        await trio.settle()
        names = trio.brokers[1].partitioned.names(full)
        assert len({trio.brokers[1].membership.owner(each) for each in names}) > 1
        async with trio.brokers[2].producer("many-partition-7"):
            await asyncio.sleep(1000)
            assert {broker.partitioned.count(full) for broker in trio.brokers.values()} == {8}
        await asyncio.sleep(550)
        assert {broker.partitioned.count(full) for broker in trio.brokers.values()} == {8}
        await asyncio.sleep(100)
        assert {broker.partitioned.count(full) for broker in trio.brokers.values()} == {0}

    scene(work, housekeeping_s=1.0)


ALONE = (
    expiry_survives,
    expiry_survives_a_snapshot,
    consumer_keeps_it,
    consumer_counts_after_a_restart,
    clock_ahead,
    topic_decides,
    clients_keep_a_topic,
    backlog_keeps_a_topic,
    inactivity_survives,
    retention_keeps_a_topic,
    partitions_go_together,
    option_deletes_topics,
    nothing_ages,
)
TOGETHER = (
    expiry_outlives_the_owner,
    consumer_elsewhere_keeps_it,
    reader_elsewhere_keeps_a_topic,
    partitions_of_many_owners,
)
