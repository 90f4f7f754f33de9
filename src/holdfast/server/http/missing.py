"""List paths of Pulsar's tools that this server does not have, each with its reason.

The answer is 501 with the reason, not a 404 that a user cannot tell from a wrong name. A path that a route
serves is never looked up here, so a feature that is built later needs no change of this list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
SUBSCRIPTION = TOPIC + "/subscription/{subscription}"
CLUSTER = "/admin/v2/clusters/{cluster}"

_ONE_CLUSTER = "is not supported: a server belongs to one cluster"
_NO_BOOKKEEPER = "is not applicable: holdfast has no BookKeeper; each member has its own disk"
_NO_ZOOKEEPER = "is not applicable: holdfast has no ZooKeeper; the members agree among themselves"
_NO_FUNCTIONS = "are not supported: run a consumer and a producer, or a pipeline on Spark"
_NO_BUNDLES = "is not applicable: a namespace has one bundle, and each topic has an owner of its own"

MISSING: dict[str, tuple[str, ...]] = {
    "a rate of one subscription is not supported: subscriptionDispatchRate sets that of each": (
        TOPIC + "/{subscription}/dispatchRate",
        SUBSCRIPTION + "/dispatchRate",
    ),
    "the older name is not supported: use backlog-quota-check": ("/admin/v2/brokers/backlogQuotaCheck",),
    "the older name is not supported: use maxSubscriptionsPerTopic": (TOPIC + "/maxSubscriptions",),
    "the name is that of a namespace: use maxUnackedMessagesOnConsumer": (
        TOPIC + "/maxUnackedMessagesPerConsumer",
    ),
    "the name is that of a namespace: use maxUnackedMessagesOnSubscription": (
        TOPIC + "/maxUnackedMessagesPerSubscription",
    ),
    "several topics at once are not supported: use the path permissions/{role} of each topic": (
        "/admin/v2/namespaces/grantPermissionsOnTopics",
        "/admin/v2/namespaces/revokePermissionsOnTopics",
    ),
    "properties as labels of metrics are not supported: metrics have cluster, namespace and topic": (
        NAMESPACE + "/allowedTopicPropertyKeysForMetrics",
    ),
    "topics that split themselves are not supported: use a partitioned topic, which can grow": (
        "/admin/v2/scalable/…",
        "/admin/v2/segments/…",
    ),
    "the path needs stored messages or policies, and a non-persistent topic has none": (
        "/admin/v2/non-persistent/…",
    ),
    "an index of messages is not supported: messages are found by id and by time": (
        TOPIC + "/getMessageIdByIndex",
    ),
    "the interval of deduplication snapshots is not applicable: numbers are in the journal at once": (
        NAMESPACE + "/deduplicationSnapshotInterval",
        TOPIC + "/deduplicationSnapshotInterval",
    ),
    "a duty to encrypt is not supported: clients encrypt, and the broker cannot check keys": (
        NAMESPACE + "/encryptionRequired",
    ),
    "filters of entries are not supported: filter in the consumer": (
        NAMESPACE + "/entryFilters",
        TOPIC + "/entryFilters",
    ),
    "offloading to other storage is not supported: `holdfast pipeline archive` writes Parquet files": (
        NAMESPACE + "/offloadPolicies",
        NAMESPACE + "/offloadThreshold",
        NAMESPACE + "/offloadThresholdInSeconds",
        NAMESPACE + "/offloadDeletionLagMs",
        NAMESPACE + "/removeOffloadPolicies",
        NAMESPACE + "/scanOffloadedLedgers",
        TOPIC + "/offloadPolicies",
        TOPIC + "/offload",
    ),
    f"replication between clusters {_ONE_CLUSTER}": (
        NAMESPACE + "/replicatorDispatchRate",
        NAMESPACE + "/migration",
        TOPIC + "/replicatorDispatchRate",
        TOPIC + "/migration",
        TOPIC + "/shadowTopics",
        SUBSCRIPTION + "/replicatedSubscriptionStatus",
        CLUSTER + "/peers",
        CLUSTER + "/migrate",
        CLUSTER + "/policies",
        CLUSTER + "/policies/…",
    ),
    f"to administer clusters {_ONE_CLUSTER}": (CLUSTER,),
    f"persistence as a policy {_NO_BOOKKEEPER}": (
        NAMESPACE + "/persistence",
        NAMESPACE + "/persistence/bookieAffinity",
        TOPIC + "/persistence",
        "/admin/v2/bookies/…",
        "/admin/v2/broker-stats/bookieops",
        "/admin/v2/broker-stats/pending-bookie-ops-stats",
    ),
    "the figures of a Java machine are not applicable: /metrics has processor and memory": (
        "/admin/v2/broker-stats/mbeans",
        "/admin/v2/broker-stats/allocator-stats/{allocator}",
    ),
    f"the internal configuration {_NO_ZOOKEEPER}": ("/admin/v2/brokers/internal-configuration",),
    f"a migration of metadata {_NO_ZOOKEEPER}": ("/admin/v2/metadata/migration/…",),
    f"a list of owned bundles {_NO_BUNDLES}; see cluster/queues": (
        "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces",
    ),
    f"a bundle {_NO_BUNDLES}": (
        NAMESPACE + "/{bundle}/split",
        NAMESPACE + "/{bundle}/topicHashPositions",
        NAMESPACE + "/0x{range}",
        NAMESPACE + "/antiAffinity",
        "/admin/v2/namespaces/{cluster}/antiAffinity/{group}",
        "/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}/bundle",
        "/admin/v2/resource-quotas",
        "/admin/v2/resource-quotas/…",
    ),
    "to isolate namespaces is not supported: every member serves every topic": (
        CLUSTER + "/namespaceIsolationPolicies",
        CLUSTER + "/namespaceIsolationPolicies/…",
        CLUSTER + "/failureDomains",
        CLUSTER + "/failureDomains/{domain}",
    ),
    "to stop a broker by HTTP is not supported: send SIGTERM, or use `holdfast cluster leave`": (
        "/admin/v2/brokers/shutdown",
    ),
    "resource groups are not supported: limits.* of the server limit clients": (
        NAMESPACE + "/resourcegroup",
        NAMESPACE + "/resourcegroup/{group}",
        "/admin/v2/resourcegroups",
        "/admin/v2/resourcegroups/{group}",
    ),
    "a pause of deliveries until acknowledgements are stored is not applicable: they are stored at once": (
        NAMESPACE + "/dispatcherPauseOnAckStatePersistent",
        TOPIC + "/dispatcherPauseOnAckStatePersistent",
    ),
    "transactions are not supported": ("/admin/v3/transactions/…",),
    f"functions {_NO_FUNCTIONS}": ("/admin/v3/functions", "/admin/v3/functions/…", "/admin/functions/…"),
    f"sources and sinks of Pulsar IO {_NO_FUNCTIONS}": tuple(
        f"/admin/v3/{name}{rest}" for name in ("sources", "sinks", "source", "sink") for rest in ("", "/…")
    ),
    f"function workers {_NO_FUNCTIONS}": ("/admin/v2/worker/…", "/admin/v2/worker-stats/…"),
    f"packages {_NO_FUNCTIONS}": ("/admin/v3/packages/…",),
    "WebSocket is not supported: use a client of the Pulsar protocol": ("/ws/…",),
    "the figures of a proxy are not applicable: clients connect to the server, or through any TCP proxy": (
        "/proxy-stats/…",
        "/admin/v2/proxy-stats/…",
    ),
    f"a list of resources of bundles {_NO_BUNDLES}": (
        "/admin/v2/broker-stats/broker-resource-availability/{tenant}/{namespace}",
    ),
    "messages over HTTP are not supported: use a client, or `holdfast topic produce --server URL`": (
        "/topics/…",
    ),
    "version 1 of this interface is not supported: use /admin/v2": (
        *(f"/admin/{name}/…" for name in ("persistent", "non-persistent", "namespaces", "properties")),
        *(f"/admin/{name}/…" for name in ("brokers", "broker-stats", "clusters", "schemas")),
        "/admin/clusters",
    ),
}
"""Templates of paths by the reason; `…` stands for anything."""


def missing_feature(method: str, path: str) -> str | None:
    """Return why a path of Pulsar is not served; None: Pulsar lacks it, too.

    Example:
        >>> missing_feature("GET", "/admin/v2/bookies/all")[:40]
        'GET /admin/v2/bookies/all: persistence a'
        >>> missing_feature("GET", "/admin/v2/namespace/public")
    """
    for pattern, reason in _PATTERNS:
        if pattern.fullmatch(path):
            return f"{method} {path[:200]}: {reason}"
    return None


def templates() -> Iterator[tuple[str, str]]:
    """Yield all templates with their reasons."""
    for reason, paths in MISSING.items():
        for path in paths:
            yield path, reason


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"({\w+}|…)", template)
    names = {each: ".*" if each == "…" else "[^/]+" for each in parts[1::2]}
    return re.compile("".join(names.get(each, re.escape(each)) for each in parts), re.DOTALL)


_PATTERNS = [(_pattern(path), reason) for path, reason in templates()]
