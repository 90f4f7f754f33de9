"""Acknowledge in all forms, and check redelivery without an acknowledgement."""

from __future__ import annotations

from typing import Any

from tests.kit.server.wire_programs import data_of, fill, nothing_comes, numbers, receive, send_all, until
from tests.kit.server.wire_world import program, pulsar


@program
def test_individual(client: Any, topic: str, admin: Any) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    fill(client, topic, 100)
    for n, message in enumerate(receive(consumer, 100)):
        if n % 3:
            consumer.acknowledge(message)
    consumer.close()
    until(lambda: admin.stats(topic, "s")["backlog"] == 34)
    again = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    messages = receive(again, 34)
    assert [message.data() for message in messages] == [b"%d" % n for n in range(0, 100, 3)]
    assert all(message.redelivery_count() == 1 for message in messages)
    for message in messages:
        again.acknowledge(message.message_id())
    again.close()
    until(lambda: admin.stats(topic, "s")["backlog"] == 0)


@program
def test_cumulative(client: Any, topic: str, admin: Any) -> None:
    consumer = client.subscribe(topic, "s")
    fill(client, topic, 50)
    messages = receive(consumer, 50)
    consumer.acknowledge_cumulative(messages[29])
    consumer.close()
    until(lambda: admin.stats(topic, "s")["backlog"] == 20)
    again = client.subscribe(topic, "s")
    assert again.receive(20_000).data() == b"30"


@program
async def test_with_asyncio(client: Any, topic: str, admin: Any) -> None:
    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic)
    for n in range(10):
        await producer.send(b"%d" % n)
    messages = [await consumer.receive() for _ in range(10)]
    await consumer.acknowledge(messages[9])
    await consumer.acknowledge_cumulative(messages[4])
    await consumer.close()
    until(lambda: admin.stats(topic, "s")["backlog"] == 4)


@program
def test_a_batch_in_part(client: Any, topic: str, admin: Any) -> None:
    """With batch index acknowledgement, acknowledged messages of a batch are not redelivered."""
    options = {"consumer_type": pulsar.ConsumerType.Shared, "batch_index_ack_enabled": True}
    consumer = client.subscribe(topic, "s", **options)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=1000
    )
    send_all(producer, numbers(0, 10))
    for n, message in enumerate(receive(consumer, 10)):
        if n in (0, 1, 5):
            consumer.acknowledge(message)
    consumer.close()
    until(lambda: admin.stats(topic, "s")["partly"] == 1)
    again = client.subscribe(topic, "s", **options)
    messages = receive(again, 7)
    assert [message.data() for message in messages] == [b"%d" % n for n in (2, 3, 4, 6, 7, 8, 9)]
    for message in messages:
        again.acknowledge(message)
    again.close()
    until(lambda: admin.stats(topic, "s")["backlog"] == 0)


@program
def test_a_batch_up_to_one(client: Any, topic: str, admin: Any) -> None:
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=1000
    )
    send_all(producer, numbers(0, 30))
    messages = receive(consumer, 30)
    consumer.acknowledge_cumulative(messages[13])
    consumer.close()
    until(lambda: admin.stats(topic, "s")["partly"] == 1)
    assert admin.stats(topic, "s")["backlog"] == 2
    again = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    assert data_of(receive(again, 16)) == numbers(14, 30)


