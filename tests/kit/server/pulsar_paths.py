"""Requests that Pulsar's administration client sends: each is served, or refused with a reason.

`NS` stands for a namespace, `T` for the topics of it, `X` for a topic. Clients that look up topics or publish
by HTTP are among them.
"""

from __future__ import annotations

from collections.abc import Iterator

SHORT = {
    "NS": "namespaces/public/default",
    "T": "persistent/public/default",
    "NON": "non-persistent/public/default",
    "S": "schemas/public/default",
}

BROKERS = """
GET brokers
GET brokers/c
GET brokers/leaderBroker
GET brokers/c/b/ownedNamespaces
GET brokers/configuration
GET brokers/configuration/values
GET brokers/configuration/runtime
DELETE brokers/configuration/name
POST brokers/configuration/name/value
GET brokers/internal-configuration
GET brokers/backlog-quota-check
GET brokers/backlogQuotaCheck
GET brokers/health
GET brokers/ready
GET brokers/version
POST metadata/migration/start
GET metadata/migration/status
POST brokers/shutdown
GET broker-stats/metrics
GET broker-stats/mbeans
GET broker-stats/topics
GET broker-stats/destinations
GET broker-stats/load-report
GET broker-stats/allocator-stats/default
GET broker-stats/bookieops
GET broker-stats/pending-bookie-ops-stats
GET broker-stats/broker-resource-availability/public/default
GET bookies/all
GET bookies/racks-info
GET,POST,DELETE bookies/racks-info/b
GET,POST resource-quotas
GET,POST,DELETE resource-quotas/public/default/0x00000000_0xffffffff
GET resourcegroups
GET,PUT,DELETE resourcegroups/g
GET clusters
GET,PUT,POST,DELETE clusters/c
GET,POST clusters/c/peers
GET,POST clusters/c/migrate
GET,POST clusters/c/policies/migrate
GET clusters/c/namespaceIsolationPolicies
GET,POST,DELETE clusters/c/namespaceIsolationPolicies/p
GET clusters/c/namespaceIsolationPolicies/brokers
GET clusters/c/namespaceIsolationPolicies/brokers/b
GET clusters/c/failureDomains
GET,POST,DELETE clusters/c/failureDomains/d
GET tenants
GET,PUT,POST,DELETE tenants/t
"""

NAMESPACES = """
GET namespaces/public
GET namespaces/c/antiAffinity/g
POST namespaces/grantPermissionsOnTopics
POST namespaces/revokePermissionsOnTopics
GET,PUT,DELETE NS
GET NS/topics
GET NS/bundles
GET NS/permissions
POST,DELETE NS/permissions/r
GET NS/permissions/subscription
POST NS/permissions/subscription/s
DELETE NS/permissions/s/r
GET,POST NS/subscriptionAuthMode
GET,POST NS/replication
GET,POST NS/allowedClusters
GET,POST,DELETE NS/messageTTL
GET,POST,DELETE NS/subscriptionExpirationTime
GET,POST,DELETE NS/retention
GET,POST,DELETE NS/autoTopicCreation
GET,POST,DELETE NS/autoSubscriptionCreation
GET,POST,DELETE NS/subscriptionTypesEnabled
GET NS/backlogQuotaMap
POST,DELETE NS/backlogQuota
GET,POST,DELETE NS/persistence
GET,POST,DELETE NS/persistence/bookieAffinity
GET,POST,DELETE NS/publishRate
GET,POST,DELETE NS/dispatchRate
GET,POST,DELETE NS/subscriptionDispatchRate
GET,POST,DELETE NS/subscribeRate
GET,POST,DELETE NS/replicatorDispatchRate
GET,POST,DELETE NS/delayedDelivery
GET,POST,DELETE NS/inactiveTopicPolicies
GET,POST,DELETE NS/deduplication
GET,POST,DELETE NS/deduplicationSnapshotInterval
GET,POST,DELETE NS/maxProducersPerTopic
GET,POST,DELETE NS/maxConsumersPerTopic
GET,POST,DELETE NS/maxConsumersPerSubscription
GET,POST,DELETE NS/maxUnackedMessagesPerConsumer
GET,POST,DELETE NS/maxUnackedMessagesPerSubscription
GET,POST,DELETE NS/maxSubscriptionsPerTopic
GET,POST,DELETE NS/maxTopicsPerNamespace
GET,POST NS/encryptionRequired
GET,POST,DELETE NS/antiAffinity
GET,PUT,DELETE NS/compactionThreshold
GET,PUT NS/offloadThreshold
GET,PUT NS/offloadThresholdInSeconds
GET,PUT,DELETE NS/offloadDeletionLagMs
GET,POST NS/offloadPolicies
DELETE NS/removeOffloadPolicies
GET NS/scanOffloadedLedgers
GET,POST,DELETE NS/allowedTopicPropertyKeysForMetrics
GET,PUT NS/schemaAutoUpdateCompatibilityStrategy
GET,PUT NS/schemaCompatibilityStrategy
GET,POST NS/schemaValidationEnforced
GET,POST NS/isAllowAutoUpdateSchema
GET,POST,DELETE NS/dispatcherPauseOnAckStatePersistent
GET,POST,DELETE NS/entryFilters
GET,DELETE NS/resourcegroup
POST NS/resourcegroup/g
POST NS/migration
GET,PUT,DELETE NS/properties
PUT NS/property/k/v
GET,DELETE NS/property/k
PUT NS/unload
PUT NS/0x00000000_0xffffffff/unload
PUT NS/0x00000000_0xffffffff/split
GET NS/0x00000000_0xffffffff/topicHashPositions
DELETE NS/0x00000000_0xffffffff
POST NS/clearBacklog
POST NS/clearBacklog/s
POST NS/0x00000000_0xffffffff/clearBacklog
POST NS/0x00000000_0xffffffff/clearBacklog/s
POST NS/unsubscribe/s
POST NS/0x00000000_0xffffffff/unsubscribe/s
"""

