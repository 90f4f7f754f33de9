"""Let consumers of a Key_Shared subscription come, go and die; watch each key.

The account is that of a user: it knows only what the consumers receive, acknowledge and give back. Time is
virtual. The publisher pauses, so a run lasts `MINUTES`, however few messages it has.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from holdfast._core import TopicMessage
from holdfast.broker.api.consumer import Consumer
from holdfast.broker.broker import Broker
from holdfast.errors import Outdated, Timeout
from tests.kit.broker.trio import Trio, scene
from tests.kit.broker.worlds import SimWorld
from tests.kit.sim.randomness import SeededRandomness

KEYS = 40
MOST = 8
"""Consumers at one time."""
MINUTES = 3.5
"""A run lasts at least so long."""
LIMIT_S = 600.0
"""Of virtual time, for what is left when all is published."""
LIVES = 3
"""Of a single broker."""
RESET_STEPS = 150
"""Consumers that come or go from one reset to the next."""
PAUSES = 0.1
"""The share of messages after which the publisher pauses."""


class Worker:
    """A consumer that takes messages, works on them and acknowledges most of them."""

    def __init__(self, churn: Churn, consumer: Consumer, member: int, queue: int) -> None:
        self.churn = churn
        self.consumer = consumer
        self.member = member
        self.queue = queue
        self.held: dict[int, set[int]] = defaultdict(set)
        """Messages in hand, by key."""
        self.returned: dict[int, dict[int, int]] = defaultdict(dict)
        """Messages that it gave back, by key, and how many later ones it has received since.

        Those were in its queue already.
        """
        self.dead = False
        self.task = asyncio.get_running_loop().create_task(self.work())

    async def work(self) -> None:
        chance = self.churn.chance
        while True:
            try:
                messages = await self.consumer.receive_many(1 + chance.integer(15), timeout=0.5)
            except Timeout:
                continue
            taken = [(self.churn.took(self, each), each) for each in messages]
            await asyncio.sleep(chance.between(0, 2.0) if chance.happens(0.5) else chance.between(0, 0.02))
            if chance.happens(0.1):
                self.give_back(*taken.pop(chance.integer(len(taken))))
            await self.acknowledge([each for each in taken if each[1].reset_number == self.churn.reset])

    def give_back(self, what: tuple[int, int], message: TopicMessage) -> None:
        key, number = what
        if message.reset_number == self.churn.reset:
            self.held[key].discard(number)
            self.returned[key][number] = 0
            self.churn.nacked += 1
        self.consumer.nack(message, delay=(0, 0.05, None)[self.churn.chance.integer(3)])

    async def acknowledge(self, taken: list[tuple[tuple[int, int], TopicMessage]]) -> None:
        reset = self.churn.reset
        for (key, number), _ in taken:
            self.held[key].discard(number)
            self.churn.acked[key].add(number)
        try:
            await self.consumer.ack_many([message for _, message in taken], receipt=True)
        except Outdated:  # a reset came first
            return
        if reset == self.churn.reset:
            for (key, number), _ in taken:
                self.churn.sure[key].add(number)

    async def end(self, close: bool = True) -> None:
        """Stop in the middle of anything; what is in hand goes to others."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.churn.workers.remove(self)
        if close:
            await self.consumer.close()

    async def die(self) -> None:
        """Stop without a close; later the broker ends the consumer, as a server does."""
        self.dead = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await asyncio.sleep(self.churn.chance.between(0, 3.0))
        if self not in self.churn.workers:
            return  # its broker has died
        self.churn.workers.remove(self)
        dispatcher = self.consumer._serving()
        dispatcher.remove_consumer(self.consumer._id)
        self.consumer._broker.sessions.drop_consumer(self.consumer._session)


