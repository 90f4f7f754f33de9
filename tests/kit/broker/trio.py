"""Run three brokers of one simulated group, for scenes step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from holdfast._core import TopicMessage
from holdfast.broker.api.consumer import Consumer
from holdfast.broker.broker import Broker
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.options import BrokerOptions
from holdfast.broker.state import SubscriptionType
from holdfast.errors import Timeout
from tests.kit.cluster.link import Wires
from tests.kit.cluster.simulated import sim_member
from tests.kit.sim import Sim, SimNode, Weather

OPTIONS = BrokerOptions(housekeeping_s=3600.0, reserve_bytes=4096, nack_first_s=0.05)


class Trio:
    """Three brokers with a topic `orders` and a subscription `billing`."""

    def __init__(self, sim: Sim, **options: Any) -> None:
        self.sim = sim
        self._options = replace(OPTIONS, **options)
        self.wires = Wires(sim)
        self.brokers: dict[int, Broker] = {}

    async def program(self, node: SimNode) -> None:
        member = sim_member(self.wires, node, self.sim.nodes, self._options)
        self.brokers[node.number] = await member.join()
        await node.clock.sleep(3600)

    def whole(self) -> bool:
        """Return whether all three are in one view."""
        return [len(each.machine.state.members) for each in self.brokers.values()] == [3, 3, 3]

    async def begin(self) -> None:
        admin = self.brokers[1].admin
        await admin.create_topic("orders", retention_bytes=-1)
        await admin.create_subscription("orders", "billing", start="earliest")
        await self.settle()

    # -- steps -----------------------------------------------------------------------------------------

    async def settle(self, seconds: float = 0.3) -> None:
        """Let everything that is under way arrive everywhere."""
        await asyncio.sleep(seconds)

    async def publish(self, number: int, count: int) -> None:
        async with self.brokers[number].producer("orders") as producer:
            await producer.send_many([b"%d" % at for at in range(count)])
        await self.settle()

    def consumer(self, number: int, type: SubscriptionType = "shared", **more: Any) -> Consumer:  # noqa: A002
        return self.brokers[number].consumer("orders", "billing", type=type, **more)

    async def take(self, consumer: Consumer) -> list[TopicMessage]:
        """Return all messages that arrive."""
        taken: list[TopicMessage] = []
        try:
            while True:
                taken += await consumer.receive_many(1000, timeout=0.5)
        except Timeout:
            return taken

    def dispatcher(self, number: int) -> Dispatcher:
        broker = self.brokers[number]
        topic = broker.admin._topic("orders")
        return broker.dispatcher(topic, topic.subscriptions["billing"])

    def owner(self) -> int | None:
        """Return the node that owns the subscription; all brokers must agree."""
        found = {
            broker.admin._topic("orders").subscriptions["billing"].owner for broker in self.brokers.values()
        }
        (owner,) = found
        return None if owner is None else owner.node

    def crash(self, number: int) -> None:
        del self.brokers[number]
        self.sim.crash(number)


def scene(work: Callable[[Trio], Coroutine[Any, Any, None]], seed: int = 1, **options: Any) -> None:
    """Run a scene on three brokers of one group."""
    with Sim(seed, 3) as sim:
        sim.network.weather = Weather(delay_s=(1e-4, 2e-3), loss=0.0, detection_s=(0.005, 0.05))
        trio = Trio(sim, **options)
        sim.boot(trio.program)
        sim.run_until(lambda: len(trio.brokers) == 3 and trio.whole())

        async def whole() -> None:
            await trio.begin()
            await work(trio)

        sim.loop.run_until_complete(whole())


def returned_elsewhere() -> None:
    """Give entries back at another member: the owner delivers them again."""

    async def work(trio: Trio) -> None:
        async with trio.consumer(1, receiver_queue=5) as one:
            await trio.publish(1, 5)
            held = await trio.take(one)
            assert len(held) == 5
            async with trio.consumer(2) as two:
                await trio.publish(1, 20)
                await trio.take(two)
                await trio.settle()
                assert trio.owner() == 2
                one.nack(held[1], delay=0)
                again = await trio.take(two)
                assert [(each.ordinal, each.redelivery_count) for each in again] == [(1, 1)]
                await one.close()
                rest = await trio.take(two)
                assert sorted(each.ordinal for each in rest if each.ordinal < 5) == [0, 2, 3, 4]

    scene(work)
