"""Partitioned topics: one event creates, adds or deletes all partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.broker import Broker
from holdfast.broker.events import (
    AutoCreationSet,
    ExchangeCreate,
    ExchangeDelete,
    NamespaceCreate,
    NamespaceDelete,
    PartitionsDelete,
    PartitionsSet,
    PartitionsSubscribe,
    PartitionsUnsubscribe,
    PermissionSet,
    PolicySet,
    SchemaAdd,
    SubscriptionCreate,
    TopicCreate,
    TopicDelete,
    TopicTerminate,
    UnreplicatedSet,
    partitions,
)
from holdfast.broker.partitions import PARTITIONS_MAX, AutoCreation
from holdfast.broker.permissions import place_of
from holdfast.broker.state import Policies
from holdfast.errors import Busy, Exists, LimitReached, Misuse, NotFound, Terminated
from holdfast.names import partition_name, topic_name
from tests.kit.broker.brokers import on_broker
from tests.kit.broker.events import ME, Publish, Rig, nothing_happens, refused
from tests.kit.broker.partition_checks import growth_keeps_subscriptions

FULL = topic_name("orders")
TOKEN = bytes(range(16))
SILENT = "non-persistent://public/default/levels"


def made(count: int = 3, **more: Any) -> Rig:
    rig = Rig()
    rig.do(PartitionsSet(FULL, count, TOKEN, **more))
    return rig


def names(rig: Rig) -> list[str]:
    return sorted(rig.state.names)


ODD = ("-partition-0", "-partition-0-partition-0", "a/-partition-0", "/-partition-1", "x-partition-007", "/")
"""Names that a topic can have, though they look like those of partitions."""

# -- events --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD)
def test_a_topic_of_any_name_can_be_deleted(name: str) -> None:
    """Else the broker stops, and every member of its cluster, at each attempt."""
    full, rig = topic_name(f"public/default/{name}"), Rig()
    topic = rig.do(TopicCreate(full, TOKEN)).topic
    place = place_of(full)
    rig.do(PermissionSet(place, "reader", ["consume"]))
    rig.do(TopicDelete(topic, force=True))
    assert (names(rig), rig.state.permissions.topics) == ([], {})
    rig.do(ExchangeDelete(rig.do(ExchangeCreate(full, TOKEN, "fanout")).topic))
    rig.do(TopicCreate(full, TOKEN))
    rig.do(NamespaceDelete("public/default", force=True))
    assert names(rig) == []


def test_one_event_creates_all_partitions() -> None:
    rig = made(3, policies=Policies(ttl_s=5.0))
    assert names(rig) == [partition_name(FULL, index) for index in range(3)]
    assert rig.state.partitioned.count(FULL) == 3
    topics = list(rig.state.topics.values())
    assert len({each.incarnation for each in topics}) == 3
    assert {each.policies.ttl_s for each in topics} == {5.0}
    assert rig.restarted().digest() == rig.twin().digest() == rig.machine.digest()


def test_names_that_clash_are_refused() -> None:
    """I281."""
    rig = made(2)
    refused(rig, PartitionsSet(FULL, 2, TOKEN), Exists, "exists already, with 2 partitions")
    refused(rig, TopicCreate(FULL, TOKEN), Exists, "exists already, with 2 partitions")
    refused(rig, TopicCreate(partition_name(FULL, 1), TOKEN), Exists, "exists already")
    refused(rig, TopicCreate(partition_name(FULL, 2), TOKEN), Misuse, "none has the index 2; add partitions")
    refused(rig, ExchangeCreate(FULL, TOKEN, "fanout"), Exists, "with 2 partitions")
    refused(rig, ExchangeCreate(partition_name(FULL, 7), TOKEN, "fanout"), Misuse, "none has the index 7")
    refused(rig, UnreplicatedSet(FULL, ME.node), Exists, "with 2 partitions")
    rig.topic("bills")
    refused(rig, PartitionsSet(topic_name("bills"), 2, TOKEN), Exists, "the topic without partitions .*bills")
    rig.do(ExchangeCreate(topic_name("mail"), TOKEN, "fanout"))
    refused(rig, PartitionsSet(topic_name("mail"), 2, TOKEN), Exists, "the exchange .*mail")
    rig.topic("news-partition-1")
    refused(rig, PartitionsSet(topic_name("news"), 2, TOKEN), Exists, "news-partition-1 exists already")
    rig.do(PartitionsSet(topic_name("news"), 1, TOKEN))
    refused(rig, PartitionsSet(topic_name("news"), 2, TOKEN, grow=True), Exists, "news-partition-1 exists")
    rig.do(UnreplicatedSet(topic_name("only"), ME.node))
    refused(rig, PartitionsSet(topic_name("only"), 2, TOKEN), Exists, "unreplicated on node")
    refused(rig, PartitionsSet(partition_name(FULL, 0), 2, TOKEN), Misuse, "is the name of a partition")


def test_subscriptions_of_new_partitions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one event makes ten million of them, also after each restart."""
    monkeypatch.setattr(partitions, "COPIES_MAX", 6)
    rig = made(1)
    for name in ("a", "b", "c"):
        rig.do(PartitionsSubscribe(FULL, name))
    words = "would have 9 subscriptions, and one request adds at most 6"
    refused(rig, PartitionsSet(FULL, 4, TOKEN, grow=True), Misuse, words)
    rig.do(PartitionsSet(FULL, 3, TOKEN, grow=True))
    rig.do(PartitionsSet(FULL, 4, TOKEN, grow=True))
    assert len(rig.state.subscriptions) == 12


