"""The official client, in a process of its own: `python -m bench.server_client URL`.

Each line of its standard input is an order, `[work, topic, size, batched, seconds]`. The answer is one line,
`[messages, seconds, processor time of this process]`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

from bench.answers import BenchError
from bench.broker_stations import payloads

PENDING = 1000


def client_of(url: str) -> Any:
    import pulsar

    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def publish(client: Any, topic: str, size: int, batched: bool, seconds: float) -> int:
    """Publish with a callback per message, as a program that needs confirmations does."""
    producer = client.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_messages=100,
        batching_max_publish_delay_ms=5,
        block_if_queue_full=True,
        max_pending_messages=PENDING,
    )
    done = threading.Event()
    counts = [0, -1]

    def receipt(result: Any, _: Any) -> None:
        counts[0] += 1
        if counts[0] == counts[1]:
            done.set()

    data = payloads(size, 500)
    sent = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for each in data:
            producer.send_async(each, receipt)
        sent += len(data)
    counts[1] = sent
    producer.flush()
    if counts[0] < sent and not done.wait(30):
        raise BenchError(f"{sent - counts[0]} messages were not confirmed")
    producer.close()
    return sent


def consume(client: Any, topic: str, size: int, batched: bool, seconds: float) -> int:
    """Consume as Shared, acknowledging each message, until no more arrive."""
    import pulsar

    consumer = client.subscribe(
        topic,
        "bench",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    taken = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            message = consumer.receive(200)
        except pulsar.Timeout:
            break
        consumer.acknowledge(message)
        taken += 1
    consumer.close()
    return taken


def main() -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the client logs to its standard output
    client = client_of(sys.argv[1])
    for line in sys.stdin:
        work, topic, size, batched, seconds = json.loads(line)
        begin, cpu = time.perf_counter(), time.process_time()
        count = (publish if work == "publish" else consume)(client, topic, size, batched, seconds)
        answers.write(json.dumps([count, time.perf_counter() - begin, time.process_time() - cpu]) + "\n")
        answers.flush()
    client.close()
    return 0


class Official:
    """The parent's end of such a process."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.server_client", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def order(
        self, work: str, topic: str, size: int, batched: bool, seconds: float
    ) -> tuple[int, float, float]:
        """Run an order; return messages, seconds, and the client's processor time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdin.write(json.dumps([work, topic, size, batched, seconds]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"the official client ended: {self._process.stderr.read()[-800:]}")
        messages, took, cpu = json.loads(line)
        return messages, took, cpu

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    sys.exit(main())
