"""Streams of the source without Spark: a query, its subscription, and entries to read."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

from holdfast import Broker
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.broker.events import Advance, SinkCommit, StageAppend, StageOpen
from holdfast.client import Progress
from holdfast.errors import NotFound, Timeout
from holdfast.pipeline.jobs.subscriptions import _progress
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.stream import StreamReader
from tests.kit.ledger.entry_bytes import METADATA, Fields, entry

ORDERS = "persistent://public/default/orders"
NAMED: dict[str, Any] = {"service.url": "holdfast://127.0.0.1:1", "predefinedSubscription": "billing"}


def send(broker: BlockingBroker, count: int, topic: str = "orders") -> None:
    with broker.producer(topic) as producer:
        for at in range(0, count, 10):
            producer.send_many([b"x" * 100] * min(10, count - at))


class Stream:
    """A query without Spark: what Spark would call, and what it would read."""

    def __init__(
        self, data: str | None, told: Any = None, columns: tuple[str, ...] = ("position",), **options: Any
    ) -> None:
        from pyspark.sql.types import BinaryType, LongType, StructType

        kinds = {"position": LongType(), "value": BinaryType()}
        schema = StructType()
        for name in columns:
            schema = schema.add(name, kinds[name])
        given = {"topic": "orders", "startingOffsets": "earliest", **{k: str(v) for k, v in options.items()}}
        if "topicsPattern" in given:
            del given["topic"]
        if data is not None:
            given["path"] = data
        self._columns = columns
        self.reader = StreamReader(parse(given, "source"), schema)
        if told is not None:
            self.reader._subscription = self.reader._later = told
        self.offset = _json(self.reader.initialOffset())

    def batch(self, limit: Any = None) -> list[Any]:
        """The positions, or values, of the next batch; asked twice, as after a crash."""
        end = self.end(limit)
        found = [self.rows(end) for _ in range(2)]
        assert found[0] == found[1]
        self.offset = end
        return found[0]

    def end(self, limit: Any = None) -> Any:
        """Where the next batch ends."""
        return _json(self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit()))

    def rows(self, end: Any) -> list[Any]:
        """Read the rows of the batch with this end."""
        return [
            row[self._columns[0]]
            for split in self.reader.partitions(self.offset, end)
            for batch in self.reader.read(split)
            for row in batch.to_pylist()
        ]

    def position(self, topic: str = ORDERS) -> int:
        return int(self.offset[topic]["0"]["position"])


def _json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))


class Told:
    """Stands in for the subscription at the broker."""

    def __init__(self, number: int = 3, acked: int = 10) -> None:
        self.name, self.number, self.acked = "billing", number, acked
        self.done = list[tuple[str, int, int]]()
        """Which topic, under which number, up to where."""
        self.away = False

    def at(self, topic: str, incarnation: bytes, create: bool = True) -> Progress:
        if self.away:
            raise Timeout("the broker does not respond")
        return Progress(incarnation, self.number, self.acked, 0, 0)

    def finished(self, topic: str, at: Progress, position: int) -> None:
        self.done.append((topic, at.reset_number, position))
        self.acked = max(self.acked, position)


class Local:
    """A subscription at a broker of this process, like `progress.Subscription`; it trims acknowledged
    entries.
    """

    name = "billing"

    def __init__(self, broker: BlockingBroker, start: str = "earliest") -> None:
        self._broker = broker
        self._start = start

    def at(self, topic: str, incarnation: bytes, create: bool = True) -> Progress:
        if create and self.name not in self._broker.admin.subscriptions(topic):
            self._broker.admin.create_subscription(topic, self.name, self._start)
        return self._run(topic, incarnation)

    def finished(self, topic: str, at: Progress, position: int) -> None:
        self._run(topic, at.incarnation, at.reset_number, position)
        self._broker.admin.trim(topic)

    def _run(self, topic: str, incarnation: bytes, number: int = 0, to: int = -1) -> Progress:
        async def work() -> Progress:
            broker = self._broker._twin
            if broker.topic(topic).state.incarnation != incarnation:
                raise NotFound("another topic")
            if to >= 0:
                found = broker.topic(topic).state.subscriptions[self.name]
                await broker.engine.submit(Advance(found.id, number, to=to))
            return _progress(broker, topic, self.name)

        return self._broker._run(work())


def publish(broker: BlockingBroker, entries: list[bytes], topic: str = ORDERS) -> None:
    """Entries as they are, each in a ledger of its own."""

    async def one(data: bytes) -> None:
        twin, stage = broker._twin, os.urandom(16)
        where = await twin.ensure_topic(topic)
        await twin.engine.submit(StageOpen(stage))
        done = await twin.engine.submit(StageAppend(stage, where.state.id, 0, [data]))
        parts = [(stage, where.state.id, done.count, done.digest)]
        await twin.engine.submit(SinkCommit(stage.hex(), 1, parts))

    for each in entries:
        broker._run(one(each))
        broker.admin.roll(topic)


def entries_of(message: str, chunks: int) -> list[bytes]:
    """A message, in so many parts; its value is `message` so many times."""
    fields: Fields = [
        (METADATA["producer_name"], b"p"), (METADATA["sequence_id"], 1), (METADATA["publish_time"], 1),
    ]  # fmt: skip
    if chunks == 1:
        return [entry(fields, message.encode())]
    fields += [
        (METADATA["uuid"], message.encode()), (METADATA["num_chunks_from_msg"], chunks),
        (METADATA["total_chunk_msg_size"], len(message) * chunks),
    ]  # fmt: skip
    return [entry([*fields, (METADATA["chunk_id"], at)], message.encode()) for at in range(chunks)]


def mixed(seed: int, count: int) -> tuple[list[bytes], list[str]]:
    """Build entries of messages whose chunks are interleaved, and the messages in order of completion."""
    choose, waiting = random.Random(seed), dict[str, list[bytes]]()
    entries, ended, made = [], [], 0
    while made < count or waiting:
        if made < count and (len(waiting) < 3 or choose.random() < 0.3):
            chunks = choose.choice([1, 1, 2, 3, 5])
            waiting[f"m{made:02}x{chunks}"] = entries_of(f"m{made:02}x{chunks}", chunks)
            made += 1
        name = choose.choice(list(waiting))
        entries.append(waiting[name].pop(0))
        if not waiting[name]:
            del waiting[name]
            ended.append(name * int(name[-1]))
    return entries, ended


def read_in_lives(data: str, broker: BlockingBroker, seed: int) -> tuple[list[str], list[str]]:
    """Read a stream that restarts now and then, while all acknowledged entries are trimmed."""
    entries, wanted = mixed(seed, 25)
    choose, found, offset = random.Random(seed), list[str](), None
    for at in range(0, len(entries), 7):
        publish(broker, entries[at : at + 7])
        while True:
            running = Stream(data, Local(broker), ("value",), maxOffsetsPerTrigger=2, **NAMED)
            running.offset = offset or running.offset
            rows = [row for _ in range(choose.randrange(1, 4)) for row in running.batch()]
            done, offset = offset == running.offset, running.offset
            found += [row.decode() for row in rows]
            if done:
                break
    return found, wanted


def read_beside_an_open_message(data: str, driver_ahead_s: float) -> list[int]:
    """Read a message and the first part of another; return where the subscription stands then.

    Three times: at once, when nothing has come for an hour less ten seconds of the broker's time, and ten
    seconds after the hour. The topic is idle meanwhile. `driver_ahead_s`: of the wall clock of the stream.
    """
    stands, wall = list[int](), time.time
    with Broker.open(data, housekeeping_s=3600) as broker:
        publish(broker, [*entries_of("whole", 1), entries_of("open", 2)[0]])
        local, clock = Local(broker), broker._twin.engine.log_clock
        now_ns = clock.now_ns
        with mock.patch("time.time", mock.Mock(side_effect=lambda: wall() + driver_ahead_s)):
            running = Stream(data, local, ("value",), **NAMED)
            assert running.batch() == [b"whole"]
            for passed_s in (0, 3590, 3610):
                later = mock.Mock(side_effect=lambda ns=passed_s * 10**9: now_ns() + ns)
                with mock.patch.object(clock, "now_ns", later):
                    assert running.batch() == []
                topic = broker._twin.topic(ORDERS)
                stands.append(topic.state.subscriptions[local.name].acks.acked_to)
    return stands


def reset(url: str, topic: str, subscription: str) -> None:
    """To the beginning, by the official client, as an operator does."""
    import pulsar

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe(topic, subscription).seek(pulsar.MessageId.earliest)
    client.close()


def until(condition: Callable[[], bool], timeout_s: float = 240.0) -> None:
    """Wait for a condition."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