@pytest.mark.parametrize("count", [0, -1, PARTITIONS_MAX + 1, 1 << 60])
def test_numbers_that_are_not_possible(count: int) -> None:
    rig = made(2)
    refused(rig, PartitionsSet(topic_name("x"), count, TOKEN), Misuse, "use 1 to 10000")
    refused(rig, PartitionsSet(FULL, count, TOKEN, grow=True), Misuse, "use 1 to 10000")


def test_other_misuse() -> None:
    rig = made(2)
    refused(rig, PartitionsSet("orders", 2, TOKEN), Misuse, "say it in full")
    refused(rig, PartitionsSet(topic_name("x"), 2, b"t"), Misuse, "1 bytes; it has 16")
    refused(rig, PartitionsSet(topic_name("no/where/x"), 2, TOKEN, managed=True), NotFound, "no/where")
    refused(
        rig, PartitionsSet(FULL, 1, TOKEN, grow=True), Misuse, "has 2 partitions, and cannot have fewer, 1"
    )
    refused(rig, PartitionsSet(topic_name("x"), 2, TOKEN, grow=True), NotFound, "create it first")
    rig.topic("bills")
    refused(rig, PartitionsSet(topic_name("bills"), 2, TOKEN, grow=True), Misuse, "is not partitioned")
    nothing_happens(rig, PartitionsSet(FULL, 2, TOKEN, grow=True))


def test_growth_keeps_subscriptions() -> None:
    growth_keeps_subscriptions()


def test_a_terminated_topic_does_not_grow() -> None:
    rig = made(2)
    rig.do(TopicTerminate(rig.state.names[partition_name(FULL, 0)]))
    refused(rig, PartitionsSet(FULL, 3, TOKEN, grow=True), Terminated, "is terminated")


def test_partitions_share_their_schemas() -> None:
    """I282, also after a restart from a snapshot, and in partitions that come later."""
    rig = made(2)
    last = rig.state.names[partition_name(FULL, 1)]
    assert rig.do(SchemaAdd(last, b"one")).version == 0
    snapshot, there = rig.machine.capture().parts, len(rig.journal)
    rig.do(PartitionsSet(FULL, 3, TOKEN, grow=True))
    newest = rig.state.topics[rig.state.names[partition_name(FULL, 2)]]
    assert newest.schemas == [b"one"]
    assert rig.do(SchemaAdd(newest.id, b"two")).version == 1
    assert rig.do(SchemaAdd(last, b"one")).version == 0
    newest_parts = rig.machine.capture().parts
    for again in (
        rig.restarted(),
        rig.restarted(snapshot, there),
        rig.restarted(newest_parts, len(rig.journal)),
    ):
        assert again.digest() == rig.machine.digest()
        found = [each.schemas for each in again.state.topics.values()]
        assert all(each is found[0] for each in found)


def test_a_partition_is_not_deleted_alone() -> None:
    rig = made(2)
    first = rig.state.names[partition_name(FULL, 0)]
    refused(rig, TopicDelete(first, force=True), Misuse, "is a partition of .*orders; delete that topic")
    rig.do(SubscriptionCreate(first, "billing"))
    refused(rig, PartitionsDelete(FULL), Busy, "has 0 producers and 1 subscription")
    rig.do(PartitionsDelete(FULL, force=True))
    assert not rig.state.names
    assert not rig.state.partitioned.topics
    assert not rig.state.subscriptions
    refused(rig, PartitionsDelete(FULL), NotFound, "there is no partitioned topic")
    rig.do(TopicCreate(FULL, TOKEN))


