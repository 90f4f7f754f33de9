"""Partitions, keys and delivery times together, while a topic grows and a member dies.

Key_Shared consumers of each partition are at all members. The account is that of a user: what was confirmed,
and what consumers receive and acknowledge.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from holdfast.broker import Broker
from holdfast.errors import Timeout
from holdfast.names import partition_name
from tests.kit.cluster.partitions import WHOLE
from tests.kit.cluster.unreplicated import Scene
from tests.kit.sim.randomness import SeededRandomness

KEYS = 12
LATE_S = 60.0
"""Delay of the messages that have one."""
CLOCKS_S = 20.0
"""Wall clocks of simulated nodes differ by less."""
LIMIT_S = 300.0

Key = tuple[int, int]
"""A partition, and a key in it. A key may have another partition after the topic has grown."""


class Mixed:
    """A run, and its account."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.chance = SeededRandomness(seed, "mixed")
        self.sent: dict[Key, int] = defaultdict(int)
        """By key: messages without a delay that were confirmed."""
        self.most: dict[Key, int] = defaultdict(lambda: -1)
        """By key: the largest number that came."""
        self.held: dict[asyncio.Task[None], set[Key]] = {}
        """By consumer: the keys of its unacknowledged messages."""
        self.late: dict[int, float] = {}
        """Delayed messages that were confirmed, with the times at which that began."""
        self.came: set[int] = set()
        """Those of them that came."""
        self.workers: dict[int, list[asyncio.Task[None]]] = defaultdict(list)
        """By member."""

    # -- the work --------------------------------------------------------------------------------------

    def open(self, nodes: list[int], partitions: range, name: str) -> None:
        """Open a consumer of each of these partitions at each of these members."""
        loop = asyncio.get_running_loop()
        for node in nodes:
            for index in partitions:
                work = self._consume(self.scene.brokers[node], f"{name}{node}", index)
                self.workers[node].append(loop.create_task(work))

    async def _consume(self, broker: Broker, name: str, index: int) -> None:
        me = asyncio.current_task()
        assert me is not None
        consumer = broker.consumer(
            partition_name(WHOLE, index), "s", type="key_shared", name=name, receiver_queue=8
        )
        await consumer.open()
        while True:
            try:
                messages = await consumer.receive_many(4, timeout=0.5)
            except Timeout:
                continue
            held = self.held.setdefault(me, set())
            for each in messages:
                self._took(me, index, bytes(each.data))
            await asyncio.sleep(self.chance.between(0, 1.0))
            held.clear()  # others may have these keys before the receipt is here
            await consumer.ack_many(messages, receipt=True)

    async def publish(self, broker: Broker, count: int) -> None:
        """Publish to the partitions of keys, as a client routes; some messages have a delay."""
        for _ in range(count):
            key = self.chance.integer(KEYS)
            index = key % broker.partitioned.count(WHOLE)
            async with broker.producer(partition_name(WHOLE, index)) as producer:
                number = self.sent[index, key]
                await producer.send(b"%d.%d" % (key, number), key=f"key {key}")
                self.sent[index, key] = number + 1
                if self.chance.happens(0.3):
                    late, now = len(self.late), asyncio.get_running_loop().time()
                    await producer.send(b"late %d" % late, key=f"key {key}", deliver_after=LATE_S)
                    self.late[late] = now

    def crash(self, node: int) -> None:
        """Let a member die with its consumers."""
        self.scene.crash(node)
        for each in self.workers.pop(node):
            each.cancel()
            self.held.pop(each, None)

    # -- the account -----------------------------------------------------------------------------------

    def _took(self, me: asyncio.Task[None], index: int, data: bytes) -> None:
        if data.startswith(b"late "):
            number = int(data[5:])
            waited_s = asyncio.get_running_loop().time() - self.late[number]
            assert waited_s >= LATE_S - CLOCKS_S, f"I271: a message came after {waited_s:.1f} s"
            self.came.add(number)
            return
        key, number = (int(each) for each in data.split(b"."))
        where = index, key
        for other, keys in self.held.items():
            assert other is me or where not in keys, f"I260: two consumers have {where}"
        assert number <= self.most[where] + 1, f"I261: {number} of {where} came after {self.most[where]}"
        self.most[where] = max(self.most[where], number)
        self.held[me].add(where)

    def is_done(self) -> bool:
        for each in [each for workers in self.workers.values() for each in workers]:
            if each.done():
                each.result()
        return self.came == self.late.keys() and all(
            self.most[where] == count - 1 for where, count in self.sent.items()
        )

    async def finish(self) -> None:
        """Wait until all has come and is acknowledged."""
        loop = asyncio.get_running_loop()
        end = loop.time() + LIMIT_S
        admin = self.scene.brokers[min(self.scene.brokers)].admin
        names = [partition_name(WHOLE, index) for index in range(admin.partitions(WHOLE))]
        while not self.is_done() or any(admin.subscription_stats(each, "s").backlog for each in names):
            assert loop.time() < end, f"left: {self.sent} of {self.most}, {self.late.keys() - self.came}"
            await asyncio.sleep(0.2)
        for workers in self.workers.values():
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


async def everything_at_once(scene: Scene, seed: int) -> None:
    """Let a topic grow under its consumers; a member dies, and returns."""
    run, nodes = Mixed(scene, seed), sorted(scene.brokers)
    first, last = nodes[0], nodes[-1]
    await scene.brokers[first].partitioned.create(WHOLE, 2)
    await scene.brokers[first].partitioned.subscribe(WHOLE, "s", from_end=False)
    await asyncio.sleep(0.3)
    run.open(nodes, range(2), "a")
    await run.publish(scene.brokers[first], 20)
    run.open(nodes, range(2), "b")  # while the others hold messages
    await run.publish(scene.brokers[first], 20)
    await scene.brokers[last].partitioned.grow(WHOLE, 4)
    await asyncio.sleep(0.3)
    await run.publish(scene.brokers[first], 10)
    run.open(nodes, range(2, 4), "a")
    await run.publish(scene.brokers[first], 10)
    run.open(nodes, range(2, 4), "b")
    await run.publish(scene.brokers[first], 10)
    await asyncio.sleep(run.chance.between(0, LATE_S))
    run.is_done()
    run.crash(last)
    if first != last:
        await run.publish(scene.brokers[first], 10)
    await scene.back(last)
    run.open([last], range(4), "a")
    await run.publish(scene.brokers[first], 10)
    await run.finish()
    scene.require_same()
    assert len(run.late) > 3
    assert len(run.sent) > KEYS, "no key has another partition after the growth"
