"""Scenes on three brokers: members ask an owner to acknowledge and to move."""

from __future__ import annotations

import asyncio

from holdfast._core import TopicMessage
from holdfast.broker.events import AckOffered, Notice
from holdfast.errors import Outdated
from tests.kit.broker.trio import Trio, scene


async def content(trio: Trio, topic: str) -> list[bytes]:
    """Return all messages of a topic, as a reader of the third broker sees them."""
    found: list[TopicMessage] = []
    async with trio.brokers[3].reader(topic, start="earliest") as reader:
        while await reader.has_more():
            found += await reader.receive_many(1000, timeout=0.5)
    return [message.data for message in found]


def offered() -> None:
    """Acknowledge elsewhere what the owner has delivered since a reset: 0 to 4."""

    async def work(trio: Trio) -> None:
        async with (
            trio.consumer(1, "failover", receiver_queue=5) as one,
            trio.consumer(2, "failover", priority=1),
        ):
            await trio.publish(1, 10)
            await trio.take(one)
            await one.seek("earliest")
            await trio.settle()
            owner, other = trio.dispatcher(1), trio.dispatcher(2)
            assert (trio.owner(), owner.stats().pending_entries, other.reset_number) == (1, 5, 1)
            receipt = other.ack_ranges([(0, 2)], 1, receipt=True)
            assert receipt is not None
            await receipt
            assert other.acked_to == 2, "the state has it when the receipt is done"
            assert owner.stats().pending_entries == 3, "the owner follows"
            receipt = other.ack_ranges([(3, 8)], 1, receipt=True)
            assert receipt is not None
            try:
                await receipt
                refused = False
            except Outdated:
                refused = True
            await trio.settle()
            acks = trio.brokers[3].admin._topic("orders").subscriptions["billing"].acks
            assert [acks.is_acked(at) for at in range(10)] == [True] * 2 + [False, True, True] + [False] * 5
            assert refused, "5 to 7 were not delivered since the reset"
            taken = await trio.take(one)
            assert {each.ordinal for each in taken} >= {5, 6, 7, 8, 9}, "what was refused is delivered"

    scene(work)


def offers_of_one_turn() -> None:
    """Offer many times in a turn, with and without receipts: one event."""

    async def work(trio: Trio) -> None:
        async with trio.consumer(1, "failover") as one, trio.consumer(2, "failover", priority=1):
            async with trio.brokers[1].producer("orders", batch=4) as producer:
                await producer.send_many([b"%d" % at for at in range(40)])
            await trio.take(one)
            await one.seek("earliest")
            await trio.settle()
            seen: list[Notice] = []
            trio.brokers[3].watchers.append(lambda notices: seen.extend(notices))
            other = trio.dispatcher(2)
            receipts = [other.ack_ranges([(at, at + 1)], 1, receipt=at % 2 == 0) for at in range(5)]
            receipts.append(other.ack_all_but(5, 0b1000, 1, receipt=True))
            receipts.append(other.ack_all_but(5, 0b1100, 1, receipt=True))
            await asyncio.gather(*(each for each in receipts if each is not None))
            acks = trio.brokers[2].admin._topic("orders").subscriptions["billing"].acks
            assert (acks.acked_to, acks.bits_of(5)) == (5, 0b1000)
            await trio.settle()
            assert len([each for each in seen if isinstance(each, AckOffered)]) == 1
            other.ack_ranges([(6, 7)], 1)
            await trio.settle()
            assert acks.is_acked(6), "without a receipt, too"

    scene(work)


def moved_at_the_owner() -> None:
    """Ask another member for moves, takes and rejects: what consumers hold stays with them."""

    async def work(trio: Trio) -> None:
        two, three = trio.brokers[2].admin, trio.brokers[3].admin
        await two.create_topic("other", retention_bytes=-1)
        await two.create_exchange("dead", kind="fanout")
        await two.bind("dead", "other")
        await two.set_alternate("orders", "dead", "billing")
        async with trio.consumer(1, receiver_queue=5) as one:
            await trio.publish(1, 20)
            message = await three.take("orders", "billing")
            assert message is not None
            assert (message.ordinal, message.data, message.topic) == (5, b"5", trio.dispatcher(1)._topic.name)
            assert await two.move("orders", "billing", "other", count=3) == 3, "6, 7 and 8"
            topic = two._topic("orders")
            assert await three.reject("orders", "billing", topic.id_of(10)) is True
            assert await two.reject("orders", "billing", topic.id_of(10)) is False
            assert await three.move("orders", "billing", "other") == 10, "9, and 11 to 19"
            assert await two.take("orders", "billing") is None, "one holds the rest"
            await trio.settle()
            assert trio.dispatcher(1).stats().pending_entries == 5
            assert sorted(await content(trio, "other"), key=int) == [b"%d" % at for at in range(6, 20)]
            assert [each.ordinal for each in await trio.take(one)] == [0, 1, 2, 3, 4]

    scene(work)


def moved_beside_deliveries() -> None:
    """Move at other members while consumers of two members receive: each message goes one way."""

    async def work(trio: Trio) -> None:
        await trio.brokers[3].admin.create_topic("other", retention_bytes=-1)
        got: list[bytes] = []
        async with trio.consumer(1, receiver_queue=3) as one, trio.consumer(2, receiver_queue=3) as two:
            await trio.publish(3, 120)

            async def receive(number: int) -> None:
                for _ in range(8):
                    got.extend(each.data for each in await trio.take((one, two)[number]))

            async def move(number: int) -> int:
                moved = 0
                for _ in range(10):
                    moved += await trio.brokers[number].admin.move("orders", "billing", "other", count=4)
                    await asyncio.sleep(0.02)
                return moved

            counts = await asyncio.gather(move(1), move(2), move(3), receive(0), receive(1))
            moved = await content(trio, "other")
            assert len(moved) == sum(each or 0 for each in counts)
            assert sorted([*got, *moved], key=int) == [b"%d" % at for at in range(120)]
            assert moved
            assert got

    scene(work)
