"""Features of clients beyond producers and consumers: several addresses, failover, views."""

from __future__ import annotations

import time
from typing import Any

from tests.kit.server.wire_programs import refused, until
from tests.kit.server.wire_world import program, pulsar

NOWHERE = "127.0.0.1:9"


@program
def test_several_addresses(url: str, topic: str) -> None:
    """The client tries the next address if one does not answer."""
    there = url.removeprefix("pulsar://")
    for addresses in (f"{NOWHERE},{there}", f"{there},{NOWHERE}"):
        client = pulsar.Client(f"pulsar://{addresses}", operation_timeout_seconds=20)
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic).send(b"x")
        assert consumer.receive(10_000).data() == b"x"
        consumer.close()
        client.close()


@program
def test_failover_to_another_cluster(url: str, topic: str) -> None:
    """The client alone decides; to the server it is another connection."""
    provider = pulsar.AutoClusterFailover(
        pulsar.ServiceInfo(f"pulsar://{NOWHERE}"), [pulsar.ServiceInfo(url)], check_interval_ms=100
    )
    client = pulsar.Client(provider, operation_timeout_seconds=20)
    time.sleep(1)
    client.create_producer(topic).send(b"x")
    client.close()


@program
def test_a_view_with_a_schema_and_a_listener(client: Any, topic: str) -> None:
    from pulsar.schema import JsonSchema, Record, String

    class Order(Record):  # type: ignore[misc]
        name = String()

    producer = client.create_producer(topic, schema=JsonSchema(Order))
    producer.send(Order(name="nails"), partition_key="1")
    seen: dict[str, str] = {}
    view = client.create_table_view(topic, schema=JsonSchema(Order))
    view.for_each_and_listen(lambda key, order: seen.update({key: order.name}))
    producer.send(Order(name="screws"), partition_key="2")
    producer.send(Order(name="bolts"), partition_key="1")
    until(lambda: seen == {"1": "bolts", "2": "screws"})
    assert view.get("1").name == "bolts"
    view.close()


@program
def test_a_replicated_subscription_is_refused(client: Any, topic: str) -> None:
    def subscribe() -> None:
        client.subscribe(topic, "s", replicate_subscription_state_enabled=True)

    refused(pulsar.PulsarException, subscribe)
    assert client.subscribe(topic, "s") is not None
