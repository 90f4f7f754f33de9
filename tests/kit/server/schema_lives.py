"""Scenes of the registry of schemas over crashes, on one simulated member and on three.

`tests/mutants/test_schemas.py` runs them on broken registries.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from holdfast.broker import Broker
from holdfast.errors import HoldfastError, IncompatibleSchema
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import versions
from tests.kit.broker.life_checks import alone, announced
from tests.kit.broker.trio import Trio, scene
from tests.kit.broker.worlds import SimWorld
from tests.kit.server.schema_checks import MORE, NAME, ONE, OTHER, add, refused, topic

Versions = list[bytes]


def optional(name: str) -> pb.Schema:
    """Return ONE with one more field.

    It has a default, so all of these fit each other.
    """
    definition = b"""{"type": "record", "name": "Order", "fields": [
        {"name": "x", "type": "int"}, {"name": "%s", "type": "int", "default": 0}]}"""
    return pb.Schema(name="s", type=pb.Schema.Avro, schema_data=definition % name.encode())


async def why_refused(broker: Broker, schema: pb.Schema) -> str:
    """Return the text with which a schema is refused."""
    try:
        version = await versions.add(broker, await topic(broker), schema, by_producer=True)
    except IncompatibleSchema as error:
        return str(error)
    raise AssertionError(f"an incompatible schema became version {version}")


# -- one member ----------------------------------------------------------------------------------------


def versions_survive(power: bool = False, snapshot: bool = False) -> None:
    """Crashes change no version, no strategy and no deletion."""

    async def first(broker: Broker) -> None:
        assert await add(broker, ONE) == 0
        await broker.admin.set_policies(NAME, schema_strategy="FORWARD")
        assert await add(broker, MORE) == 1
        if snapshot:
            await broker.admin.snapshot()

    async def second(broker: Broker) -> None:
        assert "field x" in await why_refused(broker, OTHER)
        assert [await add(broker, each) for each in (ONE, MORE)] == [0, 1]
        assert await refused(versions.admit_consumer(broker, await topic(broker), OTHER))
        assert await broker.admin.delete_schema(NAME) == 2
        if snapshot:
            await broker.admin.snapshot()

    async def third(broker: Broker) -> None:
        assert await add(broker, OTHER) == 3, "the former schemas have ended"
        assert "field x" in await why_refused(broker, ONE)
        kept = [each.schema_data for _, each in map(versions.find, [await topic(broker)] * 2, (0, 1))]
        assert kept == [ONE.schema_data, MORE.schema_data], "messages still name them"

    alone(first, second, third, power=power)


def versions_survive_a_snapshot() -> None:
    """A snapshot has the versions, and the deletion among them."""
    versions_survive(snapshot=True)


def versions_survive_a_power_cut() -> None:
    """A version that a client was given is on the disk."""
    versions_survive(power=True)


def cut_while_adding(turns: int) -> bool:
    """Cut the power while a schema is added; return whether it is there afterwards."""
    world, answers, kept = SimWorld(), list[int](), list[int]()

    async def begin() -> Broker:
        broker = await world.open()
        await asyncio.sleep(0.01)  # its tasks begin
        await broker.admin.create_topic(NAME, schema_strategy="FORWARD")
        assert await add(broker, ONE) == 0
        return broker

    async def grow(broker: Broker) -> None:
        answers.append(await versions.add(broker, await topic(broker), MORE, by_producer=True))

    async def after() -> Broker:
        broker = await world.open()
        await asyncio.sleep(0.01)
        there = await topic(broker)
        kept.extend(version for version, _ in versions.current(there))
        assert kept == [0, 1] or (kept, answers) == ([0], [])
        assert "field x" in await why_refused(broker, OTHER)
        assert [await add(broker, each) for each in (ONE, MORE)] == [0, 1]
        return broker

    broker = world.run(begin())
    growing = grow(broker)
    world.begin(growing, turns)
    world.crash(broker, power=True)
    if inspect.getcoroutinestate(growing) == inspect.CORO_CREATED:
        growing.close()
    world.close(world.run(after()))
    return len(kept) == 2


def cut_at_any_turn() -> None:
    """A power cut while a schema is added.

    It is there, or it never was; the next one is compared.
    """
    assert {cut_while_adding(turns) for turns in range(1, 25)} == {False, True}


# -- three members -------------------------------------------------------------------------------------


def everywhere(trio: Trio) -> Versions:
    """Return the versions of the topic; all members must have the same."""
    found = [list(broker.topic(NAME).schemas) for broker in trio.brokers.values()]
    assert all(each == found[0] for each in found), "members have other versions"
    return found[0]


async def all_add(trio: Trio, *schemas: pb.Schema) -> list[int | None]:
    """Add schemas at once, the first at the first member; return their versions."""
    numbers = sorted(trio.brokers)
    work = (add(trio.brokers[numbers[at % len(numbers)]], each) for at, each in enumerate(schemas))
    return list(await asyncio.gather(*work))


def versions_are_the_same_on_all_members() -> None:
    """Members that add at once number alike.

    Each client has the version that its bytes have.
    """

    async def work(trio: Trio) -> None:
        await announced(trio)
        schemas = [optional(name) for name in "abcdefg"]
        answers = await all_add(trio, *schemas, *reversed(schemas))
        await trio.settle()
        kept = [pb.Schema.FromString(each).schema_data for each in everywhere(trio)]
        assert sorted(kept) == sorted(each.schema_data for each in schemas)
        expected = [kept.index(each.schema_data) for each in (*schemas, *reversed(schemas))]
        assert answers == expected
        for broker in trio.brokers.values():
            assert [await add(broker, each) for each in schemas] == expected[: len(schemas)]
        assert await trio.brokers[2].admin.delete_schema(NAME) == len(schemas)
        await trio.settle()
        assert await all_add(trio, OTHER, OTHER, OTHER) == [len(schemas) + 1] * 3
        await trio.settle()
        everywhere(trio)

    scene(work)


def of_two_members_one_is_refused() -> None:
    """Of two schemas that do not fit each other, asked at once, one is added."""

    async def work(trio: Trio) -> None:
        answers = await all_add(trio, ONE, OTHER)
        assert sorted(map(str, answers)) == ["0", "None"], answers
        await trio.settle()
        kept = (ONE, OTHER)[answers.index(0)]
        assert [pb.Schema.FromString(each).schema_data for each in everywhere(trio)] == [kept.schema_data]

    scene(work)


def refused_after_an_owner_change() -> None:
    """The owner of the topic crashes: the others compare with what it has added."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        owner = trio.brokers[1].membership.owner(trio.brokers[1].topic(NAME).name)
        assert owner is not None
        await trio.brokers[owner.node].admin.set_policies(NAME, schema_strategy="FORWARD")
        assert await add(trio.brokers[owner.node], ONE) == 0
        trio.crash(owner.node)
        await trio.settle(1.0)
        others = list(trio.brokers.values())
        assert others[0].membership.owner(others[0].topic(NAME).name) != owner
        for broker in others:
            assert "field x" in await why_refused(broker, OTHER)
            assert await refused(versions.admit_consumer(broker, broker.topic(NAME), OTHER))
            assert [await add(broker, each) for each in (ONE, MORE)] == [0, 1]
            await trio.settle()
        assert len(everywhere(trio)) == 2

    scene(work)


