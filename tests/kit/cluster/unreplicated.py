"""Scenes of three simulated members with unreplicated topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.machine import Machine
from holdfast.cluster.life import LOCAL_S
from holdfast.errors import Corrupt, Exists, HoldfastError, Misuse
from holdfast.names import topic_name
from tests.kit.cluster.link import Wires
from tests.kit.cluster.simulated import local_of, sim_member
from tests.kit.sim import Sim, SimNode, Weather

OPTIONS = BrokerOptions(housekeeping_s=3600.0, reserve_bytes=4096, journal_bytes=1 << 16)
ONLY = topic_name("only")


class Scene:
    """Three members, each with a log of its own beside the common one."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.wires = Wires(sim)
        self.brokers: dict[int, Broker] = {}
        self.silent = False
        """Whether members that join do not announce themselves: a server that has not opened its ports."""

    async def program(self, node: SimNode) -> None:
        local = local_of(node)
        await local.make()
        member = sim_member(self.wires, node, self.sim.nodes, OPTIONS, local=local)
        while True:
            broker = self.brokers[node.number] = await member.join()
            # The members tell about themselves, so that the others know which are present.
            if not self.silent:
                broker.membership.announce(f"node{node.number}")
            await member.lost()
            self.brokers.pop(node.number, None)

    def local(self, node: int) -> Broker:
        local = self.brokers[node].unreplicated.local
        assert local is not None
        return local

    def whole(self) -> bool:
        """Return whether all serve, know each other, and agree about names."""
        brokers, count = [*self.brokers.values()], len(self.sim.nodes)
        return len(brokers) == count and all(len(each.membership.members()) == count for each in brokers)

    def crash(self, *nodes: int) -> None:
        for node in nodes:
            self.brokers.pop(node, None)
            self.sim.crash(node)

    async def back(self, *nodes: int) -> None:
        """Restart nodes, and wait until all serve."""
        for node in nodes:
            self.sim.restart(node)
        while not self.whole():
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)

    def require_same(self) -> None:
        states = {node: each.machine.digest() for node, each in self.brokers.items()}
        assert len(set(states.values())) == 1, f"members differ: {states}"
        for each in self.brokers.values():
            each.machine.state.check()


def run(work: Callable[[Scene], Coroutine[Any, Any, None]], seed: int = 1, nodes: int = 3) -> None:
    """Run a scene on so many members."""
    with Sim(seed, nodes) as sim:
        sim.network.weather = Weather(delay_s=(1e-4, 2e-3), loss=0.0, detection_s=(0.005, 0.05))
        scene = Scene(sim)
        sim.boot(scene.program)
        sim.run_until(scene.whole)
        sim.loop.run_until_complete(work(scene))


async def send(broker: Broker, count: int, first: int = 0) -> None:
    async with broker.producer(ONLY) as producer:
        await producer.send_many([b"%d" % at for at in range(first, first + count)])


async def content(broker: Broker) -> list[int]:
    """Return what the unreplicated topic of a local broker has."""
    topic = broker.topic(ONLY)
    async with broker.reader(ONLY) as reader:
        return [int((await reader.receive(timeout=5)).data) for _ in range(topic.first, topic.visible)]


async def stays_with_its_member(scene: Scene) -> None:
    """Messages are in one log alone, also after power cuts."""
    before = scene.brokers[1].machine.log.next_d
    await scene.brokers[2].admin.create_topic("only", unreplicated=True)
    await scene.local(2).admin.create_subscription("only", "s", start="earliest")
    await send(scene.local(2), 5)
    await asyncio.sleep(0.3)
    spent = scene.brokers[1].machine.log.next_d - before
    assert spent == 1, f"{spent} events of the cluster, for the name alone"
    for node, each in scene.brokers.items():
        assert dict(each.unreplicated.places()) == {ONLY: each.unreplicated.places()[ONLY]}
        assert each.unreplicated.places()[ONLY].node == 2, f"node {node} has forgotten the flag"
        assert ONLY not in each.admin.topics(), f"node {node} has it in the common log"
    assert ONLY not in scene.local(1).admin.topics()
    scene.require_same()
    for lost in ((2,), (1, 2, 3)):
        scene.crash(*lost)
        await scene.back(*lost)
        assert await content(scene.local(2)) == [0, 1, 2, 3, 4]
        assert scene.local(2).admin.topic_stats("only").unreplicated
        assert scene.local(2).admin.subscriptions("only") == ["s"]
        assert [each.unreplicated.places()[ONLY].node for each in scene.brokers.values()] == [2, 2, 2]
    scene.require_same()


