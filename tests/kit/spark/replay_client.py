"""Run the official client in a process for tests of the replay: publish or read.

    kit/spark/replay_client.py publish URL TOPIC KEYS
    kit/spark/replay_client.py read URL TOPIC KEYS

KEYS is a directory with a pair of keys. `read` prints a line of JSON for each message that the client sees.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

BATCH = {"batching_enabled": True, "batching_max_messages": 4, "batching_max_publish_delay_ms": 1000}


def publish(client: Any, topic: str, reader: Any) -> None:
    import pulsar  # type: ignore[import-untyped, unused-ignore]

    secret = {"encryption_key": "till", "crypto_key_reader": reader}
    plain = client.create_producer(topic, producer_name="plain")
    for more in (
        {"partition_key": "text"},
        {"partition_key": "tär"},
        {"partition_key": "YWI="},  # text, though it looks like base64
        {"partition_key": ""},
        {},
        {"ordering_key": "first", "partition_key": "k"},
        {"properties": {"b": "2", "a": "1", "ü": ""}},
        {"event_timestamp": 1_700_000_000_123},
    ):
        plain.send(f"plain {more}".encode(), **more)
    plain.send(b"")
    for number, options in enumerate(
        (
            BATCH,
            {"compression_type": pulsar.CompressionType.ZSTD, **BATCH},
            {"chunking_enabled": True},
            {"chunking_enabled": True, "compression_type": pulsar.CompressionType.LZ4},
            secret,
            {**secret, **BATCH},
            {**secret, "compression_type": pulsar.CompressionType.ZLib},
            {**secret, "chunking_enabled": True},
        )
    ):
        producer = client.create_producer(topic, producer_name=f"p{number}", **options)
        large = "chunking_enabled" in options
        for n in range(2 if large else 6):
            data = b"".join(hashlib.sha256(b"%d %d" % (n, i)).digest() for i in range(5000 if large else 1))
            producer.send_async(data, lambda *_: None, partition_key=f"k{n}", properties={"n": str(n)})
        producer.flush()


def read(client: Any, topic: str, reader: Any) -> None:
    import pulsar

    opened = client.create_reader(topic, pulsar.MessageId.earliest, crypto_key_reader=reader)
    while opened.has_message_available():
        message = opened.read_next(20_000)
        row = {
            "size": len(message.data()),
            "digest": hashlib.sha256(message.data()).hexdigest(),
            "null": message.has_null_value(),
            "key": base64.b64encode(message.partition_key().encode()).decode(),
            "order": message.ordering_key(),
            "properties": message.properties(),
            "event": message.event_timestamp(),
        }
        print(json.dumps(row), flush=True)


def main() -> None:
    import pulsar

    verb, url, topic, keys = sys.argv[1:]
    reader = pulsar.CryptoKeyReader(str(Path(keys, "public.pem")), str(Path(keys, "private.pem")))
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    try:
        (publish if verb == "publish" else read)(client, topic, reader)
    finally:
        client.close()


if __name__ == "__main__":
    main()
