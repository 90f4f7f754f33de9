"""schema.add: what a topic's messages look like, as a client describes it."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import SchemaAdded
from holdfast.broker.state import BrokerState
from holdfast.errors import Misuse

SCHEMA_BYTES_MAX = 1 << 20
SCHEMAS_MAX = 1000
"""Of a topic. They stand in its part of every snapshot."""


@register
class SchemaAdd(Event, frozen=True):
    """Keep a schema; its version is its place in the order in which they came, for ever. The same bytes are
    the same schema. Nothing is compared: that is the business of who submits it."""

    kind: ClassVar[int] = 80

    topic: int
    schema: bytes
    """As the protocol writes it."""

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
