"""Scenes of permissions and properties: over restarts, and on three members.

`tests/mutants/test_lives.py` runs them on broken brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from holdfast.broker.broker import Broker
from holdfast.errors import Misuse, NotFound
from tests.kit.broker.life_checks import DAY, alone, announced
from tests.kit.broker.trio import Trio, scene

NAMESPACE = "public/default"
FULL = "persistent://public/default/orders"


async def grant(broker: Broker) -> None:
    """Give permissions and properties of each kind."""
    admin = broker.admin
    await admin.permit(NAMESPACE, "shop", ["produce"])
    await admin.permit(NAMESPACE, "former", ["produce", "consume"])
    await admin.permit(NAMESPACE, "former", [])
    await admin.permit("orders", "billing", ["consume"])
    await admin.set_subscription_roles(NAMESPACE, "audit", ["auditor", "boss", "intern", "guest"])
    await asyncio.gather(
        *(admin.drop_subscription_role(NAMESPACE, "audit", role) for role in ("intern", "guest"))
    )
    await admin.set_prefixed(NAMESPACE, True)
    await admin.set_namespace_properties(NAMESPACE, {"team": "shop", "cost": "7"})
    await admin.set_topic_properties("orders", {"owner": "anna", "old": "yes", "desk": "3"})
    await admin.set_topic_properties("orders", {"owner": "otto"}, ["old"])
    await admin.set_subscription_properties("orders", "billing", {"for": "invoices"})


def granted(broker: Broker) -> None:
    """Require what `grant` has given."""
    admin = broker.admin
    assert admin.permissions(NAMESPACE) == {"shop": ["produce"]}
    assert admin.permissions("orders") == {"billing": ["consume"], "shop": ["produce"]}
    assert admin.granted.allow("billing", {"consume"}, ("public", "default", "orders"))
    assert not admin.granted.allow("billing", {"consume"}, ("public", "default", "others"))
    assert not admin.granted.allow("former", {"consume", "produce"}, ("public", "default"))
    assert admin.subscription_roles(NAMESPACE) == {"audit": ["auditor", "boss"]}
    assert admin.granted.why_not("shop", NAMESPACE, "audit")
    assert admin.is_prefixed(NAMESPACE)
    assert admin.namespace_properties(NAMESPACE) == {"cost": "7", "team": "shop"}
    assert admin.topic_properties("orders") == {"desk": "3", "owner": "otto"}
    assert admin.subscription_properties("orders", "billing") == {"for": "invoices"}


async def begin(broker: Broker) -> None:
    await broker.admin.create_topic("orders")
    await broker.admin.create_subscription("orders", "billing")


def rights_survive(power: bool = False, snapshot: bool = False) -> None:
    """A crash loses no permission, and revives none that was revoked."""

    async def before(broker: Broker) -> None:
        await begin(broker)
        await grant(broker)
        if snapshot:
            await broker.admin.snapshot()

    async def after(broker: Broker) -> None:
        granted(broker)
        await broker.admin.permit("orders", "billing", [])

    async def last(broker: Broker) -> None:
        assert broker.admin.permissions("orders") == {"shop": ["produce"]}, "a revoked permission came back"

    alone(before, after, last, power=power, outage_s=DAY)


def rights_survive_a_snapshot() -> None:
    rights_survive(snapshot=True)


def rights_end_with_their_place() -> None:
    """A topic or a namespace that is created again has no permissions and no properties."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        await begin(broker)
        await grant(broker)
        await admin.delete_topic("orders", force=True)
        await begin(broker)
        assert admin.permissions("orders") == {"shop": ["produce"]}
        assert admin.topic_properties("orders") == {}
        assert admin.subscription_properties("orders", "billing") == {}
        await admin.create_partitioned_topic("many", 3)
        await admin.permit("many", "billing", ["consume"])
        assert admin.permissions("many-partition-2")["billing"] == ["consume"]
        await admin.delete_partitioned_topic("many")
        await admin.create_partitioned_topic("many", 1)
        assert "billing" not in admin.permissions("many")
        await admin.create_namespace("public/eu")
        await admin.permit("public/eu", "shop", ["produce"])
        await admin.set_prefixed("public/eu", True)
        await admin.set_namespace_properties("public/eu", {"team": "shop"})
        await admin.delete_namespace("public/eu")
        await admin.create_namespace("public/eu")
        assert admin.permissions("public/eu") == {}
        assert admin.namespace_properties("public/eu") == {}
        assert not admin.is_prefixed("public/eu")

    alone(life)


def properties_of_all_partitions() -> None:
    """A property of a partitioned topic is one of each partition."""

    async def life(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_partitioned_topic("many", 2)
        await admin.create_subscription("many-partition-0", "s")
        await admin.create_subscription("many-partition-1", "s")
        await admin.set_topic_properties("many", {"owner": "anna"})
        await admin.set_subscription_properties("many", "s", {"for": "invoices"})
        for number in range(2):
            assert admin.topic_properties(f"many-partition-{number}") == {"owner": "anna"}
            assert admin.subscription_properties(f"many-partition-{number}", "s") == {"for": "invoices"}

    alone(life)


def bad_rights_are_refused() -> None:
    """The text names what was wrong, and nothing changes."""

    async def refused(error: type[Exception], word: str, work: Awaitable[None]) -> None:
        with pytest.raises(error, match=word):
            await work

    async def life(broker: Broker) -> None:
        admin = broker.admin
        await begin(broker)
        await refused(Misuse, "fly", admin.permit(NAMESPACE, "shop", ["fly"]))
        await refused(NotFound, "no/where", admin.permit("no/where", "shop", ["produce"]))
        await refused(Misuse, "a role", admin.permit(NAMESPACE, "", ["produce"]))
        await refused(NotFound, "lost", admin.set_topic_properties("lost", {"a": "b"}))
        await refused(NotFound, "lost", admin.set_subscription_properties("orders", "lost", {"a": "b"}))
        assert admin.permissions(NAMESPACE) == {}

    alone(life)


# -- three members -------------------------------------------------------------------------------------


def rights_are_known_everywhere() -> None:
    """Each member knows them, also after the member that was asked is gone."""

    async def work(trio: Trio) -> None:
        await announced(trio)
        await grant(trio.brokers[1])
        await trio.settle()
        for broker in trio.brokers.values():
            granted(broker)
        await trio.brokers[2].admin.permit("orders", "billing", [])
        trio.crash(2)
        await trio.settle(3.0)
        for broker in trio.brokers.values():
            assert broker.admin.permissions("orders") == {"shop": ["produce"]}

    scene(work)


ALONE = (
    rights_survive,
    rights_survive_a_snapshot,
    rights_end_with_their_place,
    properties_of_all_partitions,
    bad_rights_are_refused,
)
TOGETHER = (rights_are_known_everywhere,)
