"""The clients of the demo of a cluster: `python -m holdfast.demo.cluster.roles JSON`.

A sender numbers its messages from 0, and writes down which were confirmed. A receiver shares the subscription
with all others, and writes down what it got before it acknowledges. Each begins at one member, and knows the
addresses of all.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.demo.records import Record, open_record
from holdfast.demo.roles import TURN_S, due, patiently
from holdfast.demo.stage import Leaving

TOPIC = "persistent://public/default/orders"
SUBSCRIPTION = "kitchen"
RECEIVER_QUEUE = 200
"""Messages that a receiver may hold without having acknowledged them."""


@dataclass(frozen=True)
class Client:
    """The arguments of a client."""

    role: str
    name: str
    url: str
    """The addresses of all members, its own one first."""
    records: str
    rate: float
    parent: int

    def command(self) -> list[str]:
        return [sys.executable, "-m", "holdfast.demo.cluster.roles", json.dumps(asdict(self))]


def message_of(sender: str, number: int) -> bytes:
    """Return the payload of a numbered message."""
    return f"{sender} {number}".encode()


def parsed(data: bytes) -> tuple[str, int]:
    """Return sender and number of a payload."""
    sender, number = data.decode().split()
    return sender, int(number)


def received_of(directory: Path) -> Iterator[tuple[str, int]]:
    """Yield sender and number of all that receivers wrote down."""
    for path in sorted(directory.glob("*.received")):
        lines = path.read_bytes().split(b"\n")
        yield from (parsed(line) for line in lines[:-1])  # the last may have been cut off by a kill


def sender(job: Client, leaving: Leaving) -> None:
    """Publish numbered messages; those that were not confirmed are sent again to another member."""
    import pulsar

    client, record = connected(job), Record(Path(job.records), job.name)
    producer: Any = patiently(
        lambda: client.create_producer(
            TOPIC, producer_name=job.name, send_timeout_millis=0, block_if_queue_full=True
        ),
        leaving,
        pulsar.PulsarException,
    )
    number = first = producer.last_sequence_id() + 1
    began = time.monotonic()

    def sent(result: Any, _: Any, at: int) -> None:
        if result == pulsar.Result.Ok:
            record.confirmed(at)

    while not leaving:
        for _ in range(due(began, job.rate, number - first)):
            producer.send_async(
                message_of(job.name, number),
                lambda result, message_id, at=number: sent(result, message_id, at),
                sequence_id=number,
            )
            number += 1
        time.sleep(TURN_S)
    producer.flush()
    client.close()


def receiver(job: Client, leaving: Leaving) -> None:
    """Take messages of the shared subscription, write each down, and acknowledge it."""
    import pulsar

    client, record = connected(job), open_record(Path(job.records) / f"{job.name}.received")
    consumer: Any = patiently(
        lambda: client.subscribe(
            TOPIC,
            SUBSCRIPTION,
            pulsar.ConsumerType.Shared,
            consumer_name=job.name,
            receiver_queue_size=RECEIVER_QUEUE,
            initial_position=pulsar.InitialPosition.Earliest,
        ),
        leaving,
        pulsar.PulsarException,
    )
    while not leaving:
        try:
            message = consumer.receive(timeout_millis=200)
            os.write(record, message.data() + b"\n")
            consumer.acknowledge(message)
        except pulsar.PulsarException:  # nothing came, or the connection broke
            continue
    client.close()


def connected(job: Client) -> Any:
    import pulsar

    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(job.url, operation_timeout_seconds=5, connection_timeout_ms=1000, logger=quiet)


def main() -> None:
    job = Client(**json.loads(sys.argv[1]))
    {"sender": sender, "receiver": receiver}[job.role](job, Leaving(job.parent))


if __name__ == "__main__":
    main()
