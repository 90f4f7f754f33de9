"""Policies in the request for a namespace are honoured, or refused by their field."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.broker import Quota
from holdfast.server.config import Limits
from tests.kit.server.http_world import Answer, HttpWorld, http

__all__ = ["http"]

RATES = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": 1000,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 2,
}
WHOLE: dict[str, Any] = {
    "backlog_quota_map": {
        "destination_storage": {"limit": 9, "limitSize": 9, "limitTime": -1, "policy": "producer_exception"},
    },
    "topicDispatchRate": {"standalone": RATES},
    "subscriptionDispatchRate": {"standalone": RATES},
    "clusterSubscribeRate": {
        "standalone": {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 10}
    },
    "deduplicationEnabled": True,
    "autoTopicCreationOverride": {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    },
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False},
    "publishMaxMessageRate": {
        "standalone": {"publishThrottlingRateInMsg": 7, "publishThrottlingRateInByte": -1}
    },
    "message_ttl_in_seconds": 60,
    "subscription_expiration_time_minutes": 30,
    "retention_policies": {"retentionTimeInMinutes": 60, "retentionSizeInMB": 7},
    "delayed_delivery_policies": {
        "active": True,
        "tickTime": 500,
        "maxDeliveryDelayInMillis": 60_000,
    },
    "inactive_topic_policies": {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 600,
        "deleteWhileInactive": True,
    },
    "max_producers_per_topic": 1,
    "max_consumers_per_topic": 2,
    "max_consumers_per_subscription": 3,
    "max_unacked_messages_per_consumer": 4,
    "max_unacked_messages_per_subscription": 5,
    "max_subscriptions_per_topic": 6,
    "max_topics_per_namespace": 7,
    "compaction_threshold": 1 << 30,
    "schema_compatibility_strategy": "BACKWARD",
    "is_allow_auto_update_schema": False,
    "schema_validation_enforced": True,
    "subscription_types_enabled": ["Exclusive", "Shared"],
    "properties": {"team": "trade"},
}
"""A value for each field of Pulsar's object that has an effect without authorization."""
EMPTY: dict[str, Any] = {
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "replication_clusters": [],
    "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
    "backlog_quota_map": {},
    "clusterDispatchRate": {},
    "latency_stats_sample_rate": {},
    "deleted": False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_auto_update_compatibility_strategy": "Full",
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "properties": {},
    "migrated": False,
}
"""The request of Pulsar's own tool for a namespace without any policy."""


def test_a_namespace_with_all_policies(http: HttpWorld) -> None:
    """The answer has each field of the request, and all apply to a topic."""
    place = "/admin/v2/namespaces/public/whole"
    http.done("PUT", place, json={**EMPTY, **WHOLE, "replication_clusters": ["standalone"]})
    found = http.get(place)
    assert {name: found[name] for name in WHOLE} == WHOLE
    assert found["replication_clusters"] == ["standalone"]
    assert (found["auth_policies"], found["deleted"]) == (EMPTY["auth_policies"], False)
    http.done("PUT", "/admin/v2/persistent/public/whole/x")
    applied = http.get("/admin/v2/persistent/public/whole/x/policies")
    above = [name for name, each in applied.items() if each["level"] == "namespace"]
    assert {"ttl_s", "backlog_bytes_action", "dispatch_rate_period_s", "schema_enforced"} <= {*above}
    assert http.get(f"{place}/autoTopicCreation") == WHOLE["autoTopicCreationOverride"]
    assert http.get(f"{place}/properties") == {"team": "trade"}
    assert http.ask("PUT", place, json={}).status == 409


