"""Messages larger than the largest: the client sends them in chunks."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

from tests.kit.server.wire_programs import until
from tests.kit.server.wire_world import program, pulsar


def large_data(size: int) -> bytes:
    block = hashlib.sha256(str(size).encode()).digest()
    return (block * (size // len(block) + 1))[:size]


@program
def test_a_message_in_chunks(client: Any, topic: str, admin: Any) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(b"before")
    large = large_data(12 << 20)
    producer.send(large)
    producer.send(b"after")
    for expected in (b"before", large, b"after"):
        message = consumer.receive(20000)
        assert message.data() == expected
        consumer.acknowledge(message)
    consumer.close()
    until(lambda: admin.stats(topic, "s")["backlog"] == 0)


@program
def test_chunks_of_two_producers_between_each_other(client: Any, topic: str) -> None:
    import threading

    consumer = client.subscribe(topic, "s")
    larges = [large_data((11 << 20) + n) for n in range(3)]

    def send(data: bytes) -> None:
        client.create_producer(topic, chunking_enabled=True).send(data)

    threads = [threading.Thread(target=send, args=(data,)) for data in larges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = [consumer.receive(20000).data() for _ in larges]
    assert sorted(map(len, got)) == sorted(map(len, larges))
    assert set(got) == set(larges)


@program
def test_a_chunked_message_comes_again(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, chunking_enabled=True)
    large = large_data(11 << 20)
    producer.send(large)
    assert consumer.receive(20000).data() == large
    consumer.close()
    again = client.subscribe(topic, "s")
    assert again.receive(20000).data() == large


@program
def test_chunks_reach_one_of_many_consumers(client: Any, topic: str) -> None:
    """Else no consumer has all parts, and the message is never received."""

    def receive() -> list[bytes]:
        got: list[bytes] = []

        def more() -> bool:
            for each in consumers:
                with contextlib.suppress(pulsar.Timeout):
                    message = each.receive(200)
                    got.append(message.data())
                    each.acknowledge(message)
            return len(got) >= 3

        until(more, 20.0)
        return got

    larges = [large_data((11 << 20) + n) for n in range(3)]
    consumers = [client.subscribe(topic, "s", pulsar.ConsumerType.Shared) for _ in range(3)]
    producer = client.create_producer(topic, chunking_enabled=True)
    for data in larges:
        producer.send(data)
    assert sorted(receive(), key=len) == larges
    for data in larges:
        producer.send(data)
    consumers.pop().close()  # the others get what it has received
    assert sorted(receive(), key=len) == larges


@program
def test_a_reader_of_chunks(client: Any, topic: str) -> None:
    producer = client.create_producer(topic, chunking_enabled=True)
    large = large_data(11 << 20)
    producer.send(large)
    producer.send(b"small")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert reader.read_next(20000).data() == large
    assert reader.read_next(20_000).data() == b"small"
