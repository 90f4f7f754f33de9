"""Three brokers hand a subscription over, step by step: what consumers see of it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.broker.dispatch.types import Reason
from holdfast.errors import Fenced, Outdated
from tests.kit.broker.trio import Trio, returned_elsewhere, scene


def test_the_active_consumer_is_at_the_owner() -> None:
    """Failover: a better consumer at another member takes over, and gets everything open in order."""

    async def work(trio: Trio) -> None:
        async with trio.consumer(1, "failover", priority=1) as one:
            await trio.publish(1, 10)
            taken = await trio.take(one)
            await one.ack_many(taken[:3], receipt=True)
            async with trio.consumer(2, "failover", priority=1) as two:
                await trio.settle()
                assert (one.active, two.active, trio.owner()) == (True, False, 1)
            async with trio.consumer(3, "failover", priority=0) as three:
                again = await trio.take(three)
                assert (one.active, three.active, trio.owner()) == (False, True, 3)
                assert [message.ordinal for message in again] == list(range(3, 10))
                assert {message.redelivery_count for message in again} == {1}, "counts travel"
                await one.ack(taken[3], receipt=True)
                await three.ack_cumulative(again[-1], receipt=True)
                assert await trio.take(one) == []
            await trio.publish(2, 1)
            assert [message.ordinal for message in await trio.take(one)] == [10], "the best one left"

    scene(work)


def test_members_of_a_shared_subscription_take_turns() -> None:
    """Each entry goes to one consumer, on whichever member; what comes back goes to any."""

    async def work(trio: Trio) -> None:
        async with trio.consumer(1, receiver_queue=8) as one, trio.consumer(2, receiver_queue=8) as two:
            await trio.publish(3, 60)
            taken: dict[int, list[int]] = {1: [], 2: []}
            for _ in range(12):
                for number, consumer in ((1, one), (2, two)):
                    messages = await trio.take(consumer) if len(taken[number]) < 30 else []
                    taken[number] += [message.ordinal for message in messages]
            assert sorted(taken[1] + taken[2]) == list(range(60))
            assert taken[1]
            assert taken[2]

    scene(work)


def test_what_a_consumer_elsewhere_gives_back_is_delivered_again() -> None:
    returned_elsewhere()


def test_a_dead_owner_s_messages_are_delivered_again() -> None:
    async def work(trio: Trio) -> None:
        one = trio.consumer(1)
        await one.open()
        await trio.publish(2, 10)
        held = await trio.take(one)
        assert len(held) == 10
        await one.ack_many(held[:4], receipt=True)
        async with trio.consumer(2) as two:
            await trio.settle()
            assert await trio.take(two) == [], "a consumer of a living member holds them"
            trio.crash(1)
            taken = await trio.take(two)
            assert [message.ordinal for message in taken] == list(range(4, 10))
            assert trio.owner() == 2

    scene(work)


def test_a_reset_of_any_member_reaches_all() -> None:
    async def work(trio: Trio) -> None:
        async with trio.consumer(1) as one, trio.consumer(2) as two:
            await trio.publish(1, 10)
            before = [*await trio.take(one), *await trio.take(two)]
            assert len(before) == 10
            await trio.brokers[3].admin.reset("orders", "billing", "earliest")
            await trio.settle()
            for consumer in (one, two):
                with pytest.raises(Outdated):
                    await consumer.ack_many(before, receipt=True)
            after = [*await trio.take(one), *await trio.take(two)]
            assert sorted(message.ordinal for message in after) == list(range(10))

    scene(work)


def test_acknowledgements_at_another_member() -> None:
    """One by one at any member; up to an entry only where it was delivered."""

    async def work(trio: Trio) -> None:
        async with trio.consumer(1, "failover") as one, trio.consumer(2, "failover"):
            await trio.publish(1, 10)
            assert len(await trio.take(one)) == 10
            elsewhere, here = trio.dispatcher(2), trio.dispatcher(1)
            receipt = elsewhere.ack_up_to(4, 0, receipt=True)
            assert receipt is not None
            with pytest.raises(Fenced, match="another member"):
                await receipt
            receipt = elsewhere.ack_ranges([(0, 3)], 0, receipt=True)
            assert receipt is not None
            await receipt
            await trio.settle()
            assert here.stats().pending_entries == 7, "the owner follows"
            receipt = here.ack_up_to(9, 0, receipt=True)
            assert receipt is not None
            await receipt

    scene(work)


def test_an_acknowledgement_after_a_reset_and_a_move() -> None:
    """I58: a client moves to another member with what it received since a reset."""

    async def work(trio: Trio) -> None:
        one = trio.consumer(1, "failover")
        await one.open()
        await trio.publish(1, 10)
        await one.seek("earliest")
        assert len(await trio.take(one)) >= 10
        await one.close()
        await trio.settle()
        elsewhere = trio.dispatcher(2)
        async with trio.consumer(2, "failover"):
            receipt = elsewhere.ack_ranges([(0, 4)], 1, receipt=True)
            assert receipt is not None
            await receipt
            assert elsewhere.acked_to == 4

    scene(work)


def test_the_stats_name_the_owner() -> None:
    async def work(trio: Trio) -> None:
        async with trio.consumer(1, "failover"), trio.consumer(2, "failover", priority=1):
            await trio.publish(1, 1)
            stats = trio.brokers[2].admin.subscription_stats("orders", "billing")
            assert stats.dispatch is not None
            assert stats.owner == stats.dispatch.owner == str(trio.brokers[1].group.member)
            assert stats.dispatch.standing == "other"
            assert stats.dispatch.diagnosis.reason == Reason.OWNED_ELSEWHERE
            assert stats.owner in stats.dispatch.diagnosis.text
            mine = trio.brokers[1].admin.subscription_stats("orders", "billing").dispatch
            assert mine is not None
            assert (mine.standing, mine.members_waiting) == ("owner", ())

    scene(work)


def test_quiet_when_there_is_nothing_to_do() -> None:
    """Without messages, or without permits anywhere, no event is submitted."""

    async def work(trio: Trio) -> None:
        async with trio.consumer(1, receiver_queue=3), trio.consumer(2, receiver_queue=3):
            await trio.settle(1)
            quiet = trio.brokers[1].machine.log.next_d
            await asyncio.sleep(20)
            assert trio.brokers[1].machine.log.next_d == quiet, "no messages"
            await trio.publish(3, 30)
            await trio.settle(2)
            full = trio.brokers[1].machine.log.next_d
            await asyncio.sleep(20)
            assert trio.brokers[1].machine.log.next_d == full, "no permits"

    scene(work)


def test_an_exclusive_consumer_moves_to_another_member() -> None:
    async def work(trio: Trio) -> None:
        one = trio.consumer(1, "exclusive")
        await one.open()
        await trio.publish(1, 6)
        taken = await trio.take(one)
        await one.ack_cumulative(taken[1], receipt=True)
        await one.close()
        async with trio.consumer(3, "exclusive") as three:
            assert [message.ordinal for message in await trio.take(three)] == [2, 3, 4, 5]
            assert trio.owner() == 3

    scene(work)


def test_the_owner_tells_which_hashes_drain_elsewhere() -> None:
    """They wait for its consumer; the member whose consumer holds them tells the same."""

    async def work(trio: Trio) -> None:
        async with (
            trio.brokers[3].producer("orders") as producer,
            trio.consumer(1, "key_shared", name="one") as one,
        ):
            for n in range(20):
                await producer.send(b"1", key=f"key {n}")
            held = await trio.take(one)
            assert len(held) == 20
            async with trio.consumer(2, "key_shared", name="two") as two:
                for n in range(40):  # keys from 20 on are with no consumer
                    await producer.send(b"2", key=f"key {n}")
                got = [*await trio.take(one), *await trio.take(two)]
                await trio.settle()
                assert trio.owner() == 2, "the last turn is of the member with free keys"
                away = trio.dispatcher(2).keys_elsewhere()
                assert {(each.holder, each.waiting, each.blocked) for each in away} == {("node 1", "two", 0)}
                here = trio.dispatcher(1).key_stats()
                [mine] = here.values()
                assert {(each.hash, each.entries) for each in mine.draining} == {
                    (each.hash, each.entries) for each in away
                }
                assert trio.dispatcher(1).keys_elsewhere() == []
                text = trio.dispatcher(2).diagnose().text
                assert "waits until another member, node 1, has acknowledged" in text, text
                missing = 60 - 20 - len(got)
                assert missing == len(away) > 0
                await one.ack_many(held, receipt=True)
                assert len(await trio.take(two)) == missing
                assert trio.dispatcher(2).keys_elsewhere() == []

    scene(work)