@program
def test_a_batch_whose_messages_are_acknowledged_one_by_one(client: Any, topic: str, admin: Any) -> None:
    """Without batch index acknowledgement the client acknowledges a batch only as a whole."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=1000
    )
    send_all(producer, numbers(0, 10))
    messages = receive(consumer, 10)
    for message in messages[:7]:
        consumer.acknowledge(message)
    consumer.close()
    until(lambda: admin.stats(topic, "s")["backlog"] == 1)
    again = client.subscribe(topic, "s")
    assert again.receive(20_000).data() == b"5"


@program
def test_negative(client: Any, topic: str) -> None:
    consumer = client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100
    )
    fill(client, topic, 10)
    for n, message in enumerate(receive(consumer, 10)):
        if n % 2:
            consumer.acknowledge(message)
        else:
            consumer.negative_acknowledge(message)
    again = receive(consumer, 5)
    assert sorted(message.data() for message in again) == [b"0", b"2", b"4", b"6", b"8"]
    assert all(message.redelivery_count() == 1 for message in again)
    for message in again:
        consumer.acknowledge(message)
    nothing_comes(consumer)


@program
def test_negative_where_order_counts(client: Any, topic: str) -> None:
    """Exclusive: the cursor is rewound, everything unacknowledged is redelivered, in order."""
    consumer = client.subscribe(topic, "s", negative_ack_redelivery_delay_ms=100)
    fill(client, topic, 6)
    messages = receive(consumer, 6)
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[3])
    consumer.negative_acknowledge(messages[2])
    assert data_of(receive(consumer, 4)) == [b"1", b"2", b"4", b"5"]


@program
def test_redeliver_all(client: Any, topic: str, admin: Any) -> None:
    for name, kind in (("shared", pulsar.ConsumerType.Shared), ("one", pulsar.ConsumerType.Exclusive)):
        consumer = client.subscribe(topic, name, consumer_type=kind)
        producer = client.create_producer(topic)
        for n in range(5):
            producer.send(b"%d" % n)
        messages = receive(consumer, 5)
        consumer.acknowledge(messages[1])
        # the client collects acknowledgements for 100 ms
        until(lambda: admin.stats(topic, name)["backlog"] == 4)  # noqa: B023  (called at once)
        consumer.redeliver_unacknowledged_messages()
        again = receive(consumer, 4)
        assert data_of(again) == [b"0", b"2", b"3", b"4"], kind
        assert {each.redelivery_count() for each in again} == {1}
        consumer.close()
        producer.close()


@program
def test_permits_survive_redeliveries(client: Any, topic: str) -> None:
    """A consumer with a small queue continues after many redeliveries: no permit is lost."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=3)
    fill(client, topic, 30)
    for _ in range(10):
        consumer.receive(20_000)
        consumer.redeliver_unacknowledged_messages()
    got: set[int] = set()
    while len(got) < 30:
        message = consumer.receive(20_000)
        consumer.acknowledge(message)
        got.add(int(message.data()))
    assert got == set(range(30))


@program
def test_shared_work_goes_to_who_is_left(client: Any, connect: Any, topic: str) -> None:
    options = {"consumer_type": pulsar.ConsumerType.Shared, "receiver_queue_size": 10}
    other = connect()
    one = other.subscribe(topic, "s", consumer_name="one", **options)
    two = client.subscribe(topic, "s", consumer_name="two", **options)
    fill(client, topic, 100)
    got: dict[bytes, int] = {}
    for _ in range(10):
        message = one.receive(20_000)  # never acknowledged
        got[message.data()] = 0
    other.close()
    seen: set[bytes] = set()
    while len(seen) < 100:
        message = two.receive(20_000)
        seen.add(message.data())
        if message.data() in got:
            assert message.redelivery_count() == 1
        two.acknowledge(message)
    nothing_comes(two)


@program
def test_shared_is_fair(client: Any, topic: str) -> None:
    options = {"consumer_type": pulsar.ConsumerType.Shared, "receiver_queue_size": 100}
    consumers = [client.subscribe(topic, "s", **options) for _ in range(3)]
    producer = client.create_producer(topic, block_if_queue_full=True)
    send_all(producer, numbers(0, 600))
    counts = [0, 0, 0]
    while sum(counts) < 600:
        for at, consumer in enumerate(consumers):
            for _ in range(20):
                try:
                    consumer.acknowledge(consumer.receive(20))
                except pulsar.Timeout:
                    break
                counts[at] += 1
    assert min(counts) > 100, counts


@program
def test_dead_letters(client: Any, topic: str) -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-dead", "undertaker")
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=policy,
    )
    producer = client.create_producer(topic)
    producer.send(b"poison", properties={"a": "b"})
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(20_000))
    undertaker = client.subscribe(f"{topic}-dead", "undertaker")
    message = undertaker.receive(10000)
    assert message.data() == b"poison"
    assert message.properties()["a"] == "b"
    nothing_comes(consumer, 300)


@program
def test_batch_receive(client: Any, topic: str) -> None:
    consumer = client.subscribe(
        topic, "s", batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(10, 1 << 20, 2000)
    )
    fill(client, topic, 10)
    messages = consumer.batch_receive()
    assert data_of(messages) == numbers(0, 10)


@program
def test_a_queue_of_no_messages(client: Any, topic: str) -> None:
    """A receiver queue of 0: one permit for each call."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=0)
    fill(client, topic, 5)
    for n in range(5):
        message = consumer.receive()
        assert message.data() == b"%d" % n
        consumer.acknowledge(message)
