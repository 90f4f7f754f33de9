"""Publish to non-persistent topics of three simulated members, while their owners change.

Members, views and the owners of names are real, in virtual time, and so are the topics of each server. The
connections are not: a client here calls the topics of the member that it has looked up. Connections on real
sockets are in `tests/unit/server/test_non_persistent.py` and `tests/pulsar/test_non_persistent.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

from holdfast.broker import Broker
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar.non_persistent import (
    NonPersistentTopic,
    NonPersistentTopics,
    PassingConsumer,
    PassingProducer,
)
from tests.kit.cluster.unreplicated import Scene
from tests.kit.sim.randomness import SeededRandomness

NAMES = [f"non-persistent://public/default/silent-{at}" for at in range(12)]
TURN_S = 0.05
SETTLED_S = 3.0
"""After a change of owners, clients have found the new ones within this time; they may look once a second."""
PERMITS = 1_000_000


class Client:
    """A producer and two consumers of one subscription, which follow the owner of a topic."""

    def __init__(self, servers: dict[int, NonPersistentTopics], name: str) -> None:
        self.servers = servers
        self.name = name
        self.at: int | None = None
        """The node to which its connection goes."""
        self.topic: NonPersistentTopic | None = None
        self.producer: PassingProducer | None = None
        self.consumers: dict[int, PassingConsumer] = {}
        self.got: list[int] = []
        self.sent = self.refused = 0

    # -- what a connection does ------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        self.got.append(int(frame.rpartition(b"#")[2]))

    def expel_producer(self, producer: PassingProducer) -> None:
        assert producer is self.producer
        assert self.topic is not None
        self.topic.producers.remove(producer)
        self.producer = None

    def expel_consumer(self, consumer: PassingConsumer) -> None:
        consumer.topic.leave(consumer)
        del self.consumers[consumer.id]

    # -- what a client does ----------------------------------------------------------------------------

    def look_up(self, asked: Broker) -> None:
        """Ask any member for the owner, and open there; the owner may refuse."""
        owner = asked.membership.owner(self.name)
        if self.at is not None and self.at not in self.servers:
            self.at, self.producer = None, None  # the connection broke
            self.consumers.clear()
        if self.producer is not None and self.consumers:
            return
        node = None if owner is None else owner.node
        if node not in self.servers or not (server := self.servers[node])._server.broker.membership.serves(
            self.name
        ):
            self.refused += 1
            return
        assert node is not None
        self.at = node
        self.topic = server.ensure(self.name, asyncio.get_running_loop().time())
        connection: Any = SimpleNamespace(
            broker=server._server.broker,
            loop=asyncio.get_running_loop(),
            passing=self,
            stalled=False,
            send=self.send,
        )
        if self.producer is None:
            opened = pb.CommandProducer(topic=self.name, producer_id=1, request_id=1)
            self.producer = PassingProducer(connection, opened, self.topic, "p")
            self.topic.open(self.producer)
        for number in {1, 2} - self.consumers.keys():
            asked_for = pb.CommandSubscribe(
                topic=self.name,
                subscription="s",
                subType=pb.CommandSubscribe.Shared,
                consumer_id=number,
                request_id=1,
                consumer_name=f"c{number}",
            )
            consumer = PassingConsumer(connection, asked_for, self.topic, "shared")
            consumer.permits = PERMITS
            self.topic.join(consumer, asyncio.get_running_loop().time())
            self.consumers[number] = consumer

    def publish(self) -> int | None:
        """Publish one message; return its number, or None without a connection."""
        if self.producer is None or self.at not in self.servers:
            return None
        self.sent += 1
        self.producer.topic.publish([(1, b"#%d" % self.sent)], 1, 1)
        return self.sent


class Clients:
    """A server's topics on each member, and the clients of all."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.chance = SeededRandomness(seed, "passing")
        self.servers: dict[int, NonPersistentTopics] = {}
        self.clients = [Client(self.servers, name) for name in NAMES]
        self._ticked_s = 0.0

    def follow(self) -> None:
        """Give each broker a server; one that is gone takes its topics with it."""
        for node, broker in self.scene.brokers.items():
            known = self.servers.get(node)
            if known is None or known._server.broker is not broker:
                budget = SimpleNamespace(require=lambda *_: None, hold=lambda *_: None)
                server: Any = SimpleNamespace(broker=broker, budget=budget)
                self.servers[node] = NonPersistentTopics(server)
        for node in self.servers.keys() - self.scene.brokers.keys():
            del self.servers[node]

    async def run(self, seconds: float, settled: bool = False) -> None:
        """Publish for a time; if owners are settled, each message must come, once."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            self.follow()
            if loop.time() - self._ticked_s >= 1.0:  # as a server does
                self._ticked_s = loop.time()
                for server in self.servers.values():
                    server.tick(loop.time())
            brokers = [*self.scene.brokers.values()]
            for each in self.clients:
                each.look_up(brokers[self.chance.integer(len(brokers))])
                number = each.publish()
                if settled:
                    assert number is not None, f"{each.name}: no member serves it"
                    assert number in each.got, f"{each.name}: message {number} did not come"
                    self.require_one_owner(each.name)
            await asyncio.sleep(TURN_S)

    def require_one_owner(self, name: str) -> None:
        """I286: the producers and the consumers of a topic are at one member, its owner."""
        here = [
            node
            for node, each in self.servers.items()
            if name in each.topics and not each.topics[name].unused
        ]
        owners = {each.membership.owner(name) for each in self.scene.brokers.values()}
        assert [owner.node for owner in owners if owner is not None] == here, (
            f"{name}: {owners}, clients at {here}"
        )

    def require_counted(self) -> None:
        """I285: at most one consumer of a subscription gets a message."""
        for each in self.clients:
            twice = [number for number, count in Counter(each.got).items() if count > 1]
            assert not twice, f"{each.name}: {twice} came to two consumers"
            assert set(each.got) <= set(range(1, each.sent + 1))


async def owners_change(scene: Scene, seed: int) -> None:
    """Owners die and return while clients publish; no message comes twice, and later ones come."""
    clients = Clients(scene, seed)
    await clients.run(SETTLED_S)
    first = {each.name: each.at for each in clients.clients}
    assert len(set(first.values())) > 1, "one member owns all"
    begin = clients.chance.integer(3)
    for node in (begin + 1, (begin + 1) % 3 + 1):
        await clients.run(1.0, settled=True)
        scene.crash(node)
        await clients.run(SETTLED_S)
        await clients.run(1.0, settled=True)
        assert all(each.at != node for each in clients.clients)
        back = asyncio.get_running_loop().create_task(scene.back(node))
        while not back.done():
            await clients.run(0.5)
        await back
        await clients.run(SETTLED_S)
        await clients.run(1.0, settled=True)
    assert {each.name: each.at for each in clients.clients} == first, "the same members have other topics"
    assert min(len(each.got) for each in clients.clients) > 50
    clients.require_counted()
