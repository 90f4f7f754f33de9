"""Brokers of a simulated cluster whose clients publish to an exchange, and reject messages.

They also publish to a ring and to a last-value topic. Consumers on all members take turns there, so that the
owner changes, which drops entries.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from holdfast.broker.broker import Broker
from holdfast.broker.membership import owner_of_topic
from holdfast.errors import Exists, Timeout
from holdfast.names import topic_name
from tests.kit.broker import cluster
from tests.kit.broker.cluster import Replica
from tests.kit.group.checker import Broken
from tests.kit.sim import EVERYTHING, Sim, SimNode, Trouble, Weather, storm

KEYS = ("a", "b", "none")
TOPICS = {"red": ("a",), "both": ("a", "b"), "rest": ("none",), "morgue": ()}
"""The topics, and the keys of their messages; `rest` is bound to the alternate."""
RING, NEWEST = "ring", "newest"
RING_ENTRIES, VALUES = 12, 5
THINNED: dict[str, dict[str, Any]] = {RING: {"ring_entries": RING_ENTRIES}, NEWEST: {"last_value": True}}
"""Topics that drop entries by themselves, and their policies."""
ALL = 1 << 30


class World(cluster.World):
    """The brokers' world, with an account of sent and rejected messages."""

    def __init__(self, sim: Sim, pause_s: float) -> None:
        super().__init__(sim, pause_s)
        self.confirmed: set[bytes] = set()
        self.rejected: set[bytes] = set()
        self.asked: set[bytes] = set()
        """Messages with a reject that was begun."""
        self.owners: dict[str, set[int]] = {name: set() for name in THINNED}
        """Nodes that have owned each topic that drops entries."""
        self.dropped = 0

    def replica(self, node: SimNode) -> cluster.Replica:
        return ExchangeReplica(self, node, 0)

    def finish(self) -> None:
        super().finish()
        for broker in self.brokers.values():
            self.sim.loop.run_until_complete(self._look(broker))
        try:
            self.sim.run_until(lambda: all(self._is_thin(name) for name in THINNED), 20.0)
        except TimeoutError:
            told = {name: [len(each) for each in self._left(name, "s")] for name in THINNED}
            raise Broken(f"liveness: entries are not dropped: {told}") from None
        for name in THINNED:
            self._look_thinned(name)

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

    def _left(self, topic: str, subscription: str) -> list[list[bytes]]:
        """Return the backlog of a subscription, on each member."""
        looks = [broker.admin.peek(topic, subscription, ALL) for broker in self.brokers.values()]
        return [[bytes(each.data) for each in self.sim.loop.run_until_complete(look)] for look in looks]

    def _wanted(self, topic: str, broker: Broker) -> list[bytes]:
        """Return what a topic keeps, from all that a member has of it."""
        found = self.sim.loop.run_until_complete(broker.admin.examine(topic, count=ALL))
        if topic == RING:
            return [bytes(each.data) for each in found[-RING_ENTRIES:]]
        newest = {each.key: each.ordinal for each in found}
        return [bytes(each.data) for each in found if newest[each.key] == each.ordinal]

    def _is_thin(self, topic: str) -> bool:
        wanted = len(self._wanted(topic, self.brokers[1]))
        return all(len(each) <= wanted for each in self._left(topic, "s"))

    def _look_thinned(self, topic: str) -> None:
        """I244: each member has the newest entries in the backlog, and no others."""
        wanted = [self._wanted(topic, broker) for broker in self.brokers.values()]
        left = self._left(topic, "s")
        if any(each != wanted[0] for each in (*wanted, *left)):
            raise Broken(f"{topic} keeps {wanted}, and the backlogs are {left}")
        for turns in self._left(topic, "turns"):
            if strange := set(turns) - set(wanted[0]):
                raise Broken(f"{topic}: {sorted(strange)[:3]} were dropped, and are in another backlog")
        stats = [broker.admin.topic_stats(topic) for broker in self.brokers.values()]
        if len({each.dropped for each in stats}) != 1:
            raise Broken(f"members count what {topic} dropped as {[each.dropped for each in stats]}")
        self.dropped += stats[0].dropped


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
        for topic, policies in THINNED.items():
            with suppress(Exists):
                await admin.create_topic(topic, retention_bytes=-1, **policies)
            for name in ("s", "turns"):
                with suppress(Exists):
                    await admin.create_subscription(topic, name, "earliest")
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
            group.create_task(self._fill(broker))
            for topic in THINNED:
                group.create_task(self._take_turns(broker, topic))

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

    async def _fill(self, broker: Broker) -> None:
        """Publish to the topics that drop entries."""
        world = self.world
        assert isinstance(world, World)
        number = 0
        async with broker.producer(RING) as ring, broker.producer(NEWEST) as newest:
            while not self.ending:
                data = b"%d:%d:%d" % (self.node, self.life, number)
                await ring.send(data)
                await newest.send(data, key=f"k{number % VALUES}")
                number += 1
                for topic, owners in world.owners.items():
                    owner = owner_of_topic(broker.machine.state, topic_name(topic))
                    owners.update(() if owner is None else (owner.node,))
                await self._pause(broker)

    async def _take_turns(self, broker: Broker, topic: str) -> None:
        """Consume beside consumers of other members: its owner becomes that of the topic."""
        async with broker.consumer(topic, "turns", type="shared", receiver_queue=3) as consumer:
            while not self.ending:
                with suppress(Timeout):
                    for message in await consumer.receive_many(3, timeout=0.1):
                        await consumer.ack(message)

    async def _pause(self, broker: Broker) -> None:
        await broker.clock.sleep(0.01 + 0.05 * self.random.random())


def run(seed: int, nodes: int = 3, seconds: float = 6.0, trouble: Trouble | None = None) -> World:
    """Run a storm over brokers, and check it."""
    with cluster.watched(), Sim(seed, nodes) as sim:
        world = World(sim, pause_s=0.4)
        sim.network.weather = Weather(delay_s=(1e-4, 40e-3), loss=0.05, detection_s=(0.005, 0.3))
        sim.boot(world.program)
        storm(sim, seconds, every_s=(0.05, 0.8), trouble=trouble)
        world.finish()
        world.checker.check()
        return world


def everything(seed: int, seconds: float = 4.0) -> World:
    """Run a storm with faults of every kind, over three or five brokers."""
    return run(seed, 3 if seed % 3 else 5, seconds, EVERYTHING)
