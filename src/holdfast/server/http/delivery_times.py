"""Administer the delivery times of namespaces and topics, with Pulsar's paths and units."""

from __future__ import annotations

from typing import Any

from holdfast.broker import Policies
from holdfast.server.http.answers import DelayedDelivery
from holdfast.server.http.policies import APPLIED, policies_of_call
from holdfast.server.http.routing import Call, Routes
from holdfast.server.http.topics import NAMESPACE

of_namespace = Routes("policies", "/admin/v2/namespaces/{tenant}/{namespace}", "namespace")
of_topic = Routes("policies", NAMESPACE + "/{topic}", "topic")


def times_of(policies: Policies) -> DelayedDelivery | None:
    """Convert to Pulsar's units; None: nothing is set."""
    tick_s, most_s = policies.delayed_tick_s, policies.delayed_most_s
    if policies.delayed_delivery is tick_s is most_s is None:
        return None
    return DelayedDelivery(
        active=policies.delayed_delivery,
        tick_time=None if tick_s is None else round(tick_s * 1000),
        max_delivery_delay_in_millis=None if most_s is None else round(most_s * 1000),
    )


def times_policies(body: DelayedDelivery | None) -> dict[str, Any]:
    """Convert from Pulsar's units; None: nothing is set."""
    given = body or DelayedDelivery()
    tick_ms, most_ms = given.tick_time, given.max_delivery_delay_in_millis
    return {
        "delayed_delivery": given.active,
        "delayed_tick_s": None if tick_ms is None else tick_ms / 1000,
        "delayed_most_s": None if most_ms is None else most_ms / 1000,
    }


@of_namespace("GET", "/delayedDelivery", answer=DelayedDelivery | None, refusals=(404,))
async def namespace_times(call: Call) -> DelayedDelivery | None:
    """Return how delivery times apply in a namespace; null: the broker's options apply."""
    return times_of(call.broker.admin.namespace_policies(call.namespace))


@of_namespace("POST", "/delayedDelivery", body=DelayedDelivery, refusals=(404,))
async def set_namespace_times(call: Call) -> None:
    """Set how delivery times apply in a namespace, for topics without their own setting."""
    await call.broker.admin.set_namespace_policies(call.namespace, **times_policies(call.body))


@of_namespace("DELETE", "/delayedDelivery", refusals=(404,))
async def drop_namespace_times(call: Call) -> None:
    """Remove the setting of a namespace: the broker's options apply."""
    await call.broker.admin.set_namespace_policies(call.namespace, **times_policies(None))


@of_topic(
    "GET",
    "/delayedDelivery",
    query=APPLIED,
    answer=DelayedDelivery | None,
    refusals=(404,),
    partitioned="first",
)
async def topic_times(call: Call) -> DelayedDelivery | None:
    """Return how delivery times apply to a topic; null: not set."""
    return times_of(policies_of_call(call))


@of_topic("POST", "/delayedDelivery", body=DelayedDelivery, refusals=(404,), partitioned="each")
async def set_topic_times(call: Call) -> None:
    """Set how delivery times apply to a topic."""
    await call.broker.admin.set_policies(call.topic_name, **times_policies(call.body))


@of_topic("DELETE", "/delayedDelivery", refusals=(404,), partitioned="each")
async def drop_topic_times(call: Call) -> None:
    """Remove the setting of a topic: that of its namespace applies."""
    await call.broker.admin.set_policies(call.topic_name, **times_policies(None))