class Churn:
    """One run, and its account."""

    def __init__(self, seed: int, count: int, brokers: Callable[[], dict[int, Broker]]) -> None:
        self.chance = SeededRandomness(seed, "churn")
        self.brokers = brokers
        self.workers: list[Worker] = []
        self.acked: defaultdict[int, set[int]] = defaultdict(set)
        """By key: numbers that were acknowledged, perhaps without an answer."""
        self.sure: defaultdict[int, set[int]] = defaultdict(set)
        """The same with a receipt: they are not delivered again."""
        self.reset = 0
        """The number of the last reset of which a message was received. All resets are to the first one."""
        self.plan = self._plan(count)
        self.published = self.steps = 0
        self.joined = self.ended = self.died = self.nacked = self.taken = self.drained = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def _plan(self, count: int) -> list[tuple[int, int]]:
        """Return the key and the number of each message."""
        numbers: defaultdict[int, int] = defaultdict(int)
        found = []
        for _ in range(count):
            key = self.chance.integer(KEYS)
            found.append((key, numbers[key]))
            numbers[key] += 1
        return found

    # -- the account -----------------------------------------------------------------------------------

    def took(self, worker: Worker, message: TopicMessage) -> tuple[int, int]:
        key, number = (int(each) for each in message.data.split(b"."))
        if message.reset_number > self.reset:
            self._start_again(message.reset_number)
        if message.reset_number < self.reset:
            return key, number  # void
        where = f"message {number} of key {key}"
        for other in self.workers:
            assert other is worker or not other.held.get(key), f"I260: {where}: two consumers have the key"
        assert number not in self.sure[key], f"{where} has a receipt, and came again"
        returned = worker.returned[key]
        returned.pop(number, None)
        earlier = set(range(number)) - self.acked[key] - worker.held[key]
        assert earlier <= returned.keys(), f"I261: {where} came before {sorted(earlier)}"
        for each in earlier:
            returned[each] += 1
            assert returned[each] <= worker.queue, (
                f"I261: message {each} of key {key} was given back, and waits"
            )
        worker.held[key].add(number)
        self.taken += 1
        return key, number

    def _start_again(self, reset: int) -> None:
        self.reset = reset
        self.acked.clear()
        self.sure.clear()
        for each in self.workers:
            each.held.clear()
            each.returned.clear()

    def require_alive(self) -> None:
        for each in self.workers:
            if each.task.done() and not each.dead:
                each.task.result()
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.remove(task)
            task.result()

    def require_churned(self) -> None:
        """Require that the run had something of everything."""
        counts = {
            name: getattr(self, name) for name in ("joined", "ended", "died", "nacked", "drained", "reset")
        }
        assert all(counts.values()), f"some things never happened: {counts}"

    # -- the work --------------------------------------------------------------------------------------

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
        self.workers.append(Worker(self, consumer, member, queue))
        self.joined += 1

    async def leave(self) -> None:
        alive = [each for each in self.workers if not each.dead]
        if not alive:
            return
        worker = alive[self.chance.integer(len(alive))]
        if self.chance.happens(0.3):
            self._tasks.add(asyncio.get_running_loop().create_task(worker.die()))
            self.died += 1
        else:
            await worker.end()
            self.ended += 1

    async def publish(self, until_s: float) -> None:
        """Publish what is left of the plan, spread over the time.

        A message that is sent again after a crash has its number, so it is stored once.
        """
        loop, left = asyncio.get_running_loop(), len(self.plan) - self.published
        mean_s = (until_s - loop.time()) / (PAUSES * max(1, left))
        broker = self.brokers()[min(self.brokers())]
        async with broker.producer("orders", name="publisher") as producer:
            while self.published < len(self.plan):
                key, number = self.plan[self.published]
                await producer.send(b"%d.%d" % (key, number), key=b"key %d" % key, sequence=self.published)
                self.published += 1
                if self.chance.happens(PAUSES):
                    await asyncio.sleep(self.chance.between(0, 2 * mean_s))
        await asyncio.sleep(max(0, until_s - loop.time()))

    def lost(self, member: int) -> None:
        """Note that the consumers of a member are gone with it."""
        for each in [each for each in self.workers if each.member == member]:
            each.dead = True
            each.task.cancel()
            self.workers.remove(each)

    def crashed(self) -> None:
        """Note that all consumers are gone with their broker."""
        self.workers.clear()
        self._tasks.clear()

    async def move_back(self) -> None:
        broker = self.brokers()[min(self.brokers())]
        await broker.admin.reset("orders", "billing", "earliest")

    def look(self) -> None:
        """Count hashes that drain."""
        for broker in self.brokers().values():
            stats = broker.admin.subscription_stats("orders", "billing").dispatch
            for each in () if stats is None else stats.consumers:
                self.drained += 0 if each.keys is None else each.keys.draining_count

    async def churn(self, until_s: float, events: dict[int, Callable[[], None]] | None = None) -> None:
        """Let consumers come and go until all is published; `events` happen at their steps."""
        publishing = asyncio.get_running_loop().create_task(self.publish(until_s))
        try:
            await self._come_and_go(publishing, events)
        except Exception:  # of the account: nothing of the run is left behind
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            raise
        await publishing

    async def _come_and_go(
        self, publishing: asyncio.Task[None], events: dict[int, Callable[[], None]] | None
    ) -> None:
        while not publishing.done():
            self.steps += 1
            few = len(self.workers) < 2 or (len(self.workers) < MOST and self.chance.happens(0.5))
            await (self.join() if few else self.leave())
            await asyncio.sleep(self.chance.between(0, 1.0))
            if events is not None and self.steps in events:
                events[self.steps]()
            if self.steps % RESET_STEPS == 0:
                await self.move_back()
            self.look()
            self.require_alive()

    async def finish(self) -> None:
        """Acknowledge the rest, each key in its order."""
        loop = asyncio.get_running_loop()
        await self.join()
        end = loop.time() + LIMIT_S
        admin = self.brokers()[min(self.brokers())].admin
        while (done := sum(len(each) for each in self.acked.values())) < len(self.plan) or (
            admin.subscription_stats("orders", "billing").backlog
        ):
            self.require_alive()
            assert loop.time() < end, f"{done} of {len(self.plan)} were acknowledged: a key is stuck"
            await asyncio.sleep(0.2)
        await asyncio.gather(*self._tasks)
        for worker in [*self.workers]:
            await worker.end()


