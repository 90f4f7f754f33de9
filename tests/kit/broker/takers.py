"""Take, move and reject messages at all members, while consumers of all members receive them.

Batches have several messages, of which some are taken or acknowledged. The world of `owners` looks at every
delivery: of a failover or exclusive subscription, nothing is delivered before what is open below it.

Run as a program it checks some seeds: `python -m tests.kit.broker.takers FIRST END`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from contextlib import suppress

from holdfast._core import TopicMessage
from holdfast.broker.api.consumer import Consumer
from holdfast.broker.broker import Broker
from holdfast.errors import CursorModifying, Exists, Fenced, NoQuorum, NotFound, Outdated, Timeout
from tests.kit.broker import cluster, owners
from tests.kit.broker.cluster import Replica
from tests.kit.group.checker import Broken
from tests.kit.sim import Sim, SimNode, Weather

TYPES = ("all", "line", "one")
OTHER = "other"
ALL = 1 << 30


class Takers(owners.Owners):
    """The brokers' world, with what was taken out of the backlog of its one subscription."""

    def __init__(self, sim: Sim) -> None:
        super().__init__(sim, pause_s=0.1, delays=False)
        self.name = TYPES[sim.seed % len(TYPES)]
        self.served = {self.name: owners.SUBSCRIPTIONS[self.name]}
        self.resets_are_wanted = sim.seed % 2 == 1
        self.taken = Counter[bytes]()
        self.moved = 0

    def replica(self, node: SimNode) -> Replica:
        return Taker(self, node)

    def finish(self) -> None:
        """Require that each message left the backlog once; resets bring it back."""
        super().finish()
        self.sim.run_until(lambda: not any(each.store.missing for each in self.brokers.values()))
        for broker in self.brokers.values():
            there = self.sim.loop.run_until_complete(broker.admin.examine(OTHER, count=ALL))
            ways = Counter(bytes(each.data) for each in there) + self.taken
            twice = sorted(data for data, times in ways.items() if times > 1)
            if twice and not self.resets:
                raise Broken(f"{twice[:3]} were taken or moved more than once")


class Taker(owners.Member):
    """One member's broker, its consumer, and a caller that takes, moves and rejects."""

    world: Takers

    async def until_quorate(self, broker: Broker) -> None:
        await super().until_quorate(broker)
        assert self.sim_node is not None
        while True:
            try:
                with suppress(Exists):
                    await broker.admin.create_topic(OTHER, retention_bytes=-1)
                with suppress(Exists):
                    await broker.admin.create_exchange("dead", "fanout")
                await broker.admin.bind("dead", OTHER)
                await broker.admin.set_alternate(owners.TOPIC, "dead", self.world.name)
                return
            except NoQuorum:
                await self.sim_node.clock.sleep(0.1)

    async def publish(self, broker: Broker) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish(broker))
            tasks.create_task(self._take_out(broker))

    async def _publish(self, broker: Broker) -> None:
        life, number = broker.group.member.incarnation, 0
        async with broker.producer(owners.TOPIC, batch=self.random.choice((1, 3, 3))) as producer:
            while not self.world.calm:
                count = self.random.choice((1, 2, 9))
                data = [b"%d:%d:%d" % (self.node, life, each) for each in range(number, number + count)]
                number += count
                await producer.send_many(data, key=f"k{self.random.randrange(6)}")
                self.world.published += 1
                await self.rest()

    async def _take_out(self, broker: Broker) -> None:
        while not self.world.calm:
            await asyncio.sleep(0.02 + 0.1 * self.random.random())
            with suppress(CursorModifying, Timeout, Fenced, Outdated, NotFound):
                await self._take_some_out(broker, self.world.name)

    async def _take_some_out(self, broker: Broker, name: str) -> None:
        way, world, admin = self.random.random(), self.world, broker.admin
        if way < 0.35:
            message = await admin.take(owners.TOPIC, name)
            if message is not None:
                world.taken[bytes(message.data)] += 1
        elif way < 0.6:
            world.moved += await admin.move(owners.TOPIC, name, OTHER, count=self.random.choice((1, 3, 50)))
        elif way < 0.85:
            for each in await admin.peek(owners.TOPIC, name, 2):
                world.moved += await admin.reject(owners.TOPIC, name, each.id)
        elif world.resets_are_wanted:
            await self.move(broker, name)

    async def acknowledge(
        self, broker: Broker, consumer: Consumer, name: str, messages: list[TopicMessage]
    ) -> None:
        """Acknowledge some of them first: also parts of batches."""
        if self.random.random() < 0.3:
            some = [each for each in messages if self.random.random() < 0.6]
            with suppress(Outdated):
                await consumer.ack_many(some, self.random.random() < 0.5)
            messages = [each for each in messages if each not in some]
        if messages:
            await super().acknowledge(broker, consumer, name, messages)


def run(seed: int, faults: int = 0) -> Takers:
    """Run a squall over three brokers, and check it; 0: of one to four faults."""
    with cluster.watched(), Sim(seed, 3) as sim:
        world = Takers(sim)
        sim.network.weather = Weather(delay_s=(1e-4, 10e-3), loss=0.02, detection_s=(0.005, 0.1))
        with owners.observed(world):
            sim.boot(world.program)
            sim.run(0.5)
            owners.squall(sim, faults or 1 + seed % 4)
            world.finish()
        world.checker.check()
        return world


if __name__ == "__main__":
    for each in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            found = run(each)
            print(each, found.name, found.delivered, sum(found.taken.values()), found.moved, flush=True)
        except Broken as broken:
            print(f"FAIL {each}: {broken}", flush=True)