def refused_at_a_member_that_returns() -> None:
    """A member crashes, misses a version, and returns.

    It has the version, and refuses what does not fit.
    """

    async def work(trio: Trio) -> None:
        await announced(trio)
        assert await add(trio.brokers[1], ONE) == 0
        await trio.settle()
        trio.crash(3)
        await trio.settle(1.0)
        await trio.brokers[1].admin.set_policies(NAME, schema_strategy="FORWARD")
        assert await add(trio.brokers[2], MORE) == 1
        trio.sim.restart(3)
        while len(trio.brokers) < 3 or not trio.whole():
            await trio.settle()
        await trio.settle()
        assert len(everywhere(trio)) == 2
        assert "field x" in await why_refused(trio.brokers[3], OTHER)
        assert [await add(trio.brokers[3], each) for each in (ONE, MORE)] == [0, 1]

    scene(work)


def refused_after_all_crash() -> None:
    """All members lose power at once.

    They begin again with the versions that clients were given.
    """

    async def work(trio: Trio) -> None:
        await announced(trio)
        assert await all_add(trio, ONE, ONE, ONE) == [0, 0, 0]
        await trio.settle()
        for number in (1, 2, 3):
            trio.crash(number)
        await trio.settle()
        for number in (1, 2, 3):
            trio.sim.restart(number)
        while len(trio.brokers) < 3 or not trio.whole():
            await trio.settle()
        await trio.settle()
        assert len(everywhere(trio)) == 1
        for broker in trio.brokers.values():
            assert "field x" in await why_refused(broker, OTHER)
            assert await add(broker, ONE) == 0

    scene(work)


def crash_of_the_asked_member(seconds: float) -> bool:
    """Crash the member that adds a schema; return whether the others have it."""
    had: list[bool] = []

    async def work(trio: Trio) -> None:
        await announced(trio)
        answers: list[Any] = []

        async def ask() -> None:
            try:
                answers.append(await add(trio.brokers[2], ONE))
            except HoldfastError as error:
                answers.append(error)

        asking = asyncio.create_task(ask())
        await asyncio.sleep(seconds)
        trio.crash(2)
        await trio.settle(1.0)
        asking.cancel()
        kept = everywhere(trio)
        assert len(kept) == 1 or (kept == [] and 0 not in answers), (kept, answers)
        answer = await add(trio.brokers[1], OTHER)
        assert answer == (None if kept else 0)
        await trio.settle()
        assert len(everywhere(trio)) == 1
        had.append(bool(kept))

    scene(work)
    return had == [True]


def crashes_of_the_asked_member() -> None:
    """The member that was asked crashes meanwhile: the others have the schema all, or none."""
    assert {crash_of_the_asked_member(at * 5e-4) for at in range(12)} == {False, True}


ALONE = (versions_survive, versions_survive_a_snapshot, versions_survive_a_power_cut, cut_at_any_turn)
TOGETHER = (
    versions_are_the_same_on_all_members,
    of_two_members_one_is_refused,
    refused_after_an_owner_change,
    refused_at_a_member_that_returns,
    refused_after_all_crash,
    crashes_of_the_asked_member,
)
