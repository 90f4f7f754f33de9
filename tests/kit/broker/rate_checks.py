"""Scenes of rates: of publishes, of deliveries, of subscribes.

`tests/mutants/test_policies.py` runs them on broken brokers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.broker.broker import Broker
from holdfast.errors import LimitReached
from tests.kit.broker.life_checks import alone, announced
from tests.kit.broker.trio import Trio, scene
from tests.kit.broker.worlds import SimWorld

YEAR = 365 * 86_400


def now() -> float:
    return asyncio.get_running_loop().time()


def is_about(seconds: float, expected: float) -> None:
    assert expected - 1.05 <= seconds <= expected + 0.2, f"took {seconds:.2f} s; about {expected} s expected"


async def published(broker: Broker, topic: str, count: int, data: bytes = b"x") -> float:
    """Publish so many messages one by one; return the seconds that it took."""
    began = now()
    async with broker.producer(topic) as producer:
        for _ in range(count):
            await producer.send(data)
    return now() - began


async def consumed(broker: Broker, topic: str, count: int, subscription: str = "s") -> float:
    """Consume so many messages; return the seconds that it took."""
    async with broker.consumer(topic, subscription, type="shared") as consumer:
        began = now()
        for _ in range(count):
            await consumer.ack(await consumer.receive())
        return now() - began


# -- publishes -----------------------------------------------------------------------------------------


def publishes_are_paced() -> None:
    """I322: by messages and by bytes; another topic is not delayed."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_topic("orders", publish_rate_messages=10)
        await admin.create_topic("frames", publish_rate_bytes=1000)
        await admin.create_topic("free")
        slow = asyncio.gather(published(broker, "orders", 50), published(broker, "frames", 30, b"x" * 200))
        assert await published(broker, "free", 100) < 1, "the rate of one topic delays another"
        of_messages, of_bytes = await slow
        is_about(of_messages, 5)
        is_about(of_bytes, 6)
        began = now()
        assert await published(broker, "free", 100) < 1
        topic = admin._topic("orders")
        assert broker.limiting.publish_waits(topic) >= 39
        # two producers share a rate, and neither starves
        first, second = await asyncio.gather(published(broker, "orders", 25), published(broker, "orders", 25))
        is_about(now() - began, 5)
        assert abs(first - second) < 0.5, (first, second)

    alone(life)


def long_lists_leave_room() -> None:
    """A producer of a long list delays others for about a second."""

    async def life(broker: Broker) -> None:
        await broker.admin.create_topic("orders", publish_rate_messages=10)
        async with broker.producer("orders") as producer:
            began = now()
            task = asyncio.create_task(producer.send_many([b"x"] * 200))
            await asyncio.sleep(2.5)
            took = await published(broker, "orders", 5)
            assert took < 8, f"another producer starved for {took:.1f} s"
            ids = await task
            assert len(ids) == 200
            is_about(now() - began, 20.5)

    alone(life)


def publishes_are_paced_after_a_restart(power: bool = False) -> None:
    """A rate is a policy: it applies after a restart, with a new burst."""

    async def before(broker: Broker) -> None:
        await broker.admin.create_topic("orders", publish_rate_messages=10)
        is_about(await published(broker, "orders", 30), 3)
        await broker.settle()

    async def after(broker: Broker) -> None:
        is_about(await published(broker, "orders", 30), 3)

    alone(before, after, power=power)


def the_shortest_periods_are_no_limit(power: bool = False) -> None:
    """A period may be the smallest number above 0: its rate is infinite."""
    kinds = [f"{of}_rate" for of in ("dispatch", "subscription")]
    values: dict[str, Any] = {f"{kind}_period_s": 5e-324 for kind in (*kinds, "subscribe_rate")}
    values |= {f"{kind}_{of}": most for kind in kinds for of in ("messages", "bytes") for most in (1 << 62,)}

    async def before(broker: Broker) -> None:
        await broker.admin.create_topic("orders")
        await broker.admin.create_subscription("orders", "s")
        async with broker.consumer("orders", "s", type="shared"):  # it is served while they change
            for of in ("messages", "bytes"):
                some = {name: value for name, value in values.items() if not name.endswith(f"_{of}")}
                await broker.admin.set_policies("orders", subscribe_rate=1, **some)
            await broker.admin.set_policies("orders", **values)
        await published(broker, "orders", 20)
        assert await consumed(broker, "orders", 10) < 1
        await broker.settle()

    async def after(broker: Broker) -> None:
        assert await consumed(broker, "orders", 10) < 1

    alone(before, after, power=power)


