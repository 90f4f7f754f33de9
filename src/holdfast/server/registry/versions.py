"""The schemas of a topic, by version: add, compare and find them.

The rules of a topic are policies: its own, else its namespace's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.broker import Broker, Strategy, Topic
from holdfast.errors import IncompatibleSchema, NotFound, Outdated
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry.compatibility import DEFAULT, require_compatible
from holdfast.server.registry.definition import RECORDS, UNREGISTERED, identity, require_sound, shown

TRIES = 20
"""How often a schema is compared again because another one was added meanwhile."""
_LATEST: dict[Strategy, Strategy] = {
    "BACKWARD": "BACKWARD",
    "FORWARD": "BACKWARD",
    "FORWARD_TRANSITIVE": "BACKWARD",
    "FULL": "BACKWARD",
}
"""Strategies in which a consumer must read the newest schema only."""


@dataclass(frozen=True)
class Rules:
    """The rules that apply to the schemas of a topic."""

    strategy: Strategy = DEFAULT
    auto_update: bool = True
    """Producers may add schemas. Otherwise only administrators may."""
    enforced: bool = False
    """Producers without a schema are refused if the topic has one."""


def rules(broker: Broker, topic: Topic) -> Rules:
    """Return the rules of a topic, or of an exchange."""
    policies = broker.effective_policies(topic)
    return Rules(
        strategy=policies.schema_strategy or DEFAULT,
        auto_update=policies.schema_auto_update is not False,
        enforced=policies.schema_enforced is True,
    )


def has_definition(schema: pb.Schema) -> bool:
    """Return whether a schema has a definition: bytes and the topic's own have none."""
    return schema.type not in UNREGISTERED


def current(topic: Topic) -> list[tuple[int, pb.Schema]]:
    """Return the schemas that apply to new clients, with their versions."""
    return [(version, pb.Schema.FromString(each)) for version, each in topic.schemas_applying]


def known_as_sent(known: Sequence[tuple[int, pb.Schema]], schema: pb.Schema) -> int | None:
    """Return the version whose bytes a schema repeats; this needs no parser."""
    for version, each in reversed(known):
        if (each.type, each.schema_data) == (schema.type, schema.schema_data) and (
            schema.type != pb.Schema.KeyAndValue or {*_texts(each)} == {*_texts(schema)}
        ):
            return version
    return None


def _texts(schema: pb.Schema) -> list[tuple[str, str]]:
    return [(each.key, each.value) for each in schema.properties]


def version_of(known: Sequence[tuple[int, pb.Schema]], schema: pb.Schema) -> int | None:
    """Return the version of a schema; None: the topic does not have it."""
    wanted = identity(schema)
    return next((version for version, each in known if identity(each) == wanted), None)


def find(topic: Topic, version: int | None = None) -> tuple[int, pb.Schema]:
    """Return a schema and its version; without one, the newest.

    Raises:
        NotFound: the topic has no such schema.
    """
    if version is None:
        known = current(topic)
        if not known:
            raise NotFound(f"{topic.name} has no schema")
        return known[-1]
    if not 0 <= version < len(topic.schemas) or not topic.schemas[version]:
        raise NotFound(f"{topic.name} has no schema of version {version}")
    return version, pb.Schema.FromString(topic.schemas[version])


async def compare(strategy: Strategy, known: Sequence[tuple[int, pb.Schema]], schema: pb.Schema) -> None:
    """Raise IncompatibleSchema if a schema may not follow the known ones."""
    others = [each for _, each in known]
    if schema.type in RECORDS or schema.type in (pb.Schema.KeyAndValue, pb.Schema.ProtobufNative):
        await asyncio.to_thread(require_compatible, strategy, others, schema)  # may take a second
    else:
        require_compatible(strategy, others, schema)


async def add(broker: Broker, topic: Topic, schema: pb.Schema, *, by_producer: bool) -> int:
    """Return the version of a schema, which is added if it is new and compatible.

    Raises:
        BadSchema: its definition is not valid.
        IncompatibleSchema: it does not fit, or producers may not add any. The text names the field.
    """
    version = known_as_sent(current(topic), schema)
    if version is not None:
        return version
    require_sound(schema)
    for _ in range(TRIES):
        seen, known, applied = len(topic.schemas), current(topic), rules(broker, topic)
        version = version_of(known, schema)
        if version is not None:
            return version
        if by_producer and not applied.auto_update:
            raise IncompatibleSchema(
                f"{topic.name} does not have this schema, and producers may not add one "
                "(isAllowAutoUpdateSchema); let an administrator add it"
            )
        await compare(applied.strategy, known, schema)
        try:
            return await broker.add_schema(topic, schema.SerializeToString(deterministic=True), seen)
        except Outdated:
            continue  # another client was faster; compare with its schema, too
    raise IncompatibleSchema(f"schemas of {topic.name} change all the time; try again later")


async def admit_producer(broker: Broker, topic: Topic, schema: pb.Schema | None) -> int | None:
    """Return the version of a producer's schema; None: it has none, and needs none."""
    if schema is not None and has_definition(schema):
        return await add(broker, topic, schema, by_producer=True)
    if rules(broker, topic).enforced and (known := current(topic)):
        raise IncompatibleSchema(
            f"{topic.name} has a schema of type {shown(known[-1][1].type)}, and producers without one are "
            "refused (schemaValidationEnforced); give the producer a schema"
        )
    return None


async def admit_consumer(broker: Broker, topic: Topic, schema: pb.Schema) -> None:
    """Check that a consumer's schema reads the topic.

    The first client of a new topic adds it.
    """
    if not has_definition(schema):
        return
    known = current(topic)
    if not known and _is_new(topic):
        await add(broker, topic, schema, by_producer=True)
        return
    if known_as_sent(known, schema) is not None:
        return
    require_sound(schema)
    strategy = rules(broker, topic).strategy
    if strategy == "ALWAYS_COMPATIBLE" or version_of(known, schema) is not None:
        return
    if not known:
        raise IncompatibleSchema(
            f"{topic.name} has messages or clients, and no schema to compare with this one of type "
            f"{shown(schema.type)}; subscribe with bytes, or add a schema first"
        )
    await compare(_LATEST.get(strategy, strategy), known, schema)


def _is_new(topic: Topic) -> bool:
    """Return whether a topic has no messages, schemas, producers and consumers."""
    used = topic.producers or any(each.consumers for each in topic.subscriptions.values())
    return not used and topic.ledgers.first == topic.ledgers.end and not topic.schemas
