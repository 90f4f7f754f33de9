"""Counters and rates of topics, and their metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.broker.policy import limits
from holdfast.broker.telemetry import traffic
from holdfast.broker.telemetry.metrics import Page, metrics
from holdfast.broker.telemetry.traffic import Handed, Rates, TopicTraffic
from holdfast.errors import Exists, Misuse, NotFound
from tests.kit.waiting import eventually


def on_broker(path: Path, work: Callable[[Broker], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with holdfast.Broker.open(path, **options) as broker:
            await work(broker)

    asyncio.run(main())


def test_what_is_published_is_counted(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p, broker.producer("orders", batch=10) as batched:
            await p.send_many([bytes(100)] * 3 + [bytes(5000)])
            await batched.send_many([bytes(10)] * 25)
        counted = broker.rates.published(broker.topic("persistent://public/default/orders"))
        assert (counted.entries, counted.messages) == (4 + 3, 4 + 25)
        assert 5550 < counted.bytes < 6600
        assert sum(counted.sizes) == 7
        assert counted.sizes[5] == 1  # above 4 KiB, up to 16 KiB

    on_broker(tmp_path, work)


def test_duplicates_are_no_traffic(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders", name="p", batch=2) as p:
            await p.send_many([b"a", b"b"], sequence=7)
            await p.send_many([b"a", b"b"], sequence=7)
        counted = broker.rates.published(broker.topic("persistent://public/default/orders"))
        assert (counted.entries, counted.messages) == (1, 2)

    on_broker(tmp_path, work, deduplication=True)


def test_what_is_handed_out_is_counted_beyond_its_subscription(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_subscription("orders", "billing")
        topic = broker.topic("persistent://public/default/orders")
        async with broker.producer("orders") as p:
            await p.send_many([bytes(100)] * 10)
        async with (
            broker.consumer("orders", "billing", receiver_queue=4) as c,
            broker.reader("orders") as r,
        ):
            await c.receive_many(4, timeout=5)
            await r.receive_many(10, timeout=5)
            await eventually(lambda: broker.rates.handed(topic).messages >= 18)
            stats = broker.admin.subscription_stats("orders", "billing").dispatch
            assert stats is not None
            assert stats.consumers[0].delivered_messages == topic.dispatchers[1].handed.messages
            assert 8 * 100 < stats.consumers[0].delivered_bytes < 10 * 160
        before = broker.rates.handed(topic)
        assert before.messages >= 18
        assert topic.traffic.gone.messages == 10  # the reader's subscription has gone
        await broker.admin.delete_subscription("orders", "billing")
        assert (broker.rates.handed(topic), topic.traffic.gone) == (before, before)
        assert topic.traffic.read >= 18

    on_broker(tmp_path, work)


def test_how_long_writing_takes_is_counted(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p:
            for _ in range(5):
                await p.send_many([b"x"] * 20)
        counted = broker.topic("persistent://public/default/orders").traffic
        assert sum(counted.latencies) == 100
        assert counted.latency_ms > 0

    on_broker(tmp_path, work)


@pytest.mark.parametrize(
    ("age_ms", "place"), [(0.0, 0), (0.5, 0), (0.51, 1), (1.0, 1), (150, 7), (1000, 8), (1e9, 9)]
)
def test_classes_of_latency(age_ms: float, place: int) -> None:
    counted = TopicTraffic()
    counted.wrote(3, age_ms)
    assert [at for at, count in enumerate(counted.latencies) if count] == [place]
    assert counted.latency_ms == 3 * age_ms


class FakeBroker:
    """A clock, and nothing else."""

    def __init__(self) -> None:
        self.clock = self
        self.now = 5 * 10**9
        self.topics: dict[int, Any] = {}

    def monotonic_ns(self) -> int:
        return self.now


def test_rates_are_of_the_last_window_or_two() -> None:
    world, counts = FakeBroker(), {"in": (0,)}
    rates = Rates(world)  # type: ignore[arg-type]
    rates.sources.append(lambda: counts.items())
    counts["in"] = (500,)
    world.now += 10**10
    assert rates.per_second("in", counts["in"]) == (50.0,)
    rates.tick()  # too early: nothing happens
    world.now += 25 * 10**9
    rates.tick()
    for _ in range(3):  # nothing more comes: after two windows the rate is zero
        world.now += 31 * 10**9
        rates.tick()
    assert rates.per_second("in", counts["in"]) == (0.0,)
    counts["in"] = (500 + 3100,)
    world.now += 0
    assert rates.per_second("in", counts["in"]) == pytest.approx((100.0,))
    assert rates.per_second("new", (62,)) == pytest.approx((2.0,))  # it was not there before
    assert rates.per_second("in", (0,)) == (0.0,)  # never below


def test_housekeeping_looks_at_the_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "WINDOW_S", 0.02)

    async def work(broker: Broker) -> None:
        async with (
            broker.producer("orders") as p,
            broker.consumer("orders", "billing", start="earliest") as c,
        ):
            await p.send_many([b"x"] * 50)
            await c.receive_many(50, timeout=5)
            topic = broker.topic("persistent://public/default/orders")
            assert broker.rates.of_topic(topic)[0] == 50.0
            assert broker.rates.per_second(("subscription", 1), Handed(50, 0))[0] == 50.0
            await eventually(lambda: broker.rates.of_topic(topic)[0] == 0.0)

    on_broker(tmp_path, work, housekeeping_s=0.01)


def test_counters_while_a_deletion_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics and ticks failed until a deletion was stable: the log had forgotten the topic."""
    monkeypatch.setattr(traffic, "WINDOW_S", 0.0)

    async def work(broker: Broker) -> None:
        for name in ("gone", "stays"):
            await broker.admin.create_topic(name)
        topic, seen = broker.topic("persistent://public/default/gone"), 0
        deletion = asyncio.ensure_future(broker.admin.delete_topic("gone"))
        while not deletion.done():
            seen += topic.id in broker.topics and topic.id not in broker.machine.state.topics
            broker.rates.tick()
            assert "stays" in metrics(broker)
            assert broker.producers_known(topic) == []
            await asyncio.sleep(0)
        assert seen, "the deletion was stable as soon as it was applied"
        with pytest.raises(NotFound, match="was deleted"):
            broker.rates.published(topic)

    on_broker(tmp_path, work)


