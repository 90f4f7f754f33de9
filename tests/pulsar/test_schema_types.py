"""Schemas of every type over the wire: kept, found again by version, and compared.

The official client of Python has classes for text, JSON, Avro and Protobuf-native; these tests use them. The
others are raw frames, as Java's client sends them. Python's enumeration lacks truth values, dates and times.
Its `SchemaInfo` takes no properties, without which a KEY_VALUE pair has no types. It has no class
for plain numbers, PROTOBUF, AUTO_CONSUME and AUTO_PUBLISH. It has no call for GET_OR_CREATE_SCHEMA, whose
answer gives the version of a schema, or the words of its refusal.
"""

from __future__ import annotations

import json
import signal
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.served import served
from tests.kit.server.wire_programs import refused
from tests.kit.server.wire_raw import Raw, Type, full
from tests.kit.server.wire_world import program, pulsar

PLAIN = (
    *(pb.Schema.Bool, pb.Schema.Int8, pb.Schema.Int16, pb.Schema.Int32, pb.Schema.Int64),
    *(pb.Schema.Float, pb.Schema.Double, pb.Schema.Date, pb.Schema.Time, pb.Schema.Timestamp),
    *(pb.Schema.Instant, pb.Schema.LocalDate, pb.Schema.LocalTime, pb.Schema.LocalDateTime),
    pb.Schema.String,
)
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "x", "type": "int"}]}).encode()
OTHER = ORDER.replace(b'"int"', b'"string"')


# -- with the official client --------------------------------------------------------------------------


@program
def test_avro(client: Any, topic: str) -> None:
    from pulsar.schema import AvroSchema, Integer, Record, String

    class Order(Record):  # type: ignore[misc]
        name = String()
        count = Integer()

    class Counted(Record):  # type: ignore[misc]
        name = Integer()

    Counted.__name__ = "Order"
    consumer = client.subscribe(topic, "s", schema=AvroSchema(Order))
    client.create_producer(topic, schema=AvroSchema(Order)).send(Order(name="nails", count=7))
    order = consumer.receive(20_000).value()
    assert (order.name, order.count) == ("nails", 7)
    refused(pulsar.IncompatibleSchema, partial(client.create_producer, topic, schema=AvroSchema(Counted)))


@program
def test_a_reader_with_a_schema(client: Any, topic: str) -> None:
    """It gets values, each by the version of its writer; another schema is refused."""
    from pulsar.schema import AvroSchema, Integer, Record, String

    class Order(Record):  # type: ignore[misc]
        name = String()

    class Coloured(Record):  # type: ignore[misc]
        name = String()
        colour = String(default="grey", required_default=True)

    class Numbered(Record):  # type: ignore[misc]
        name = Integer(required=True)

    Coloured.__name__ = Numbered.__name__ = "Order"
    client.create_producer(topic, schema=AvroSchema(Order)).send(Order(name="nails"))
    client.create_producer(topic, schema=AvroSchema(Coloured)).send(Coloured(name="screws", colour="red"))
    start = pulsar.MessageId.earliest
    reader = client.create_reader(topic, start, schema=AvroSchema(Coloured))
    values = [reader.read_next(20_000).value() for _ in range(2)]
    assert [(each.name, each.colour) for each in values] == [("nails", "grey"), ("screws", "red")]
    other = partial(client.create_reader, topic, start, schema=AvroSchema(Numbered))
    refused(pulsar.IncompatibleSchema, other)


@program
def test_protobuf_native(client: Any, topic: str) -> None:
    """The definition is a set of descriptors; another message is refused."""
    from google.protobuf.wrappers_pb2 import Int64Value, StringValue
    from pulsar.schema import ProtobufNativeSchema

    consumer = client.subscribe(topic, "s", schema=ProtobufNativeSchema(StringValue))
    producer = client.create_producer(topic, schema=ProtobufNativeSchema(StringValue))
    producer.send(StringValue(value="nails"))
    assert consumer.receive(20_000).value().value == "nails"
    other = ProtobufNativeSchema(Int64Value)
    refused(pulsar.IncompatibleSchema, partial(client.create_producer, topic, schema=other))
    refused(pulsar.IncompatibleSchema, partial(client.subscribe, topic, "t", schema=other))


# -- raw frames: the official client of Python has no such types or calls, see above -------------------


def schema(kind: pb.Schema.Type, data: bytes = b"", **properties: str) -> pb.Schema:
    found = pb.Schema(name="s", type=kind, schema_data=data)
    for key, value in properties.items():
        found.properties.add(key=key.replace("_", "."), value=value)
    return found


def pair(key: bytes, value: bytes) -> pb.Schema:
    parts = b"".join(len(each).to_bytes(4, "big") + each for each in (key, value))
    types = {"key_schema_type": "STRING", "value_schema_type": "JSON", "kv_encoding_type": "SEPARATED"}
    return schema(pb.Schema.KeyAndValue, parts, **types)


