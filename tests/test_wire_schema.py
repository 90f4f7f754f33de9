"""Schemas as far as clients need them: kept, told, and not compared."""

from __future__ import annotations

from typing import Any

from wire_world import program, pulsar


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
    order = consumer.receive(5000).value()
    assert (order.name, order.pounds, order.count) == ("nails", 2.5, 7)


@program
def test_text_and_bytes(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", schema=pulsar.schema.StringSchema())
    producer = client.create_producer(topic, schema=pulsar.schema.StringSchema())
    producer.send("grüße")
    client.create_producer(topic).send(b"plain")
    assert [consumer.receive(5000).value() for _ in range(2)] == ["grüße", "plain"]


@program
async def test_with_asyncio(client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s", schema=pulsar.schema.StringSchema())
    producer = await client.create_producer(topic, schema=pulsar.schema.StringSchema())
    await producer.send("x")
    assert (await consumer.receive()).value() == "x"
