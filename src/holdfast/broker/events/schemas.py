"""Events of schemas: the form of a topic's messages, as a client describes it."""

from __future__ import annotations

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.outcomes import SchemaAdded
from holdfast.broker.state import BrokerState
from holdfast.errors import Misuse

SCHEMA_BYTES_MAX = 1 << 20
SCHEMAS_MAX = 1000
"""Schemas of a topic. They are in its part of every snapshot."""


@event(80)
class SchemaAdd(Event, frozen=True):
    """Keep a schema. Its version is its index in the order of arrival, for ever.

    The same bytes are the same schema. The sender compares schemas; the event does not.
    """

    topic: int
    schema: bytes
    """In the protocol's encoding."""

    def apply(self, state: BrokerState, context: Context) -> SchemaAdded:
        topic = state.require_topic(self.topic)
        if self.schema in topic.schemas:
            return SchemaAdded(topic.schemas.index(self.schema))
        if len(self.schema) > SCHEMA_BYTES_MAX or len(topic.schemas) >= SCHEMAS_MAX:
            raise Misuse(
                f"{topic.name} has {len(topic.schemas)} schemas, and this one has {len(self.schema)} bytes; "
                f"there may be {SCHEMAS_MAX}, each of {SCHEMA_BYTES_MAX}"
            )
        topic.schemas.append(self.schema)
        state.touch(topic)
        return SchemaAdded(len(topic.schemas) - 1)
