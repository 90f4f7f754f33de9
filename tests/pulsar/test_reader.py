"""Readers on cursors that leave no trace, and how far a topic goes."""

from __future__ import annotations

import time
from typing import Any

from tests.kit.server.wire_programs import fill, numbers, send_all, until
from tests.kit.server.wire_world import program, pulsar
from tests.kit.waiting import next_millisecond


def read_all(reader: Any) -> list[bytes]:
    got = []
    while reader.has_message_available():
        got.append(reader.read_next(20_000).data())
    return got


@program
def test_from_the_beginning(client: Any, topic: str, admin: Any) -> None:
    fill(client, topic, 50)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read_all(reader) == numbers(0, 50)
    assert not reader.has_message_available()
    client.create_producer(topic).send(b"more")
    assert reader.has_message_available()
    assert reader.read_next(20_000).data() == b"more"
    assert admin.subscriptions(topic) == []
    reader.close()


@program
def test_from_a_message(client: Any, topic: str) -> None:
    ids = fill(client, topic, 10)
    after = client.create_reader(topic, ids[4])
    assert read_all(after) == numbers(5, 10)
    at = client.create_reader(topic, ids[4], start_message_id_inclusive=True)
    assert read_all(at) == numbers(4, 10)


@program
def test_from_the_end(client: Any, topic: str) -> None:
    fill(client, topic, 5)
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    assert not reader.has_message_available()
    client.create_producer(topic).send(b"new")
    assert reader.has_message_available()
    assert reader.read_next(20_000).data() == b"new"


@program
def test_the_last_message(client: Any, topic: str) -> None:
    fill(client, topic, 5)
    reader = client.create_reader(topic, pulsar.MessageId.latest, start_message_id_inclusive=True)
    assert reader.has_message_available()
    assert reader.read_next(20_000).data() == b"4"


@program
def test_an_empty_topic(client: Any, topic: str) -> None:
    client.create_producer(topic)
    for start in (pulsar.MessageId.earliest, pulsar.MessageId.latest):
        reader = client.create_reader(topic, start)
        assert not reader.has_message_available()


@program
def test_in_a_batch(client: Any, topic: str) -> None:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=1000
    )
    ids = send_all(producer, numbers(0, 30))
    reader = client.create_reader(topic, ids[13])
    assert read_all(reader) == numbers(14, 30)
    whole = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read_all(whole) == numbers(0, 30)


@program
def test_seek(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    ids, times = [], []
    for n in range(10):
        times.append(int(time.time() * 1000))
        ids.append(producer.send(b"%d" % n))
        next_millisecond()
    reader = client.create_reader(topic, pulsar.MessageId.earliest, start_message_id_inclusive=True)
    assert read_all(reader) == numbers(0, 10)
    reader.seek(ids[6])
    assert read_all(reader) == [b"6", b"7", b"8", b"9"]
    reader.seek(times[2])
    assert read_all(reader) == numbers(2, 10)
    other = client.create_reader(topic, pulsar.MessageId.earliest)
    other.seek(pulsar.MessageId.latest)
    assert not other.has_message_available()


@program
async def test_with_asyncio(client: Any, topic: str) -> None:
    producer = await client.create_producer(topic)
    ids = [await producer.send(b"%d" % n) for n in range(10)]
    reader = await client.create_reader(topic, pulsar.MessageId.earliest)
    got = []
    while await reader.has_message_available():
        got.append((await reader.read_next()).data())
    assert got == numbers(0, 10)
    await reader.seek(ids[7])
    assert (await reader.read_next()).data() == b"8"
    await reader.close()


@program
def test_several_readers_beside_a_subscription(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    fill(client, topic, 20)
    readers = [client.create_reader(topic, pulsar.MessageId.earliest) for _ in range(5)]
    for reader in readers:
        assert read_all(reader) == numbers(0, 20)
    assert consumer.receive(20_000).data() == b"0"


@program
def test_a_small_queue(client: Any, topic: str) -> None:
    fill(client, topic, 100)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=2)
    assert read_all(reader) == numbers(0, 100)


@program
def test_last_message_id(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    ids = fill(client, topic, 3)
    last = consumer.get_last_message_id()
    assert (last.ledger_id(), last.entry_id()) == (ids[-1].ledger_id(), ids[-1].entry_id())
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=4, batching_max_publish_delay_ms=1000
    )
    send_all(producer, numbers(0, 4))
    assert consumer.get_last_message_id().batch_index() == 3


@program
def test_a_table_view(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    for n in range(10):
        producer.send(b"%d" % n, partition_key=f"key-{n % 3}")
    view = client.create_table_view(topic)
    assert len(view) == 3
    assert view.get("key-0") == b"9"
    producer.send(b"new", partition_key="key-0")
    until(lambda: view.get("key-0") == b"new")
    view.close()