def lifted_rates_end_waits() -> None:
    """A rate that is removed or raised ends the waits at once."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_topic("orders", publish_rate_messages=1, dispatch_rate_messages=1)
        await admin.create_subscription("orders", "s")
        for change in ({"publish_rate_messages": None}, {"publish_rate_messages": 100_000}):
            await admin.set_policies("orders", publish_rate_messages=1)
            task = asyncio.create_task(published(broker, "orders", 60))
            await asyncio.sleep(5.1)
            assert not task.done()
            began = now()
            await admin.set_policies("orders", **change)
            await task
            assert now() - began < 0.5, "a lifted rate delays on"
        task = asyncio.create_task(consumed(broker, "orders", 120))
        await asyncio.sleep(5.1)
        began = now()
        await admin.set_policies("orders", dispatch_rate_messages=None)
        await task
        assert now() - began < 0.5, "a lifted rate of deliveries delays on"
        await admin.set_policies("orders", publish_rate_messages=10)
        is_about(await published(broker, "orders", 30), 3)
        await admin.set_policies("orders", publish_rate_messages=0)
        assert await published(broker, "orders", 300) < 1

    alone(life)


def nearest_rate_decides() -> None:
    """The topic's rate wins over its namespace's, and that over the option."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        for name, own in (("own", 20), ("free", 0), ("inherits", None)):
            await admin.create_topic(name, publish_rate_messages=own)
        is_about(await published(broker, "inherits", 30), 6)
        await admin.set_namespace_policies("public/default", publish_rate_messages=10)
        is_about(await published(broker, "own", 60), 3)
        is_about(await published(broker, "inherits", 30), 3)
        assert await published(broker, "free", 300) < 1

    alone(life, publish_rate_messages=5)


def clock_jumps() -> None:
    """A clock that jumps by a year neither lifts a rate nor prolongs a wait."""
    world = SimWorld(housekeeping_s=1.0)

    async def life() -> Broker:
        broker, clock = await world.open(), world.clock
        jumping: Any = clock
        await broker.admin.create_topic("orders", publish_rate_messages=10)
        for seconds in (YEAR, -YEAR):
            task = asyncio.create_task(published(broker, "orders", 50))
            await asyncio.sleep(1.5)
            jumping.jump(seconds)
            is_about(await task, 5)
            await asyncio.sleep(2)
        return broker

    world.close(world.run(life()))


def waits_are_idle() -> None:
    """Clients that wait for a rate cost few turns of the loop."""
    world = SimWorld()

    async def life() -> Broker:
        broker = await world.open()
        admin = broker.admin
        await admin.create_topic("orders", publish_rate_messages=1, dispatch_rate_messages=1)
        await admin.create_subscription("orders", "s")
        tasks = [asyncio.create_task(published(broker, "orders", 300)) for _ in range(3)]
        tasks.append(asyncio.create_task(consumed(broker, "orders", 900)))
        await asyncio.sleep(10)
        before = world._loop.steps
        await asyncio.sleep(200)
        steps = world._loop.steps - before
        assert steps < 200 * 100, f"{steps} turns in 200 s"
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
        return broker

    world.close(world.run(life()))


# -- deliveries ----------------------------------------------------------------------------------------


def deliveries_are_paced() -> None:
    """Of a topic, whose subscriptions share the rate; and of each subscription. Others go on."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_topic("orders", dispatch_rate_messages=20)
        await admin.create_topic("bills", subscription_rate_messages=20)
        await admin.create_topic("frames", dispatch_rate_bytes=5000, dispatch_rate_period_s=2.0)
        await admin.create_topic("free")
        for name in ("orders", "bills", "frames", "free"):
            for subscription in ("s", "t"):
                await admin.create_subscription(name, subscription)
            await published(broker, name, 100, b"x" * 100)
        slow = asyncio.gather(
            *(consumed(broker, name, 100, each) for name in ("orders", "bills") for each in "st"),
            consumed(broker, "frames", 100),
        )
        assert await consumed(broker, "free", 100) < 1, "the rate of one topic delays another"
        first, second, third, fourth, frames = await slow
        is_about(max(first, second), 10)
        assert min(first, second) > 8, "a subscription of the topic starved"
        is_about(third, 5)
        is_about(fourth, 5)
        assert 2 <= frames <= 7, frames  # about 150 bytes each: 6 s, with a burst of 2 s

    alone(life)


def longer_periods_have_longer_bursts() -> None:
    """The burst is that of the period, also after an equal rate of another period."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_topic("orders", dispatch_rate_messages=10)
        await admin.create_subscription("orders", "s")
        await published(broker, "orders", 240)
        is_about(await consumed(broker, "orders", 40), 4)
        await admin.set_policies("orders", dispatch_rate_messages=100, dispatch_rate_period_s=10.0)
        assert await consumed(broker, "orders", 100) < 1, "the burst of an earlier period applies"
        is_about(await consumed(broker, "orders", 100), 10)

    alone(life)