def test_subscriptions_of_all_partitions() -> None:
    rig = made(3)
    one = rig.state.names[partition_name(FULL, 1)]
    rig.filled(rig.state.topics[one], 4)
    rig.do(SubscriptionCreate(one, "billing", 2))
    rig.do(PartitionsSubscribe(FULL, "billing", from_end=False, properties={"a": "b"}))
    found = {each.topic: each.acks.acked_to for each in rig.state.subscriptions.values()}
    assert sorted(found.values()) == [0, 0, 2], "that of partition 1 stays as it is"
    refused(rig, PartitionsSubscribe(FULL, "billing"), Exists, "has a subscription 'billing' already")
    refused(rig, PartitionsSubscribe(FULL, ""), Misuse)
    rig.do(PartitionsSubscribe(FULL, "audit"))
    assert rig.state.topics[one].subscriptions["audit"].acks.acked_to == 4
    refused(rig, PartitionsUnsubscribe(FULL, "biling"), NotFound, "it has: audit, billing")
    rig.do(PartitionsUnsubscribe(FULL, "billing"))
    assert {each.name for each in rig.state.subscriptions.values()} == {"audit"}
    refused(rig, PartitionsSubscribe(topic_name("x"), "s"), NotFound, "no partitioned topic")


def test_non_persistent_topics_have_a_number_alone() -> None:
    rig = Rig()
    rig.do(PartitionsSet(SILENT, 3, TOKEN))
    rig.do(PartitionsSet(SILENT, 5, TOKEN, grow=True))
    assert (rig.state.partitioned.count(SILENT), rig.state.topics) == (5, {})
    refused(rig, PartitionsSubscribe(SILENT, "s"), Misuse, "keeps no message")
    assert rig.restarted(rig.machine.capture().parts, len(rig.journal)).digest() == rig.machine.digest()
    rig.do(NamespaceDelete("public/default", force=True))
    assert not rig.state.partitioned.topics


def test_a_namespace_takes_its_partitioned_topics_with_it() -> None:
    """And its policy for missing topics (I283)."""
    rig = made(2)
    rig.do(PartitionsSet(SILENT, 3, TOKEN))
    rig.do(AutoCreationSet("public/default", AutoCreation(False, 3)))
    refused(rig, NamespaceDelete("public/default"), Busy, "has 3 topics")
    rig.do(NamespaceDelete("public/default", force=True))
    assert not rig.state.partitioned
    rig.do(NamespaceCreate("public/default"))
    assert rig.state.partitioned.auto_creation == {}


def test_how_missing_topics_are_created() -> None:
    rig = Rig()
    refused(rig, AutoCreationSet("no/where", AutoCreation()), NotFound, "no/where")
    refused(rig, AutoCreationSet("public/default", AutoCreation(True, -1)), Misuse, "-1 partitions")
    nothing_happens(rig, AutoCreationSet("public/default", None))
    rig.do(AutoCreationSet("public/default", AutoCreation(True, 3)))
    nothing_happens(rig, AutoCreationSet("public/default", AutoCreation(True, 3)))
    assert rig.restarted(rig.machine.capture().parts, len(rig.journal)).digest() == rig.machine.digest()
    rig.do(AutoCreationSet("public/default", None))
    assert not rig.state.partitioned


# -- a broker ------------------------------------------------------------------------------------------


