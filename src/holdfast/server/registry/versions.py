"""The schemas of a topic, by version: add, compare and find them.

The rules of a topic are policies: its own, else its namespace's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from holdfast.broker import Broker, Strategy, Topic
from holdfast.errors import IncompatibleSchema, NotFound, Outdated
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry.compatibility import DEFAULT, require_compatible
from holdfast.server.registry.definition import RECORDS, UNREGISTERED, identity, require_sound, shown
from holdfast.system import in_thread

Answer = TypeVar("Answer")

TRIES = 20
"""How often a schema is compared again because another one was added meanwhile."""
QUICK_BYTES = 16 << 10
"""Schemas of a topic that are looked at without a thread."""
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


class Mark(NamedTuple):
    """Digests of a schema, in place of its definition."""

    sent: bytes
    """Of the bytes that a client sends."""
    same: bytes
    """Of what equal schemas share."""


_MARKS: WeakKeyDictionary[Topic, dict[bytes, Mark]] = WeakKeyDictionary()
"""Of schemas that topics have. So a client is not charged for the definitions of others."""
_TURNS: WeakKeyDictionary[Broker, asyncio.Lock] = WeakKeyDictionary()
"""Only one thread of a broker is busy with schemas: the others are for its files."""


async def _in_thread(broker: Broker, work: Callable[..., Answer], *arguments: Any) -> Answer:
    async with _TURNS.setdefault(broker, asyncio.Lock()):
        return await in_thread(work, *arguments)


def _sent(schema: pb.Schema) -> bytes:
    """Return a digest of a schema as it was sent; this needs no parser."""
    digest = sha256(repr((schema.type, len(schema.schema_data))).encode())
    digest.update(schema.schema_data)
    if schema.type == pb.Schema.KeyAndValue:
        digest.update(repr(sorted({*_texts(schema)})).encode())
    return digest.digest()


def _texts(schema: pb.Schema) -> list[tuple[str, str]]:
    return [(each.key, each.value) for each in schema.properties]


def _same(schema: pb.Schema) -> bytes:
    return sha256(repr(identity(schema)).encode(errors="backslashreplace")).digest()


def _marked(schemas: list[bytes]) -> list[Mark]:
    return [Mark(_sent(each), _same(each)) for each in map(pb.Schema.FromString, schemas)]


async def _marks(broker: Broker, topic: Topic) -> list[tuple[int, Mark]]:
    """Return the marks of the schemas that apply to new clients, the newest first."""
    kept = _MARKS.setdefault(topic, {})
    while new := [each for _, each in topic.schemas_applying if each not in kept]:
        quick = sum(map(len, new)) <= QUICK_BYTES
        kept.update(zip(new, _marked(new) if quick else await _in_thread(broker, _marked, new), strict=True))
    return [(version, kept[each]) for version, each in reversed(topic.schemas_applying)]


async def _as_sent(broker: Broker, topic: Topic, schema: pb.Schema) -> int | None:
    """Return the version whose bytes a schema repeats."""
    sent = _sent(schema)
    return next((version for version, mark in await _marks(broker, topic) if mark.sent == sent), None)


async def version_of(broker: Broker, topic: Topic, schema: pb.Schema) -> int | None:
    """Return the version of a schema; None: the topic does not have it."""
    same, marks = _same(schema), await _marks(broker, topic)
    return next((version for version, mark in reversed(marks) if mark.same == same), None)


def find(topic: Topic, version: int | None = None) -> tuple[int, pb.Schema]:
    """Return a schema and its version; without one, the newest.

    Raises:
        NotFound: the topic has no such schema.
    """
    if version is None:
        known = topic.schemas_applying
        if not known:
            raise NotFound(f"{topic.name} has no schema")
        version = known[-1][0]
    if not 0 <= version < len(topic.schemas) or not topic.schemas[version]:
        raise NotFound(f"{topic.name} has no schema of version {version}")
    return version, pb.Schema.FromString(topic.schemas[version])


async def compare(broker: Broker, topic: Topic, strategy: Strategy, schema: pb.Schema) -> None:
    """Raise IncompatibleSchema if a schema may not follow those of a topic."""
    known = topic.schemas_applying
    if not strategy.endswith("TRANSITIVE"):
        known = known[-1:]
    if schema.type in RECORDS or schema.type in (pb.Schema.KeyAndValue, pb.Schema.ProtobufNative):
        await _in_thread(broker, _compare, strategy, known, schema)  # may take a second
    else:
        _compare(strategy, known, schema)


def _compare(strategy: Strategy, known: Sequence[tuple[int, bytes]], schema: pb.Schema) -> None:
    others = [pb.Schema.FromString(each) for _, each in known]
    require_compatible(strategy, others, schema, first=known[0][0] if known else 0)


async def add(broker: Broker, topic: Topic, schema: pb.Schema, *, by_producer: bool) -> int:
    """Return the version of a schema, which is added if it is new and compatible.

    Raises:
        BadSchema: its definition is not valid.
        IncompatibleSchema: it does not fit, or producers may not add any. The text names the field.
    """
    version = await _as_sent(broker, topic, schema)
    if version is not None:
        return version
    require_sound(schema)
    for _ in range(TRIES):
        version = await version_of(broker, topic, schema)
        if version is not None:
            return version
        seen, applied = len(topic.schemas), rules(broker, topic)
        if by_producer and not applied.auto_update:
            raise IncompatibleSchema(
                f"{topic.name} does not have this schema, and producers may not add one "
                "(isAllowAutoUpdateSchema); let an administrator add it"
            )
        await compare(broker, topic, applied.strategy, schema)
        if rules(broker, topic) != applied:
            continue  # they have changed meanwhile, and their effect is at once
        try:
            return await broker.add_schema(topic, schema.SerializeToString(deterministic=True), seen)
        except Outdated:
            continue  # another client was faster; compare with its schema, too
    raise IncompatibleSchema(f"schemas of {topic.name} change all the time; try again later")


async def admit_producer(broker: Broker, topic: Topic, schema: pb.Schema | None) -> int | None:
    """Return the version of a producer's schema; None: it has none, and needs none."""
    if schema is not None and has_definition(schema):
        return await add(broker, topic, schema, by_producer=True)
    if rules(broker, topic).enforced and topic.schemas_applying:
        raise IncompatibleSchema(
            f"{topic.name} has a schema of type {shown(find(topic)[1].type)}, and producers without one are "
            "refused (schemaValidationEnforced); give the producer a schema"
        )
    return None


