"""Deliver the open entries of a claim after its end, and no others again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker import Broker
from holdfast.broker.api.consumer import Consumer
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.events import Event, Move
from holdfast.ids import MessageId
from tests.kit.broker.brokers import on_broker

TYPES: list[Any] = ["shared", "key_shared", "failover", "exclusive"]


async def receive(consumer: Consumer, count: int) -> list[bytes]:
    """Receive and acknowledge so many messages."""
    found: list[bytes] = []
    while len(found) < count:
        messages = await consumer.receive_many(count - len(found), timeout=5)
        await consumer.ack_many(messages, receipt=True)
        found += [message.data for message in messages]
    return found


async def batches(broker: Broker, type_: Any) -> Dispatcher:
    """Publish three batches of three messages; return the dispatcher that will read them."""
    admin = broker.admin
    for name in ("work", "morgue"):
        await admin.create_topic(name)
        await admin.create_subscription(name, "s")
    await admin.create_exchange("dead", "fanout")
    await admin.bind("dead", "morgue")
    await admin.set_alternate("work", "dead")
    async with broker.consumer("work", "s", type=type_):
        (dispatcher,) = broker.topic("persistent://public/default/work").served
    async with broker.producer("work", batch=3) as p:
        await p.send_many([b"%d" % at for at in range(9)])
    return dispatcher


class Held:
    """Delays the outcomes of moves until the test allows them, as a slow disk."""

    def __init__(self, broker: Broker, patch: pytest.MonkeyPatch) -> None:
        self.sent, self.known = asyncio.Event(), asyncio.Event()
        self._submit = broker.engine.submit
        patch.setattr(broker.engine, "submit", self.submit)

    def submit(self, event: Event) -> asyncio.Future[Any]:
        done = self._submit(event)
        if not isinstance(event, Move):
            return done
        self.sent.set()
        return asyncio.ensure_future(self.late(done))

    async def late(self, done: asyncio.Future[Any]) -> Any:
        await self.known.wait()
        return await done


async def take(broker: Broker) -> object:
    return await broker.admin.take("work", "s")


async def reject(broker: Broker) -> object:
    at = (await broker.admin.peek("work", "s"))[0].id
    return await broker.admin.reject("work", "s", MessageId(at.ledger, at.entry, 0))


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("call", [take, reject])
def test_the_rest_of_a_batch_is_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_: Any, call: Callable[[Broker], Awaitable[object]]
) -> None:
    """One message of a batch is taken, while a consumer reads what is behind it."""

    async def work(broker: Broker) -> None:
        await batches(broker, type_)
        held = Held(broker, monkeypatch)
        calling = asyncio.ensure_future(call(broker))
        await held.sent.wait()
        async with broker.consumer("work", "s", type=type_) as c:
            assert await receive(c, 6) == [b"%d" % at for at in range(3, 9)]
            held.known.set()
            assert await calling
            assert await receive(c, 2) == [b"1", b"2"]

    on_broker(tmp_path, work)


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("type_", TYPES)
def test_a_claim_without_an_effect(tmp_path: Path, type_: Any, refused: bool) -> None:
    async def work(broker: Broker) -> None:
        dispatcher = await batches(broker, type_)
        let_go = dispatcher.claims.hold([1])
        async with broker.consumer("work", "s", type=type_) as c:
            assert await receive(c, 6) == [b"0", b"1", b"2", b"6", b"7", b"8"]
            let_go(refused)
            assert await receive(c, 3) == [b"3", b"4", b"5"]
            dispatcher.check()

    on_broker(tmp_path, work)


@pytest.mark.parametrize("type_", TYPES)
def test_a_claim_ends_before_reads_have_passed_it(tmp_path: Path, type_: Any) -> None:
    """Nothing is read again."""

    async def work(broker: Broker) -> None:
        dispatcher = await batches(broker, type_)
        before = dispatcher.rewinds
        dispatcher.claims.hold([0, 2])(False)
        assert dispatcher.rewinds == before
        async with broker.consumer("work", "s", type=type_) as c:
            assert await receive(c, 9) == [b"%d" % at for at in range(9)]

    on_broker(tmp_path, work)


def test_a_refused_claim_leaves_other_consumers_alone(tmp_path: Path) -> None:
    """Messages that a consumer holds go to no other one."""

    async def work(broker: Broker) -> None:
        dispatcher = await batches(broker, "shared")
        async with (
            broker.consumer("work", "s", type="shared", receiver_queue=1) as one,
            broker.consumer("work", "s", type="shared", receiver_queue=1) as two,
        ):
            await asyncio.gather(one.receive(timeout=5), two.receive(timeout=5))
            holders = [dispatcher._table.holder_of(each) for each in (0, 1)]
            assert all(holders)
            before = dispatcher.rewinds
            dispatcher.claims.hold([1])(True)
            assert dispatcher._table.holder_of(0) == holders[0]
            assert dispatcher.rewinds == before

    on_broker(tmp_path, work)


def test_a_cancelled_call_keeps_its_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its event is under way: no consumer gets what it takes."""

    async def work(broker: Broker) -> None:
        dispatcher = await batches(broker, "shared")
        held = Held(broker, monkeypatch)
        calling = asyncio.ensure_future(broker.admin.move("work", "s", "morgue", 1))
        await held.sent.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        assert calling.cancelled()
        claimed = dispatcher._acking._flying[0].ranges
        assert claimed == [(0, 1)], "the claim holds until the outcome is known"
        held.known.set()
        async with broker.consumer("work", "s", type="shared") as c:
            assert await receive(c, 6) == [b"%d" % at for at in range(3, 9)]
        assert not dispatcher._acking._flying

    on_broker(tmp_path, work)