async def a_name_is_taken_once(scene: Scene) -> None:
    """I245: whichever members create it, replicated or not, one wins; a deleted name is free."""
    outcomes = await asyncio.gather(
        scene.brokers[1].admin.create_topic("only", unreplicated=True),
        scene.brokers[3].admin.create_topic("only", unreplicated=True),
        scene.brokers[2].admin.create_topic("only"),
        return_exceptions=True,
    )
    refused = [each for each in outcomes if isinstance(each, HoldfastError)]
    assert [type(each) for each in refused] == [Exists, Exists], f"the name is taken twice: {outcomes}"
    await asyncio.sleep(0.3)
    scene.require_same()
    won = outcomes.index(None)
    if won == 2:
        await scene.brokers[1].admin.delete_topic("only")
        await scene.brokers[1].admin.create_topic("only", unreplicated=True)
    node = (1, 3, 1)[won]
    await asyncio.sleep(0.3)
    assert [n for n in (1, 2, 3) if scene.local(n).admin.topics() == [ONLY]] == [node]
    for each in scene.brokers.values():
        with pytest.raises(Misuse, match=f"node {node} alone has it"):
            each.topic(ONLY)
    await scene.local(node).admin.delete_topic("only")
    await scene.brokers[node].unreplicated.settle()
    await scene.brokers[2].admin.create_topic("only")
    await asyncio.sleep(0.3)
    scene.require_same()
    assert [each.admin.topics() for each in scene.brokers.values()] == [[ONLY]] * 3


async def names_and_topics_agree_after_a_join(scene: Scene) -> None:
    """A crash between the steps of a deletion leaves no name without a topic."""
    await scene.brokers[2].admin.create_topic("only", unreplicated=True)
    local = scene.local(2)
    scene.brokers[2].unreplicated.local = None  # the deletion is not told to the cluster
    local.unwatch(scene.brokers[2].unreplicated._settled)
    await local.admin.delete_topic("only")
    await local.admin.create_topic("other")
    scene.crash(2)
    await scene.back(2)
    for each in scene.brokers.values():
        assert list(each.unreplicated.places()) == [topic_name("other")]
    scene.require_same()


async def a_node_that_returns_keeps_its_name(scene: Scene) -> None:
    """It compares names and topics once: when it joins."""
    one = scene.brokers[1].unreplicated
    await scene.brokers[2].admin.create_topic("only", unreplicated=True)
    await asyncio.sleep(0.3)
    scene.crash(2)
    scene.silent = True
    scene.sim.restart(2)
    while 2 not in scene.brokers:
        await asyncio.sleep(0.01)
    assert one.member_of(ONLY) is None, "it serves no client yet"
    with pytest.raises(Misuse, match="node 2 is about to serve it"):
        await one.free(ONLY)
    await asyncio.sleep(0.3)
    for each in scene.brokers.values():
        assert list(each.unreplicated.places()) == [ONLY], "its topic has lost its name"
    scene.crash(2)
    await asyncio.sleep(1)
    await one.free(ONLY)
    assert dict(one.places()) == {}


async def permissions_end_with_it(scene: Scene) -> None:
    """A topic that gets the name later is another one, replicated or not."""
    for kind in ("topic", "exchange"):
        two = scene.brokers[2].admin
        if kind == "topic":
            await two.create_topic("only", unreplicated=True)
        else:
            await two.create_exchange("only", "fanout", unreplicated=True)
        await scene.brokers[1].admin.permit(ONLY, "reader", ["consume"])
        assert scene.brokers[3].admin.permissions(ONLY) == {"reader": ["consume"]}
        if kind == "topic":
            await scene.local(2).admin.delete_topic("only")
        else:
            await scene.local(2).admin.delete_exchange("only")
        await scene.brokers[2].unreplicated.settle()
        await asyncio.sleep(0.3)
        for each in scene.brokers.values():
            assert each.admin.permissions(ONLY) == {}, f"the next {kind} of the name has them"
    scene.require_same()


async def a_log_that_fails_is_opened_again(scene: Scene) -> None:
    """Its node joins again. After a second failure it serves the replicated topics alone."""
    await scene.brokers[2].admin.create_topic("only", unreplicated=True)
    await send(scene.local(2), 5)
    await asyncio.sleep(2 * LOCAL_S)
    for opened in (True, False):
        local = scene.local(2)
        local.engine.end(Corrupt("its disk failed"))
        await asyncio.sleep(0.1)
        await scene.back()
        assert (scene.brokers[2].unreplicated.local is not None) is opened
        assert scene.brokers[2].failure is None
        assert list(scene.brokers[1].unreplicated.places()) == [ONLY]
        if opened:
            assert scene.local(2) is not local
            assert await content(scene.local(2)) == [0, 1, 2, 3, 4]
            await send(scene.local(2), 5, first=5)
    scene.crash(2)
    await scene.back(2)
    assert await content(scene.local(2)) == list(range(10))


async def the_flag_is_in_snapshots(scene: Scene) -> None:
    """A member that starts from a snapshot knows the names, also those of other nodes."""
    await scene.brokers[2].admin.create_topic("only", unreplicated=True)
    await asyncio.sleep(0.3)
    for each in scene.brokers.values():
        machine = Machine()
        machine.load(each.machine.capture().parts)
        assert machine.state.unreplicated.places == dict(each.unreplicated.places())
        assert machine.digest() == each.machine.digest(), "the flag is not in the snapshot"
