"""A producer that moves between the brokers of a simulated cluster.

All members publish numbers to one topic, one after another. Even seeds: they open the same name, as a client
does that connects to another member. Some attempts take the place of the one before, others wait until the
name is free. Each continues behind the last number that it is told. Odd seeds: each has a name of its own,
and exclusive access that fences the others. It continues behind the last number of the topic, or, if it
returns with its epoch, behind its own.

Each sends some earlier numbers again. In the end the topic has each number once, in order.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from holdfast.broker.api.producer import Producer
from holdfast.broker.broker import Broker
from holdfast.broker.state import Access
from holdfast.errors import Busy, Exists, Fenced, NoSpace
from tests.kit.broker import cluster
from tests.kit.broker.cluster import Replica
from tests.kit.group.checker import Broken
from tests.kit.sim import EVERYTHING, Sim, SimNode, Weather, storm

TOPIC = "moved"
NAME = "mover"
ALL = 1 << 30


class World(cluster.World):
    """The brokers' world, and what was told to the producer."""

    def __init__(self, sim: Sim, pause_s: float) -> None:
        super().__init__(sim, pause_s)
        self.access: Access = "exclusive-with-fencing" if sim.seed % 2 else "shared"
        self.confirmed = -1
        """The highest number that was confirmed; numbers begin with 0."""
        self.attempt = 0
        """The number of the last attempt to open the producer."""
        self.epochs: dict[int, Mover] = {}
        """By epoch of an exclusive producer: the mover to which it was told."""
        self.moves = self.fenced = self.returned = 0
        self._last = 0

    def replica(self, node: SimNode) -> cluster.Replica:
        return Mover(self, node, 0)

    def opened(self, mover: Mover, epoch: int, last: int, confirmed: int) -> None:
        """Check what an open has told; `confirmed` is from before it was asked for."""
        if last < confirmed:
            raise Broken(
                f"node {mover.node} was told {last} as the last number; {confirmed} was confirmed before"
            )
        if self.access != "shared" and self.epochs.setdefault(epoch, mover) is not mover:
            other = self.epochs[epoch].node
            raise Broken(f"the epoch {epoch} was told to node {mover.node}, and to node {other}")
        self.moves += mover.node != self._last
        self._last = mover.node

    def finish(self) -> None:
        super().finish()
        for number, broker in self.brokers.items():
            self.sim.loop.run_until_complete(self._look(number, broker))

    async def _look(self, node: int, broker: Broker) -> None:
        """Require each number once, in order, with all that were confirmed."""
        found = [int(each.data) for each in await broker.admin.examine(TOPIC, count=ALL)]
        if found != list(range(len(found))):
            at = next(at for at, number in enumerate(found) if at != number)
            near = found[max(0, at - 2) : at + 3]
            raise Broken(f"node {node} has {near} around {at} of the producer's numbers")
        if len(found) <= self.confirmed:
            raise Broken(f"node {node} has {len(found)} messages; {self.confirmed} was confirmed")


class MovingProducer(Producer):
    """A producer that tells its attempt and its last epoch, as Pulsar's clients do."""

    def __init__(self, broker: Broker, name: str, access: Access, attempt: int, epoch: int) -> None:
        super().__init__(broker, TOPIC, name, access, 1)
        self._attempt, self._before = attempt, epoch

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def returns(self) -> bool:
        """Whether no other producer had exclusive access since it had."""
        return self._before >= 0 and self._epoch == self._before

    async def open(self) -> None:
        topic = await self._broker.ensure_destination(self._topic_name)
        opened = await self._broker.sessions.open_producer(
            topic, self.name, self._access, self._attempt, self._before
        )
        self._topic, self._session, self._epoch = topic.id, opened.session, opened.epoch
        self.last_sequence = opened.last_sequence
        self._sequence = opened.last_sequence + 1


class Mover(Replica):
    """One member's broker, and its attempts to publish under the common name."""

    world: World
    epoch = -1
    """Of its last exclusive producer; −1: it begins anew."""
    others = -1
    """The last number that came from another name: it cannot be sent again."""

    async def prepare(self, broker: Broker) -> None:
        await super().prepare(broker)
        with suppress(Exists):
            await broker.admin.create_topic(TOPIC, deduplication=True, retention_bytes=-1)

    async def work(self, broker: Broker) -> None:
        while not self.ending:
            try:
                await self._publish(broker)
            except (Busy, NoSpace):
                pass
            except Fenced:  # another attempt took its place; it may come back as the same one
                self.world.fenced += 1
                self.epoch = -1 if self.random.random() < 0.5 else self.epoch
            await broker.clock.sleep(0.1 * self.random.random())

    async def _publish(self, broker: Broker) -> None:
        world, confirmed = self.world, self.world.confirmed
        shared = world.access == "shared"
        world.attempt += not shared or self.random.random() < 0.6  # else it waits until the name is free
        name = NAME if shared else f"{NAME}-{self.node}"
        async with MovingProducer(broker, name, world.access, world.attempt, self.epoch) as producer:
            if not shared and not producer.returns:
                self.others = await self._last_of_all(broker)
            last = max(producer.last_sequence, self.others)
            again = self.random.randrange(1 + min(3, last - self.others))
            world.opened(self, producer.epoch, last, confirmed)
            world.returned += producer.returns
            self.epoch = -1 if shared else producer.epoch
            number = last + 1 - again
            for _ in range(self.random.randrange(1, 8)):
                count = self.random.choice((1, 1, 4))
                data = [b"%d" % each for each in range(number, number + count)]
                await producer.send_many(data, sequence=number)
                number += count
                world.confirmed = max(world.confirmed, number - 1)
                await asyncio.sleep(0.02 * self.random.random())

    @staticmethod
    async def _last_of_all(broker: Broker) -> int:
        found = await broker.admin.examine(TOPIC, count=ALL)
        return int(found[-1].data) if found else -1


def run(seed: int, seconds: float = 4.0, simulation: type[Sim] = Sim) -> World:
    """Run a storm with faults of every kind over brokers, and check it."""
    with cluster.watched(), simulation(seed, 3 if seed % 3 else 5) as sim:
        world = World(sim, pause_s=0.4)
        sim.network.weather = Weather(delay_s=(1e-4, 40e-3), loss=0.05, detection_s=(0.005, 0.3))
        sim.boot(world.program)
        storm(sim, seconds, every_s=(0.05, 0.8), trouble=EVERYTHING)
        world.finish()
        world.checker.check()
        return world
