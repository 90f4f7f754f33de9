"""Exchanges on a simulated cluster: each message once in its topics, through crashes and splits."""

from __future__ import annotations

import pytest

from tests.kit.broker import exchange_cluster
from tests.kit.broker.trio import Trio, scene
from tests.kit.slices import pick, seeds


@pytest.mark.parametrize("seed", seeds("exchanges", test=1, nightly=40))
def test_three_brokers_route_and_reject_in_a_storm(seed: int) -> None:
    """I242, I243, I244: also when a member dies between a request and its answer."""
    world = exchange_cluster.run(seed, seconds=pick(3.0, 8.0))
    assert world.compared > 50
    assert len(world.confirmed) > 20
    assert len(world.rejected) > 3
    assert world.dropped > 20
    assert all(len(owners) > 1 for owners in world.owners.values()), "the owner of a topic does not change"


def test_a_topic_is_purged_and_drained_at_any_member() -> None:
    """I243: also what consumers of two other members hold, once for both subscriptions."""

    async def work(trio: Trio) -> None:
        one, two, three = (trio.brokers[number].admin for number in (1, 2, 3))
        await three.create_subscription("orders", "audit", start="earliest")
        await one.create_topic("morgue", retention_bytes=-1)
        await one.create_subscription("morgue", "s", start="earliest")
        await two.create_exchange("dead", "fanout")
        await trio.settle()
        await three.bind("dead", "morgue")
        await one.set_alternate("orders", "dead")
        audit = trio.brokers[3].consumer("orders", "audit", type="shared", receiver_queue=4)
        async with trio.consumer(1, receiver_queue=2) as billing, audit:
            await trio.publish(2, 5)
            assert await two.purge("orders") == 5
            await trio.publish(1, 10)
            held = [*await billing.receive_many(2, timeout=5), *await audit.receive_many(4, timeout=5)]
            assert len(held) == 6
            await audit.ack(held[-1], receipt=True)
            await trio.settle()
            assert await two.drain_topic("orders") == 10
        await trio.settle()
        wanted = [b"%d" % at for at in range(10)]
        for number, broker in trio.brokers.items():
            assert not any("orders" in name for name in broker.admin.topics()), number
            assert sorted(each.data for each in await broker.admin.peek("morgue", "s", 100)) == wanted, number

    scene(work)
