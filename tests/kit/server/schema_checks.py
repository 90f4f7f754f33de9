"""Scenes of the registry of schemas, for its tests and their mutants."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from holdfast import Broker
from holdfast.broker import Topic
from holdfast.errors import IncompatibleSchema
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import versions

NAME = "persistent://public/default/orders"


def record(*fields: tuple[str, Any]) -> pb.Schema:
    """Return an Avro schema with these fields, none of which has a default."""
    made = [{"name": name, "type": type_} for name, type_ in fields]
    definition = {"type": "record", "name": "Order", "fields": made}
    return pb.Schema(name="s", type=pb.Schema.Avro, schema_data=json.dumps(definition).encode())


ONE, OTHER, MORE = record(("x", "int")), record(("x", "string")), record(("x", "int"), ("y", "int"))


async def add(broker: Broker, schema: pb.Schema, by_producer: bool = True) -> int | None:
    """Return the version of a schema; None: it is refused."""
    try:
        return await versions.add(broker, await topic(broker), schema, by_producer=by_producer)
    except IncompatibleSchema:
        return None


async def topic(broker: Broker, name: str = NAME) -> Topic:
    return await broker.ensure_topic(name)


async def a_restart_changes_nothing(path: Path) -> None:
    async with Broker.open(path) as broker:
        assert await add(broker, ONE) == 0
        await broker.admin.set_policies(NAME, schema_strategy="FORWARD")
    for _ in range(2):
        async with Broker.open(path) as broker:
            assert await add(broker, OTHER) is None
            assert await add(broker, ONE) == 0
            await broker.admin.snapshot()
    async with Broker.open(path) as broker:
        assert await add(broker, MORE) == 1, "its strategy is kept, too"


async def of_two_at_once_one_is_refused(path: Path) -> None:
    async with Broker.open(path) as broker:
        found = await asyncio.gather(*(add(broker, each) for each in (ONE, OTHER)))
        assert sorted(str(each) for each in found) == ["0", "None"], found


async def the_topic_decides_before_its_namespace(path: Path) -> None:
    async with Broker.open(path) as broker:
        assert await add(broker, ONE) == 0
        await broker.admin.set_namespace_policies("public/default", schema_strategy="ALWAYS_COMPATIBLE")
        await broker.admin.set_policies(NAME, schema_strategy="FULL")
        assert await add(broker, OTHER) is None
        await broker.admin.set_policies(NAME, schema_strategy=None)
        assert await add(broker, OTHER) == 1


async def producers_obey_the_rules(path: Path) -> None:
    async with Broker.open(path) as broker:
        await broker.admin.set_namespace_policies("public/default", schema_auto_update=False)
        assert await add(broker, ONE) is None
        assert await add(broker, ONE, by_producer=False) == 0
        assert await add(broker, ONE) == 0, "the topic has it"
        there = await topic(broker)
        assert await versions.admit_producer(broker, there, None) is None
        await broker.admin.set_namespace_policies("public/default", schema_enforced=True)
        for schema in (None, pb.Schema(name="", type=pb.Schema.Bytes, schema_data=b"")):
            assert await refused(versions.admit_producer(broker, there, schema))
        untyped = await topic(broker, NAME + "-untyped")
        assert await versions.admit_producer(broker, untyped, None) is None


async def consumers_must_read_the_newest(path: Path) -> None:
    async with Broker.open(path) as broker:
        await add(broker, ONE)
        there = await topic(broker)
        await versions.admit_consumer(broker, there, ONE)
        await versions.admit_consumer(broker, there, record())
        assert await refused(versions.admit_consumer(broker, there, MORE))
        used, new = await topic(broker, NAME + "-used"), await topic(broker, NAME + "-new")
        async with broker.producer(used.name) as producer:
            await producer.send(b"plain")
        assert await refused(versions.admit_consumer(broker, used, ONE)), "its messages have no schema"
        await versions.admit_consumer(broker, new, ONE)
        assert [version for version, _ in versions.current(new)] == [0]
        auto = pb.Schema(name="", type=pb.Schema.AutoConsume, schema_data=b"")
        await versions.admit_consumer(broker, used, auto)


async def written_otherwise_it_is_the_same(path: Path) -> None:
    """Comments, spaces and the order of members make no difference."""
    async with Broker.open(path) as broker:
        await broker.admin.set_namespace_policies("public/default", schema_strategy="ALWAYS_INCOMPATIBLE")
        assert await add(broker, ONE) == 0
        definition = {**json.loads(ONE.schema_data), "doc": "An order."}
        turned = json.dumps(dict(reversed(definition.items())), indent=1).encode()
        assert await add(broker, pb.Schema(name="t", type=pb.Schema.Avro, schema_data=turned)) == 0
        assert await add(broker, MORE) is None


async def one_type_is_not_another(path: Path) -> None:
    """Equal bytes of another type, or of a pair of other types, are another schema."""
    async with Broker.open(path) as broker:
        assert await add(broker, ONE) == 0
        assert (
            await add(broker, pb.Schema(name="s", type=pb.Schema.Json, schema_data=ONE.schema_data)) is None
        )
        pairs = [pair_of(kind) for kind in ("AVRO", "JSON")]
        there = await topic(broker, NAME + "-pairs")
        assert await versions.add(broker, there, pairs[0], by_producer=True) == 0
        assert await versions.add(broker, there, pairs[0], by_producer=True) == 0
        assert await refused(versions.add(broker, there, pairs[1], by_producer=True))


def pair_of(value_type: str) -> pb.Schema:
    """Return the schema of a text as key, and ONE as value of this type."""
    parts = b"".join(len(each).to_bytes(4, "big") + each for each in (b"", ONE.schema_data))
    found = pb.Schema(name="s", type=pb.Schema.KeyAndValue, schema_data=parts)
    found.properties.add(key="key.schema.type", value="STRING")
    found.properties.add(key="value.schema.type", value=value_type)
    return found


async def refused(work: Any) -> bool:
    """Return whether a call is refused because of its schema."""
    try:
        await work
    except IncompatibleSchema:
        return True
    return False


SCENES = (
    a_restart_changes_nothing,
    of_two_at_once_one_is_refused,
    the_topic_decides_before_its_namespace,
    producers_obey_the_rules,
    consumers_must_read_the_newest,
    written_otherwise_it_is_the_same,
    one_type_is_not_another,
)
