"""Failover subscriptions: the active consumer, its successor, and the notices to both."""

from __future__ import annotations

from typing import Any

from tests.kit.server.wire_programs import data_of, nothing_comes, numbers, receive, send_all, until
from tests.kit.server.wire_world import program, pulsar


@program
def test_the_next_takes_over(client: Any, connect: Any, topic: str) -> None:
    first_client = connect()
    kind = pulsar.ConsumerType.Failover
    first = first_client.subscribe(topic, "s", consumer_type=kind, consumer_name="a")
    second = client.subscribe(topic, "s", consumer_type=kind, consumer_name="b")
    producer = client.create_producer(topic)
    for n in range(10):
        producer.send(b"%d" % n)
    messages = receive(first, 10)
    assert data_of(messages) == numbers(0, 10)
    for each in messages[:4]:
        first.acknowledge(each)
    nothing_comes(second)
    first.close()
    again = receive(second, 6)
    assert data_of(again) == numbers(4, 10)
    for each in again:
        second.acknowledge(each)
    producer.send(b"more")
    assert second.receive(20_000).data() == b"more"


@program
def test_a_client_that_vanishes(client: Any, connect: Any, topic: str, admin: Any) -> None:
    gone = connect()
    kind = pulsar.ConsumerType.Failover
    first = gone.subscribe(topic, "s", consumer_type=kind)
    second = client.subscribe(topic, "s", consumer_type=kind)
    producer = client.create_producer(topic)
    producer.send(b"x")
    assert first.receive(20_000).data() == b"x"
    gone.shutdown()  # without a word
    message = second.receive(20_000)
    assert message.data() == b"x"
    assert message.redelivery_count() == 1
    until(lambda: len(admin.stats(topic, "s")["consumers"]) == 1)
    # (the python client has no listener for changes of the active consumer: tests/pulsar/test_raw.py looks)


@program
def test_order_over_several_changes(client: Any, topic: str) -> None:
    kind = pulsar.ConsumerType.Failover
    consumers = [client.subscribe(topic, "s", consumer_type=kind) for _ in range(4)]
    producer = client.create_producer(topic, block_if_queue_full=True)
    send_all(producer, numbers(0, 200))
    expected = 0
    for at, consumer in enumerate(consumers):
        while expected < 50 * (at + 1):
            message = consumer.receive(20_000)
            assert message.data() == b"%d" % expected
            consumer.acknowledge(message)
            expected += 1
        consumer.close()
    assert expected == 200