def test_a_topic_is_deleted_while_metrics_are_collected(tmp_path: Path) -> None:
    """One deletion between two steps of a page failed the whole page."""

    async def work(broker: Broker) -> None:
        for name in ("first", "gone", "last"):
            await broker.admin.create_topic(name)
            await broker.admin.create_subscription(name, "s")
        page = Page()
        for step, _ in enumerate(broker.collect(page)):
            if step == 0:
                await broker.admin.delete_topic("gone", force=True)
        assert "default/last" in page.text()
        assert "default/gone" not in page.text()

    on_broker(tmp_path, work)


# -- what namespaces say, as a program sees it -----------------------------------------------------------


def test_topics_in_namespaces_that_were_not_created(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        admin = broker.admin
        with pytest.raises(NotFound, match="shop/eu"):
            await admin.create_topic("shop/eu/orders")
        with pytest.raises(NotFound, match="shop/eu"):
            broker.require_namespace("persistent://shop/eu/orders")
        with pytest.raises(NotFound, match="tenant shop"):
            await admin.create_namespace("shop/eu")
        await admin.create_tenant("shop", admin_roles=["boss"])
        await admin.create_namespace("shop/eu", ttl_s=9.0)
        broker.require_namespace("persistent://shop/eu/orders")
        await admin.create_topic("shop/eu/orders")
        with pytest.raises(Exists):
            await admin.create_tenant("shop")
        await admin.update_tenant("shop", allowed_clusters=["here"])
        assert list(admin.tenants()) == ["public", "shop"]
        assert admin.tenants()["shop"].allowed_clusters == ["here"]
        assert admin.namespaces("shop") == ["shop/eu"]
        with pytest.raises(NotFound, match="nobody"):
            admin.namespaces("nobody")
        with pytest.raises(NotFound, match="no/where"):
            admin.namespace_policies("no/where")
        with pytest.raises(Misuse, match="colour"):
            await admin.set_namespace_policies("shop/eu", colour="red")
        await admin.delete_namespace("shop/eu", force=True)
        await admin.delete_tenant("shop")
        assert admin.topics() == []

    on_broker(tmp_path, work, require_namespaces=True)


def test_limits_come_from_the_topic_then_the_namespace_then_the_broker(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_topic("own", roll_bytes=100, ttl_s=1.0)
        await admin.create_topic("silent")
        await admin.set_namespace_policies("public/default", roll_bytes=200, ttl_s=2.0, roll_entries=7)
        own, silent = (limits(broker, broker.topic(name)) for name in admin.topics())
        assert (own.roll_bytes, own.ttl_s, own.roll_entries) == (100, 1.0, 7)
        assert (silent.roll_bytes, silent.ttl_s) == (200, 2.0)
        assert silent.roll_age_s == broker.options.roll_age_s
        await admin.set_namespace_policies("public/default", ttl_s=None)
        assert limits(broker, broker.topic("persistent://public/default/silent")).ttl_s == 0.0

    on_broker(tmp_path, work)


def test_the_brokers_deduplication_is_not_forced_on_a_namespace(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.set_namespace_policies("public/default", deduplication=False)
        await broker.admin.create_topic("orders")
        assert broker.admin.policies("orders").deduplication is None
        await broker.admin.create_namespace("public/other")
        await broker.admin.create_topic("public/other/orders")
        assert broker.admin.policies("public/other/orders").deduplication is True

    on_broker(tmp_path, work, deduplication=True)


def test_messages_expire_by_their_namespace(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_subscription("orders", "billing")
        async with broker.producer("orders") as p:
            await p.send_many([b"x"] * 3)
        await broker.admin.set_namespace_policies("public/default", ttl_s=0.01)
        await eventually(lambda: broker.admin.subscription_stats("orders", "billing").backlog == 0)

    on_broker(tmp_path, work, housekeeping_s=0.02)


def test_how_much_lies_behind_a_position(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p:
            for _ in range(3):
                await p.send_many([bytes(100)] * 10)
                await broker.admin.roll("orders")
        topic = broker.topic("persistent://public/default/orders")
        sizes = [each.size for each in topic.state.ledgers]
        assert [topic.size_behind(at) for at in (0, 10, 20, 30, 99)] == [
            sum(sizes),
            sum(sizes[1:]),
            sizes[2],
            0,
            0,
        ]
        assert topic.size_behind(15) == sizes[1] // 2 + sizes[2]
        times = [await topic.time_on(at) or 0 for at in (0, 15, 29)]
        assert 0 < times[0] <= times[1] <= times[2]
        assert await topic.time_on(30) is None

    on_broker(tmp_path, work)


def test_a_dispatcher_tells_what_it_waits_for(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with (
            broker.producer("orders") as p,
            broker.consumer("orders", "billing", receiver_queue=2) as c,
        ):
            stats = broker.admin.subscription_stats("orders", "billing").dispatch
            assert stats is not None
            assert (stats.reading, stats.waiting) == ((), True)
            await p.send_many([b"x"] * 10)
            await c.receive(timeout=5)
            stats = broker.admin.subscription_stats("orders", "billing").dispatch
            assert stats is not None
            assert not stats.waiting

    on_broker(tmp_path, work)
