"""Scenes of maximums: clients, subscriptions, topics, sizes; over restarts, and on three members.

`tests/mutants/test_policies.py` runs them on broken brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from holdfast.broker.api.consumer import Consumer
from holdfast.broker.broker import Broker
from holdfast.broker.state import SubscriptionType
from holdfast.errors import Busy, HoldfastError, LimitReached, Misuse, Timeout
from tests.kit.broker.life_checks import alone, announced
from tests.kit.broker.trio import Trio, scene


async def refused(error: type[HoldfastError], call: Callable[[], Awaitable[Any]], words: str) -> None:
    """Require that a call raises this error, with these words in its text."""
    try:
        await call()
    except error as caught:
        text = str(caught)
    else:
        raise AssertionError(f"nothing was refused; expected {error.__name__}: {words}")
    assert words in text, text


async def opened(stack: AsyncExitStack, broker: Broker, count: int, topic: str = "orders") -> None:
    try:
        for _ in range(count):
            await stack.enter_async_context(broker.producer(topic))
    except Busy as error:
        raise AssertionError(f"a producer below the maximum was refused: {error}") from None


# -- clients -------------------------------------------------------------------------------------------


def producers_are_counted(power: bool = False) -> None:
    """I320: no more than the maximum, also after a restart; one that closes makes room."""

    async def fill(broker: Broker) -> None:
        async with AsyncExitStack() as stack:
            await opened(stack, broker, 2)
            await refused(Busy, broker.producer("orders").open, "2 producers, the most that producers_max")
        async with AsyncExitStack() as stack:
            await opened(stack, broker, 1)
            waiting = broker.producer("orders", access="wait-for-exclusive")
            task = asyncio.create_task(waiting.open())
            await asyncio.sleep(0.1)
            third = broker.producer("orders", access="wait-for-exclusive")
            await refused(Busy, third.open, "producers_max")  # the one that waits counts
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(0.1)
            await opened(stack, broker, 1)

    async def before(broker: Broker) -> None:
        await broker.admin.create_topic("orders", producers_max=2)
        await fill(broker)
        for _ in range(2):
            await broker.producer("orders").open()  # both are open when it crashes
        await broker.settle()

    alone(before, fill, power=power)


def consumers_are_counted(power: bool = False) -> None:
    """I320: of a subscription, and of all subscriptions of a topic."""

    async def joined(stack: AsyncExitStack, broker: Broker, subscription: str) -> None:
        await stack.enter_async_context(broker.consumer("orders", subscription, type="shared"))

    async def fill(broker: Broker) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await joined(stack, broker, "billing")
            third = broker.consumer("orders", "billing", type="shared")
            await refused(Busy, third.open, "2 consumers, the most that subscription_consumers_max")
            await joined(stack, broker, "audit")
            fourth = broker.consumer("orders", "audit", type="shared")
            await refused(Busy, fourth.open, "3 consumers, the most that consumers_max")
        async with AsyncExitStack() as stack:
            await joined(stack, broker, "audit")

    async def before(broker: Broker) -> None:
        await broker.admin.create_topic("orders", consumers_max=3, subscription_consumers_max=2)
        for name in ("billing", "audit"):
            await broker.admin.create_subscription("orders", name)
        await fill(broker)
        for name in ("billing", "billing", "audit"):
            await broker.consumer("orders", name, type="shared").open()
        await broker.settle()

    alone(before, fill, power=power)


def lifted_at_once() -> None:
    """A maximum that is raised, removed or 0 admits the next client at once."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_topic("orders", producers_max=1)
        for most in (2, None, 0):
            async with AsyncExitStack() as stack:
                await opened(stack, broker, 1)
                await admin.set_policies("orders", producers_max=1)
                await refused(Busy, broker.producer("orders").open, "producers_max")
                await admin.set_policies("orders", producers_max=most)
                await opened(stack, broker, 1)
        async with AsyncExitStack() as stack:  # a lower maximum closes no client
            await admin.set_policies("orders", producers_max=3)
            await opened(stack, broker, 3)
            await admin.set_policies("orders", producers_max=1)
            assert len(admin.topic_stats("orders").producers) == 3

    alone(life)


