"""The clients' work in storms on brokers, with notes before requests and after answers.

Two topics: `kept` keeps everything and deduplicates, `plain` is trimmed. On `kept` a producer continues in
each life with the number after the last. It sends unconfirmed messages again under their old numbers.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

from holdfast.broker.api.consumer import Consumer, Start
from holdfast.broker.broker import Broker
from holdfast.errors import Busy, Exists, Timeout
from tests.kit.broker.judge import ID, PLACES, Seen, content

ALL = 1 << 30
TOPICS: dict[str, dict[str, Any]] = {"kept": {"deduplication": True, "retention_bytes": -1}, "plain": {}}


class Work:
    """The work of one life of a node. A subclass chooses where notes go.

    Small letters: before a request. Capitals: after its answer. `p` publish, `F` flushed, `a` acknowledge,
    `c` cumulatively, `r` reset, `k` clear the backlog.
    """

    def __init__(self, node: int, life: int, chance: random.Random, pause_s: float = 0.004) -> None:
        self.node, self.life, self.random, self.pause_s = node, life, chance, pause_s
        self.rests = 0.3
        """How often it pauses between two calls."""
        self.ending = False
        self.subscriptions = [("kept", f"each{node}"), ("kept", f"line{node}"), ("plain", f"each{node}")]

    def note(self, *record: object) -> None:
        raise NotImplementedError

    async def work(self, broker: Broker) -> None:
        """Work until told to end."""
        tasks = [self.produce(broker, topic, number) for topic in TOPICS for number in range(2)]
        for topic, name in self.subscriptions:
            tasks.append(self.consume(broker, topic, name, "failover" if "line" in name else "shared"))
        async with asyncio.TaskGroup() as group:
            for task in (*tasks, self.house(broker)):
                group.create_task(task)

    async def prepare(self, broker: Broker) -> None:
        """Create the topics and subscriptions that do not exist."""
        for topic, policies in TOPICS.items():
            if topic not in [name.rpartition("/")[2] for name in broker.admin.topics()]:
                with suppress(Exists):
                    await broker.admin.create_topic(topic, **policies)
        for topic, name in self.subscriptions:
            if name not in broker.admin.subscriptions(topic):
                with suppress(Exists):
                    await broker.admin.create_subscription(topic, name, start="earliest")

    async def look(self, broker: Broker) -> Seen:
        """Return all contents at one moment; read again if a trim came in between."""
        while True:
            before = [broker.admin._topic(topic).first for topic in TOPICS]
            try:
                seen = await self.look_once(broker)
            except Busy:  # this member is being updated, and does not have all ledgers yet
                if broker.engine.ended is not None:
                    raise broker.engine.ended from None  # it is lost, and will never have them
                await broker.clock.sleep(0.05)
                continue
            if before == [broker.admin._topic(topic).first for topic in TOPICS]:
                return seen

    async def look_once(self, broker: Broker) -> Seen:
        seen = Seen({}, {}, {}, {})
        for topic in TOPICS:
            seen.topics[topic] = rows = []
            for m in await broker.admin.examine(topic, "earliest", ALL):
                data = bytes(m.data)
                producer, number = ID.unpack_from(data)
                if data != content(producer, number):
                    raise AssertionError(f"{m.id} of {topic} is not what was sent: {data[:40]!r}")
                rows.append((m.ordinal, max(0, m.batch_index), m.id.ledger, m.id.entry, producer, number))
            where = broker.admin._topic(topic)
            seen.bounds[topic] = (where.first, where.visible)
        for topic, name in self.subscriptions:
            left = await broker.admin.peek(topic, name, ALL)
            seen.left[topic, name] = [m.ordinal * PLACES + max(0, m.batch_index) for m in left]
            stats = broker.admin.subscription_stats(topic, name)
            seen.resets[topic, name] = stats.reset_number
            if stats.backlog != len({m.ordinal for m in left}):
                raise AssertionError(f"{topic}/{name}: backlog {stats.backlog}, and {len(left)} are left")
        return seen

    async def produce(self, broker: Broker, topic: str, number: int) -> None:
        """Publish; on `kept` under one name in all lives."""
        me = self.node * 10 + number + (0 if topic == "kept" else self.life * 1000)
        batch = 3 if number else 1
        async with broker.producer(topic, name=f"{topic}-{me}", batch=batch) as p:
            at = p.last_sequence + 1 if topic == "kept" else 0
            self.note("START", topic, me, at)
            while not self.ending:
                count = self.random.choice((1, 1, 2, 5, 12))
                again = min(at, self.random.randint(0, 3)) if topic == "kept" and batch == 1 else 0
                data = [content(me, n) for n in range(at - again, at + count)]
                self.note("p", topic, me, at, count)
                if self.random.random() < 0.2:
                    await p.post(data[again:])
                    await p.flush()
                    self.note("F", topic, me, at, count)
                else:
                    ids = await p.send_many(data, sequence=at - again)
                    places = [(i.ledger, i.entry) for i in ids[again:]]
                    self.note("P", topic, me, at, count, places, [i.ledger for i in ids[:again]])
                at += count
                await self.rest()

    async def consume(self, broker: Broker, topic: str, name: str, kind: Any) -> None:
        """Consume; one task for each subscription keeps its records in order."""
        sub = [topic, name]
        async with broker.consumer(
            topic, name, type=kind, receiver_queue=self.random.choice((3, 50, 1000)), name=f"c{self.life}"
        ) as c:
            while not self.ending:
                try:
                    messages = list(await c.receive_many(self.random.choice((1, 4, 50)), timeout=0.05))
                except Timeout:
                    continue
                await self.rest()
                if self.random.random() < 0.04 and topic == "kept":
                    await self.reset(broker, c, sub)
                    continue
                if self.random.random() < 0.02:
                    self.note("k", sub)
                    await broker.admin.clear(topic, name)
                    self.note("K", sub, messages[-1].ordinal)
                    continue
                keys = [m.ordinal * PLACES + max(0, m.batch_index) for m in messages]
                receipt = self.random.random() < 0.6
                if self.random.random() < 0.15:
                    c.nack(messages[0], delay=self.random.choice((0, 20 * self.pause_s)))
                    messages, keys = messages[1:], keys[1:]
                if not messages:
                    continue
                if kind == "failover":
                    self.note("c", sub, keys[-1])
                    await c.ack_cumulative(messages[-1], receipt)
                    if receipt:
                        self.note("C", sub, keys[-1])
                else:
                    self.note("a", sub, keys)
                    await c.ack_many(messages, receipt)
                    if receipt:
                        self.note("A", sub, keys)

    async def reset(self, broker: Broker, c: Consumer, sub: list[str]) -> None:
        topic = broker.admin._topic(sub[0])
        back = self.random.choice((0, 1, 10, 100))
        target = max(topic.first, topic.visible - back)
        to: Start = topic.id_of(target) if target < topic.visible else "latest"
        self.note("r", sub, target)
        await (c.seek(to) if back % 2 else broker.admin.reset(sub[0], sub[1], to))
        self.note("R", sub, target)

    async def rest(self) -> None:
        if self.random.random() < self.rests:
            await asyncio.sleep(self.random.random() * self.pause_s)

    async def house(self, broker: Broker) -> None:
        """Roll, trim and snapshot all the time."""
        while not self.ending:
            await asyncio.sleep(self.random.random() * self.pause_s * 5)
            chosen = self.random.random()
            if chosen < 0.3:
                await broker.admin.snapshot()
            elif chosen < 0.5:
                await broker.admin.roll(self.random.choice([*TOPICS]))
            else:
                await broker.admin.trim("plain")
