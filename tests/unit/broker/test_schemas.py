"""schema.add: versions along a topic, once for the same bytes."""

from __future__ import annotations

from holdfast.broker.events import SchemaAdd, SchemaAdded, SchemaDelete
from holdfast.broker.events.schemas import SCHEMA_BYTES_MAX, SCHEMAS_MAX, applying
from holdfast.broker.machine import Machine
from holdfast.errors import Misuse, NotFound, Outdated
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


def test_of_two_schemas_at_once_one_is_compared_again() -> None:
    rig = Rig()
    topic = rig.topic()
    assert rig.do(SchemaAdd(topic.id, b"a", 0)) == SchemaAdded(0)
    assert rig.do(SchemaAdd(topic.id, b"a", 0)) == SchemaAdded(0), "the same one needs no comparison"
    refused(rig, SchemaAdd(topic.id, b"b", 0), Outdated, "compare again")
    assert rig.do(SchemaAdd(topic.id, b"b", 1)) == SchemaAdded(1)


def test_a_deletion_ends_earlier_versions() -> None:
    rig = Rig()
    topic = rig.topic()
    refused(rig, SchemaDelete(topic.id), NotFound, "no schema")
    refused(rig, SchemaAdd(topic.id, b""), Misuse, "no bytes")
    rig.do(SchemaAdd(topic.id, b"a"))
    assert rig.do(SchemaDelete(topic.id)) == SchemaAdded(1)
    refused(rig, SchemaDelete(topic.id), NotFound, "no schema")
    assert applying(topic.schemas) == []
    assert rig.do(SchemaAdd(topic.id, b"a")) == SchemaAdded(2), "versions are never used again"
    assert applying(topic.schemas) == [(2, b"a")]
    other = Machine()
    other.load(rig.machine.capture().parts)
    assert other.state.topics[topic.id].schemas == [b"a", b"", b"a"]
