"""The official client in a process of its own, for tests of the source: publishes, or reads.

    source_client.py publish URL TOPIC SEED COUNT
    source_client.py read URL TOPIC

`read` prints a line of JSON for each message that the client sees.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import sys
from typing import Any


def publish(client: Any, topic: str, seed: int, count: int) -> None:
    """Several producers in turns: alone or in batches, with all compressions, large ones in chunks."""
    import pulsar  # type: ignore[import-untyped, unused-ignore]

    choose = random.Random(seed)
    kinds = [pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4, pulsar.CompressionType.ZLib,
             pulsar.CompressionType.ZSTD, pulsar.CompressionType.SNAPPY]  # fmt: skip
    producers = []
    for number, compression in enumerate(kinds):
        producers += [
            client.create_producer(
                topic,
                producer_name=f"alone-{number}-{seed}",
                compression_type=compression,
                chunking_enabled=True,
            ),
            client.create_producer(
                topic,
                producer_name=f"batch-{number}-{seed}",
                compression_type=compression,
                batching_enabled=True,
                batching_max_messages=choose.randrange(2, 30),
                batching_max_publish_delay_ms=5,
                block_if_queue_full=True,
            ),
        ]
    sent = 0
    while sent < count:
        at = choose.randrange(len(producers))
        for _ in range(choose.randrange(1, 12)):
            large = at % 2 == 0 and choose.random() < 0.05
            size = choose.randrange(70_000, 300_000) if large else choose.choice([1, 4, 30, 500, 5000])
            # Never empty: the client refuses its own compressed nothing.
            data = choose.randbytes(size) if choose.random() < 0.5 else b"rope" * (size // 4 + 1)
            more: dict[str, Any] = {}
            if choose.random() < 0.5:
                more["partition_key"] = f"key-{choose.randrange(9)}"
            if choose.random() < 0.3:
                more["properties"] = {f"p{i}": "ä" * i for i in range(choose.randrange(4))}
            if choose.random() < 0.3:
                more["event_timestamp"] = choose.randrange(1, 1 << 41)
            producers[at].send_async(data, lambda *_: None, **more)
            sent += 1
        if choose.random() < 0.3:
            producers[at].flush()
    for producer in producers:
        producer.flush()


def read(client: Any, topic: str) -> None:
    import pulsar

    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        message = reader.read_next(20_000)
        at = message.message_id()
        row = {
            "id": [at.ledger_id(), at.entry_id(), at.batch_index()],
            "size": len(message.data()),
            "digest": hashlib.sha256(message.data()).hexdigest(),
            "key": base64.b64encode(message.partition_key().encode()).decode(),
            "properties": message.properties(),
            "published": message.publish_timestamp(),
            "event": message.event_timestamp(),
            "producer": message.producer_name(),
        }
        print(json.dumps(row))


def main() -> None:
    import pulsar

    verb, url, topic, *more = sys.argv[1:]
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    try:
        if verb == "publish":
            publish(client, topic, int(more[0]), int(more[1]))
        else:
            read(client, topic)
    finally:
        client.close()


if __name__ == "__main__":
    main()
