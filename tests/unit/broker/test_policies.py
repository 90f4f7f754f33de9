"""Policies that apply to topics: the topic's over the namespace's over the broker's options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.broker import Broker, BrokerOptions, Notice, PoliciesChanged, Topic
from holdfast.broker.policy_options import PolicyOptions, standing_in
from holdfast.broker.topic_policies import Policies
from holdfast.errors import Misuse
from tests.kit.broker.brokers import on_broker
from tests.kit.waiting import eventually


def test_messages_expire_by_an_option(tmp_path: Path) -> None:
    """The time to live 0 of a topic or a namespace is: never."""

    async def work(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_namespace("public/kept", ttl_s=0.0)
        names = ("public/kept/a", "own", "silent")
        for name in names:
            await admin.create_topic(name, ttl_s=0.0 if name == "own" else None)
            await admin.create_subscription(name, "s")
            async with broker.producer(name) as producer:
                await producer.send_many([b"x"] * 3)
        await eventually(lambda: admin.subscription_stats("silent", "s").backlog == 0)
        assert [admin.subscription_stats(name, "s").backlog for name in names] == [3, 3, 0]
        await admin.set_policies("own", ttl_s=None)
        await eventually(lambda: admin.subscription_stats("own", "s").backlog == 0)
        assert admin.subscription_stats("public/kept/a", "s").backlog == 3

    on_broker(tmp_path, work, ttl_s=0.01, housekeeping_s=0.02)


def test_idle_topics_with_policies_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read is a step of another thread, and there are many topics."""

    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("orders", ttl_s=1e6, backlog_age_s=1e6, subscription_expiry_s=1e6)
        await broker.admin.create_subscription("orders", "s")
        async with broker.producer("orders") as producer:
            for _ in range(3):
                await producer.send(b"x")
        topic, reads = broker.admin._topic("orders"), list[Any]()
        read = topic._store.time

        async def counted(*given: Any) -> int:
            reads.append(given)
            return await read(*given)

        monkeypatch.setattr(topic._store, "time", counted)
        for _ in range(3):
            await broker.housekeeping.turn()
        assert len(reads) == 1, "of the oldest message, once"
        assert broker.limiting.figures(topic).oldest_s is not None
        assert broker.admin.subscription_stats("orders", "s").backlog == 3

    on_broker(tmp_path, work, housekeeping_s=3600.0)


