"""A program with the official client and an `http://` address: `http_client.py URL TOPIC`.

It prints a line after each step; a line of its input starts the next.
"""

from __future__ import annotations

import importlib
import re
import sys


def main(url: str, topic: str) -> None:
    """Publish and consume; then, when told so, again on the same objects."""
    pulsar = importlib.import_module("pulsar")
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    client = pulsar.Client(url, logger=logger, operation_timeout_seconds=10)
    consumer = client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, consumer_name="one", properties={"who": "me"}
    )
    producer = client.create_producer(topic, producer_name="till", batching_enabled=True)

    def exchange(first: int) -> None:
        for number in range(first, first + 5):
            producer.send_async(b"%d" % number, None)
        producer.flush()
        wanted = set(range(first, first + 5))
        while wanted:  # messages acknowledged just before an unload may be redelivered
            message = consumer.receive(timeout_millis=10_000)
            consumer.acknowledge(message)
            wanted.discard(int(message.data()))

    def step() -> None:
        print("done", flush=True)
        sys.stdin.readline()

    exchange(0)
    step()
    exchange(5)  # after an unload: both have reconnected
    every = client.subscribe(
        re.compile(re.escape(topic) + ".*"), "all", initial_position=pulsar.InitialPosition.Earliest
    )
    seen = {int(every.receive(timeout_millis=10_000).data()) for _ in range(10)}
    assert seen == set(range(10)), seen
    step()
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
