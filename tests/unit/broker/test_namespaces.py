"""Tenants and namespaces: their events, and what topics have of them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.broker import state_codec
from holdfast.broker.events import (
    LedgerRoll,
    LedgerTrim,
    NamespaceCreate,
    NamespaceDelete,
    NamespaceUpdate,
    PolicySet,
    TenantCreate,
    TenantDelete,
    TenantUpdate,
    TopicCreate,
    TopicGone,
)
from holdfast.broker.machine import Machine
from holdfast.broker.state import Policies, Tenant, TopicState
from holdfast.errors import Busy, Exists, Misuse, NotFound
from tests.kit.broker.events import SECOND, Publish, Rig, nothing_happens, refused


def test_some_are_there_from_the_start(rig: Rig) -> None:
    assert set(rig.state.namespaces.tenants) == {"public"}
    assert set(rig.state.namespaces.policies) == {"public/default"}


def test_tenants(rig: Rig) -> None:
    rig.do(TenantCreate("shop", ["b", "a", "b"], ["here"]))
    assert rig.state.namespaces.tenants["shop"] == Tenant(["a", "b"], ["here"])
    refused(rig, TenantCreate("shop"), Exists, "shop")
    refused(rig, TenantCreate("a/b"), Misuse, "a/b")
    refused(rig, TenantCreate(""), Misuse)
    refused(rig, TenantUpdate("nobody"), NotFound, "nobody")
    refused(rig, TenantDelete("nobody"), NotFound, "nobody")
    rig.do(TenantUpdate("shop", ["c"]))
    nothing_happens(rig, TenantUpdate("shop", ["c"]))
    assert rig.state.namespaces.tenants["shop"] == Tenant(["c"], [])
    rig.do(NamespaceCreate("shop/eu"))
    refused(rig, TenantDelete("shop"), Busy, "1 namespace;")
    rig.do(NamespaceDelete("shop/eu"))
    rig.do(TenantDelete("shop"))
    assert "shop" not in rig.state.namespaces.tenants


def test_namespaces(rig: Rig) -> None:
    refused(rig, NamespaceCreate("shop/eu"), NotFound, "tenant shop")
    refused(rig, NamespaceCreate("shop"), Misuse, "tenant/namespace")
    refused(rig, NamespaceCreate("public/a/b"), Misuse)
    refused(rig, NamespaceCreate("public/x", Policies(ttl_s=-5)), Misuse, "ttl_s")
    rig.do(NamespaceCreate("public/x", Policies(ttl_s=5)))
    refused(rig, NamespaceCreate("public/x"), Exists, "public/x")
    refused(rig, NamespaceUpdate("public/y", Policies()), NotFound, "public/y")
    refused(rig, NamespaceUpdate("public/x", Policies(), ["colour"]), Misuse, "colour")
    rig.do(NamespaceUpdate("public/x", Policies(retention_bytes=7, ttl_s=9), ["retention_bytes"]))
    assert rig.state.namespaces.policies["public/x"] == Policies(ttl_s=5, retention_bytes=7)
    nothing_happens(rig, NamespaceUpdate("public/x", Policies(ttl_s=5), ["ttl_s"]))
    rig.do(NamespaceDelete("public/x"))
    refused(rig, NamespaceDelete("public/x"), NotFound, "public/x")


def test_a_namespace_with_topics_goes_by_force_alone(rig: Rig) -> None:
    rig.do(TenantCreate("shop"))
    rig.do(NamespaceCreate("shop/eu"))
    topic, other = rig.topic("shop/eu/orders"), rig.topic("orders")
    rig.subscription(topic)
    rig.filled(topic, 5)
    refused(rig, NamespaceDelete("shop/eu"), Busy, "1 topic;")
    rig.do(NamespaceDelete("shop/eu", force=True))
    assert rig.last is not None
    assert TopicGone(topic) in rig.last.notices
    assert list(rig.state.topics) == [other.id]
    rig.do(NamespaceCreate("shop/eu"))
    rig.topic("shop/eu/orders")
    rig.do(TenantDelete("shop", force=True))
    assert list(rig.state.topics) == [other.id]
    assert set(rig.state.namespaces.policies) == {"public/default"}


def test_a_managed_topic_needs_its_namespace(rig: Rig) -> None:
    event = TopicCreate("persistent://public/new/orders", bytes(16), managed=True)
    refused(rig, event, NotFound, "public/new")
    rig.do(NamespaceCreate("public/new"))
    rig.do(event)
    rig.topic("any/where/orders")  # embedded: as it likes


def test_two_who_change_different_policies_do_not_undo_each_other(rig: Rig) -> None:
    topic = rig.topic(ttl_s=1.0)
    rig.apply(
        PolicySet(topic.id, Policies(ttl_s=2.0), ["ttl_s"]),
        PolicySet(topic.id, Policies(retention_s=3.0), ["retention_s"]),
    )
    assert topic.policies == Policies(ttl_s=2.0, retention_s=3.0)
    refused(rig, PolicySet(topic.id, Policies(), ["colour"]), Misuse, "colour")


# -- what topics have of them --------------------------------------------------------------------------


def publish_twice(rig: Rig, topic: TopicState, **session: Any) -> int:
    """How many entries of two equal publishes are stored."""
    opened = rig.producer(topic, f"p{rig.state.next_session}", **session)
    before = topic.ledgers.end
    for _ in range(2):
        rig.do(Publish(topic.id, opened.session, [b"x"], opened.epoch, opened.name, sequence=1))
    return topic.ledgers.end - before


def test_deduplication_is_inherited(rig: Rig) -> None:
    silent, never = rig.topic("silent"), rig.topic("never", deduplication=False)
    assert [publish_twice(rig, each) for each in (silent, never)] == [2, 2]
    rig.do(NamespaceUpdate("public/default", Policies(deduplication=True)))
    later = rig.topic("later")
    assert [publish_twice(rig, each) for each in (silent, never, later)] == [1, 2, 1]
    rig.do(PolicySet(never.id, Policies(deduplication=None)))
    assert publish_twice(rig, never) == 1
    rig.do(NamespaceUpdate("public/default", Policies(deduplication=None)))
    assert [publish_twice(rig, each) for each in (silent, never, later)] == [2, 2, 2]


def test_deduplication_is_inherited_after_a_restart(rig: Rig) -> None:
    topic = rig.topic()
    rig.do(NamespaceUpdate("public/default", Policies(deduplication=True)))
    opened = rig.producer(topic)
    rig.do(Publish(topic.id, opened.session, [b"x"], opened.epoch, opened.name, sequence=1))
    for machine in (rig.restarted(rig.machine.capture().parts, len(rig.journal)), rig.restarted()):
        again = Rig(machine)
        found = again.state.topics[topic.id]
        assert again.state.log.sequences(topic.id) == [("p", 1)]
        again.do(Publish(topic.id, opened.session, [b"x"], opened.epoch, opened.name, sequence=1))
        assert found.ledgers.end == 1


def test_retention_is_inherited(rig: Rig) -> None:
    topic = rig.topic()
    rig.filled(topic, 9, ledgers=3)
    rig.do(LedgerRoll(topic.id, topic.ledgers.open_ledger or 0))
    nothing_happens(rig, LedgerTrim(topic.id))  # without a subscription nothing goes
    rig.do(NamespaceUpdate("public/default", Policies(retention_s=60.0)))
    nothing_happens(rig, LedgerTrim(topic.id))  # not old enough
    rig.do(PolicySet(topic.id, Policies(retention_s=-1)))
    rig.time += 100 * SECOND
    nothing_happens(rig, LedgerTrim(topic.id))  # the topic itself keeps it
    rig.do(PolicySet(topic.id, Policies()))
    assert len(rig.do(LedgerTrim(topic.id)).ledgers) == 3


@pytest.mark.parametrize(
    ("size", "seconds", "gone"),
    [
        (-1, -1, 0),
        (-1, 60, 3),
        (-1, 600, 0),
        (0, -1, 3),
        (1 << 20, -1, 0),
        (0, 0, 3),
        (1 << 20, 60, 3),
        (0, 600, 3),
    ],
)
def test_what_exceeds_either_limit_goes_where_both_must_hold(
    rig: Rig, size: int, seconds: float, gone: int
) -> None:
    """As in Pulsar's table of time and size limits; −1: not applied."""
    topic = rig.topic(retention_bytes=size, retention_s=seconds, retention_both=True)
    rig.filled(topic, 9, ledgers=3)
    rig.do(LedgerRoll(topic.id, topic.ledgers.open_ledger or 0))
    rig.time += 100 * SECOND
    assert len(rig.do(LedgerTrim(topic.id)).ledgers) == gone


def test_a_snapshot_of_before_there_were_namespaces(rig: Rig) -> None:
    rig.topic()
    old = [part for part in rig.machine.capture().parts if b"namespaces" not in part[:20]]
    assert len(old) == len(rig.machine.capture().parts) - 1
    machine = Machine()
    machine.load(old)
    assert machine.digest() == rig.machine.digest()
    assert state_codec.namespaces_part(machine.state.namespaces).policies == {"public/default": Policies()}