def test_a_namespace_as_the_tool_of_pulsar_creates_it(http: HttpWorld) -> None:
    """It sends all fields with their defaults: no policy is set."""
    http.done("PUT", "/admin/v2/namespaces/public/plain", json=EMPTY)
    http.done("PUT", "/admin/v2/namespaces/public/bare")
    plain = http.get("/admin/v2/namespaces/public/plain")
    assert plain == http.get("/admin/v2/namespaces/public/bare")
    own = http.get("/admin/v2/namespaces/public/plain/policies")
    assert [name for name, each in own.items() if each["own"] is not None] == []
    older = {**EMPTY, "schema_auto_update_compatibility_strategy": "Forward"}
    http.done("PUT", "/admin/v2/namespaces/public/older", json=older)
    assert http.get("/admin/v2/namespaces/public/older")["schema_compatibility_strategy"] == "FORWARD"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"replication_clusters": ["far"]}, 412, "the field replication_clusters names far"),
        ({"allowed_clusters": ["standalone", "far"]}, 412, "the field allowed_clusters names far"),
        ({"topicDispatchRate": {"far": RATES}}, 412, "the field topicDispatchRate names far"),
        ({"bundles": {"numBundles": 16}}, 412, "the field bundles cannot have 16 bundles"),
        ({"clusterDispatchRate": {"standalone": RATES}}, 412, "use topicDispatchRate"),
        ({"persistence": {"bookkeeperEnsemble": 3}}, 412, "the field persistence cannot be"),
        ({"encryption_required": True}, 412, "the field encryption_required cannot be true"),
        ({"offload_threshold": 0}, 412, "the field offload_threshold cannot be 0"),
        ({"offload_deletion_lag_ms": 5}, 412, "the field offload_deletion_lag_ms cannot be 5"),
        ({"resource_group_name": "g"}, 412, "the field resource_group_name"),
        ({"entryFilters": {"entryFilterNames": "f"}}, 412, "the field entryFilters"),
        ({"message_ttl": 60}, 400, "unknown field `message_ttl`"),
        ({"auth_policies": {"role_auth": {}}}, 400, "unknown field `role_auth`"),
        ({"auth_policies": {"namespace_auth": {"ann": ["fly"]}}}, 400, "Invalid enum value 'fly'"),
        (
            {"auth_policies": {"destination_auth": {"persistent://public/default/x": {"ann": ["consume"]}}}},
            *(412, "the field destination_auth names persistent://public/default/x"),
        ),
        ({"auth_policies": {"implicit_subscription_auth": False}}, 412, "implicit_subscription_auth"),
        ({"retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}}, 412, "single 0"),
        (
            {"autoTopicCreationOverride": {"topicType": "partitioned"}},
            *(412, "needs defaultNumPartitions"),
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_namespace_that_is_refused(http: HttpWorld, body: Any, status: int, words: str) -> None:
    """No field is dropped in silence, and nothing is created."""
    place = "/admin/v2/namespaces/public/refused"
    refused = http.ask("PUT", place, json=body)
    assert (refused.status, words in refused.reason) == (status, True), refused
    assert http.ask("GET", place).status == 404


def test_a_namespace_with_permissions(http: HttpWorld) -> None:
    place, topic = "/admin/v2/namespaces/public/granted", "persistent://public/granted/orders"
    rights = {
        "namespace_auth": {"ann": ["produce", "consume"]},
        "destination_auth": {topic: {"bob": ["consume"]}},
        "subscription_auth_roles": {"billing": ["ann"]},
    }
    http.done("PUT", place, json={"auth_policies": rights, "subscription_auth_mode": "Prefix"})
    found = http.get(place)
    assert (found["auth_policies"], found["subscription_auth_mode"]) == (rights, "Prefix")
    assert http.get(f"{place}/permissions") == rights["namespace_auth"]


def test_a_namespace_whose_properties_are_too_large(http: HttpWorld) -> None:
    """They are set after the creation: a refusal takes it back."""
    place, quota = "/admin/v2/namespaces/public/heavy", Quota(http.broker, Limits(properties_bytes=100))
    quota.start()
    try:
        refused = http.ask("PUT", place, json={"properties": {"large": "x" * 100}})
        assert (refused.status, "limits.properties_bytes" in refused.reason) == (412, True)
        assert http.ask("GET", place).status == 404
        http.done("PUT", place, json={"properties": {"small": "x"}})
    finally:
        quota.stop()


def test_two_roles_are_removed_at_once(http: HttpWorld) -> None:
    """Neither request gives the role of the other one back."""
    at = "/admin/v2/namespaces/public/default/permissions"
    http.done("POST", f"{at}/subscription/audit", json=["boss", "guest", "intern"])

    async def both() -> list[Answer]:
        paths = (f"{at}/audit/{role}" for role in ("guest", "intern"))
        return await asyncio.gather(*(http.asking("DELETE", each) for each in paths))

    assert [each.status for each in http.run(both())] == [204, 204]
    assert http.get(f"{at}/subscription") == {"audit": ["boss"]}
