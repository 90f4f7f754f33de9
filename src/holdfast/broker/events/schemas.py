"""Events of schemas: the form of a topic's messages, as a client describes it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.outcomes import SchemaAdded
from holdfast.broker.partitions import schema_holder
from holdfast.broker.state import BrokerState
from holdfast.errors import Misuse, NotFound, Outdated
from holdfast.formatting import plural

SCHEMA_BYTES_MAX = 1 << 20
SCHEMAS_MAX = 1000
"""Schemas of a topic. They are in its part of every snapshot."""
DELETED = b""
"""Stands at the version of a deletion: schemas before it do not apply to new clients."""


def applying(schemas: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """Return the schemas since the last deletion, with their versions.

    Example:
        >>> applying([b"a", DELETED, b"b"])
        [(2, b'b')]
    """
    first = max((version for version, each in enumerate(schemas) if each == DELETED), default=-1) + 1
    return list(enumerate(schemas[first:], first))


@event(80, version=2, base=2)
class SchemaAdd(Event, frozen=True):
    """Keep a schema. Its version is its index in the order of arrival, for ever.

    The same bytes are the same schema. The sender compares schemas; the event does not. With `expected`, it
    is refused if other schemas came meanwhile, with which the sender has not compared this one.
    """

    topic: int
    schema: bytes
    expected: int | None = None
    """The number of versions that the sender saw."""

    def apply(self, state: BrokerState, context: Context) -> SchemaAdded:
        topic = state.require_topic(self.topic)
        state.require_plain(topic, "has no schemas")
        for version, each in applying(topic.schemas):
            if each == self.schema:
                return SchemaAdded(version)
        if self.expected is not None and self.expected != len(topic.schemas):
            versions = plural(len(topic.schemas), "version")
            raise Outdated(
                f"{topic.name} has {versions} of its schema by now, not {self.expected}; compare again"
            )
        if not self.schema:
            raise Misuse("a schema has no bytes; send its type and definition")
        require_room(topic.name, topic.schemas, len(self.schema))
        topic.schemas.append(self.schema)
        state.touch(schema_holder(state, topic))
        return SchemaAdded(len(topic.schemas) - 1)


def require_room(name: str, schemas: Sequence[bytes], size: int) -> None:
    """Raise Misuse if a topic can have no further schema of this size."""
    if size > SCHEMA_BYTES_MAX or len(schemas) >= SCHEMAS_MAX:
        raise Misuse(
            f"{name} has {len(schemas)} schemas, and this one has {size} bytes; "
            f"there may be {SCHEMAS_MAX}, each of {SCHEMA_BYTES_MAX}"
        )


@event(86, base=0)
class SchemaDelete(Event, frozen=True):
    """End the schemas of a topic: the next one is not compared with them.

    Their versions stay readable: stored messages name them.
    """

    topic: int

    def apply(self, state: BrokerState, context: Context) -> SchemaAdded:
        topic = state.require_topic(self.topic)
        if not applying(topic.schemas):
            raise NotFound(f"{topic.name} has no schema that could be deleted")
        require_room(topic.name, topic.schemas, 0)
        topic.schemas.append(DELETED)
        state.touch(schema_holder(state, topic))
        return SchemaAdded(len(topic.schemas) - 1)