def alone(seed: int, count: int) -> Churn:
    """Run on one broker, which loses its power now and then; return the account."""
    world = SimWorld(seed)
    churn = Churn(seed, count, lambda: {1: broker})
    life_s = 60 * MINUTES / LIVES

    async def begin() -> None:
        await broker.admin.create_topic("orders", deduplication=True, retention_bytes=-1)
        await broker.admin.create_subscription("orders", "billing", start="earliest")

    async def live(life: int) -> None:
        """Let a life end in the middle of everything; the last one ends in order."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + life_s
        churning = loop.create_task(churn.churn(begun_s + LIVES * life_s))
        while loop.time() < ends_s or life == LIVES - 1:
            await asyncio.sleep(0.1)
            if churning.done():
                break
        if churning.done():
            await churning
            await churn.finish()

    broker = world.run(world.open())
    begun_s = world.run(now())
    world.run(begin())
    for life in range(LIVES):
        world.run(live(life))
        if life < LIVES - 1:
            world.crash(broker, power=churn.chance.happens(0.5))
            churn.crashed()
            broker = world.run(world.open())
    world.close(broker)
    churn.require_churned()
    return churn


async def now() -> float:
    return asyncio.get_running_loop().time()


def together(seed: int, count: int) -> Churn:
    """Run on three members, of which one dies and returns; return the account."""
    made: list[Churn] = []

    async def work(trio: Trio) -> None:
        await trio.brokers[1].admin.set_policies("orders", deduplication=True)
        churn = Churn(seed, count, lambda: trio.brokers)
        made.append(churn)
        third = trio.brokers[3]

        def crash() -> None:
            trio.crash(3)
            churn.lost(3)

        begun_s = await now()
        await churn.churn(begun_s + 60 * MINUTES, {60: crash, 120: lambda: trio.sim.restart(3)})
        await churn.finish()
        assert trio.brokers[3] is not third, "the member did not return"

    scene(work, seed)
    made[0].require_churned()
    return made[0]