def test_where_each_value_comes_from(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        admin = broker.admin
        await admin.set_namespace_policies("public/default", ttl_s=7.0, producers_max=2, subscriptions_max=9)
        await admin.create_topic("orders", ttl_s=5.0, ring_entries=10)
        found = {name: each[1:] for name, each in admin.policy_values("orders").items()}
        assert {name: each[0] for name, each in found.items()} == admin.applied_policies("orders").fields()
        expected: dict[str, Any] = {
            "ttl_s": (5.0, "topic"),
            "ring_entries": (10, "topic"),
            "producers_max": (2, "namespace"),
            "subscriptions_max": (9, "namespace"),
            "roll_entries": (77, "broker"),
            "schema_strategy": ("BACKWARD", "broker"),
            "subscription_types": (("exclusive", "shared"), "broker"),
        }
        assert {name: found[name] for name in expected} == expected
        assert {found[each] for each in ("ring_bytes", "last_value", "message_bytes_max")} == {(None, None)}
        above = admin.policy_values("public/default")
        assert above["ttl_s"] == (7.0, 7.0, "namespace")
        assert above["roll_entries"] == (None, 77, "broker")
        assert above["ring_entries"] == (None, None, None)
        await admin.set_namespace_policies("public/default", ttl_s=None, producers_max=None)
        await admin.set_policies("orders", ttl_s=None)
        found = {name: each[1:] for name, each in admin.policy_values("orders").items()}
        assert (found["ttl_s"], found["producers_max"]) == ((3.0, "broker"), (0, "broker"))

    options: dict[str, Any] = {"ttl_s": 3.0, "roll_entries": 77, "schema_strategy": "BACKWARD"}
    on_broker(tmp_path, work, subscription_types="shared,exclusive", **options)


def test_types_of_subscriptions_by_an_option(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("orders")
        async with broker.consumer("orders", "s", type="shared"):
            pass
        with pytest.raises(Misuse, match="cannot be failover: the policy subscription_types allows shared"):
            await broker.consumer("orders", "t", type="failover").open()
        await broker.admin.set_policies("orders", subscription_types=("failover",))
        async with broker.consumer("orders", "t", type="failover"):
            pass

    on_broker(tmp_path, work, subscription_types="shared")


def test_options_change_at_run_time(tmp_path: Path) -> None:
    """All members of a cluster share them (`DECIDING`); here the broker is alone."""

    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("orders", schema_enforced=False)
        await broker.membership.set_options(
            {
                "ttl_s": 9.0,
                "schema_strategy": "FORWARD",
                "schema_enforced": True,
                "subscription_types": "shared",
            }
        )
        applied = broker.admin.applied_policies("orders")
        assert (applied.ttl_s, applied.schema_strategy) == (9.0, "FORWARD")
        assert broker.admin.policy_values("orders")["schema_enforced"] == (False, False, "topic")
        assert applied.subscription_types == ("shared",)
        with pytest.raises(Misuse, match="the option schema_strategy is 'UP'"):
            await broker.membership.set_options({"schema_strategy": "UP"})
        await broker.membership.restore_options(["ttl_s", "subscription_types"])
        applied = broker.admin.applied_policies("orders")
        assert (applied.ttl_s, len(applied.subscription_types or ())) == (4.0, 4)

    on_broker(tmp_path, work, ttl_s=4.0)


def test_a_delay_beyond_the_option(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as producer:
            await producer.send(b"x", deliver_after=50.0)
            with pytest.raises(Misuse, match=r"delayed_most_s allows 60\.0 s"):
                await producer.send(b"x", deliver_after=70.0)

    on_broker(tmp_path, work, delayed_most_s=60.0)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("ttl_s", -1.0, "use 0 to 1000000000"),
        ("schema_strategy", "UPWARD", "use ALWAYS_INCOMPATIBLE, ALWAYS_COMPATIBLE, BACKWARD"),
        ("schema_enforced", 1, "use true or false"),
        ("subscription_types", "shared,broadcast", "use one or more of exclusive, failover, shared"),
        ("subscription_types", "", "with commas between them"),
    ],
)
def test_options_that_are_not_possible(option: str, value: Any, words: str) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.raises(Misuse, match=f"the option {option} is .*{words}"):
        BrokerOptions(**given).require_sound()


def test_each_option_stands_in_for_a_policy() -> None:
    policies = Policies(**standing_in(BrokerOptions(inactive_topic_s=5.0)))
    policies.require_sound()
    named = {name for name, value in policies.fields().items() if value is not None}
    assert set(PolicyOptions.__dataclass_fields__) <= named
    assert policies.inactive_delete is True


def test_options_that_change_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each namespace had all topics looked through: 4,000 of both took 4.6 s."""

    async def work(broker: Broker) -> None:
        admin, told, looks = broker.admin, list[Notice](), list[Topic]()
        for number in range(5):
            await admin.create_namespace(f"public/n{number}")
            await admin.create_topic(f"public/n{number}/orders", backlog_bytes=1 if number == 3 else None)
        broker.watch(told.extend)
        monkeypatch.setattr(broker.limiting, "_look_soon", looks.append)
        await broker.membership.set_options({"producers_max": 7})
        assert [each for each in told if isinstance(each, PoliciesChanged)] == [PoliciesChanged()]
        assert {*broker.limiting.topics_of(PoliciesChanged())} == {*broker.topics.values()}
        assert [each.name for each in looks] == ["persistent://public/n3/orders"], "it alone has a quota"
        values = {each: admin.applied_policies(each).producers_max for each in admin.topics()}
        assert {*values.values()} == {7}

    on_broker(tmp_path, work)


def test_an_age_is_told_by_the_member_that_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a quota, or at a former owner, the last age grew for ever."""

    async def work(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_topic("orders", backlog_age_s=1e6)
        await admin.create_subscription("orders", "s")
        async with broker.producer("orders") as producer:
            await producer.send(b"x")
        topic = broker.admin._topic("orders")
        await broker.limiting.check_all()
        assert broker.limiting.figures(topic).oldest_s is not None
        with monkeypatch.context() as patch:
            patch.setattr(broker.membership, "owns", lambda _: False)
            assert broker.limiting.figures(topic).oldest_s is None
        await admin.set_policies("orders", backlog_age_s=None)
        assert broker.limiting.figures(topic).oldest_s is None

    on_broker(tmp_path, work, housekeeping_s=3600.0)