def nearest_decides() -> None:
    """The topic's policy wins over its namespace's, and that over the option."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        for name, own in (("own", 3), ("free", 0), ("inherits", None)):
            await admin.create_topic(name, producers_max=own)
        await at_most(broker, "inherits", 1)  # the option
        await admin.set_namespace_policies("public/default", producers_max=2)
        await at_most(broker, "own", 3)
        await at_most(broker, "inherits", 2)
        async with AsyncExitStack() as stack:
            await opened(stack, broker, 9, "free")
        shown = [admin.applied_policies(name).producers_max for name in ("own", "free", "inherits")]
        assert shown == [3, 0, 2], shown
        await admin.set_policies("own", producers_max=None)
        await at_most(broker, "own", 2)
        await admin.set_namespace_policies("public/default", producers_max=None)
        await at_most(broker, "own", 1)

    async def at_most(broker: Broker, topic: str, count: int) -> None:
        async with AsyncExitStack() as stack:
            await opened(stack, broker, count, topic)
            await refused(Busy, broker.producer(topic).open, "producers_max")

    alone(life, producers_max=1)


def last_place_goes_to_one() -> None:
    """I320: of three members' clients one gets the last place. A crash makes room."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        await trio.brokers[1].admin.set_policies("orders", producers_max=1, subscription_consumers_max=1)
        await trio.settle()
        for kind in ("producer", "consumer"):
            clients: list[Any] = [
                broker.producer("orders") if kind == "producer" else trio.consumer(number)
                for number, broker in trio.brokers.items()
            ]
            found = await asyncio.gather(*(each.open() for each in clients), return_exceptions=True)
            assert [type(each) for each in found if each] == [Busy, Busy], found
            await clients[found.index(None)].close()
        other = trio.brokers[3].producer("orders")
        await other.open()
        await refused(Busy, trio.brokers[1].producer("orders").open, "producers_max")
        trio.crash(3)
        await trio.settle(2.0)
        await trio.brokers[1].producer("orders").open()

    scene(work)


# -- subscriptions, topics, sizes ----------------------------------------------------------------------


