"""Brokers of a simulated cluster whose clients publish to an exchange, and reject messages."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from holdfast.broker.broker import Broker
from holdfast.errors import Exists
from tests.kit.broker import cluster
from tests.kit.broker.cluster import Replica
from tests.kit.group.checker import Broken
from tests.kit.sim import Sim, SimNode, Weather, storm

KEYS = ("a", "b", "none")
TOPICS = {"red": ("a",), "both": ("a", "b"), "rest": ("none",), "morgue": ()}
"""The topics, and the keys of their messages; `rest` is bound to the alternate."""
ALL = 1 << 30


class World(cluster.World):
    """The brokers' world, with an account of sent and rejected messages."""

    def __init__(self, sim: Sim, pause_s: float) -> None:
        super().__init__(sim, pause_s)
        self.confirmed: set[bytes] = set()
        self.rejected: set[bytes] = set()
        self.asked: set[bytes] = set()
        """Messages with a reject that was begun."""

    def replica(self, node: SimNode) -> cluster.Replica:
        return ExchangeReplica(self, node, 0)

    def finish(self) -> None:
        super().finish()
        for broker in self.brokers.values():
            self.sim.loop.run_until_complete(self._look(broker))

    async def _look(self, broker: Broker) -> None:
        """I242, I243: confirmed messages are once in each topic, rejected ones moved once."""
        for topic, keys in TOPICS.items():
            found = Counter(each.data for each in await broker.admin.examine(topic, count=ALL))
            if found and max(found.values()) > 1:
                raise Broken(f"{topic} has {found.most_common(1)} more than once")
            wanted = {each for each in self.confirmed if key_of(each) in keys}
            if topic == "morgue":
                wanted = self.rejected
                if strange := set(found) - self.asked:
                    raise Broken(f"messages were moved, and not rejected: {sorted(strange)[:3]}")
            if lost := wanted - set(found):
                raise Broken(f"{topic} lacks {len(lost)} messages, such as {sorted(lost)[:3]}")
            if wrong := {each for each in found if topic != "morgue" and key_of(each) not in keys}:
                raise Broken(f"{topic} has messages of other keys: {sorted(wrong)[:3]}")


def key_of(data: bytes) -> str:
    return KEYS[int(data.rpartition(b":")[2]) % len(KEYS)]


class ExchangeReplica(Replica):
    """One member's broker, its producer, and a client that rejects."""

    async def prepare(self, broker: Broker) -> None:
        await super().prepare(broker)
        admin = broker.admin
        for topic in TOPICS:
            with suppress(Exists):
                await admin.create_topic(topic, retention_bytes=-1)
            with suppress(Exists):
                await admin.create_subscription(topic, "s", "earliest")
        for name, kind, alternate in (
            ("dead", "fanout", None),
            ("other", "fanout", None),
            ("x", "direct", "other"),
        ):
            with suppress(Exists):
                await admin.create_exchange(name, kind, alternate=alternate, deduplication=True)
        for exchange, topic, key in (("x", "red", "a"), ("x", "both", "a"), ("x", "both", "b")):
            await admin.bind(exchange, topic, key)
        await admin.bind("dead", "morgue")
        await admin.bind("other", "rest")
        await admin.set_alternate("red", "dead")

    async def work(self, broker: Broker) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._produce(broker))
            group.create_task(self._reject(broker))

    async def _produce(self, broker: Broker) -> None:
        world = self.world
        assert isinstance(world, World)
        async with broker.producer("x", name=f"p{self.node}") as p:
            number = p.last_sequence + 1
            while not self.ending:
                data = b"%d:%d" % (self.node, number)
                await p.send(data, key=key_of(data), sequence=number)
                world.confirmed.add(data)
                number += 1
                await self._pause(broker)

    async def _reject(self, broker: Broker) -> None:
        world = self.world
        assert isinstance(world, World)
        while not self.ending:
            for message in await broker.admin.peek("red", "s", 3):
                world.asked.add(message.data)
                if await broker.admin.reject("red", "s", message.id):
                    world.rejected.add(message.data)
            await self._pause(broker)

    async def _pause(self, broker: Broker) -> None:
        await broker.clock.sleep(0.01 + 0.05 * self.random.random())


def run(seed: int, nodes: int = 3, seconds: float = 6.0) -> World:
    """Run a storm over brokers, and check it."""
    with cluster.watched(), Sim(seed, nodes) as sim:
        world = World(sim, pause_s=0.4)
        sim.network.weather = Weather(delay_s=(1e-4, 40e-3), loss=0.05, detection_s=(0.005, 0.3))
        sim.boot(world.program)
        storm(sim, seconds, every_s=(0.05, 0.8))
        world.finish()
        world.checker.check()
        return world
