"""I64: overlapping sends under back-pressure are all stored, in the order of their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker import Broker
from holdfast.broker.api.producer import Producer
from holdfast.broker.engine import Engine, _Place
from holdfast.errors import Closed, HoldfastError
from holdfast.ids import MessageId
from tests.kit.broker.brokers import on_broker

COUNT = 120
SMALL = 400
"""Bytes under way before publishers wait: some two messages."""


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.broker.engine.UNDER_WAY_BYTES", SMALL)


async def stored(broker: Broker) -> list[bytes]:
    return [message.data for message in await broker.admin.examine("orders", "earliest", 10_000)]


async def overlapping(count: int, send: Callable[[int], Awaitable[Any]]) -> list[Any]:
    """Call it for each number in order, also while earlier calls wait or are woken."""
    tasks: list[asyncio.Task[Any]] = []

    async def one(number: int) -> Any:
        return await send(number)

    for number in range(count):
        tasks.append(asyncio.ensure_future(one(number)))
        if number % 4 == 3:
            await asyncio.sleep(0)
        if number % 16 == 15:  # a newcomer arrives in the moment in which others are woken
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return list(await asyncio.gather(*tasks))


def test_sends_are_stored_in_the_order_of_their_calls(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p:
            ids = await overlapping(COUNT, lambda number: p.send(b"%03d" % number))
        assert ids == sorted(ids)
        assert await stored(broker) == [b"%03d" % number for number in range(COUNT)]

    on_broker(tmp_path, work)


def test_with_explicit_sequences_what_is_confirmed_is_stored(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("orders", deduplication=True)
        async with broker.producer("orders", name="till") as p:
            ids = await overlapping(COUNT, lambda number: p.send(b"%03d" % number, sequence=number))
        assert MessageId(-1, -1) not in ids
        assert await stored(broker) == [b"%03d" % number for number in range(COUNT)]

    on_broker(tmp_path, work)


def test_long_calls_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of many runs waits between its runs; later calls wait until it ends."""
    monkeypatch.setattr("holdfast.broker.api.producer.RUN_BYTES", 2048)  # two messages a run

    async def send(p: Producer, number: int) -> list[MessageId]:
        at = 7 * number
        if number % 3 == 0:
            return [await p.send(b"%04d" % at, sequence=at)]
        return await p.send_many([b"%04d" % (at + each) for each in range(7)], sequence=at)

    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("orders", deduplication=True)
        async with broker.producer("orders", name="till") as p:
            told = await overlapping(30, lambda number: send(p, number))
        assert MessageId(-1, -1) not in [each for ids in told for each in ids]
        expected = [
            b"%04d" % (7 * number + each)
            for number in range(30)
            for each in range(1 if number % 3 == 0 else 7)
        ]
        assert await stored(broker) == expected

    on_broker(tmp_path, work)


def test_posts_keep_their_order(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p:
            await overlapping(COUNT, lambda number: p.post(b"%03d" % number))
            await p.flush()
        assert await stored(broker) == [b"%03d" % number for number in range(COUNT)]

    on_broker(tmp_path, work)


def test_who_gives_up_waiting_holds_up_nobody(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p:
            tasks = [asyncio.ensure_future(p.send(b"%03d" % number)) for number in range(COUNT)]
            await asyncio.sleep(0)
            for task in tasks[1::3]:
                task.cancel()
            told = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
            kept = [number for number, each in enumerate(told) if isinstance(each, MessageId)]
            found = [int(data) for data in await stored(broker)]
            assert found == sorted(found)
            assert set(kept) <= set(found)

    on_broker(tmp_path, work)


def test_producers_leave_the_room_in_the_order_of_their_calls(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders", name="a") as a, broker.producer("orders", name="b") as b:
            first = [asyncio.ensure_future((a, b)[number % 2].send(b"%03d" % number)) for number in range(40)]
            await asyncio.gather(*first)
        found = [int(data) for data in await stored(broker)]
        assert [number for number in found if number % 2 == 0] == [*range(0, 40, 2)]
        assert [number for number in found if number % 2] == [*range(1, 40, 2)]
        # Neither is served first: a producer's next call takes its place behind the other's.
        assert max(abs(at - number) for at, number in enumerate(found)) <= 2

    on_broker(tmp_path, work)


def test_a_producer_that_is_closed_meanwhile_tells_those_that_wait(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        p = broker.producer("orders")
        await p.open()
        tasks = [asyncio.ensure_future(p.send(b"%03d" % number)) for number in range(COUNT)]
        await asyncio.sleep(0)
        await p.close()
        told = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        sent = sum(isinstance(each, MessageId) for each in told)
        assert all(isinstance(each, MessageId | Closed) for each in told)
        assert len(await stored(broker)) == sent < COUNT

    on_broker(tmp_path, work)


def test_the_end_of_the_broker_is_told_to_those_that_wait(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        p = broker.producer("orders")
        await p.open()
        tasks = [asyncio.ensure_future(p.send(b"%03d" % number)) for number in range(COUNT)]
        await asyncio.sleep(0)
        broker.engine.end(Closed("the test ends it"))
        told = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert all(isinstance(each, Closed) for each in told)

    on_broker(tmp_path, work)


def test_overlapping_appends_to_a_stage_are_all_there(tmp_path: Path) -> None:
    """Two overlapping appends named the same offset, so the second was taken for a repetition."""

    async def work(broker: Broker) -> None:
        stage = await broker.stage()
        await asyncio.gather(
            *(
                stage.append("orders", [b"%02d-%d" % (number, each) for each in range(3)])
                for number in range(9)
            )
        )
        assert await broker.sink_commit("nightly", 1, [await stage.close()])
        assert await stored(broker) == [
            b"%02d-%d" % (number, each) for number in range(9) for each in range(3)
        ]

    on_broker(tmp_path, work)


# -- the faults, brought back ---------------------------------------------------------------------------


async def room_that_lets_newcomers_pass(self: Engine) -> None:
    """A mutant: all waiting calls are woken at once, and a new call overtakes."""
    while self.ended is None and self.behind:
        place = _Place()
        place.woken = asyncio.get_running_loop().create_future()
        self._room.append(place)
        await place.woken
    self._require_open()


def wake_all(self: Engine) -> None:
    if not self.behind:
        places = [*self._room]
        self._room.clear()
        for place in places:
            place.wake()


class Open:
    """A mutant's lock: it excludes no caller."""

    async def __aenter__(self) -> None:
        await asyncio.sleep(0)

    async def __aexit__(self, *_: object) -> None:
        pass


def noticed(test: Callable[[Path], None], path: Path) -> bool:
    """The speed of the disk decides which calls wait, so several runs are needed."""
    for attempt in range(20):
        try:
            test(path / str(attempt))
        except (AssertionError, HoldfastError):
            return True
    return False


def test_the_faults_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "room", room_that_lets_newcomers_pass)
        patch.setattr(Engine, "_wake_first", wake_all)
        patch.setattr("holdfast.broker.api.producer.asyncio.Lock", Open)
        assert noticed(test_sends_are_stored_in_the_order_of_their_calls, tmp_path / "1")
        assert noticed(test_with_explicit_sequences_what_is_confirmed_is_stored, tmp_path / "2")
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.broker.api.producer.asyncio.Lock", Open)
        assert noticed(lambda path: test_long_calls_are_not_mixed(path, patch), tmp_path / "3")
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.broker.api.stage.asyncio.Lock", Open)
        assert noticed(test_overlapping_appends_to_a_stage_are_all_there, tmp_path / "4")