TOPICS = """
GET T
GET T/partitioned
PUT,DELETE T/X
GET,PUT,POST,DELETE T/X/partitions
POST T/X/createMissedPartitions
GET,PUT,DELETE T/X/properties
GET T/X/permissions
POST,DELETE T/X/permissions/r
PUT T/X/unload
GET T/X/stats
GET T/X/internalStats
GET T/X/internal-info
GET T/X/partitioned-stats
GET T/X/partitioned-internalStats
GET T/X/subscriptions
DELETE,PUT T/X/subscription/s
POST T/X/subscription/s/skip_all
POST T/X/subscription/s/skip/1
POST T/X/subscription/s/expireMessages
POST T/X/subscription/s/expireMessages/1
POST T/X/all_subscription/expireMessages/1
POST T/X/subscription/s/resetcursor
POST T/X/subscription/s/resetcursor/1
GET,PUT T/X/subscription/s/properties
POST T/X/subscription/s/analyzeBacklog
GET T/X/subscription/s/position/1
GET,POST T/X/subscription/s/replicatedSubscriptionStatus
GET T/X/examinemessage
GET T/X/ledger/1/entry/1
GET T/X/messageid/1
GET T/X/getMessageIdByIndex
GET T/X/backlog
PUT T/X/backlogSize
POST T/X/terminate
POST T/X/terminate/partitions
DELETE T/X/truncate
POST T/X/trim
GET,PUT T/X/compaction
GET,PUT T/X/offload
GET T/X/lastMessageId
GET,PUT,DELETE T/X/shadowTopics
POST T/X/migration
"""

