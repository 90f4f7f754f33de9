"""Schemas: kept, told, and compared; clients with others are refused, with the field."""

from __future__ import annotations

import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kit import KIT, module_command
from tests.kit.served import Served, served
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


# -- rules, which users set over HTTP ------------------------------------------------------------------


def run(server: Served, name: str) -> None:
    """Run a program of tests/kit/server/schema_programs.py to its end."""
    command = [*module_command(KIT / "server/schema_programs.py"), name, server.url, server.http_url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}{ended.stderr[-3000:]}{server.logs()[-3000:]}"


@pytest.mark.parametrize(
    "name", ["auto_update", "strategy_of_the_namespace", "misused_strategies", "enforcement"]
)
def test_rules(name: str, tmp_path: Path) -> None:
    """Each refusal is an IncompatibleSchema, and the client's log has the reason."""
    with served(tmp_path, http=True) as server:
        run(server, name)


def test_rules_after_a_kill(tmp_path: Path) -> None:
    with served(tmp_path, http=True) as server:
        run(server, "ruled_before_a_restart")
        server.end(signal.SIGKILL)
    with served(tmp_path, http=True) as server:
        run(server, "ruled_after_a_restart")
