"""Connecting, publishing, subscribing, receiving: what every program of a Pulsar user does."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from functools import partial
from typing import Any

from tests.kit.server.wire_programs import numbers, refused, send_all, until
from tests.kit.server.wire_world import program, pulsar


@program
def test_what_is_sent_arrives(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "billing")
    producer = client.create_producer(topic)
    ids = [producer.send(b"order %d" % n) for n in range(20)]
    for n in range(20):
        message = consumer.receive(20_000)
        assert message.data() == b"order %d" % n
        assert message.message_id() == ids[n]
        assert message.redelivery_count() == 0
        assert message.topic_name() == f"persistent://public/default/{topic}"
        consumer.acknowledge(message)


@program
async def test_the_same_with_asyncio(client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "billing")
    producer = await client.create_producer(topic)
    ids = await asyncio.gather(*(producer.send(b"order %d" % n) for n in range(50)))
    assert len({str(each) for each in ids}) == 50
    for n in range(50):
        message = await consumer.receive()
        assert message.data() == b"order %d" % n
        await consumer.acknowledge(message)
    await producer.close()
    await consumer.close()


@program
def test_everything_that_a_message_carries(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="till-1")
    begun_ms = int(time.time() * 1000)
    producer.send(
        b"nails",
        properties={"colour": "grey", "unit": "pound"},
        partition_key="smith",
        ordering_key="a",
        event_timestamp=1_700_000_000_123,
        sequence_id=77,
    )
    message = consumer.receive(20_000)
    assert message.properties() == {"colour": "grey", "unit": "pound"}
    assert message.partition_key() == "smith"
    assert message.ordering_key() == "a"
    assert message.event_timestamp() == 1_700_000_000_123
    assert message.producer_name() == "till-1"
    assert producer.last_sequence_id() == 77
    assert begun_ms <= message.publish_timestamp() <= time.time() * 1000


@program
def test_many_asynchronous_sends_in_order(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=5000)
    producer = client.create_producer(topic, block_if_queue_full=True)
    send_all(producer, numbers(0, 5000))
    for n in range(5000):
        message = consumer.receive(20_000)
        assert message.data() == str(n).encode()
        consumer.acknowledge(message)


@program
def test_initial_position(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"before")
    late = client.subscribe(topic, "late")
    early = client.subscribe(topic, "early", initial_position=pulsar.InitialPosition.Earliest)
    producer.send(b"after")
    assert late.receive(20_000).data() == b"after"
    assert [early.receive(20_000).data() for _ in range(2)] == [b"before", b"after"]


@program
def test_a_subscription_keeps_its_place(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for n in range(4):
        producer.send(str(n).encode())
    for _ in range(2):
        consumer.acknowledge(consumer.receive(20_000))
    consumer.close()
    again = client.subscribe(topic, "s")
    assert [again.receive(20_000).data() for _ in range(2)] == [b"2", b"3"]


@program
def test_unsubscribe(client: Any, topic: str, admin: Any) -> None:
    consumer = client.subscribe(topic, "s")
    assert admin.subscriptions(topic) == ["s"]
    consumer.unsubscribe()
    assert admin.subscriptions(topic) == []
    assert admin.count("attached") == 0


@program
def test_unsubscribe_beside_others_is_refused(client: Any, topic: str, admin: Any) -> None:
    one = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    refused(pulsar.PulsarException, one.unsubscribe)
    assert admin.subscriptions(topic) == ["s"]


@program
def test_exclusive_is_exclusive(client: Any, connect: Any, topic: str) -> None:
    client.subscribe(topic, "s")
    other = connect()
    for kind in (pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared):
        refused(pulsar.ConsumerBusy, partial(other.subscribe, topic, "s", consumer_type=kind))


@program
def test_a_closed_exclusive_consumer_is_replaced_at_once(client: Any, connect: Any, topic: str) -> None:
    for _ in range(20):
        consumer = client.subscribe(topic, "s")
        consumer.close()
        other = connect().subscribe(topic, "s")
        other.close()


@program
def test_no_topic_of_that_name(client: Any, topic: str) -> None:
    error = refused(pulsar.PulsarException, partial(client.create_producer, "persistent://a/b"))
    assert not isinstance(error, pulsar.Timeout), error


@program
def test_no_namespace_of_that_name(client: Any, topic: str, admin: Any) -> None:
    name = f"persistent://{topic}/eu/orders"
    refused(pulsar.TopicNotFound, lambda: client.create_producer(name))
    refused(pulsar.TopicNotFound, lambda: client.subscribe(name, "s"))
    admin.create_tenant(topic)
    admin.create_namespace(f"{topic}/eu")
    client.create_producer(name).send(b"x")


@program
def test_several_topics_and_a_pattern(client: Any, topic: str) -> None:
    names = [f"{topic}-{kind}" for kind in ("iron", "wood")]
    producers = [client.create_producer(name) for name in names]
    listed = client.subscribe(names, "list")
    matched = client.subscribe(re.compile(f"persistent://public/default/{topic}-.*"), "pattern")
    for name, producer in zip(names, producers, strict=True):
        producer.send(name.encode())
    for consumer in (listed, matched):
        got = set()
        for _ in names:
            message = consumer.receive(20_000)
            got.add(message.data().decode())
            consumer.acknowledge(message)
        assert got == set(names)


@program
def test_partitions_of_a_topic(client: Any, topic: str) -> None:
    client.create_producer(topic)
    assert client.get_topic_partitions(topic) == [f"persistent://public/default/{topic}"]


@program
def test_closing_leaves_nothing_behind(connect: Any, topic: str, admin: Any) -> None:
    """I86"""
    before = [admin.count(each) for each in ("producers", "attached", "connections")]
    client = connect()
    client.create_producer(topic).send(b"x")
    client.subscribe(topic, "s")
    client.create_reader(topic, pulsar.MessageId.earliest)
    client.close()
    until(lambda: [admin.count(each) for each in ("producers", "attached", "connections")] == before)


@program
def test_a_topic_that_is_unloaded(client: Any, topic: str, admin: Any) -> None:
    """Its clients are closed, come back, and go on where they were."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    producer.send(b"before")
    consumer.acknowledge(consumer.receive(20_000))
    assert reader.read_next(20_000).data() == b"before"
    until(lambda: admin.stats(topic, "s")["backlog"] == 0)  # the client collects acknowledgements for 100 ms
    assert admin.unload(topic) == 3
    producer.send(b"after")
    assert consumer.receive(20_000).data() == b"after"
    assert reader.read_next(20_000).data() == b"after"


@program
def test_a_large_message(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    data = bytes(range(256)) * (5 << 12)
    data = data[:-1024]  # the largest is 5 MiB, with what the client puts before it
    producer.send(data)
    producer.send(b"small")
    assert consumer.receive(10000).data() == data
    assert consumer.receive(20_000).data() == b"small"
    refused(pulsar.MessageTooBig, lambda: producer.send(data + b"x" * 1024))


@program
def test_a_message_listener(client: Any, topic: str) -> None:
    got: list[bytes] = []
    all_here = threading.Event()

    def listen(consumer: Any, message: Any) -> None:
        got.append(message.data())
        consumer.acknowledge(message)
        if len(got) == 10:
            all_here.set()

    client.subscribe(topic, "s", message_listener=listen)
    producer = client.create_producer(topic)
    for n in range(10):
        producer.send(str(n).encode())
    assert all_here.wait(5)
    assert got == [str(n).encode() for n in range(10)]
