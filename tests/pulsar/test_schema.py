"""Schemas: kept, told, and compared; clients with others are refused, with the field."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.kit.server.wire_programs import refused
from tests.kit.server.wire_world import program, pulsar


@program
def test_json(client: Any, topic: str) -> None:
    from pulsar.schema import Float, Integer, JsonSchema, Record, String

    class Order(Record):  # type: ignore[misc]
        name = String()
        pounds = Float()
        count = Integer()

    consumer = client.subscribe(topic, "s", schema=JsonSchema(Order))
    producer = client.create_producer(topic, schema=JsonSchema(Order))
    producer.send(Order(name="nails", pounds=2.5, count=7))
    order = consumer.receive(20_000).value()
    assert (order.name, order.pounds, order.count) == ("nails", 2.5, 7)


@program
def test_versions_are_kept(client: Any, topic: str) -> None:
    """Messages name their schema's version, and a client can request that schema."""
    from pulsar.schema import JsonSchema, Record, String

    class Old(Record):  # type: ignore[misc]
        name = String()

    class New(Record):  # type: ignore[misc]
        name = String()
        colour = String(required_default=True)

    New.__name__ = "Old"

    consumer = client.subscribe(topic, "s")
    for _ in range(2):
        client.create_producer(topic, schema=JsonSchema(Old)).send(Old(name="nails"))
        client.create_producer(topic, schema=JsonSchema(New)).send(New(name="nails", colour="grey"))
    assert [consumer.receive(20_000)._message.int_schema_version() for _ in range(4)] == [0, 1, 0, 1]
    where = f"persistent://public/default/{topic}"
    assert "colour" not in client._client.get_schema_info(where, 0).schema()
    assert "colour" in client._client.get_schema_info(where, 1).schema()


@program
def test_text_and_bytes(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", schema=pulsar.schema.StringSchema())
    producer = client.create_producer(topic, schema=pulsar.schema.StringSchema())
    producer.send("grüße")
    client.create_producer(topic).send(b"plain")
    assert [consumer.receive(20_000).value() for _ in range(2)] == ["grüße", "plain"]


@program
async def test_with_asyncio(client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s", schema=pulsar.schema.StringSchema())
    producer = await client.create_producer(topic, schema=pulsar.schema.StringSchema())
    await producer.send("x")
    assert (await consumer.receive()).value() == "x"


@program
def test_a_schema_that_does_not_fit_is_refused(client: Any, topic: str) -> None:
    from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

    class Order(Record):  # type: ignore[misc]
        name = String()

    class Counted(Record):  # type: ignore[misc]
        name = Integer()

    class Wider(Record):  # type: ignore[misc]
        name = String()
        colour = String(required=True)

    Counted.__name__ = Wider.__name__ = "Order"
    client.create_producer(topic, schema=JsonSchema(Order)).send(Order(name="nails"))
    for schema in (JsonSchema(Counted), JsonSchema(Wider), AvroSchema(Order), pulsar.schema.StringSchema()):
        refused(pulsar.IncompatibleSchema, partial(client.create_producer, topic, schema=schema))
        refused(pulsar.IncompatibleSchema, partial(client.subscribe, topic, "s", schema=schema))
    assert client.subscribe(topic, "s", schema=JsonSchema(Order)) is not None
    where = f"persistent://public/default/{topic}"
    assert "colour" not in client._client.get_schema_info(where, 0).schema()
    assert refused(pulsar.TopicNotFound, lambda: client._client.get_schema_info(where, 1)) is not None


@program
def test_a_consumer_may_be_first(client: Any, topic: str) -> None:
    """On a new topic its schema counts; a topic with messages must have one."""
    client.subscribe(topic, "s", schema=pulsar.schema.StringSchema())
    refused(
        pulsar.IncompatibleSchema,
        lambda: client.create_producer(
            topic, schema=pulsar.schema.JsonSchema(type("Order", (pulsar.schema.Record,), {}))
        ),
    )
    client.create_producer(f"{topic}-used").send(b"plain")
    refused(
        pulsar.IncompatibleSchema,
        lambda: client.subscribe(f"{topic}-used", "s", schema=pulsar.schema.StringSchema()),
    )
    assert client.subscribe(f"{topic}-used", "s") is not None
