"""schema.add: versions along a topic, once for the same bytes."""

from __future__ import annotations

from holdfast.broker.events import SchemaAdd, SchemaAdded
from holdfast.broker.events.schemas import SCHEMA_BYTES_MAX, SCHEMAS_MAX
from holdfast.broker.machine import Machine
from holdfast.errors import Misuse, NotFound
from tests.kit.broker.events import Rig, refused


def test_versions() -> None:
    rig = Rig()
    topic = rig.topic()
    assert rig.do(SchemaAdd(topic.id, b"a")) == SchemaAdded(0)
    assert rig.do(SchemaAdd(topic.id, b"b")) == SchemaAdded(1)
    assert rig.do(SchemaAdd(topic.id, b"a")) == SchemaAdded(0)
    other = Machine()
    other.load(rig.machine.capture().parts)
    assert other.state.topics[topic.id].schemas == [b"a", b"b"]


def test_limits() -> None:
    rig = Rig()
    topic = rig.topic()
    refused(rig, SchemaAdd(topic.id, bytes(SCHEMA_BYTES_MAX + 1)), Misuse)
    refused(rig, SchemaAdd(99, b"a"), NotFound)
    for n in range(SCHEMAS_MAX):
        rig.do(SchemaAdd(topic.id, b"%d" % n))
    refused(rig, SchemaAdd(topic.id, b"one more"), Misuse)
    assert rig.do(SchemaAdd(topic.id, b"7")) == SchemaAdded(7)
