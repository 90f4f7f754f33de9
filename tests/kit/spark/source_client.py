"""Run the official client in a process, for tests of the source: publish, read, reset.

    kit/spark/source_client.py URL

reads lines `["COMMAND", …]` and answers each with a line `answer JSON`; the client logs between them. A row
is what the client shows of a message, with a digest in the place of its value.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import subprocess
import sys
import threading
from typing import Any

from tests.kit import module_command

KEEPER = "keeper"
"""A subscription that lets the broker trim: what it has not acknowledged is kept."""


class Program:
    """The code that runs in the process."""

    def __init__(self, url: str) -> None:
        import pulsar  # type: ignore[import-untyped, unused-ignore]

        self.pulsar = pulsar
        self.client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
        self.readers: dict[str, Any] = {}
        self.keepers: dict[str, Any] = {}
        self.ids: dict[str, list[Any]] = {}
        """Per topic, the ids as the client has them: those of chunked messages know where they begin."""

    # -- publishing ------------------------------------------------------------------------------------

    def publish(self, topic: str, seed: int, count: int) -> list[Any]:
        """Publish with several producers in turns; return each message's confirmed id and sequence id."""
        choose = random.Random(seed)
        producers = self.producers(topic, choose, seed)
        lock, sent, told = threading.Lock(), 0, []
        while sent < count:
            number = choose.randrange(len(producers))
            producer, batched, compressed = producers[number]
            for _ in range(choose.randrange(1, 12)):
                sequence = sent + 1
                data, more = message(choose, batched, compressed)

                def confirmed(result: Any, at: Any, sequence: int = sequence) -> None:
                    with lock:
                        place = [at.ledger_id(), at.entry_id(), at.batch_index()]
                        told.append([place, sequence, str(result)])

                producer.send_async(data, confirmed, sequence_id=sequence, **more)
                sent += 1
            if choose.random() < 0.3:
                producer.flush()
        for producer, _, _ in producers:
            producer.flush()
            producer.close()
        return told

    def producers(self, topic: str, choose: random.Random, seed: int) -> list[tuple[Any, bool, bool]]:
        """Alone and in batches, with all compressions: the producer, whether it batches and compresses."""
        kinds = self.pulsar.CompressionType
        made = []
        for number, kind in enumerate((kinds.NONE, kinds.LZ4, kinds.ZLib, kinds.ZSTD, kinds.SNAPPY)):
            given: dict[str, Any] = {"compression_type": kind, "block_if_queue_full": True}
            alone = self.client.create_producer(
                topic, producer_name=f"alone-{number}-{seed}", chunking_enabled=True, **given
            )
            batch = self.client.create_producer(
                topic,
                producer_name=f"batch-{number}-{seed}",
                batching_enabled=True,
                batching_max_messages=choose.randrange(2, 30),
                batching_max_publish_delay_ms=5,
                **given,
            )
            made += [(alone, False, number > 0), (batch, True, number > 0)]
        return made

    # -- reading ---------------------------------------------------------------------------------------

    def follow(self, topic: str) -> list[Any]:
        """Return the messages that came since the last call."""
        if topic not in self.readers:
            self.readers[topic] = self.client.create_reader(topic, self.pulsar.MessageId.earliest)
        return self.rows(self.readers[topic], self.ids.setdefault(topic, []))

    def read(self, topic: str) -> list[Any]:
        """All that there is."""
        reader = self.client.create_reader(topic, self.pulsar.MessageId.earliest)
        found = self.rows(reader, [])
        reader.close()
        return found

    def rows(self, reader: Any, ids: list[Any]) -> list[Any]:
        found = []
        while reader.has_message_available():
            message = reader.read_next(20_000)
            ids.append(message.message_id())
            found.append(self.row(message))
        return found

    def row(self, message: Any) -> dict[str, Any]:
        at, data = message.message_id(), message.data()
        return {
            "id": [at.ledger_id(), at.entry_id(), at.batch_index()],
            "serialized": base64.b64encode(at.serialize()).decode(),
            "size": len(data),
            "digest": hashlib.sha256(data).hexdigest(),
            "null": message.has_null_value(),
            "key": base64.b64encode(message.partition_key().encode()).decode(),
            "properties": message.properties(),
            "published": message.publish_timestamp(),
            "event": message.event_timestamp(),
            "producer": message.producer_name(),
        }

    # -- subscriptions ---------------------------------------------------------------------------------

    def subscribe(self, topic: str, *names: str) -> None:
        """Makes them, at the beginning; the keeper stays."""
        earliest = self.pulsar.InitialPosition.Earliest
        for name in names:
            self.client.subscribe(topic, name, initial_position=earliest).close()
        self.keepers[topic] = self.client.subscribe(topic, KEEPER, initial_position=earliest)

    def keep(self, topic: str, count: int) -> None:
        """The keeper takes so many messages, and acknowledges all up to the last one."""
        keeper = self.keepers[topic]
        for left in reversed(range(count)):
            message = keeper.receive(20_000)
            if not left:
                keeper.acknowledge_cumulative(message)

    def seek(self, topic: str, name: str, to: int, time_ms: int) -> None:
        """Reset a subscription to a message by number (-1: the first), or to a time."""
        consumer = self.client.subscribe(topic, name)
        at = self.pulsar.MessageId.earliest if to < 0 else self.ids[topic][to]
        consumer.seek(time_ms or at)
        consumer.close()


def message(choose: random.Random, batched: bool, compressed: bool) -> tuple[bytes | None, dict[str, Any]]:
    """A value, and what else a message has."""
    # The client refuses its own compressed nothing.
    small = [1, 4, 30, 500, 5000] if compressed and not batched else [0, 1, 4, 30, 500, 5000]
    large = not batched and choose.random() < 0.05
    size = choose.randrange(70_000, 300_000) if large else choose.choice(small)
    data: bytes | None = choose.randbytes(size) if choose.random() < 0.5 else (b"rope" * size)[:size]
    if choose.random() < 0.05 and 0 in small and not large:
        data = None
    more: dict[str, Any] = {}
    if choose.random() < 0.5:
        more["partition_key"] = f"key-{choose.randrange(9)}"
    if choose.random() < 0.3:
        more["properties"] = {f"p{i}": "ä" * i for i in range(choose.randrange(4))}
    if choose.random() < 0.3:
        more["event_timestamp"] = choose.randrange(1, 1 << 41)
    return data, more


class Official:
    """The process, as tests use it."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [*module_command(__file__), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []

    def ask(self, *command: Any) -> Any:
        """Return its answer."""
        self.tell(*command)
        return self.answer()

    def tell(self, *command: Any) -> None:
        """The command alone; `answer` waits for what it says."""
        assert self._process.stdin is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
            self.said.append(line)
        raise AssertionError(f"the client ended: {self.said[-20:]}")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Official:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main() -> None:
    program = Program(sys.argv[1])
    for line in sys.stdin:
        verb, *more = json.loads(line)
        answer = getattr(program, verb)(*more)
        print(f"answer {json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main()
