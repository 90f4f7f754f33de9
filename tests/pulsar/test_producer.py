"""Producers: names, access modes, sequence numbers and deduplication."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.kit.server.wire_programs import data_of, nothing_comes, numbers, receive, refused, send_all, until
from tests.kit.server.wire_world import program, pulsar, with_broker


@program
def test_names(client: Any, topic: str) -> None:
    one, two = client.create_producer(topic), client.create_producer(topic)
    assert one.producer_name() != two.producer_name()
    assert one.producer_name().startswith("standalone-")
    mine = client.create_producer(topic, producer_name="till-1")
    assert mine.producer_name() == "till-1"


@program
def test_a_name_is_taken_once(client: Any, connect: Any, topic: str) -> None:
    first = client.create_producer(topic, producer_name="till-1")
    refused(pulsar.ProducerBusy, lambda: connect().create_producer(topic, producer_name="till-1"))
    first.send(b"still here")
    first.close()
    connect().create_producer(topic, producer_name="till-1").send(b"now mine")


@program
def test_exclusive(client: Any, connect: Any, topic: str) -> None:
    mode = pulsar.ProducerAccessMode
    first = client.create_producer(topic, access_mode=mode.Exclusive)
    refused(pulsar.ProducerFenced, lambda: connect().create_producer(topic, access_mode=mode.Exclusive))
    refused(pulsar.ProducerBusy, lambda: connect().create_producer(topic))
    first.send(b"x")
    first.close()
    client.create_producer(topic).send(b"y")


@program
def test_waiting_for_exclusive(client: Any, connect: Any, topic: str) -> None:
    import threading

    mode = pulsar.ProducerAccessMode
    first = client.create_producer(topic, access_mode=mode.Exclusive)
    second: list[Any] = []
    waiting = threading.Thread(
        target=lambda: second.append(
            connect().create_producer(topic, access_mode=mode.WaitForExclusive, producer_name="second")
        )
    )
    waiting.start()
    waiting.join(0.5)
    assert not second, "it did not wait"
    first.close()
    waiting.join(5)
    second[0].send(b"my turn")


@program
def test_fencing(client: Any, connect: Any, topic: str) -> None:
    mode = pulsar.ProducerAccessMode
    first = client.create_producer(topic, access_mode=mode.Exclusive, send_timeout_millis=3000)
    first.send(b"x")
    second = connect().create_producer(topic, access_mode=mode.ExclusiveWithFencing)
    second.send(b"mine now")
    refused(pulsar.ProducerFenced, lambda: first.send(b"too late"))
    second.send(b"still mine")
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert data_of(receive(consumer, 3)) == [b"x", b"mine now", b"still mine"]


@with_broker(deduplication=True)
def test_deduplication(client: Any, topic: str) -> None:
    """(The python client takes the sequence number 0 for none.)"""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="till-1")
    assert producer.last_sequence_id() == -1
    for sequence in (1, 2, 2, 3, 1, 4):
        producer.send(b"%d" % sequence, sequence_id=sequence)
    assert data_of(receive(consumer, 4)) == [b"1", b"2", b"3", b"4"]
    nothing_comes(consumer)
    producer.close()
    again = client.create_producer(topic, producer_name="till-1")
    assert again.last_sequence_id() == 4
    again.send(b"4", sequence_id=4)
    again.send(b"5")
    assert consumer.receive(20_000).data() == b"5"
    nothing_comes(consumer)


@with_broker(deduplication=True)
def test_deduplication_of_batches(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    options = {"batching_enabled": True, "batching_max_messages": 10, "batching_max_publish_delay_ms": 500}
    for turn in range(3):
        producer = client.create_producer(topic, producer_name="till-1", **options)
        # This client tells only the first number of a batch.
        assert producer.last_sequence_id() == (30 if turn else -1)
        send_all(producer, numbers(1, 31), sequence_id=lambda n: n + 1)
        producer.close()
    assert data_of(receive(consumer, 30)) == numbers(1, 31)
    nothing_comes(consumer)


@with_broker(deduplication=True)
def test_deduplication_of_chunks(client: Any, topic: str) -> None:
    """A chunk before the last raises no sequence number: the message comes once."""
    consumer = client.subscribe(topic, "s")
    data = bytes(11 << 20)
    for _ in range(2):
        producer = client.create_producer(topic, producer_name="till-1", chunking_enabled=True)
        producer.send(data, sequence_id=5)
        producer.send(b"end", sequence_id=6)
        producer.close()
    assert consumer.receive(20000).data() == data
    assert consumer.receive(20_000).data() == b"end"
    nothing_comes(consumer)


@program
def test_a_message_that_is_never_accepted(client: Any, topic: str) -> None:
    """Its producer is fenced, else the client would send it again and disturb all others."""
    for name in (topic, f"non-persistent://public/default/{topic}"):
        other = client.create_producer(f"{topic}-other")
        producer = client.create_producer(name, initial_sequence_id=-5)
        refused(pulsar.ProducerFenced, lambda producer=producer: producer.send(b"x"))  # type: ignore[misc]
        other.send(b"y")
        client.create_producer(name).send(b"z")
        other.close()


@program
def test_a_terminated_topic(client: Any, topic: str, admin: Any) -> None:
    producer = client.create_producer(topic, send_timeout_millis=2000)
    consumer = client.subscribe(topic, "s")
    producer.send(b"last")
    admin.terminate(topic)
    refused(pulsar.PulsarException, lambda: producer.send(b"too late"))
    refused(pulsar.TopicTerminated, lambda: client.create_producer(topic))
    assert consumer.receive(20_000).data() == b"last"


@program
def test_a_deleted_topic_comes_back_empty(client: Any, topic: str, admin: Any) -> None:
    """The client's producer and consumer reconnect, and thereby make the topic again."""
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    producer.send(b"old")
    admin.delete_topic(topic, force=True)
    until(lambda: admin.subscriptions(topic) == ["s"] if topic in str(admin.topics()) else False)
    until(lambda: producer.is_connected() and consumer.is_connected())
    producer.send(b"new")
    while True:
        message = consumer.receive(20_000)
        consumer.acknowledge(message)
        if message.data() == b"new":
            break


@program
async def test_access_with_asyncio(client: Any, topic: str) -> None:
    mode = pulsar.ProducerAccessMode
    first = await client.create_producer(topic, access_mode=mode.Exclusive)
    second = (await asyncio.gather(client.create_producer(topic), return_exceptions=True))[0]
    assert isinstance(second, pulsar.asyncio.PulsarException)
    assert second.error() == pulsar.Result.ProducerBusy
    await first.close()