def test_a_broker_with_partitions(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        own = broker.partitioned
        await own.create(FULL, 2)
        with pytest.raises(Misuse, match=r"has 2 partitions; name one of them, such as .*orders-partition-0"):
            async with broker.producer("orders"):
                pass
        with pytest.raises(Misuse, match="has 2 partitions"):
            async with broker.consumer("orders", "s"):
                pass
        stage = await broker.stage()
        with pytest.raises(Misuse, match="has 2 partitions"):
            await stage.append("orders", [b"x"])
        with pytest.raises(NotFound, match=r"orders-partition-2: .* has 2 partitions; add partitions"):
            await broker.ensure_topic("orders-partition-2")
        await own.subscribe(FULL, "billing", from_end=False)
        async with broker.producer("orders-partition-1") as producer:
            await producer.send(b"x")
            with pytest.raises(Busy, match="has 0 producers and 1 subscription"):
                await own.delete(FULL)
        await own.grow(FULL, 4)
        assert own.subscriptions(FULL) == ["billing"]
        assert broker.admin.subscriptions("orders-partition-3") == ["billing"]
        assert own.counts() == {FULL: 4}

    async def later(broker: Broker) -> None:
        assert broker.partitioned.names(FULL)[-1] == partition_name(FULL, 3)
        async with broker.consumer("orders-partition-1", "billing") as consumer:
            assert (await consumer.receive(5)).data == b"x"
        await broker.partitioned.delete(FULL, force=True)
        assert broker.admin.topics() == []

    on_broker(tmp_path, work)
    on_broker(tmp_path, later)


def test_missing_topics_get_partitions_by_policy(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        own, full = broker.partitioned, topic_name("shop/eu/orders")
        assert await own.metadata(full, create=True) == 3
        assert own.count(full) == 3
        assert await own.metadata(topic_name("x"), create=True) == 0
        assert not broker.has_topic(topic_name("x")), "a producer or consumer creates it"
        await own.set_auto_creation("shop/eu", AutoCreation(allow=False))
        with pytest.raises(NotFound, match="clients may not create topics here"):
            await own.metadata(topic_name("shop/eu/x"), create=True)
        with pytest.raises(NotFound, match="clients may not create topics here"):
            await broker.ensure_topic("shop/eu/x")
        with pytest.raises(NotFound, match="create it first"):
            await own.metadata(topic_name("x"), create=False)

    async def prepared(broker: Broker) -> None:
        await broker.admin.create_tenant("shop")
        await broker.admin.create_namespace("shop/eu")
        await broker.partitioned.set_auto_creation("shop/eu", AutoCreation(True, 3))
        await work(broker)

    async def by_options(broker: Broker) -> None:
        assert await broker.partitioned.metadata(topic_name("y"), create=True) == 5

    on_broker(tmp_path, prepared)
    on_broker(tmp_path, by_options, create_partitions=5)


def test_a_missing_partition_is_refused_by_its_reason(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        own = broker.partitioned
        await own.create(FULL, 2)
        with pytest.raises(NotFound, match=r"orders has 2 partitions; add partitions to that topic"):
            own.require_creatable(partition_name(FULL, 2))
        await own.delete(FULL)
        with pytest.raises(NotFound, match=r"orders is not partitioned, or was deleted; create it"):
            own.require_creatable(partition_name(FULL, 0))

    on_broker(tmp_path, work, require_namespaces=True)


def test_policies_of_new_partitions_follow_partition_0() -> None:
    rig = made(1)
    rig.do(PolicySet(rig.state.names[partition_name(FULL, 0)], Policies(ring_entries=7)))
    rig.do(PartitionsSet(FULL, 2, TOKEN, grow=True))
    assert [each.policies.ring_entries for each in rig.state.topics.values()] == [7, 7]


def test_a_publish_to_one_partition_stays_there() -> None:
    rig = made(2)
    one = rig.state.topics[rig.state.names[partition_name(FULL, 1)]]
    opened = rig.producer(one)
    rig.do(Publish(one.id, opened.session, [b"x"], opened.epoch, opened.name))
    assert [each.ledgers.end for each in rig.state.topics.values()] == [0, 1]


def test_partitions_cost_what_topics_cost() -> None:
    """In bytes of the state; tests/process/bench runs the benchmark of times."""
    sizes = []
    for parted in (True, False):
        rig, count = Rig(), 200
        if parted:
            rig.do(PartitionsSet(FULL, count, TOKEN))
            rig.do(PartitionsSubscribe(FULL, "s"))
        else:
            for index in range(count):
                rig.subscription(rig.topic(f"orders-of-topic-{index}"), "s")
        sizes.append(sum(map(len, rig.machine.capture().parts)))
    assert 0.8 < sizes[0] / sizes[1] < 1.1


def test_limits_count_every_partition(tmp_path: Path) -> None:
    from holdfast.broker.quota import Quota
    from holdfast.server.config import Limits

    async def work(broker: Broker) -> None:
        Quota(broker, Limits(topics=5, subscriptions=6)).start()
        await broker.partitioned.create(FULL, 3)
        with pytest.raises(LimitReached, match=r"3 more exceed the limit of 5 \(limits.topics\)"):
            await broker.partitioned.create(topic_name("bills"), 3)
        await broker.partitioned.subscribe(FULL, "a")
        await broker.partitioned.grow(FULL, 4)
        with pytest.raises(LimitReached, match=r"4 more exceed the limit of 6 \(limits.subscriptions\)"):
            await broker.partitioned.subscribe(FULL, "b")
        with pytest.raises(LimitReached, match=r"limits.topics"):
            await broker.partitioned.grow(FULL, 6)
        await broker.partitioned.delete(FULL, force=True)
        await broker.partitioned.create(topic_name("bills"), 5)

    on_broker(tmp_path, work)
