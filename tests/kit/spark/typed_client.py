"""Publish typed messages with the official client, in a process of its own.

    kit/spark/typed_client.py URL

Topics `typed-json` and `typed-avro` get messages of two versions of a schema, in turn. `typed-avro` also gets
one without a schema.
"""

from __future__ import annotations

import sys
from typing import Any

import pulsar
from pulsar.schema import Array, AvroSchema, Boolean, Double, Integer, JsonSchema, Long, Map, Record, String


class Place(Record):  # type: ignore[misc]
    city = String()
    floor = Integer()


class Order(Record):  # type: ignore[misc]
    name = String()
    count = Integer()
    price = Double()
    paid = Boolean()
    tags = Array(String())
    sizes = Map(Long())
    place = Place()


class Coloured(Record):  # type: ignore[misc]
    """A further version: fields that may be missing, in another order."""

    colour = String(required_default=True)
    name = String()
    count = Integer()
    price = Double()
    paid = Boolean()
    tags = Array(String())
    sizes = Map(Long())
    place = Place()


Coloured.__name__ = "Order"  # the name is part of the definition
FIRST: dict[str, Any] = {
    "name": "nails",
    "count": 7,
    "price": 2.5,
    "paid": True,
    "tags": ["a", "ü"],
    "sizes": {"small": 1 << 40},
}
SECOND: dict[str, Any] = {**FIRST, "name": "rope", "count": -1, "colour": "grey"}
PLACE = {"city": "Kiel", "floor": 3}


def publish(client: Any, topic: str, schema: Any) -> None:
    """Send both versions twice, each by a producer of its own."""
    for _ in range(2):
        for kind, value in ((Order, FIRST), (Coloured, SECOND)):
            producer = client.create_producer(topic, schema=schema(kind))
            producer.send(kind(**value, place=Place(**PLACE)))
            producer.close()


def main() -> None:
    client = pulsar.Client(sys.argv[1], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    publish(client, "typed-json", JsonSchema)
    publish(client, "typed-avro", AvroSchema)
    client.create_producer("typed-avro").send(b"untyped")
    client.close()


if __name__ == "__main__":
    main()