def version(raw: Raw, topic: str, given: pb.Schema) -> int | str:
    """Return the version that a schema gets, or the words of its refusal."""
    answer = raw.ask(
        Type.GET_OR_CREATE_SCHEMA, Type.GET_OR_CREATE_SCHEMA_RESPONSE, topic=full(topic), schema=given
    )
    return str(answer.error_message) or int.from_bytes(answer.schema_version, "big")


def newest(raw: Raw, topic: str) -> pb.Schema:
    answer = raw.ask(Type.GET_SCHEMA, Type.GET_SCHEMA_RESPONSE, topic=full(topic))
    assert isinstance(answer.schema, pb.Schema)
    return answer.schema


@pytest.mark.parametrize("kind", PLAIN, ids=pb.Schema.Type.Name)
def test_plain_types(raw: Raw, topic: str, kind: pb.Schema.Type) -> None:
    raw.produce(topic, schema=schema(kind))
    assert newest(raw, topic).type == kind
    assert version(raw, topic, schema(kind)) == 0
    other = pb.Schema.Int8 if kind == pb.Schema.String else pb.Schema.String
    words = version(raw, topic, schema(other))
    assert pb.Schema.Type.Name(kind).upper() in str(words).upper().replace("_", "")


def test_pairs_of_key_and_value(raw: Raw, topic: str) -> None:
    """Each part is compared by its own rules."""
    raw.produce(topic, schema=pair(b"", ORDER))
    assert newest(raw, topic).type == pb.Schema.KeyAndValue
    raw.subscribe(topic, schema=pair(b"", ORDER))
    assert version(raw, topic, pair(b"", ORDER)) == 0
    words = str(version(raw, topic, pair(b"", OTHER)))
    assert "value" in words
    assert "x" in words


def test_protobuf_as_avro(raw: Raw, topic: str) -> None:
    """Clients of the older type send an Avro definition of their message."""
    raw.produce(topic, schema=schema(pb.Schema.Protobuf, ORDER))
    assert newest(raw, topic).type == pb.Schema.Protobuf
    assert "x" in str(version(raw, topic, schema(pb.Schema.Protobuf, OTHER)))


def test_clients_that_take_the_schema_of_the_topic(raw: Raw, topic: str) -> None:
    """AUTO_PUBLISH asks for it first; AUTO_CONSUME is accepted, and adds none."""
    raw.produce(topic, schema=schema(pb.Schema.Json, ORDER))
    assert newest(raw, topic).schema_data == ORDER
    raw.subscribe(topic, 1, schema=schema(pb.Schema.AutoConsume))
    raw.produce(topic, 2, schema=newest(raw, topic))
    assert version(raw, topic, schema(pb.Schema.Json, ORDER)) == 0


def test_bytes_and_no_schema(raw: Raw, topic: str) -> None:
    raw.produce(topic, schema=schema(pb.Schema.Json, ORDER))
    raw.produce(topic, 2)
    raw.subscribe(topic, 1, schema=schema(pb.Schema.Bytes))
    raw.subscribe(topic, 2, subscription="t")
    assert newest(raw, topic).type == pb.Schema.Json


# -- over a kill ---------------------------------------------------------------------------------------


def test_an_incompatible_schema_after_a_kill(tmp_path: Path) -> None:
    """A restart forgets neither the schemas nor the rules of a namespace."""
    pairs = pair(b"", ORDER)
    with served(tmp_path, http=True) as server:
        with Raw(server.url) as raw:
            assert version(raw, "orders", schema(pb.Schema.Json, ORDER)) == 0
            assert version(raw, "pairs", pairs) == 0
        place = f"{server.http_url}/admin/v2/namespaces/public/default/isAllowAutoUpdateSchema"
        kind = {"Content-Type": "application/json"}
        asked = urllib.request.Request(place, b"false", kind, method="POST")
        urllib.request.urlopen(asked, timeout=10).close()
        server.end(signal.SIGKILL)
    with served(tmp_path) as server, Raw(server.url) as raw:
        assert version(raw, "orders", schema(pb.Schema.Json, ORDER)) == 0
        assert "isAllowAutoUpdateSchema" in str(version(raw, "orders", schema(pb.Schema.Json, OTHER)))
        assert "isAllowAutoUpdateSchema" in str(version(raw, "pairs", pair(b"", OTHER)))
        words = raw.ask(
            Type.SUBSCRIBE,
            Type.ERROR,
            topic=full("orders"),
            subscription="s",
            consumer_id=1,
            subType=1,
            schema=schema(pb.Schema.Json, OTHER),
        ).message
        assert "field x" in words
