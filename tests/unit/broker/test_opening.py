"""A consumer, reader or producer that fails to open leaves nothing behind."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker import Broker, Topic
from holdfast.broker.api.consumer import Consumer, Inbox
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.engine import Engine
from holdfast.broker.events import ProducerClose, SubscriptionDelete
from holdfast.broker.options import shown
from holdfast.errors import Busy, Misuse, NotFound
from tests.kit.broker.brokers import on_broker
from tests.kit.broker.ghosts import must_be_free

BAD: dict[str, dict[str, Any]] = {
    "no number": {"ack_timeout": float("nan")},
    "without end": {"ack_timeout": float("inf")},
    "below zero": {"ack_timeout": -1.0},
    "zero": {"ack_timeout": 0.0},
    "a century": {"ack_timeout": 4e9},
    "low priority": {"priority": 1 << 31},
    "high priority": {"priority": -(1 << 40)},
    "no priority": {"priority": "first"},
}
TYPES = ("exclusive", "failover", "shared")


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("durable", [True, False])
def test_a_refused_option_leaves_no_ghost(tmp_path: Path, type_: Any, durable: bool) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("orders")
        for options in BAD.values():
            consumer = broker.consumer("orders", "billing", type=type_, durable=durable, **options)
            with pytest.raises(Misuse):
                await consumer.open()
            await must_be_free(broker, type_, durable)

    on_broker(tmp_path, work)


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("durable", [True, False])
def test_a_failure_behind_the_join_leaves_no_ghost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_: Any, durable: bool
) -> None:
    """Wherever it fails: before it has a place in the tables, and behind it."""

    def fails(*_: Any) -> None:
        raise RuntimeError("a failure of the test")

    async def work(broker: Broker) -> None:
        for where, name in ((Dispatcher, "_enrol"), (Inbox, "attach"), (Inbox, "active")):
            with monkeypatch.context() as patch:
                patch.setattr(where, name, fails)
                consumer = broker.consumer("orders", "billing", type=type_, durable=durable)
                if where is Inbox and name == "active" and type_ == "shared":
                    continue  # all of them are served: none is told so
                with pytest.raises(RuntimeError):
                    await consumer.open()
            await must_be_free(broker, type_, durable)

    on_broker(tmp_path, work)


def test_a_consumer_beside_others_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The active consumer of a failover subscription stays active."""

    async def work(broker: Broker) -> None:
        async with broker.consumer("orders", "billing", type="failover", priority=1) as c:
            with monkeypatch.context() as patch:
                patch.setattr(Inbox, "attach", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    await broker.consumer("orders", "billing", type="failover", priority=0).open()
            async with broker.producer("orders") as p:
                await p.send(b"nails")
            assert (await c.receive(timeout=1)).data == b"nails"
            assert c.active
            dispatch = broker.admin.subscription_stats("orders", "billing").dispatch
            assert dispatch is not None
            assert len(dispatch.consumers) == 1

    on_broker(tmp_path, work)


def test_a_reader_that_fails_leaves_no_dispatcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("orders")
        (topic,) = broker.topics.values()
        monkeypatch.setattr(Inbox, "attach", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await broker.reader("orders").open()
        assert not topic.dispatchers
        assert broker.metrics()

    on_broker(tmp_path, work)


def test_a_subscription_that_goes_while_it_is_joined(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_subscription("orders", "billing")
        (topic,) = broker.topics.values()
        subscription = topic.state.subscriptions["billing"]
        opening = asyncio.ensure_future(broker.consumer("orders", "billing").open())
        await asyncio.sleep(0)  # its event is in the frame
        deleted = broker.engine.submit(SubscriptionDelete(subscription.id, force=True))
        with pytest.raises(NotFound):
            await opening
        await deleted
        assert not topic.dispatchers
        assert broker.metrics()

    on_broker(tmp_path, work)


def test_a_subscription_that_goes_while_it_is_created_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker) -> None:
        topic = await broker.ensure_topic("orders")
        create, deletes = broker.create_subscription_at, 2

        async def create_and_lose(*arguments: Any) -> None:
            nonlocal deletes
            await create(*arguments)
            if deletes:
                deletes -= 1
                await broker.admin.delete_subscription("orders", "billing")

        monkeypatch.setattr(broker, "create_subscription_at", create_and_lose)
        found = await broker.ensure_subscription(topic, "billing", "earliest", {"team": "ledger"})
        assert topic.subscriptions["billing"] is found
        assert found.properties == {"team": "ledger"}
        assert not deletes

    on_broker(tmp_path, work)


def test_a_topic_that_goes_while_its_subscription_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker) -> None:
        topic = await broker.ensure_topic("orders")
        create = broker.create_subscription_at

        async def create_and_lose(*arguments: Any) -> None:
            await create(*arguments)
            await broker.admin.delete_topic("orders", force=True)

        monkeypatch.setattr(broker, "create_subscription_at", create_and_lose)
        with pytest.raises(NotFound, match="no topic"):
            await broker.ensure_subscription(topic, "billing", "earliest")

    on_broker(tmp_path, work)


def test_two_that_open_a_volatile_subscription_at_once_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Topic.place

    async def slowly(self: Topic, to: Any) -> int:
        await asyncio.sleep(0)
        return await place(self, to)

    async def work(broker: Broker) -> None:
        monkeypatch.setattr(Topic, "place", slowly)
        await broker.admin.create_topic("orders")
        (topic,) = broker.topics.values()
        both = [broker.consumer("orders", "v", type="shared", durable=False) for _ in range(2)]
        await asyncio.gather(*(each.open() for each in both))
        assert len(topic.dispatchers) == 1
        for each in both:
            await each.close()
        assert not topic.dispatchers
        assert not topic.volatile

    on_broker(tmp_path, work)


def test_nobody_opens_twice(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.consumer("orders", "billing", type="shared") as c, broker.producer("orders") as p:
            sessions = len(broker.machine.state.sessions)
            with pytest.raises(Misuse, match="is open"):
                await c.open()
            with pytest.raises(Misuse, match="is open"):
                await p.open()
            assert len(broker.machine.state.sessions) == sessions
            async with broker.reader("orders") as r:
                with pytest.raises(Misuse, match="is open"):
                    await r.open()
        await must_be_free(broker, "exclusive", durable=True)

    on_broker(tmp_path, work)


def test_a_busy_subscription_stays_as_it_is(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.consumer("orders", "billing") as c:
            with pytest.raises(Busy):
                await broker.consumer("orders", "billing").open()
            async with broker.producer("orders") as p:
                await p.send(b"nails")
            await c.ack(await c.receive(timeout=1), receipt=True)
        await must_be_free(broker, "failover", durable=True)

    on_broker(tmp_path, work)


# -- the faults, brought back ---------------------------------------------------------------------------


async def open_without_undoing(self: Consumer) -> None:
    """A mutant: the join stays when what follows it fails."""
    broker = self._broker
    self._topic = topic = await broker.ensure_topic(self._topic_name)
    subscription = await broker.ensure_subscription(topic, self.subscription, self._start)
    self._session = await broker.sessions.join(subscription, "ghost", self.type, self._priority)
    self._attach(broker.dispatcher(topic, subscription))


def add_without_undoing(self: Dispatcher, *_: Any, **__: Any) -> int:
    """A mutant: the consumer stays in the tables when a later step fails."""
    self._table.add(0)
    raise RuntimeError("a failure of the test")


def test_the_faults_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Consumer, "open", open_without_undoing)
        with pytest.raises(AssertionError, match="sessions without a consumer"):
            test_a_failure_behind_the_join_leaves_no_ghost(tmp_path / "1", patch, "exclusive", durable=True)
    with monkeypatch.context() as patch:
        patch.setattr(Dispatcher, "add_consumer", add_without_undoing)
        with pytest.raises(KeyError):  # the stats look for a consumer that is not there
            test_a_failure_behind_the_join_leaves_no_ghost(tmp_path / "2", patch, "shared", durable=True)


def test_a_producer_whose_turn_comes_when_it_has_given_up(tmp_path: Path) -> None:
    """Close the attached producer and cancel the one that waits, at the same time."""

    async def work(broker: Broker) -> None:
        holder = broker.producer("orders", access="exclusive")
        await holder.open()
        (topic,) = broker.topics.values()
        waiter = asyncio.create_task(broker.producer("orders", access="wait-for-exclusive").open())
        while not broker.sessions.waiting:
            await asyncio.sleep(0.001)
        broker.engine.submit(ProducerClose(holder._session))
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        await broker.engine.settle()
        assert not topic.state.producers
        assert not broker.sessions.waiting, "a producer still waits"
        holder._session = 0

    on_broker(tmp_path, work)


async def close_again_and_again(path: Path) -> None:
    for turns in (1, 2, 5):
        broker = await Broker.open(path).__aenter__()
        assert broker.recovered.clean or broker.recovered.fresh, "the close before was not done to its end"
        await broker.admin.create_topic(f"t{turns}")  # something that a next life would have to recover
        closing = asyncio.ensure_future(broker.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await broker.close()


def test_a_close_that_is_cancelled_goes_on(tmp_path: Path) -> None:
    """A cancelled close continues; the next call waits for its end."""
    asyncio.run(close_again_and_again(tmp_path))


def test_a_close_that_ends_with_its_caller_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former fault: a cancelled close stops half-way, and the directory needs recovery."""
    begun: list[Broker] = []

    async def close(self: Broker) -> None:
        if self not in begun:
            begun.append(self)
            await self._close()

    async def slow(self: Engine) -> None:
        """Take more turns of the loop than the caller waits, so that it is cancelled."""
        for _ in range(50):
            await asyncio.sleep(0)
        await settle(self)

    async def main() -> None:
        with pytest.raises(AssertionError, match="not done to its end"):
            await close_again_and_again(tmp_path)

    settle = Engine.settle
    monkeypatch.setattr(Engine, "settle", slow)
    monkeypatch.setattr(Broker, "close", close)
    asyncio.run(main())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("roll_bytes", "64M"), ("roll_entries", "5"), ("journal_bytes", 1.5), ("snapshot_s", "60"),
        ("skip_damaged", "no"), ("deduplication", 1), ("unacked_max", True), ("sync", "sometimes"),
        ("cluster", None), ("cluster", "a\nb"), ("cluster", "a" * 1024), ("journal_bytes", 20_000),
    ],
)  # fmt: skip
def test_an_option_that_is_not_possible_is_refused(tmp_path: Path, option: str, value: object) -> None:
    """Accepted, it stopped the broker at its first send, or meant the opposite."""
    refused = pytest.raises(Misuse, match=f"the option {option} is {re.escape(shown(value))}; use ")
    with refused, Broker.open(tmp_path / "data", **{option: value}):
        pass
    assert not (tmp_path / "data").exists()


def test_a_consumer_that_is_refused_leaves_no_subscription(tmp_path: Path) -> None:
    """Neither does an invalid start position."""
    bad: list[dict[str, Any]] = [
        {"type": "keyshared"}, {"receiver_queue": 1.5}, {"start": "nowhere"}, {"start": "1:0"},
        {"start": None},
    ]  # fmt: skip

    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("t")
        for options in bad:
            with pytest.raises(Misuse, match=re.escape(str(next(iter(options.values()))))):
                async with broker.consumer("t", "s", **options):
                    pass
            assert not broker.admin.subscriptions("t"), options
        async with broker.consumer("t", "s") as c:
            with pytest.raises(Misuse, match="'9:9' is not a place in a topic"):
                await c.seek("9:9")  # type: ignore[arg-type]

    on_broker(tmp_path, work)