TOPIC_POLICIES = """
GET,POST,DELETE T/X/retention
GET,POST,DELETE T/X/messageTTL
GET T/X/backlogQuotaMap
POST,DELETE T/X/backlogQuota
GET,POST,DELETE T/X/delayedDelivery
GET,POST,DELETE T/X/offloadPolicies
GET,POST,DELETE T/X/inactiveTopicPolicies
GET,POST,DELETE T/X/persistence
GET,POST,DELETE T/X/publishRate
GET,POST,DELETE T/X/dispatchRate
GET,POST,DELETE T/X/subscribeRate
GET,POST,DELETE T/X/subscriptionDispatchRate
GET,POST,DELETE T/X/s/dispatchRate
GET,POST,DELETE T/X/replicatorDispatchRate
GET,POST,DELETE T/X/compactionThreshold
GET,POST,DELETE T/X/maxProducers
GET,POST,DELETE T/X/maxConsumers
GET,POST,DELETE T/X/maxConsumersPerSubscription
GET,POST,DELETE T/X/maxSubscriptionsPerTopic
GET,POST,DELETE T/X/maxMessageSize
GET,POST,DELETE T/X/maxUnackedMessagesOnConsumer
GET,POST,DELETE T/X/maxUnackedMessagesOnSubscription
GET,POST,DELETE T/X/deduplicationEnabled
GET,POST,DELETE T/X/deduplicationSnapshotInterval
GET,POST,DELETE T/X/subscriptionTypesEnabled
GET,PUT,DELETE T/X/schemaCompatibilityStrategy
GET,POST T/X/schemaValidationEnforced
GET,POST,DELETE T/X/replication
GET,POST,DELETE T/X/entryFilters
GET,POST,DELETE T/X/autoSubscriptionCreation
GET,POST,DELETE T/X/dispatcherPauseOnAckStatePersistent
GET,POST,DELETE T/X/subscriptionExpirationTime
"""

OTHERS = """
GET NON
GET NON/partitioned
GET NON/X/stats
GET NON/X/internalStats
GET,PUT NON/X/partitions
GET NON/X/partitioned-stats
PUT NON/X/unload
PUT,DELETE NON/X
GET,POST,DELETE S/X/schema
GET S/X/schema/0
GET S/X/schemas
GET S/X/metadata
POST S/X/compatibility
POST S/X/version
GET /lookup/v2/topic/persistent/public/default/X
GET /lookup/v2/topic/persistent/public/default/X/bundle
GET /admin/schemas/p/c/n/X/schema
GET scalable/public/default
GET,PUT,DELETE scalable/public/default/X
POST scalable/public/default/X/split/1
PUT,DELETE segments/public/default/X/0
GET /admin/v3/transactions/coordinators
GET /admin/v3/transactions/slowTransactions/1
GET,POST,PUT,DELETE /admin/v3/functions/public/default/f
GET,POST,PUT,DELETE /admin/v3/sources/public/default/f
GET,POST,PUT,DELETE /admin/v3/sinks/public/default/f
GET /admin/v3/packages/function/public/default
GET worker/cluster
GET worker-stats/metrics
POST /topics/persistent/public/default/X
GET /ws/v2/producer/persistent/public/default/X
GET /ws/v2/consumer/persistent/public/default/X/s
GET /ws/v2/reader/persistent/public/default/X
GET /admin/v2/proxy-stats/connections
GET /proxy-stats/connections
GET /metrics
"""

FACTS = """
GET T/X/stats
GET T/X/internalStats
GET T/X/internal-info
GET T/X/subscriptions
GET T/X/lastMessageId
GET T/X/messageid/1
GET T/X/examinemessage
GET T/X/ledger/1/entry/1
GET T/X/backlog
GET T/X/compaction
GET T/X/offload
GET T/X/partitions
GET T/X/subscription/s/position/1
POST T/X/subscription/s/resetcursor
POST T/X/subscription/s/resetcursor/1
POST T/X/subscription/s/skip/1
POST T/X/subscription/s/skip_all
POST T/X/subscription/s/expireMessages
POST T/X/subscription/s/expireMessages/1
POST T/X/subscription/s/analyzeBacklog
POST T/X/terminate
POST T/X/trim
PUT T/X/subscription/s
PUT T/X/compaction
PUT T/X/offload
PUT T/X/unload
PUT T/X/partitions
DELETE T/X/subscription/s
DELETE T/X/partitions
DELETE T/X/truncate
DELETE T/X
"""
"""Those without which the ecosystem's tools do not work."""


def requests(*texts: str) -> Iterator[tuple[str, str]]:
    """Yield method and path of each request of these texts."""
    for line in "\n".join(texts).split("\n"):
        if line:
            methods, path = line.split(" ")
            first, _, rest = path.partition("/")
            full = path if path.startswith("/") else f"/admin/v2/{SHORT.get(first, first)}/{rest}".rstrip("/")
            for method in methods.split(","):
                yield method, full


ALL = (BROKERS, NAMESPACES, TOPICS, TOPIC_POLICIES, OTHERS, FACTS)
