"""The broker as users drive it: embedded, `sync="group"`, all defaults."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from bench.broker_stations import Sample, Setting, Stopwatch, payloads
from bench.figures import percentiles_us
from holdfast.broker import Broker
from holdfast.ids import MessageId

Answer = TypeVar("Answer")

TOPIC = "bench"
OTHER = "other"
"""The topic of entries that do not count."""
POLICIES: dict[str, Any] = {
    "retention_bytes": 1 << 40,
    "retention_s": 1e6,
    "ttl_s": 1e6,
    "backlog_bytes": 1 << 40,
    "backlog_bytes_action": "producer_exception",
    "backlog_age_s": 1e6,
    "publish_rate_messages": 1_000_000,
    "dispatch_rate_messages": 1_000_000,
    "subscription_rate_messages": 1_000_000,
    "subscribe_rate": 1000,
    "producers_max": 100,
    "consumers_max": 100,
    "subscription_consumers_max": 100,
    "subscriptions_max": 100,
    "message_bytes_max": 1 << 20,
    "unacked_max": 10_000,
    "subscription_expiry_s": 1e6,
    "inactive_delete": True,
    "inactive_s": 1e6,
    "subscription_types": ("exclusive", "shared"),
    "schema_strategy": "BACKWARD",
    "delayed_most_s": 1e6,
}
"""Policies of each topic of a crowd."""
LIVE = "live"
"""The subscription whose consumer is measured."""


def resident_bytes() -> int:
    """Return the memory of this process: its own pages, without those of files."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