def subscriptions_that_are_gone_cost_nothing() -> None:
    """A topic whose subscriptions come and go remembers the rates of few."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_topic("orders", subscription_rate_messages=10)
        await admin.create_subscription("orders", "stays")
        await published(broker, "orders", 20)
        is_about(await consumed(broker, "orders", 10, "stays"), 1)
        for number in range(300):
            await admin.create_subscription("orders", f"s{number}")
            async with broker.consumer("orders", f"s{number}"):
                pass
            await admin.delete_subscription("orders", f"s{number}")
        (rates,) = broker.limiting._rates.values()
        assert len(rates.subscriptions) < 100
        await consumed(broker, "orders", 10, "stays")
        (there,) = broker.admin._topic("orders").state.subscriptions.values()
        assert there.id in rates.subscriptions

    alone(life)


def deliveries_are_paced_after_a_restart(power: bool = False) -> None:
    """Also those of messages from before, and with a reader's subscription not durable."""

    async def before(broker: Broker) -> None:
        await broker.admin.create_topic("orders", dispatch_rate_messages=10)
        await broker.admin.create_subscription("orders", "s")
        await published(broker, "orders", 100)
        is_about(await consumed(broker, "orders", 30), 3)
        await broker.settle()

    async def after(broker: Broker) -> None:
        is_about(await consumed(broker, "orders", 50), 5)
        async with broker.reader("orders", start="earliest") as reader:
            began = now()
            for _ in range(40):
                await reader.receive()
            is_about(now() - began, 4)

    alone(before, after, power=power, retention_bytes=-1)


def owner_changes() -> None:
    """Each member delivers at the rate; when the owner dies, the next one does."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        admin = trio.brokers[1].admin
        await admin.set_policies("orders", dispatch_rate_messages=20, publish_rate_messages=50)
        await trio.settle()
        began = now()
        await published(trio.brokers[2], "orders", 150)
        is_about(now() - began, 3)
        async with trio.consumer(2) as two:
            began = now()
            for _ in range(60):
                await two.ack(await two.receive(5.0))
            is_about(now() - began, 3)
            assert trio.owner() == 2
        trio.crash(2)
        await trio.settle(2.0)
        async with trio.consumer(3) as three:
            began = now()
            for _ in range(60):
                await three.ack(await three.receive(5.0))
            is_about(now() - began, 3)

    scene(work)


# -- subscribes ----------------------------------------------------------------------------------------


def subscribes_are_paced() -> None:
    """So often in a period for each consumer; others are not concerned."""

    async def life(broker: Broker) -> None:
        await broker.admin.create_topic("orders", subscribe_rate=3, subscribe_rate_period_s=30.0)
        topic, limiting = broker.admin._topic("orders"), broker.limiting
        texts = list[str]()

        def refusals(who: str, attempts: int) -> int:
            refused = 0
            for _ in range(attempts):
                try:
                    limiting.admit_subscribe(topic, who)
                except LimitReached as error:
                    texts.append(str(error))
                    refused += 1
            return refused

        assert refusals("one", 5) == 2
        assert refusals("two", 3) == 0
        assert "3 times in 30 s" in texts[0]
        await asyncio.sleep(10.1)
        assert refusals("one", 2) == 1, "one more after a third of the period"
        await asyncio.sleep(3600)
        assert refusals("one", 4) == 1, "the burst is that of one period"
        for number in range(20_000):  # a hostile client with ever new names
            limiting.admit_subscribe(topic, f"name {number}")
        rates = limiting._rates[topic.id]
        assert len(rates.subscribers or ()) <= 10_000
        await broker.admin.set_policies("orders", subscribe_rate=None)
        assert refusals("one", 100) == 0

    alone(life)
