"""Deliver content that the broker does not parse: batches, compression, encryption, null values."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.kit.server.wire_programs import numbers, receive, send_all, until
from tests.kit.server.wire_world import program, pulsar

BATCHES = {"batching_enabled": True, "batching_max_messages": 50, "batching_max_publish_delay_ms": 20}


def keys(directory: str) -> Any:
    """A pair of keys, as a user makes one."""
    private, public = Path(directory, "private.pem"), Path(directory, "public.pem")
    for command in (
        ["openssl", "genrsa", "-out", str(private), "2048"],
        ["openssl", "rsa", "-in", str(private), "-pubout", "-out", str(public)],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return pulsar.CryptoKeyReader(str(public), str(private))


def roundtrip(client: Any, topic: str, options: dict[str, Any], reading: dict[str, Any]) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=100, **reading)
    producer = client.create_producer(topic, block_if_queue_full=True, **options)
    sent = [(b"%d " % n) * (1 + n % 37) for n in range(300)]
    send_all(producer, sent)
    for data in sent:
        message = consumer.receive(20_000)
        assert message.data() == data
        consumer.acknowledge(message)
    consumer.close()
    producer.close()
    reader = client.create_reader(topic, pulsar.MessageId.earliest, **reading)
    assert [reader.read_next(20_000).data() for _ in sent] == sent
    reader.close()


@program
def test_batches(client: Any, topic: str) -> None:
    roundtrip(client, topic, BATCHES, {})


@program
def test_batches_by_key(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_type=pulsar.BatchingType.KeyBased, **BATCHES)
    send_all(producer, numbers(0, 100), partition_key=lambda n: f"key-{n % 4}")
    last: dict[str, int] = {}
    for _ in range(100):
        message = consumer.receive(20_000)
        assert int(message.data()) > last.get(message.partition_key(), -1)
        last[message.partition_key()] = int(message.data())
    assert len(last) == 4


@program
def test_compressed(client: Any, topic: str) -> None:
    kinds = ("LZ4", "ZLib", "ZSTD", "SNAPPY")
    for name in kinds:
        kind = getattr(pulsar.CompressionType, name)
        for batches in ({}, BATCHES):
            where = f"{topic}-{name}-{bool(batches)}"
            roundtrip(client, where, {"compression_type": kind, **batches}, {})


@program
def test_encrypted(client: Any, topic: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        reader = keys(directory)
        for batches in ({}, BATCHES):
            for compression in (pulsar.CompressionType.NONE, pulsar.CompressionType.ZSTD):
                options = {
                    "encryption_key": "till",
                    "crypto_key_reader": reader,
                    "compression_type": compression,
                    **batches,
                }
                where = f"{topic}-{bool(batches)}-{compression}"
                roundtrip(client, where, options, {"crypto_key_reader": reader})


@program
def test_encrypted_and_no_key(client: Any, topic: str) -> None:
    """A consumer without the key loses no messages: they stay for one with it."""
    with tempfile.TemporaryDirectory() as directory:
        reader = keys(directory)
        producer = client.create_producer(topic, encryption_key="till", crypto_key_reader=reader)
        blind = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer.send(b"secret")
        try:
            blind.receive(300)
            raise AssertionError("it was read without a key")
        except pulsar.Timeout:
            pass
        blind.close()
        sighted = client.subscribe(topic, "s", crypto_key_reader=reader)
        assert sighted.receive(20_000).data() == b"secret"


@program
def test_an_empty_message(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    for options in ({}, BATCHES):
        producer = client.create_producer(topic, **options)
        producer.send(b"", properties={"kind": "empty"})
        message = consumer.receive(20_000)
        assert message.data() == b""
        assert message.properties() == {"kind": "empty"}


@program
def test_properties_in_batches(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, **BATCHES)
    send_all(
        producer,
        numbers(0, 20),
        properties=lambda n: {"n": str(n)},
        partition_key=lambda n: f"k{n}",
        event_timestamp=lambda n: 1_700_000_000_000 + n,
    )
    for n, message in enumerate(receive(consumer, 20)):
        assert message.properties() == {"n": str(n)}
        assert message.partition_key() == f"k{n}"
        assert message.event_timestamp() == 1_700_000_000_000 + n


@program
async def test_batches_with_asyncio(client: Any, topic: str) -> None:
    import asyncio

    consumer = await client.subscribe(topic, "s")
    producer = await client.create_producer(topic, batching_enabled=True, batching_max_messages=30)
    ids = await asyncio.gather(*(producer.send(b"%d" % n) for n in range(100)))
    assert {each.batch_index() for each in ids} >= {0, 1, 2}
    for n in range(100):
        message = await consumer.receive()
        assert message.data() == b"%d" % n
        await consumer.acknowledge(message)


@program
def test_a_batch_larger_than_the_queue(client: Any, topic: str) -> None:
    """Permits are exceeded by less than one entry, and the consumer goes on."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=5)
    producer = client.create_producer(topic, block_if_queue_full=True, **BATCHES)
    send_all(producer, numbers(0, 500))
    for n in range(500):
        message = consumer.receive(20_000)
        assert message.data() == b"%d" % n
        consumer.acknowledge(message)


@program
def test_batches_come_again_whole(client: Any, topic: str, admin: Any) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, **BATCHES)
    send_all(producer, numbers(0, 100))
    receive(consumer, 100)
    consumer.close()
    until(lambda: admin.stats(topic, "s")["pending"] == 0)
    again = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    messages = receive(again, 100)
    assert sorted(int(each.data()) for each in messages) == list(range(100))
    assert {each.redelivery_count() for each in messages} == {1}