class Ours:
    """A broker in this process. Its loop runs only during a call."""

    def __init__(self, setting: Setting, **options: Any) -> None:
        self.setting = setting
        self.data = payloads(setting.size, setting.batch)
        self.before_bytes = resident_bytes()
        self._runner = asyncio.Runner()
        self._opening = Broker.open(setting.directory, **options)
        with Stopwatch() as watch:
            self.broker: Broker = self._run(self._opening.__aenter__())
        self.open_s = watch.seconds
        self._producers: dict[str, Any] = {}
        self._consumer: Any = None

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self._runner.run(work)

    # -- the hot loops ---------------------------------------------------------------------------------

    def publish(self, batches: int, topic: str = TOPIC) -> Sample:
        """Publish with `window` callers, each awaiting `publish(batch)`, until all messages are durable."""
        return self._run(self._published(batches, topic))

    async def _published(self, batches: int, topic: str = TOPIC) -> Sample:
        producer = await self._open_producer(topic)
        left = batches

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.publish(self.data)

        before = self._counts()
        with Stopwatch() as watch:
            await asyncio.gather(*(caller() for _ in range(min(self.setting.window, batches))))
        rounds, journal, snapshots = (now - then for now, then in zip(self._counts(), before, strict=True))
        return replace(watch.sample(batches * len(self.data), rounds, journal), snapshots=snapshots)

    def single(self, count: int) -> tuple[float, float]:
        """Await `send(data)` one by one; return µs, median and p99."""

        async def work() -> list[int]:
            producer = await self._open_producer()
            times = []
            for at in range(count):
                data = self.data[at % len(self.data)]
                start = time.perf_counter_ns()
                await producer.send(data)
                times.append(time.perf_counter_ns() - start)
            return times

        return percentiles_us(self._run(work()))

    def consume(self, batches: int, acks: str) -> Sample:
        """Receive batches, read each payload, and acknowledge as `acks` says.

        "none": nothing (a reader). "each": `ack_many`. "receipt": `ack_many` with a receipt.
        """
        return self._run(self._consumed(batches, acks))

    async def _consumed(self, batches: int, acks: str) -> Sample:
        before = self._counts()[2]
        wanted = batches * len(self.data)
        if acks == "none":
            queue = 4 * self.setting.batch
            async with self.broker.reader(TOPIC, start="earliest", receiver_queue=queue) as reader:
                sample = await self._received(reader, wanted, acks)
        else:
            sample = await self._received(await self._open_consumer(), wanted, acks)
        return replace(sample, snapshots=self._counts()[2] - before)

    async def _received(self, receiver: Any, wanted: int, acks: str) -> Sample:
        taken, batch = 0, self.setting.batch
        with Stopwatch() as watch:
            while taken < wanted:
                messages = await receiver.receive_many(min(batch, wanted - taken), timeout=60)
                read = [message.data for message in messages]
                taken += len(read)
                if acks == "each":
                    await receiver.ack_many(messages, receipt=taken >= wanted)
                elif acks == "receipt":
                    await receiver.ack_many(messages, receipt=True)
        if len(read[-1]) != self.setting.size:
            raise AssertionError("another payload arrived than was sent")
        return watch.sample(taken)

    def both(self, batches: int) -> Sample:
        """Publish while a consumer on the same loop receives and acknowledges all messages."""

        async def work() -> Sample:
            consumer = await self._open_consumer()
            with Stopwatch() as watch:
                published, received = await asyncio.gather(
                    self._published(batches), self._received(consumer, batches * len(self.data), "each")
                )
            return replace(watch.sample(received.messages), snapshots=published.snapshots)

        return self._run(work())

    # -- between samples -------------------------------------------------------------------------------

    def subscribe(self, name: str = LIVE, start: str = "latest") -> None:
        self._run(self.broker.admin.create_subscription(TOPIC, name, start=start))  # type: ignore[arg-type]

    def clear(self) -> None:
        """Drop the backlog and its files."""

        async def work() -> None:
            await self.broker.admin.clear(TOPIC, LIVE)
            await self.broker.admin.roll(TOPIC)
            await self.broker.admin.trim(TOPIC)

        self._run(work())

    def rest(self) -> None:
        """Sync, so that the next contestant's syncs have nothing of ours to write."""
        self._run(self.broker.admin.snapshot())

    def _counts(self) -> tuple[int, int, int]:
        store = self.broker.stats().store
        return store.rounds, store.journal_bytes, store.snapshots

    async def _open_producer(self, topic: str = TOPIC) -> Any:
        if topic not in self._producers:
            self._producers[topic] = await self.broker.producer(topic).__aenter__()
        return self._producers[topic]

    async def _open_consumer(self) -> Any:
        """Open a consumer that stays; it keeps the messages that it does not acknowledge."""
        if self._consumer is None:
            opening = self.broker.consumer(TOPIC, LIVE, type="shared", receiver_queue=4 * self.setting.batch)
            self._consumer = await opening.__aenter__()
        return self._consumer

    def close(self) -> None:
        async def work() -> None:
            for each in (*self._producers.values(), *([self._consumer] if self._consumer else [])):
                await each.__aexit__(None, None, None)
            await self._opening.__aexit__(None, None, None)

        self._run(work())
        self._runner.close()

    # -- scale -----------------------------------------------------------------------------------------

    def opened(self) -> tuple[float, int, int]:
        """Return seconds to open, events applied again, and bytes of memory taken."""
        return self.open_s, self.broker.recovered.events, resident_bytes() - self.before_bytes

    def memory(self) -> int:
        return resident_bytes() - self.before_bytes

    def grow(self, messages: int) -> None:
        """Add messages to the backlog."""
        self.publish(max(1, messages // len(self.data)))

    def hole(self, count: int) -> None:
        """Acknowledge every second message of the next 2 × `count` by itself.

        The consumer keeps the others.
        """

        async def work() -> None:
            consumer, seen = await self._open_consumer(), 0
            while seen < 2 * count:
                messages = await consumer.receive_many(min(self.setting.batch, 2 * count - seen), timeout=60)
                seen += len(messages)
                await consumer.ack_many(messages[1::2], receipt=seen >= 2 * count)

        self._run(work())

    def hold(self, count: int) -> None:
        """Receive `count` messages and acknowledge none; the consumer keeps them."""

        async def work() -> None:
            consumer, seen = await self._open_consumer(), 0
            while seen < count:
                seen += len(await consumer.receive_many(min(self.setting.batch, count - seen), timeout=60))

        self._run(work())

    def turn(self) -> Sample:
        """Do a turn of housekeeping, as every 5 s; a topic counts as a message."""

        async def work() -> Sample:
            with Stopwatch() as watch:
                await self.broker.housekeeping.turn()
            return watch.sample(len(self.broker.topics))

        return self._run(work())

    def topics(self, count: int, policies: bool) -> None:
        """Create `count` other topics, each with a subscription and an unread message.

        With `policies`, each has its own of all kinds, and none is reached.
        """

        async def one(number: int) -> None:
            name = f"idle-{number}"
            await self.broker.admin.create_topic(name, **(POLICIES if policies else {}))
            await self.broker.admin.create_subscription(name, "idle", start="earliest")
            async with self.broker.producer(name) as producer:
                await producer.send(b"nobody comes for this")

        async def work() -> None:
            for start in range(0, count, 500):
                await asyncio.gather(*(one(number) for number in range(start, min(count, start + 500))))

        self._run(work())

    def subscriptions(self, count: int, attached: bool) -> None:
        """Create `count` other subscriptions of the topic.

        With `attached`, each has a consumer whose receiver queue is full.
        """

        async def one(number: int) -> None:
            name = f"idle-{number}"
            await self.broker.admin.create_subscription(TOPIC, name, start="earliest")
            if attached:
                await self.broker.consumer(TOPIC, name, receiver_queue=1).__aenter__()

        async def work() -> None:
            for start in range(0, count, 500):
                await asyncio.gather(*(one(number) for number in range(start, min(count, start + 500))))

        self._run(work())

    def seeks(self, count: int, by: str, cold: bool) -> tuple[float, float]:
        """Move a reader to random positions, by "id" or "time", and read one message each.

        Return µs, median and p99. Targets are looked up before: only the seek and the read are timed.
        """

        async def work() -> list[int]:
            stats = self.broker.admin.topic_stats(TOPIC)
            ledgers = [each for each in stats.ledgers if each.entries]
            generator = random.Random(count)
            times = []
            targets: list[Any] = []
            for _ in range(count):
                ledger = generator.choice(ledgers)
                target = MessageId(ledger.id, generator.randrange(ledger.entries))
                time_there = by == "time" and (await self.broker.admin.get(TOPIC, target)).publish_time
                targets.append(time_there or target)
            if cold:
                drop_cache(self.setting.directory)
            async with self.broker.reader(TOPIC, receiver_queue=1) as reader:
                for target in targets:
                    start = time.perf_counter_ns()
                    await reader.seek(target)
                    await reader.read(timeout=60)
                    times.append(time.perf_counter_ns() - start)
            return times

        return percentiles_us(self._run(work()))

    def burden(self, journal_bytes: int) -> None:
        """Publish to another topic until the journal has `journal_bytes` behind the last snapshot."""
        self._run(self.broker.admin.snapshot())
        before = self._counts()[1]
        while self._counts()[1] - before < journal_bytes:
            self.publish(1, OTHER)


def drop_cache(directory: Path) -> None:
    """Drop these files from the page cache, so that the next open reads the disk."""
    for path in directory.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
