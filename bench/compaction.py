"""Measure a compaction: its time, beside reading and writing once, and its memory.

`python -m bench.compaction` fills a topic with batches whose messages have keys of their own, compacts it,
and prints medians of rounds. "Read once" reads and checks every entry of the topic, as the broker does for a
consumer. "Write once" appends the bytes of the view to another topic.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Goal, Spread, spread, table
from holdfast import Broker
from holdfast._core import crc32c
from holdfast.broker import Topic

TOPIC, COPY = "persistent://public/default/prices", "persistent://public/default/copy"
BATCH = 100
READ_BYTES = 512 << 10
AHEAD = 16
"""Events that are under way while the topic is filled."""
MOST = 2.0
"""The longest compaction, as a multiple of reading everything once and writing the view once."""
COMPACTION, READ, WRITE = "compaction", "read once", "write once"
WALL, CPU = "s", "s of the processor"
RATIO = "compaction / (read once + write once), by processor time"
GREW = "growth of the process, MiB"
Round = dict[str, float]


def batches(messages: int, keys: int, size: int, seed: int) -> Iterator[bytes]:
    """Yield batches of messages with random keys, as clients send them."""
    rng = random.Random(seed)
    metadata = b"\x0a\x01p\x10\x00\x18\x01\x58" + bytes([BATCH])  # name p, sequence 0, time 1, count
    body = bytes(size)
    # A key of 10 digits, and the size of the payload.
    head = b"\x12\x0a%010d\x18" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7]))
    length = struct.pack(">I", len(head % 0))
    for _ in range(messages // BATCH):
        payload = b"".join([length + head % rng.randrange(keys) + body for _ in range(BATCH)])
        summed = struct.pack(">I", len(metadata)) + metadata + payload
        yield b"\x0e\x01" + struct.pack(">I", crc32c(summed)) + summed


async def append(broker: Broker, topic: str, entries: Iterator[bytes]) -> None:
    """Publish ready entries, some hundred KiB as one event."""
    async with broker.producer(topic):
        found = broker.topic(topic)
        of = next(iter(found.producers.values()))
        flying: list[asyncio.Future[object]] = []
        row: list[tuple[int, int, bytes]] = []
        number = held = 0

        async def send() -> None:
            await broker.room()
            flying.append(broker.publish_entries(found, of.session, of.epoch, of.name, row[:]))
            row.clear()
            if len(flying) >= AHEAD:
                await flying.pop(0)

        for entry in entries:
            row.append((number, 1, entry))
            number, held = number + 1, held + len(entry)
            if held >= READ_BYTES:
                await send()
                held = 0
        if row:
            await send()
        await asyncio.gather(*flying)


async def read_once(topic: Topic) -> None:
    """Read and check all entries."""
    at = topic.first
    while at < topic.visible:
        entries = await topic.read(at, 4096, READ_BYTES)
        at = entries.end_ordinal
        await asyncio.sleep(0)


class Watch:
    """Notes time and processor time of a block."""

    def __init__(self, told: Round, name: str) -> None:
        self._told, self._name = told, name

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self._told[f"{self._name}, {WALL}"] = time.perf_counter() - self._began[0]
        self._told[f"{self._name}, {CPU}"] = time.process_time() - self._began[1]


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(path: str, messages: int, keys: int, size: int, memory: int, seed: int) -> Round:
    """Return the figures of one round."""
    told: Round = {}
    options = {"sync": "os", "retention_bytes": -1, "compaction_memory_bytes": memory}
    async with Broker.open(path, **options) as broker:
        for name in (TOPIC, COPY):
            await broker.admin.create_topic(name, retention_bytes=-1)
        await append(broker, TOPIC, batches(messages, keys, size, seed))
        await broker.settle()
        topic = broker.topic(TOPIC)
        with Watch(told, READ):
            await read_once(topic)
        before = peak_mib()
        with Watch(told, COMPACTION):
            await broker.admin.compact(TOPIC, wait=True)
        told[GREW] = peak_mib() - before
        found = broker.admin.compaction(TOPIC)
        assert found.state == "done", found.error
        view: list[bytes] = []
        async with broker.reader(TOPIC, compacted=True) as reader:
            dispatcher = reader._serving().compacted  # its entries, without a message for each
            assert dispatcher is not None
            at = dispatcher.next_kept(0)
            while at < topic.visible:
                entries = await dispatcher.read(at, 4096, READ_BYTES)
                view += [entries.entry(each) for each in range(len(entries)) if entries.messages(each)]
                at = dispatcher.next_kept(entries.end_ordinal)
        with Watch(told, WRITE):
            await append(broker, COPY, iter(view))
            await broker.settle()
        told["messages in the view"] = found.kept
        told["MB of the topic"] = topic.size_behind(0) / 1e6
        told["MB of the view"] = found.size / 1e6
        once = told[f"{READ}, {CPU}"] + told[f"{WRITE}, {CPU}"]
        told[RATIO] = told[f"{COMPACTION}, {CPU}"] / once
        told["messages/s"] = messages / told[f"{COMPACTION}, {WALL}"]
    return told


def report(messages: int, keys: int, memory: int, rounds: list[Round]) -> list[str]:
    """Return the table of all rounds and the goals, as lines."""
    rows = [[name, spread(Spread.of([each[name] for each in rounds]))] for name in rounds[0]]
    ratio = Spread.of([each[RATIO] for each in rounds])
    grew = max(each[GREW] for each in rounds)
    most = memory / (1 << 20) + 64 + messages / 8 / (1 << 20)
    goals = [
        Goal(f"at most {MOST}× reading and writing once", f"{spread(ratio)}×", ratio.median <= MOST),
        Goal(f"memory: its option, a bit a message, and 64 MiB: {most:.0f} MiB", f"{grew:.0f}", grew <= most),
    ]
    judged = [[each.text, each.result, "met" if each.met else "MISSED"] for each in goals]
    head = [f"{messages:,} messages, {keys:,} keys", "median [smallest–largest]"]
    return [*table(head, rows), "", *table(["goal", "result", ""], judged)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000, help="number of messages")
    parser.add_argument("--keys", type=int, default=1_000_000, help="number of keys")
    parser.add_argument("--size", type=int, default=100, help="bytes of each message")
    parser.add_argument("--memory", type=int, default=256 << 20, help="compaction_memory_bytes")
    parser.add_argument("--rounds", type=int, default=3, help="rounds")
    options = parser.parse_args()
    before, messages, rounds = os.getloadavg()[0], options.messages // BATCH * BATCH, []
    of = (messages, options.keys, options.size, options.memory)
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="holdfast-compaction.") as path:
            rounds.append(asyncio.run(measure(str(Path(path)), *of, number)))
    print("\n".join(report(messages, options.keys, options.memory, rounds)))
    print(f"load of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
