"""Compactions on three members: one view on all, and an owner that dies."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.broker.compaction import worker
from holdfast.broker.membership import owner_of_topic
from holdfast.broker.topic import Topic
from tests.kit.broker.life_checks import announced
from tests.kit.broker.trio import Trio, scene

KEYS = 7
OPTIONS: dict[str, Any] = {"housekeeping_s": 0.2, "roll_entries": 20}


async def fill(trio: Trio, number: int, values: int, first: int = 0) -> None:
    async with trio.brokers[number].producer("orders") as producer:
        for value in range(first, first + values):
            for key in range(KEYS):
                await producer.send(b"%d" % value, key=f"k{key}")
    await trio.settle()


async def read(trio: Trio, number: int) -> list[tuple[str, str | bytes | None, bytes]]:
    found = []
    async with trio.brokers[number].reader("orders", compacted=True) as reader:
        while await reader.has_more():
            message = await reader.read(timeout=10)
            found.append((str(message.id), message.key, message.data))
    return found


def owner(trio: Trio) -> int:
    """Return the node of the topic's owner."""
    broker = next(iter(trio.brokers.values()))
    found = owner_of_topic(broker.machine.state, broker.admin._topic("orders").name)
    assert found is not None
    return found.node


def requested(topic: Topic) -> bool:
    """Return whether a compaction is requested, and not done."""
    return topic.state.compaction is not None and topic.state.compaction.requested > 0


async def agree(trio: Trio, value: bytes) -> None:
    """Require the same compacted view on all members, with this value of each key."""
    views = {number: await read(trio, number) for number in trio.brokers}
    first = next(iter(views.values()))
    assert all(each == first for each in views.values()), views
    assert {key: data for _, key, data in first} == {f"k{n}": value for n in range(KEYS)}
    assert len(first) == KEYS
    digests = {broker.machine.digest() for broker in trio.brokers.values()}
    assert len(digests) == 1
    for broker in trio.brokers.values():
        broker.machine.state.check()


def any_member_asks_and_the_owner_compacts() -> None:
    async def work(trio: Trio) -> None:
        await announced(trio)
        await fill(trio, 1, 4)
        for number in (1, 2, 3):
            await trio.brokers[number].admin.compact("orders", wait=True)
            await trio.settle()
        await agree(trio, b"3")
        did = {number: broker.admin.compaction("orders").succeeded for number, broker in trio.brokers.items()}
        assert did == {number: 3 * (number == owner(trio)) for number in trio.brokers}

    scene(work, **OPTIONS)


def the_owner_dies_while_it_compacts() -> None:
    """At any step. Another member carries the request out; the view is never half."""

    def after(turns: int) -> None:
        async def work(trio: Trio) -> None:
            await announced(trio)
            await fill(trio, 1, 3)
            await trio.brokers[1].admin.compact("orders", wait=True)
            await fill(trio, 1, 2, first=3)
            dies = owner(trio)
            asks = next(each for each in trio.brokers if each != dies)
            await trio.brokers[asks].admin.compact("orders")
            for _ in range(turns):
                await asyncio.sleep(0.001)
            trio.crash(dies)
            await asyncio.sleep(1)
            await trio.brokers[asks].compactions.ended(trio.brokers[asks].admin._topic("orders"))
            await trio.settle()
            await agree(trio, b"4")

        scene(work, **OPTIONS)

    entries, worker.APPEND_ENTRIES = worker.APPEND_ENTRIES, 1
    try:
        for turns in (0, 2, 4, 6, 8, 12, 16, 24, 32, 48):
            after(turns)
    finally:
        worker.APPEND_ENTRIES = entries


def a_member_joins_while_it_compacts() -> None:
    """Until it has told what it knows, the compaction waits, and has not failed."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        await fill(trio, 1, 3)
        does = owner(trio)
        away = next(each for each in trio.brokers if each != does)
        trio.crash(away)
        await asyncio.sleep(1)
        trio.sim.restart(away)
        broker = trio.brokers[does]
        topic, state, compactions = broker.admin._topic("orders"), broker.machine.state, broker.compactions
        while len(state.members) < 3 or not requested(topic):
            if not requested(topic):
                await broker.admin.compact("orders")
            await asyncio.sleep(0.001)
        await asyncio.sleep(2)
        assert [failed for _, failed in compactions.counts.values()] in ([], [0])
        await announced(trio)
        await compactions.ended(topic)
        await trio.settle()
        await agree(trio, b"2")

    entries, worker.APPEND_ENTRIES = worker.APPEND_ENTRIES, 1
    try:
        scene(work, **OPTIONS)
    finally:
        worker.APPEND_ENTRIES = entries


def a_threshold_is_passed() -> None:
    """The owner compacts without a request; the messages before are kept until then."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        await trio.brokers[2].admin.set_policies("orders", compaction_threshold=4000, retention_bytes=0)
        await fill(trio, 1, 12)
        await trio.brokers[1].admin.clear("orders", "billing")
        await asyncio.sleep(2)
        topic = trio.brokers[1].admin._topic("orders")
        assert topic.state.compaction is not None
        assert topic.state.compaction.view is not None
        assert {key for _, key, _ in await read(trio, 3)} == {f"k{n}" for n in range(KEYS)}
        await agree_on_keys(trio)

    scene(work, **OPTIONS)


async def agree_on_keys(trio: Trio) -> None:
    views = [await read(trio, number) for number in trio.brokers]
    assert views[0] == views[1] == views[2]


SCENES = [
    any_member_asks_and_the_owner_compacts,
    the_owner_dies_while_it_compacts,
    a_member_joins_while_it_compacts,
    a_threshold_is_passed,
]
