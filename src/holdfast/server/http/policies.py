"""Administer retention, time to live and deduplication of namespaces and topics."""

from __future__ import annotations

import math
from typing import Any

from holdfast.broker import SECONDS_MOST, Policies
from holdfast.errors import Misuse
from holdfast.server.http.answers import Retention, Ring, Seconds
from holdfast.server.http.refusals import Refusal
from holdfast.server.http.routing import Call, Parameter, Routes
from holdfast.server.http.topics import NAMESPACE

of_namespace = Routes("policies", "/admin/v2/namespaces/{tenant}/{namespace}", "namespace")
of_topic = Routes("policies", NAMESPACE + "/{topic}", "topic", partitioned="each")

_MB = 1 << 20
APPLIED = (Parameter("applied", "boolean", "The effective value, not only the own one.", default=False),)


# -- between Pulsar's units and ours -------------------------------------------------------------------


def retention_of(policies: Policies) -> Retention | None:
    """Convert to Pulsar's units; None: not set."""
    if policies.retention_s is None and policies.retention_bytes is None:
        return None
    seconds, size = policies.retention_s or 0, policies.retention_bytes or 0
    return Retention(
        retention_time_in_minutes=-1 if seconds < 0 else math.ceil(seconds / 60),
        retention_size_in_mb=-1 if size < 0 else -(-size // _MB),
    )


def retention_policies(retention: Retention | None) -> dict[str, Any]:
    """Convert from Pulsar's units.

    Raises:
        Misuse: one limit is 0 and the other is not.
    """
    if retention is None:
        return {"retention_s": None, "retention_bytes": None, "retention_both": None}
    minutes, size = retention.retention_time_in_minutes, retention.retention_size_in_mb
    if (minutes == 0) != (size == 0):
        raise Misuse(
            f"retention of {minutes} minutes and {size} MB: a single 0 keeps nothing; use -1 for unlimited, "
            "or 0 for both"
        )
    return {
        "retention_s": -1.0 if minutes < 0 else minutes * 60.0,
        "retention_bytes": -1 if size < 0 else size * _MB,
        "retention_both": True,
    }


def ttl_of(policies: Policies) -> int | None:
    """Convert to seconds; 0: forever, None: not set."""
    if policies.ttl_s is None:
        return None
    return 0 if policies.ttl_s >= SECONDS_MOST else math.ceil(policies.ttl_s)


def ttl_policies(seconds: int | None) -> dict[str, Any]:
    """Convert from seconds; 0 means never."""
    return {"ttl_s": None if seconds is None else float(seconds)}


# -- namespaces ----------------------------------------------------------------------------------------


async def _change_namespace(call: Call, policies: dict[str, Any]) -> None:
    await call.broker.admin.set_namespace_policies(call.namespace, **policies)


@of_namespace("GET", "/retention", answer=Retention | None, refusals=(404,))
async def namespace_retention(call: Call) -> Retention | None:
    """Return the retention of a namespace; null: the broker's options apply."""
    return retention_of(call.broker.admin.namespace_policies(call.namespace))


@of_namespace("POST", "/retention", body=Retention, refusals=(404,))
async def set_namespace_retention(call: Call) -> None:
    """Set the retention of a namespace, for topics without their own."""
    await _change_namespace(call, retention_policies(call.body))


@of_namespace("DELETE", "/retention", refusals=(404,))
async def drop_namespace_retention(call: Call) -> None:
    """Remove the retention of a namespace: the broker's options apply."""
    await _change_namespace(call, retention_policies(None))


@of_namespace("GET", "/messageTTL", answer=int | None, refusals=(404,))
async def namespace_ttl(call: Call) -> int | None:
    """Return the seconds after which messages expire; 0: never, null: not set."""
    return ttl_of(call.broker.admin.namespace_policies(call.namespace))


@of_namespace("POST", "/messageTTL", body=Seconds, refusals=(404,))
async def set_namespace_ttl(call: Call) -> None:
    """Set the seconds after which messages expire, for topics without their own."""
    await _change_namespace(call, ttl_policies(call.body))


@of_namespace("DELETE", "/messageTTL", refusals=(404,))
async def drop_namespace_ttl(call: Call) -> None:
    """Remove the time to live of a namespace."""
    await _change_namespace(call, ttl_policies(None))


@of_namespace("GET", "/deduplication", answer=bool | None, refusals=(404,))
async def namespace_deduplication(call: Call) -> bool | None:
    """Return whether duplicates are dropped; null: the broker's options apply."""
    return call.broker.admin.namespace_policies(call.namespace).deduplication


@of_namespace("POST", "/deduplication", body=bool, refusals=(404,))
async def set_namespace_deduplication(call: Call) -> None:
    """Set whether duplicates are dropped, for topics without their own setting."""
    await _change_namespace(call, {"deduplication": call.body})


@of_namespace("DELETE", "/deduplication", refusals=(404,))
async def drop_namespace_deduplication(call: Call) -> None:
    """Remove the deduplication setting of a namespace."""
    await _change_namespace(call, {"deduplication": None})


# -- topics --------------------------------------------------------------------------------------------


def policies_of_call(call: Call) -> Policies:
    """Return the policies of a topic, or the effective ones."""
    if call.query("applied"):
        return call.broker.admin.applied_policies(call.topic_name)
    return call.topic.policies


async def _change_topic(call: Call, policies: dict[str, Any]) -> None:
    await call.broker.admin.set_policies(call.topic_name, **policies)


@of_topic("GET", "/retention", query=APPLIED, answer=Retention | None, refusals=(404,))
async def topic_retention(call: Call) -> Retention | None:
    """Return the retention of a topic; null: not set."""
    return retention_of(policies_of_call(call))


@of_topic("POST", "/retention", body=Retention, refusals=(404,))
async def set_topic_retention(call: Call) -> None:
    """Set the retention of a topic."""
    await _change_topic(call, retention_policies(call.body))


@of_topic("DELETE", "/retention", refusals=(404,))
async def drop_topic_retention(call: Call) -> None:
    """Remove the retention of a topic: that of its namespace applies."""
    await _change_topic(call, retention_policies(None))


@of_topic("GET", "/messageTTL", query=APPLIED, answer=int | None, refusals=(404,))
async def topic_ttl(call: Call) -> int | None:
    """Return the seconds after which messages expire; 0: never, null: not set."""
    return ttl_of(policies_of_call(call))


@of_topic(
    "POST",
    "/messageTTL",
    query=(Parameter("messageTTL", "integer", "Seconds; 0: never. Needed.", maximum=int(SECONDS_MOST)),),
    refusals=(404,),
)
async def set_topic_ttl(call: Call) -> None:
    """Set the seconds after which messages expire (in the query, as in Pulsar)."""
    seconds = call.query("messageTTL")
    if seconds is None:
        raise Refusal(400, "the request names no time to live; add ?messageTTL=SECONDS, 0 for never")
    if seconds > SECONDS_MOST:
        raise Misuse(f"messageTTL is {seconds}; use at most {SECONDS_MOST:.0f}, or 0 for never")
    await _change_topic(call, ttl_policies(seconds))


@of_topic("DELETE", "/messageTTL", refusals=(404,))
async def drop_topic_ttl(call: Call) -> None:
    """Remove the time to live of a topic: that of its namespace applies."""
    await _change_topic(call, ttl_policies(None))


@of_topic("GET", "/deduplicationEnabled", query=APPLIED, answer=bool | None, refusals=(404,))
async def topic_deduplication(call: Call) -> bool | None:
    """Return whether duplicates are dropped; null: not set."""
    return policies_of_call(call).deduplication


@of_topic("POST", "/deduplicationEnabled", body=bool, refusals=(404,))
async def set_topic_deduplication(call: Call) -> None:
    """Set whether duplicates are dropped."""
    await _change_topic(call, {"deduplication": call.body})


@of_topic("DELETE", "/deduplicationEnabled", refusals=(404,))
async def drop_topic_deduplication(call: Call) -> None:
    """Remove the deduplication setting of a topic: that of its namespace applies."""
    await _change_topic(call, {"deduplication": None})


# -- rings and last values: ours -----------------------------------------------------------------------


@of_topic("GET", "/ring", query=APPLIED, answer=Ring, refusals=(404,))
async def topic_ring(call: Call) -> Ring:
    """Return how many entries and bytes a ring topic keeps; null: no limit."""
    found = policies_of_call(call)
    return Ring(entries=found.ring_entries, bytes=found.ring_bytes)


@of_topic("POST", "/ring", body=Ring, refusals=(404,))
async def set_topic_ring(call: Call) -> None:
    """Make a topic a ring: older entries are dropped for all subscriptions."""
    await _change_topic(call, {"ring_entries": call.body.entries, "ring_bytes": call.body.bytes})


@of_topic("DELETE", "/ring", refusals=(404,))
async def drop_topic_ring(call: Call) -> None:
    """Make a ring an ordinary topic, unless its namespace makes it a ring."""
    await _change_topic(call, {"ring_entries": None, "ring_bytes": None})


@of_topic("GET", "/lastValue", query=APPLIED, answer=bool | None, refusals=(404,))
async def topic_last_value(call: Call) -> bool | None:
    """Return whether only the newest message of each key stays in backlogs."""
    return policies_of_call(call).last_value


@of_topic("POST", "/lastValue", body=bool, refusals=(404,))
async def set_topic_last_value(call: Call) -> None:
    """Keep only the newest message of each key in backlogs, or all."""
    await _change_topic(call, {"last_value": call.body})


@of_topic("DELETE", "/lastValue", refusals=(404,))
async def drop_topic_last_value(call: Call) -> None:
    """Let the namespace decide whether a topic keeps last values only."""
    await _change_topic(call, {"last_value": None})
