"""Let consumers of a Key_Shared subscription come and go, and watch each key.

The account is that of a user: it knows only what the consumers receive, and what they acknowledge.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from holdfast.broker.api.consumer import Consumer
from holdfast.broker.broker import Broker
from holdfast.errors import Timeout
from tests.kit.broker.trio import Trio, scene
from tests.kit.broker.worlds import SimWorld
from tests.kit.sim.randomness import SeededRandomness

KEYS = 40
MOST = 8
"""Consumers at one time."""
LIMIT_S = 600.0
"""Of virtual time; a run needs a small part of it."""


class Worker:
    """A consumer that takes some messages at a time, works on them and acknowledges them."""

    def __init__(self, churn: Churn, consumer: Consumer, member: int) -> None:
        self.churn = churn
        self.consumer = consumer
        self.member = member
        self.held: dict[int, set[int]] = defaultdict(set)
        """Messages in hand, by key."""
        self.task = asyncio.get_running_loop().create_task(self.work())

    async def work(self) -> None:
        chance = self.churn.chance
        while True:
            try:
                messages = await self.consumer.receive_many(1 + chance.integer(15), timeout=0.2)
            except Timeout:
                continue
            taken = [self.churn.took(self, each.data) for each in messages]
            await asyncio.sleep(chance.between(0, 0.02))
            for key, number in taken:
                self.held[key].discard(number)
                self.churn.acked[key].add(number)
            await self.consumer.ack_many(messages, receipt=True)
            for key, number in taken:
                self.churn.sure[key].add(number)

    async def end(self, close: bool = True) -> None:
        """Stop in the middle of anything; what is in hand goes to others."""
        self.churn.workers.remove(self)
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.held.clear()
        if close:
            await self.consumer.close()


class Churn:
    """One run, and its account."""

    def __init__(self, seed: int, count: int, brokers: Callable[[], dict[int, Broker]]) -> None:
        self.chance = SeededRandomness(seed, "churn")
        self.count = count
        self.brokers = brokers
        self.workers: list[Worker] = []
        self.acked: defaultdict[int, set[int]] = defaultdict(set)
        """By key: numbers that were acknowledged, perhaps without an answer."""
        self.sure: defaultdict[int, set[int]] = defaultdict(set)
        """The same with a receipt: they are not delivered again."""
        self.joined = self.ended = self.taken = 0

    def took(self, worker: Worker, data: bytes) -> tuple[int, int]:
        key, number = (int(each) for each in data.split(b"."))
        where = f"message {number} of key {key}"
        for other in self.workers:
            assert other is worker or not other.held.get(key), f"I260: {where}: two consumers have the key"
        assert number not in self.sure[key], f"{where} has a receipt, and came again"
        earlier = set(range(number)) - self.acked[key] - worker.held[key]
        assert not earlier, f"I261: {where} came before {sorted(earlier)}"
        worker.held[key].add(number)
        self.taken += 1
        return key, number

    async def join(self) -> None:
        numbers = sorted(self.brokers())
        member = numbers[self.chance.integer(len(numbers))]
        queue = 1 + self.chance.integer(40)
        name = f"c{self.chance.integer(12)}"
        if any(each.consumer.name == name for each in self.workers):
            return
        consumer = self.brokers()[member].consumer(
            "orders", "billing", type="key_shared", receiver_queue=queue, name=name, start="earliest"
        )
        await consumer.open()
        self.workers.append(Worker(self, consumer, member))
        self.joined += 1

    async def leave(self) -> None:
        if self.workers:
            await self.workers[self.chance.integer(len(self.workers))].end()
            self.ended += 1

    async def publish(self) -> None:
        first = min(self.brokers())
        numbers: defaultdict[int, int] = defaultdict(int)
        async with self.brokers()[first].producer("orders") as producer:
            for _ in range(self.count):
                key = self.chance.integer(KEYS)
                await producer.send(b"%d.%d" % (key, numbers[key]), key=b"key %d" % key)
                numbers[key] += 1
                if self.chance.happens(0.1):
                    await asyncio.sleep(self.chance.between(0, 0.05))

    def done(self) -> int:
        return sum(len(each) for each in self.sure.values())

    async def run(self, crash: Callable[[], int] | None = None) -> None:
        """Churn until all is published; then acknowledge the rest, each key in its order."""
        loop = asyncio.get_running_loop()
        publishing = loop.create_task(self.publish())
        steps = 0
        while not publishing.done():
            steps += 1
            few = len(self.workers) < 2 or (len(self.workers) < MOST and self.chance.happens(0.5))
            await (self.join() if few else self.leave())
            await asyncio.sleep(self.chance.between(0, 0.1))
            if crash is not None and steps == 20:
                dead = crash()
                for each in [each for each in self.workers if each.member == dead]:
                    await each.end(close=False)
            self.require_alive()
        await publishing
        await self.join()
        end = loop.time() + LIMIT_S
        while sum(len(each) for each in self.acked.values()) < self.count:
            self.require_alive()
            assert loop.time() < end, f"{self.done()} of {self.count} were acknowledged: a key is stuck"
            await asyncio.sleep(0.2)
        for worker in [*self.workers]:
            await worker.end()
        assert min(self.joined, self.ended) > 5, "nothing was churned"

    def require_alive(self) -> None:
        for each in self.workers:
            if each.task.done():
                each.task.result()


def alone(seed: int, count: int) -> int:
    """Run on one broker; return how many messages were taken."""
    world = SimWorld(seed)

    async def work() -> tuple[Broker, int]:
        broker = await world.open()
        churn = Churn(seed, count, lambda: {1: broker})
        await churn.run()
        return broker, churn.taken

    broker, taken = world.run(work())
    world.close(broker)
    return taken


def together(seed: int, count: int) -> int:
    """Run on three members, of which one dies; return how many messages were taken."""
    taken = 0

    async def work(trio: Trio) -> None:
        nonlocal taken
        churn = Churn(seed, count, lambda: trio.brokers)

        def crash() -> int:
            trio.crash(3)
            return 3

        await churn.run(crash)
        taken = churn.taken

    scene(work)
    return taken
