"""The registry of schemas on a broker: restarts, races, rules, consumers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Broker
from holdfast.errors import IncompatibleSchema
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import versions
from holdfast.server.registry.definition import identity
from tests.kit.server.schema_checks import NAME, ONE, OTHER, SCENES, add, record, topic
from tests.kit.server.schema_silence import messages_look_at_no_schema


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: str(scene.__name__))
def test_scenes(scene: Callable[[Path], Awaitable[None]], tmp_path: Path) -> None:
    async def main() -> None:
        await scene(tmp_path)

    asyncio.run(main())


def test_messages_look_at_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends and deliveries call nothing of the registry, so a check costs nothing per message."""
    messages_look_at_no_schema(monkeypatch)


async def grown(broker: Broker, count: int) -> None:
    """Give the topic this many schemas."""
    await broker.ensure_topic(NAME)
    await broker.admin.set_policies(NAME, schema_strategy="ALWAYS_COMPATIBLE")
    for number in range(count):
        assert await add(broker, record((f"f{number}", "int"))) == number


def test_a_client_does_not_cost_what_others_have_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each definition is looked at once, however many clients come with small schemas."""
    looked: list[object] = []

    def look(schema: pb.Schema) -> object:
        looked.append(schema)
        return identity(schema)

    async def main() -> None:
        async with Broker.open(tmp_path) as broker:
            await grown(broker, 20)
            monkeypatch.setattr(versions, "identity", look)
            there = await topic(broker)
            for _ in range(10):
                assert await versions.version_of(broker, there, OTHER) is None
                await versions.admit_consumer(broker, there, OTHER)
                assert await versions.admit_producer(broker, there, record(("f3", "int"))) == 3
            assert len(looked) <= 20 + 2 * 10, "theirs once, and those of the clients"

    asyncio.run(main())


def test_comparisons_leave_threads_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker syncs its files in the same threads.

    A client that is cancelled does not leave one busy, either.
    """
    active = [0, 0]

    def slow(*arguments: object, **options: object) -> None:
        active[0] += 1
        active[1] = max(active)
        time.sleep(0.005)
        active[0] -= 1

    async def main() -> None:
        async with Broker.open(tmp_path) as broker:
            await add(broker, ONE)
            monkeypatch.setattr(versions, "require_compatible", slow)
            there = await topic(broker)
            clients = [
                asyncio.ensure_future(versions.compare(broker, there, "FULL", OTHER)) for _ in range(8)
            ]
            await asyncio.sleep(0.001)
            for each in clients[::2]:
                each.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
            assert active == [0, 1]

    asyncio.run(main())


def test_a_refusal_after_a_deletion_names_the_version(tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker.open(tmp_path) as broker:
            assert await add(broker, OTHER) == 0
            await broker.admin.delete_schema(NAME)
            await broker.admin.set_policies(NAME, schema_strategy="BACKWARD_TRANSITIVE")
            there = await topic(broker)
            first = await add(broker, record())
            assert first == 2
            assert await versions.add(broker, there, record(), by_producer=True) == 2
            with pytest.raises(IncompatibleSchema, match="messages of the newest schema: field x"):
                await versions.add(broker, there, ONE, by_producer=True)
            await broker.admin.set_policies(NAME, schema_strategy="ALWAYS_COMPATIBLE")
            assert await add(broker, ONE) == 3
            await broker.admin.set_policies(NAME, schema_strategy="BACKWARD_TRANSITIVE")
            with pytest.raises(IncompatibleSchema, match="messages of version 2: field x"):
                await versions.add(broker, there, record(("x", "long")), by_producer=True)

    asyncio.run(main())


@pytest.mark.parametrize(
    "change", [{"schema_auto_update": False}, {"schema_strategy": "ALWAYS_INCOMPATIBLE"}], ids=str
)
def test_rules_that_change_during_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """A comparison can take a second: a change meanwhile applies to what is compared."""
    compare = versions.compare

    async def changed(broker: Broker, *arguments: Any) -> None:
        await compare(broker, *arguments)
        await broker.admin.set_policies(NAME, **change)

    async def main() -> None:
        async with Broker.open(tmp_path) as broker:
            await broker.ensure_topic(NAME)
            await broker.admin.set_policies(NAME, schema_strategy="BACKWARD")
            assert await add(broker, ONE) == 0
            monkeypatch.setattr(versions, "compare", changed)
            assert await add(broker, record()) is None
            assert len((await topic(broker)).schemas) == 1

    asyncio.run(main())


def test_a_partition_with_messages_is_one_of_the_topic(tmp_path: Path) -> None:
    """Partitions share their schemas: an empty one does not add a schema to the others."""

    async def main() -> None:
        async with Broker.open(tmp_path) as broker:
            await broker.admin.create_partitioned_topic(NAME, 3)
            parts = [await topic(broker, f"{NAME}-partition-{number}") for number in range(3)]
            async with broker.producer(parts[1].name) as producer:
                await producer.send(b"without a schema")
            for each in (*parts, parts[0]):
                with pytest.raises(IncompatibleSchema, match="no schema to compare"):
                    await versions.admit_consumer(broker, each, ONE)
            await broker.admin.create_partitioned_topic(f"{NAME}-new", 2)
            for number in (1, 0):
                there = await topic(broker, f"{NAME}-new-partition-{number}")
                await versions.admit_consumer(broker, there, ONE)
            assert len(there.schemas) == 1

    asyncio.run(main())
