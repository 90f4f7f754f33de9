"""Scenes of three simulated members with partitioned topics."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.broker import Broker
from holdfast.errors import HoldfastError
from holdfast.names import partition_name, topic_name
from tests.kit.cluster.unreplicated import Scene

WHOLE = topic_name("whole")


async def everything_of(scene: Scene, count: int) -> dict[str, set[bytes]]:
    """Return what the subscription `s` has not acknowledged, by partition, at the lowest member."""
    broker = scene.brokers[min(scene.brokers)]
    found: dict[str, set[bytes]] = {}
    for index in range(count):
        name = partition_name(WHOLE, index)
        messages = await broker.admin.peek(name, "s", 10_000)
        found[name] = {each.data for each in messages}
    return found


async def publish(broker: Broker, name: str, first: int, count: int) -> set[bytes]:
    """Publish to a partition; return what was confirmed."""
    sent = {f"{name}/{at}".encode() for at in range(first, first + count)}
    async with broker.producer(name) as producer:
        await producer.send_many(sorted(sent))
    return sent


async def growth_under_load_loses_nothing(scene: Scene) -> None:
    """Members create, grow and publish at once; then one or all lose their power."""
    one, two, three = (scene.brokers[node] for node in (1, 2, 3))
    await one.partitioned.create(WHOLE, 2)
    await two.partitioned.subscribe(WHOLE, "s", from_end=False)
    sent: dict[str, set[bytes]] = {}

    async def load(broker: Broker, node: int) -> None:
        for turn in range(6):
            for index in range(broker.partitioned.count(WHOLE)):
                name = partition_name(WHOLE, index)
                sent.setdefault(name, set()).update(await publish(broker, name, 1000 * node + 10 * turn, 3))

    async def grow() -> None:
        outcomes = await asyncio.gather(
            one.partitioned.grow(WHOLE, 3), three.partitioned.grow(WHOLE, 5), return_exceptions=True
        )
        refused = [each for each in outcomes if isinstance(each, HoldfastError)]
        assert len(refused) <= 1, outcomes

    await asyncio.gather(*(load(each, node) for node, each in ((1, one), (2, two), (3, three))), grow())
    await load(two, 4)
    await asyncio.sleep(0.3)
    scene.require_same()
    assert {each.partitioned.count(WHOLE) for each in scene.brokers.values()} == {5}
    assert len(sent) == 5
    for lost in ((1,), (1, 2, 3)):
        scene.crash(*lost)
        await scene.back(*lost)
        scene.require_same()
        assert await everything_of(scene, 5) == sent


async def a_deletion_takes_all_partitions(scene: Scene) -> None:
    """A member that misses a deletion has no partition when it returns."""
    await scene.brokers[1].partitioned.create(WHOLE, 4)
    while scene.brokers[2].partitioned.count(WHOLE) != 4:
        await asyncio.sleep(0.001)
    await publish(scene.brokers[2], partition_name(WHOLE, 3), 0, 5)
    scene.crash(3)
    await asyncio.sleep(1.0)
    await scene.brokers[2].partitioned.delete(WHOLE, force=True)
    await scene.back(3)
    scene.require_same()
    for broker in scene.brokers.values():
        assert broker.admin.topics() == []
        assert broker.partitioned.counts() == {}


async def clients_may_not_differ_about_an_owner(scene: Scene) -> None:
    """I286: one member owns a non-persistent topic, also in the next view."""
    names = [f"non-persistent://public/default/silent-{at}" for at in range(20)]
    owners: dict[str, Any] = {}
    for name in names:
        said = {str(each.membership.owner(name)) for each in scene.brokers.values()}
        assert len(said) == 1
        (owners[name],) = said
        here = [node for node, each in scene.brokers.items() if each.membership.serves(name)]
        assert len(here) == 1, f"{name} is served by {here}"
    assert len(set(owners.values())) > 1
    scene.crash(1)
    await asyncio.sleep(2.0)
    for name in names:
        here = [node for node, each in scene.brokers.items() if each.membership.serves(name)]
        assert len(here) == 1, f"{name} is served by {here}"
