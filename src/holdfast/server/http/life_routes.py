"""Administer the life of subscriptions and topics: expiry, inactive topics, creation, types."""

from __future__ import annotations

import math
from typing import Any

from holdfast.broker import SECONDS_MOST, Policies
from holdfast.errors import Misuse
from holdfast.server.http.answers import AutoSubscriptionCreation, InactiveTopics, Minutes, SubTypes
from holdfast.server.http.policies import APPLIED, policies_of_call
from holdfast.server.http.routing import Call, Routes
from holdfast.server.http.topics import NAMESPACE

of_namespace = Routes("policies", "/admin/v2/namespaces/{tenant}/{namespace}", "namespace")
of_topic = Routes("policies", NAMESPACE + "/{topic}", "topic", partitioned="each")

_NAMES = {"Exclusive": "exclusive", "Failover": "failover", "Shared": "shared", "Key_Shared": "key_shared"}
"""Types of subscriptions by Pulsar's names, in the order in which policies keep them."""


# -- between Pulsar's units and ours -------------------------------------------------------------------


def expiry_of(policies: Policies) -> int | None:
    """Convert to minutes; None: not set."""
    seconds = policies.subscription_expiry_s
    return None if seconds is None else math.ceil(seconds / 60)


def expiry_policies(minutes: int | None) -> dict[str, Any]:
    """Convert from minutes."""
    return {"subscription_expiry_s": None if minutes is None else float(min(minutes * 60, SECONDS_MOST))}


def inactive_of(policies: Policies) -> InactiveTopics | None:
    """Convert to Pulsar's units; None: nothing is set."""
    if (policies.inactive_delete, policies.inactive_mode, policies.inactive_s) == (None, None, None):
        return None
    return InactiveTopics(
        inactive_topic_delete_mode=policies.inactive_mode or "delete_when_no_subscriptions",
        max_inactive_duration_seconds=math.ceil(policies.inactive_s or 0),
        delete_while_inactive=bool(policies.inactive_delete),
    )


def inactive_policies(body: InactiveTopics | None) -> dict[str, Any]:
    """Convert from Pulsar's units; None: nothing is set.

    Raises:
        Misuse: topics would be deleted at once.
    """
    if body is None:
        return {"inactive_delete": None, "inactive_mode": None, "inactive_s": None}
    seconds = body.max_inactive_duration_seconds
    if body.delete_while_inactive and not seconds:
        most = f"{SECONDS_MOST:.0f}"
        raise Misuse(f"maxInactiveDurationSeconds is 0, and deleteWhileInactive is true; use 1 to {most}")
    return {
        "inactive_delete": body.delete_while_inactive,
        "inactive_mode": body.inactive_topic_delete_mode,
        "inactive_s": float(seconds) if seconds else None,
    }


def creation_of(policies: Policies) -> AutoSubscriptionCreation | None:
    """Convert to Pulsar's form; None: not set."""
    allowed = policies.auto_subscribe
    return None if allowed is None else AutoSubscriptionCreation(allow_auto_subscription_creation=allowed)


def creation_policies(body: AutoSubscriptionCreation | None) -> dict[str, Any]:
    """Convert from Pulsar's form."""
    return {"auto_subscribe": None if body is None else body.allow_auto_subscription_creation}


def types_of(policies: Policies) -> list[str]:
    """Convert to Pulsar's names; empty: not set."""
    return [name for name, ours in _NAMES.items() if ours in (policies.subscription_types or ())]


def types_policies(body: SubTypes) -> dict[str, Any]:
    """Convert from Pulsar's names."""
    return {"subscription_types": tuple(ours for name, ours in _NAMES.items() if name in body) or None}


# -- namespaces ----------------------------------------------------------------------------------------


def _of_namespace(call: Call) -> Policies:
    return call.broker.admin.namespace_policies(call.namespace)


async def _change_namespace(call: Call, policies: dict[str, Any]) -> None:
    await call.broker.admin.set_namespace_policies(call.namespace, **policies)


@of_namespace("GET", "/subscriptionExpirationTime", answer=int | None, refusals=(404,))
async def namespace_expiry(call: Call) -> int | None:
    """Return the minutes without a consumer after which a subscription is deleted; 0: never."""
    return expiry_of(_of_namespace(call))


@of_namespace("POST", "/subscriptionExpirationTime", body=Minutes, refusals=(404,))
async def set_namespace_expiry(call: Call) -> None:
    """Set the minutes without a consumer after which a subscription is deleted; 0: never."""
    await _change_namespace(call, expiry_policies(call.body))


@of_namespace("DELETE", "/subscriptionExpirationTime", refusals=(404,))
async def drop_namespace_expiry(call: Call) -> None:
    """Remove the expiry of a namespace: the broker's option applies."""
    await _change_namespace(call, expiry_policies(None))


@of_namespace("GET", "/inactiveTopicPolicies", answer=InactiveTopics | None, refusals=(404,))
async def namespace_inactive(call: Call) -> InactiveTopics | None:
    """Return when unused topics of a namespace are deleted; null: not set."""
    return inactive_of(_of_namespace(call))


@of_namespace("POST", "/inactiveTopicPolicies", body=InactiveTopics, refusals=(404,))
async def set_namespace_inactive(call: Call) -> None:
    """Set when unused topics of a namespace are deleted."""
    await _change_namespace(call, inactive_policies(call.body))