async def admit_consumer(broker: Broker, topic: Topic, schema: pb.Schema) -> None:
    """Check that a consumer's schema reads the topic.

    The first client of a new topic adds it.
    """
    if not has_definition(schema):
        return
    if not topic.schemas_applying and _is_new(broker, topic):
        await add(broker, topic, schema, by_producer=True)
        return
    if await _as_sent(broker, topic, schema) is not None:
        return
    require_sound(schema)
    strategy = rules(broker, topic).strategy
    if strategy == "ALWAYS_COMPATIBLE" or await version_of(broker, topic, schema) is not None:
        return
    if not topic.schemas_applying:
        raise IncompatibleSchema(
            f"{topic.name} has messages or clients, and no schema to compare with this one of type "
            f"{shown(schema.type)}; subscribe with bytes, or add a schema first"
        )
    await compare(broker, topic, _LATEST.get(strategy, strategy), schema)


def _is_new(broker: Broker, topic: Topic) -> bool:
    """Return whether a topic has no messages, schemas, producers and consumers, in any partition."""
    parent = broker.partitioned.parent(topic.name)
    names = [topic.name] if parent is None else broker.partitioned.names(parent[0])
    return not topic.schemas and not any(
        _is_used(broker.topic(each)) for each in names if broker.has_topic(each)
    )


def _is_used(topic: Topic) -> bool:
    clients = topic.producers or any(each.consumers for each in topic.subscriptions.values())
    return bool(clients) or topic.ledgers.first != topic.ledgers.end