def subscriptions_and_topics_are_counted(power: bool = False) -> None:
    """Those of before a restart count after it; what is deleted makes room."""

    async def before(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_tenant("shop")
        await admin.create_namespace("shop/eu", topics_max=4, subscriptions_max=2)
        await admin.create_topic("shop/eu/orders")
        await admin.create_topic("shop/eu/bills")
        await admin.create_subscription("shop/eu/orders", "a")
        await admin.snapshot()

    async def after(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_subscription("shop/eu/orders", "b")
        await refused(
            LimitReached,
            lambda: admin.create_subscription("shop/eu/orders", "c"),
            "2 subscriptions, the most that subscriptions_max",
        )
        await admin.delete_subscription("shop/eu/orders", "a")
        await admin.create_subscription("shop/eu/orders", "c")
        await refused(
            LimitReached, lambda: admin.create_partitioned_topic("shop/eu/parted", 3), "2 topics, and 3 more"
        )
        assert not [each for each in admin.topics() if "parted" in each], "a part of a refused topic"
        await admin.create_partitioned_topic("shop/eu/parted", 2)
        await refused(LimitReached, lambda: admin.create_topic("shop/eu/more"), "4 topics, and 1 more")
        await admin.delete_topic("shop/eu/bills")
        await admin.create_topic("shop/eu/more")
        await admin.create_topic("elsewhere")  # another namespace

    alone(before, after, power=power)


def sizes_are_limited() -> None:
    """A message that is too large is refused; the topic goes on."""

    async def life(broker: Broker) -> None:
        await broker.admin.create_topic("orders", message_bytes_max=100)
        async with broker.producer("orders") as producer:
            await producer.send(b"x" * 100)
            await refused(Misuse, lambda: producer.send(b"x" * 101), "message_bytes_max allows 100")
            await refused(
                Misuse, lambda: producer.send_many([b"x", b"x" * 101, b"x"]), "Nothing was published"
            )
            assert broker.admin.topic_stats("orders").entries == 1
            await broker.admin.set_policies("orders", message_bytes_max=None)
            await producer.send(b"x" * 101)

    alone(life)


# -- unacknowledged messages ---------------------------------------------------------------------------


async def taken(consumer: Consumer, seconds: float = 0.5) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found += await consumer.receive_many(1000, timeout=seconds)
        except Timeout:
            return found


def unacknowledged_are_limited(power: bool = False) -> None:
    """A consumer at its limit gets nothing until it acknowledges, or the limit is lifted."""

    async def look(broker: Broker) -> None:
        admin = broker.admin
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(broker.consumer("orders", "billing", type="shared"))
            held = await taken(one)
            assert len(held) == 5, len(held)
            two = await stack.enter_async_context(broker.consumer("orders", "billing", type="shared"))
            more = await taken(two)
            assert len(more) == 3, len(more)  # 8 of both
            shown = admin.subscription_stats("orders", "billing").diagnosis
            assert shown == "", shown
            await one.ack_many(held[:2])
            found = len(await taken(one)) + len(await taken(two))
            assert found == 2, found
            await admin.set_policies("orders", unacked_max=0, subscription_unacked_max=0)
            found = len(await taken(one)) + len(await taken(two))
            assert found == 32, found  # all others
        await admin.set_policies("orders", unacked_max=None, subscription_unacked_max=8)

    async def before(broker: Broker) -> None:
        await broker.admin.create_topic("orders", subscription_unacked_max=8)
        await broker.admin.create_subscription("orders", "billing")
        async with broker.producer("orders") as producer:
            for number in range(42):
                await producer.send(b"%d" % number)
        await look(broker)
        async with broker.consumer("orders", "billing", type="shared") as consumer:
            assert len(await taken(consumer)) == 5
        await broker.settle()

    async def after(broker: Broker) -> None:
        async with broker.consumer("orders", "billing", type="shared") as consumer:
            assert len(await taken(consumer)) == 5, "the limit does not survive"

    alone(before, after, power=power, unacked_max=5)


MESSAGES = 120
HELD = 10
"""Unacknowledged messages of the subscription; each other member may hold one more."""


def members_share_what_is_unacknowledged(type_: SubscriptionType) -> None:
    """Consumers of three members hold together what their subscription may hold, and rest then.

    All messages arrive once, also if one member is much slower, and one dies with what it holds.
    """

    async def work(trio: Trio) -> None:
        await trio.brokers[1].admin.set_policies("orders", subscription_unacked_max=HELD)
        async with AsyncExitStack() as stack:
            consumers = {number: trio.consumer(number, type_, receiver_queue=50) for number in (1, 2, 3)}
            for number in (1, 2):
                await stack.enter_async_context(consumers[number])
            await consumers[3].open()
            async with trio.brokers[1].producer("orders") as producer:
                for number in range(MESSAGES):
                    await producer.send(b"%d" % number, key=f"k{number % 37}")
            await trio.settle(3)
            quiet = trio.brokers[1].machine.log.next_d
            await trio.settle(10)
            assert trio.brokers[1].machine.log.next_d == quiet, "the members send while all wait"
            await within(trio)
            trio.crash(3)
            seen: list[int] = []
            turns = [consume(trio, consumers[1], seen, 0.2), consume(trio, consumers[2], seen, 0.01)]
            async with asyncio.timeout(120):
                await asyncio.gather(*turns)
            assert sorted(seen) == list(range(MESSAGES))

    scene(work)


async def within(trio: Trio) -> None:
    held = [trio.dispatcher(number).stats().pending_entries for number in trio.brokers]
    assert HELD <= sum(held) <= HELD + len(held) - 1, f"{held} messages, of {HELD}"


async def consume(trio: Trio, consumer: Consumer, seen: list[int], pause_s: float) -> None:
    while len(seen) < MESSAGES:
        try:
            messages = await consumer.receive_many(3, timeout=0.3)
        except Timeout:
            continue
        held = sum(trio.dispatcher(number).stats().pending_entries for number in trio.brokers)
        assert held <= HELD + len(trio.brokers) - 1, held
        await asyncio.sleep(pause_s)
        seen += [message.ordinal for message in messages]
        await consumer.ack_many(messages)