@of_namespace("DELETE", "/inactiveTopicPolicies", refusals=(404,))
async def drop_namespace_inactive(call: Call) -> None:
    """Remove this policy of a namespace: the broker's options apply."""
    await _change_namespace(call, inactive_policies(None))


@of_namespace("GET", "/autoSubscriptionCreation", answer=AutoSubscriptionCreation | None, refusals=(404,))
async def namespace_creation(call: Call) -> AutoSubscriptionCreation | None:
    """Return whether consumers create missing subscriptions; null: not set."""
    return creation_of(_of_namespace(call))


@of_namespace("POST", "/autoSubscriptionCreation", body=AutoSubscriptionCreation, refusals=(404,))
async def set_namespace_creation(call: Call) -> None:
    """Set whether consumers create missing subscriptions in a namespace."""
    await _change_namespace(call, creation_policies(call.body))


@of_namespace("DELETE", "/autoSubscriptionCreation", refusals=(404,))
async def drop_namespace_creation(call: Call) -> None:
    """Let the broker's option decide whether consumers create subscriptions."""
    await _change_namespace(call, creation_policies(None))


@of_namespace("GET", "/subscriptionTypesEnabled", answer=SubTypes, refusals=(404,))
async def namespace_types(call: Call) -> list[str]:
    """Return the types that consumers may use; empty: all."""
    return types_of(_of_namespace(call))


@of_namespace("POST", "/subscriptionTypesEnabled", body=SubTypes, refusals=(404,))
async def set_namespace_types(call: Call) -> None:
    """Set the types that consumers of a namespace may use; attached ones stay."""
    await _change_namespace(call, types_policies(call.body))


@of_namespace("DELETE", "/subscriptionTypesEnabled", refusals=(404,))
async def drop_namespace_types(call: Call) -> None:
    """Let consumers of a namespace use all types."""
    await _change_namespace(call, types_policies([]))


# -- topics --------------------------------------------------------------------------------------------


async def _change_topic(call: Call, policies: dict[str, Any]) -> None:
    await call.broker.admin.set_policies(call.topic_name, **policies)


@of_topic("GET", "/subscriptionExpirationTime", query=APPLIED, answer=int | None, refusals=(404,))
async def topic_expiry(call: Call) -> int | None:
    """Return the minutes without a consumer after which a subscription is deleted; 0: never."""
    return expiry_of(policies_of_call(call))


@of_topic("POST", "/subscriptionExpirationTime", body=Minutes, refusals=(404,))
async def set_topic_expiry(call: Call) -> None:
    """Set the minutes without a consumer after which a subscription of the topic is deleted."""
    await _change_topic(call, expiry_policies(call.body))


@of_topic("DELETE", "/subscriptionExpirationTime", refusals=(404,))
async def drop_topic_expiry(call: Call) -> None:
    """Remove the expiry of a topic's subscriptions: that of its namespace applies."""
    await _change_topic(call, expiry_policies(None))


@of_topic("GET", "/inactiveTopicPolicies", query=APPLIED, answer=InactiveTopics | None, refusals=(404,))
async def topic_inactive(call: Call) -> InactiveTopics | None:
    """Return when the topic is deleted as unused; null: not set."""
    return inactive_of(policies_of_call(call))


@of_topic("POST", "/inactiveTopicPolicies", body=InactiveTopics, refusals=(404,))
async def set_topic_inactive(call: Call) -> None:
    """Set when the topic is deleted as unused."""
    await _change_topic(call, inactive_policies(call.body))


@of_topic("DELETE", "/inactiveTopicPolicies", refusals=(404,))
async def drop_topic_inactive(call: Call) -> None:
    """Remove this policy of a topic: that of its namespace applies."""
    await _change_topic(call, inactive_policies(None))


@of_topic(
    "GET",
    "/autoSubscriptionCreation",
    query=APPLIED,
    answer=AutoSubscriptionCreation | None,
    refusals=(404,),
)
async def topic_creation(call: Call) -> AutoSubscriptionCreation | None:
    """Return whether consumers create missing subscriptions; null: not set."""
    return creation_of(policies_of_call(call))


@of_topic("POST", "/autoSubscriptionCreation", body=AutoSubscriptionCreation, refusals=(404,))
async def set_topic_creation(call: Call) -> None:
    """Set whether consumers create missing subscriptions of a topic."""
    await _change_topic(call, creation_policies(call.body))


@of_topic("DELETE", "/autoSubscriptionCreation", refusals=(404,))
async def drop_topic_creation(call: Call) -> None:
    """Let the namespace decide whether consumers create subscriptions of a topic."""
    await _change_topic(call, creation_policies(None))


@of_topic("GET", "/subscriptionTypesEnabled", query=APPLIED, answer=SubTypes, refusals=(404,))
async def topic_types(call: Call) -> list[str]:
    """Return the types that consumers of a topic may use; empty: those of its namespace."""
    return types_of(policies_of_call(call))


@of_topic("POST", "/subscriptionTypesEnabled", body=SubTypes, refusals=(404,))
async def set_topic_types(call: Call) -> None:
    """Set the types that consumers of a topic may use; attached ones stay."""
    await _change_topic(call, types_policies(call.body))


@of_topic("DELETE", "/subscriptionTypesEnabled", refusals=(404,))
async def drop_topic_types(call: Call) -> None:
    """Let consumers of a topic use the types of its namespace."""
    await _change_topic(call, types_policies([]))
