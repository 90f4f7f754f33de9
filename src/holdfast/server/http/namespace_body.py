"""The policies of a namespace in one JSON object, with Pulsar's fields.

Every field of Pulsar's object is declared: those that have an effect here, and those that cannot have one. A
value of the latter that is not the default is refused, and so is a field that is not declared.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.broker import PermittedAction, Policies, Strategy
from holdfast.errors import Misuse
from holdfast.server.http import limit_answers as limits
from holdfast.server.http.answers import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    Bundles,
    DelayedDelivery,
    InactiveTopics,
    Minutes,
    Retention,
    Roles,
    Seconds,
    SubTypes,
)
from holdfast.server.http.delivery_times import times_of, times_policies
from holdfast.server.http.life_routes import (
    creation_of,
    creation_policies,
    expiry_of,
    expiry_policies,
    inactive_of,
    inactive_policies,
    types_of,
    types_policies,
)
from holdfast.server.http.limit_answers import (
    BacklogQuota,
    DispatchRate,
    Most,
    PublishRate,
    SubscribeRate,
)
from holdfast.server.http.policies import retention_of, retention_policies, ttl_of, ttl_policies
from holdfast.server.http.schema_routes import OLDER, AutoUpdate

Actions = list[PermittedAction]
GRANTS_MAX = 1000
"""Permissions in one request: each is an event."""


class AuthPolicies(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Permissions of a namespace."""

    namespace_auth: dict[str, Actions] = {}
    """By role."""
    destination_auth: dict[str, dict[str, Actions]] = {}
    """By topic and role."""
    subscription_auth_roles: dict[str, Roles] = {}
    """By subscription: the roles that alone may consume from it."""
    implicit_subscription_auth: bool | msgspec.UnsetType = msgspec.UNSET
    """Cannot be false: without roles, all may consume from a subscription."""


class NamespaceBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The policies of a namespace; null: the broker's options apply.

    Fields of Pulsar without an effect here are accepted with their default only.
    """

    auth_policies: AuthPolicies = msgspec.field(default_factory=AuthPolicies)
    replication_clusters: Roles = []
    """This cluster, or none."""
    allowed_clusters: Roles = []
    """This cluster, or none."""
    bundles: Bundles | None = None
    """A namespace has one."""
    backlog_quota_map: dict[Literal["destination_storage", "message_age"], BacklogQuota] = {}
    clusterDispatchRate: dict[str, DispatchRate] = {}  # noqa: N815  # Pulsar's own mixture
    """Without effect: an older name of topicDispatchRate."""
    topicDispatchRate: dict[str, DispatchRate] = {}  # noqa: N815
    """By cluster: this one. So are the other rates."""
    subscriptionDispatchRate: dict[str, DispatchRate] = {}  # noqa: N815
    replicatorDispatchRate: dict[str, DispatchRate] = {}  # noqa: N815
    """Without effect."""
    clusterSubscribeRate: dict[str, SubscribeRate] = {}  # noqa: N815
    persistence: dict[str, Any] | None = None
    """Without effect."""
    deduplicationEnabled: bool | None = None  # noqa: N815
    autoTopicCreationOverride: AutoTopicCreation | None = None  # noqa: N815
    autoSubscriptionCreationOverride: AutoSubscriptionCreation | None = None  # noqa: N815
    publishMaxMessageRate: dict[str, PublishRate] = {}  # noqa: N815
    latency_stats_sample_rate: dict[str, int] = {}
    """Without effect."""
    message_ttl_in_seconds: Seconds | None = None
    subscription_expiration_time_minutes: Minutes | None = None
    retention_policies: Retention | None = None
    deleted: bool = False
    encryption_required: bool = False
    """Without effect."""
    delayed_delivery_policies: DelayedDelivery | None = None
    inactive_topic_policies: InactiveTopics | None = None
    subscription_auth_mode: Literal["None", "Prefix"] = "None"
    max_producers_per_topic: Most | None = None
    max_consumers_per_topic: Most | None = None
    max_consumers_per_subscription: Most | None = None
    max_unacked_messages_per_consumer: Most | None = None
    max_unacked_messages_per_subscription: Most | None = None
    max_subscriptions_per_topic: Most | None = None
    max_topics_per_namespace: Most | None = None
    compaction_threshold: Most | None = None
    offload_threshold: int = -1
    """Without effect. So are the other fields of offloading."""
    offload_threshold_in_seconds: int = -1
    offload_deletion_lag_ms: int | None = None
    offload_policies: dict[str, Any] | None = None
    schema_auto_update_compatibility_strategy: AutoUpdate | None = None
    """An older name of schema_compatibility_strategy, where that is UNDEFINED."""
    schema_compatibility_strategy: Strategy | Literal["UNDEFINED"] = "UNDEFINED"
    is_allow_auto_update_schema: bool | None = None
    schema_validation_enforced: bool = False
    deduplicationSnapshotIntervalSeconds: int | None = None  # noqa: N815
    """Without effect."""
    subscription_types_enabled: SubTypes = []
    allowed_topic_properties_for_metrics: list[str] = []
    """Without effect."""
    properties: dict[str, str] = {}
    resource_group_name: str | None = None
    """Without effect."""
    migrated: bool = False
    dispatcherPauseOnAckStatePersistentEnabled: bool | None = None  # noqa: N815
    """Without effect."""
    entryFilters: dict[str, Any] | None = None  # noqa: N815
    """Without effect."""


_WITHOUT_EFFECT = {
    "clusterDispatchRate": "the older name is not supported: use topicDispatchRate",
    "replicatorDispatchRate": "replication between clusters is not supported",
    "persistence": "holdfast has no BookKeeper; each member has its own disk",
    "latency_stats_sample_rate": "samples of latency are not supported: /metrics has latencies of all",
    "deleted": "delete the namespace with DELETE",
    "encryption_required": "a duty to encrypt is not supported: the broker cannot check keys",
    **dict.fromkeys(
        (
            *("offload_threshold", "offload_threshold_in_seconds", "offload_deletion_lag_ms"),
            "offload_policies",
        ),
        "offloading to other storage is not supported",
    ),
    "deduplicationSnapshotIntervalSeconds": "numbers of producers are in the journal at once",
    "allowed_topic_properties_for_metrics": "properties are not labels of metrics",
    "resource_group_name": "resource groups are not supported: limits.* of the server limit clients",
    "migrated": "replication between clusters is not supported",
    "dispatcherPauseOnAckStatePersistentEnabled": "acknowledgements are stored at once",
    "entryFilters": "filters of entries are not supported: filter in the consumer",
}
"""Fields that cannot have an effect, with the reasons."""

_NUMBERS = {
    "max_producers_per_topic": "producers_max",
    "max_consumers_per_topic": "consumers_max",
    "max_consumers_per_subscription": "subscription_consumers_max",
    "max_unacked_messages_per_consumer": "unacked_max",
    "max_unacked_messages_per_subscription": "subscription_unacked_max",
    "max_subscriptions_per_topic": "subscriptions_max",
    "max_topics_per_namespace": "topics_max",
    "compaction_threshold": "compaction_threshold",
    "deduplicationEnabled": "deduplication",
    "is_allow_auto_update_schema": "schema_auto_update",
}
"""Fields whose value is that of a policy."""


def require_possible(body: NamespaceBody, cluster: str) -> None:
    """Refuse values that cannot have an effect.

    Raises:
        Misuse: the text names the field.
    """
    default = NamespaceBody()
    for name, reason in _WITHOUT_EFFECT.items():
        value = getattr(body, name)
        if value != getattr(default, name) and value is not False and value not in ({}, []):
            raise Misuse(f"the field {name} cannot be {_shown(value)}: {reason}")
    rights = body.auth_policies
    grants = len(rights.namespace_auth) + len(rights.subscription_auth_roles)
    grants += sum(map(len, rights.destination_auth.values()))
    if grants > GRANTS_MAX:
        raise Misuse(
            f"the field auth_policies has {grants} permissions; at most {GRANTS_MAX} are possible in one "
            "request"
        )
    if rights.implicit_subscription_auth is False:
        raise Misuse(
            "the field implicit_subscription_auth cannot be false: without roles, all may consume from a "
            "subscription"
        )
    if body.bundles is not None and body.bundles.num_bundles > 1:
        raise Misuse(
            f"the field bundles cannot have {body.bundles.num_bundles} bundles: a namespace has one, and "
            "each topic has an owner of its own"
        )
    here = {cluster}
    for name in ("replication_clusters", "allowed_clusters", *_BY_CLUSTER):
        if others := sorted({*getattr(body, name)} - here):
            raise Misuse(
                f"the field {name} names {', '.join(others)}: replication between clusters is not supported, "
                f"and this server belongs to the cluster {cluster}; name no other"
            )


_BY_CLUSTER = (
    *("topicDispatchRate", "subscriptionDispatchRate", "clusterSubscribeRate", "publishMaxMessageRate"),
)


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:100]


def policies_of(body: NamespaceBody, cluster: str) -> dict[str, Any]:
    """Return the policies that a body sets, by their names in `Policies`."""
    strategy = body.schema_compatibility_strategy
    found: dict[str, Any] = {ours: getattr(body, name) for name, ours in _NUMBERS.items()}
    for which, quota in body.backlog_quota_map.items():
        found |= limits.quota_policies(quota, which)
    return {
        **found,
        **retention_policies(body.retention_policies),
        **ttl_policies(body.message_ttl_in_seconds),
        **expiry_policies(body.subscription_expiration_time_minutes),
        **inactive_policies(body.inactive_topic_policies),
        **creation_policies(body.autoSubscriptionCreationOverride),
        **types_policies(body.subscription_types_enabled),
        **times_policies(body.delayed_delivery_policies),
        **limits.publish_policies(body.publishMaxMessageRate.get(cluster)),
        **limits.dispatch_policies(body.topicDispatchRate.get(cluster), "dispatch"),
        **limits.dispatch_policies(body.subscriptionDispatchRate.get(cluster), "subscription"),
        **limits.subscribe_policies(body.clusterSubscribeRate.get(cluster)),
        "schema_strategy": _older(body) if strategy == "UNDEFINED" else strategy,
        "schema_enforced": body.schema_validation_enforced or None,
    }


def _older(body: NamespaceBody) -> Strategy | None:
    """Return the strategy under its older name; older tools send `Full` where none was chosen."""
    older = body.schema_auto_update_compatibility_strategy
    return next((new for new, each in OLDER.items() if each == older and older != "Full"), None)


def body_of(policies: Policies, cluster: str, **more: Any) -> NamespaceBody:
    """Return the policies of a namespace as Pulsar's object, with `more` fields."""
    values = policies.fields()

    def here(rate: Any) -> dict[str, Any]:
        return {} if rate is None else {cluster: rate}

    return NamespaceBody(
        **{name: values[ours] for name, ours in _NUMBERS.items()},
        replication_clusters=[cluster],
        bundles=Bundles(),
        backlog_quota_map=limits.quota_map(policies),  # type: ignore[arg-type]
        topicDispatchRate=here(limits.dispatch_rate(policies, "dispatch")),
        subscriptionDispatchRate=here(limits.dispatch_rate(policies, "subscription")),
        clusterSubscribeRate=here(limits.subscribe_rate(policies)),
        publishMaxMessageRate=here(limits.publish_rate(policies)),
        autoSubscriptionCreationOverride=creation_of(policies),
        message_ttl_in_seconds=ttl_of(policies),
        subscription_expiration_time_minutes=expiry_of(policies),
        retention_policies=retention_of(policies),
        delayed_delivery_policies=times_of(policies),
        inactive_topic_policies=inactive_of(policies),
        schema_compatibility_strategy=policies.schema_strategy or "UNDEFINED",
        schema_validation_enforced=bool(policies.schema_enforced),
        subscription_types_enabled=types_of(policies),  # type: ignore[arg-type]
        **more,
    )
