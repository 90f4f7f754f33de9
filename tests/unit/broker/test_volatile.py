"""The life of a volatile subscription: served, kept, ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.broker import Broker, Dispatcher, Topic
from holdfast.errors import NotFound
from tests.kit.broker.brokers import on_broker

Life = Callable[[Broker, Topic, Dispatcher], Awaitable[None]]


def live(path: Path, life: Life) -> None:
    """Run a life of the volatile subscription `v`, which begins at the topic's second message."""

    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p:
            ids = [await p.send(b"%d" % number) for number in range(3)]
        topic = await broker.ensure_topic("orders")
        await life(broker, topic, await broker.volatile.open(topic, "v", ids[1]))

    on_broker(path, work)


async def turns() -> None:
    """Give the loop some turns, in which a timer of no time is due."""
    for _ in range(5):
        await asyncio.sleep(0)


async def require_ended(broker: Broker, topic: Topic, dispatcher: Dispatcher) -> None:
    assert not topic.volatile
    assert not topic.dispatchers
    assert not broker.volatile.kept
    assert broker.volatile.find(topic, "v") is None
    fresh = await broker.volatile.open(topic, "v", "earliest")
    assert fresh is not dispatcher, "an ended subscription is served"
    broker.volatile.release(topic, fresh)


def test_it_ends_with_its_last_consumer(tmp_path: Path) -> None:
    async def life(broker: Broker, topic: Topic, dispatcher: Dispatcher) -> None:
        consumers = [broker.consumer("orders", "v", type="shared", durable=False) for _ in range(2)]
        for each in consumers:
            await each.open()
        await consumers[0].close()
        assert topic.volatile == {"v": dispatcher}
        await consumers[1].close()
        await require_ended(broker, topic, dispatcher)

    live(tmp_path, life)


def test_it_is_kept_with_its_position_until_it_is_found(tmp_path: Path) -> None:
    async def life(broker: Broker, topic: Topic, dispatcher: Dispatcher) -> None:
        broker.volatile.release(topic, dispatcher, keep_s=0.0)
        assert broker.volatile.kept == 1
        assert broker.volatile.find(topic, "v") is dispatcher
        assert not broker.volatile.kept
        await turns()
        assert topic.volatile == {"v": dispatcher}, "it ended although it was found"
        async with broker.consumer("orders", "v", durable=False, start="earliest") as c:
            assert (await c.receive(timeout=1)).data == b"1"
        await require_ended(broker, topic, dispatcher)

    live(tmp_path, life)


def test_an_embedded_consumer_finds_one_that_is_kept(tmp_path: Path) -> None:
    async def life(broker: Broker, topic: Topic, dispatcher: Dispatcher) -> None:
        broker.volatile.release(topic, dispatcher, keep_s=60.0)
        async with broker.consumer("orders", "v", durable=False, start="earliest") as c:
            assert not broker.volatile.kept, "its time would run out while it is served"
            assert (await c.receive(timeout=1)).data == b"1"
        await require_ended(broker, topic, dispatcher)

    live(tmp_path, life)


def test_it_ends_when_its_time_is_up(tmp_path: Path) -> None:
    async def life(broker: Broker, topic: Topic, dispatcher: Dispatcher) -> None:
        broker.volatile.release(topic, dispatcher, keep_s=0.0)
        assert topic.volatile == {"v": dispatcher}
        await turns()
        await require_ended(broker, topic, dispatcher)

    live(tmp_path, life)


def test_a_release_at_once_ends_one_that_is_kept(tmp_path: Path) -> None:
    async def life(broker: Broker, topic: Topic, dispatcher: Dispatcher) -> None:
        broker.volatile.release(topic, dispatcher, keep_s=60.0)
        broker.volatile.release(topic, dispatcher)
        await require_ended(broker, topic, dispatcher)

    live(tmp_path, life)


def test_a_release_spares_consumers_and_durable_subscriptions(tmp_path: Path) -> None:
    async def life(broker: Broker, topic: Topic, dispatcher: Dispatcher) -> None:
        durable = await broker.ensure_subscription(topic, "d", "earliest")
        async with broker.consumer("orders", "v", durable=False):
            for keep_s in (None, 0.0):
                broker.volatile.release(topic, dispatcher, keep_s)
                broker.volatile.release(topic, broker.dispatcher(topic, durable), keep_s)
            await turns()
            assert not broker.volatile.kept
            assert topic.volatile == {"v": dispatcher}
            assert durable.id in topic.dispatchers

    live(tmp_path, life)


def test_a_close_of_the_broker_leaves_no_timer(tmp_path: Path) -> None:
    found: list[Broker] = []

    async def life(broker: Broker, topic: Topic, dispatcher: Dispatcher) -> None:
        found.append(broker)
        broker.volatile.release(topic, dispatcher, keep_s=60.0)

    live(tmp_path, life)
    assert not found[0].volatile.kept


def test_none_is_opened_of_a_topic_that_is_gone(tmp_path: Path) -> None:
    async def life(broker: Broker, topic: Topic, dispatcher: Dispatcher) -> None:
        broker.volatile.release(topic, dispatcher)
        await broker.admin.delete_topic("orders", force=True)
        with pytest.raises(NotFound, match="was deleted"):
            await broker.volatile.open(topic, "v", "earliest")

    live(tmp_path, life)
