"""The broker: topics, subscriptions and dispatch, changed by one ordered stream of events.

Promises upward (the network server, Spark, programs): a confirmed message is never lost. Every message of a
subscription has one owner at a time. A reported reset holds. Needs from below: a `Group` for the one order of
events, and a `Store` that makes them durable. `Clock`, `Randomness` and `Disk` are interfaces, so that tests
can simulate them.

This package is the layer's face: layers above import from here alone, and call `Broker` and what it returns
(`tests/kit/doors.py` checks it).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.broker.api.admin import Admin
    from holdfast.broker.api.blocking import (
        BlockingAdmin,
        BlockingBroker,
        BlockingConsumer,
        BlockingProducer,
        BlockingReader,
        BlockingStage,
    )
    from holdfast.broker.api.compaction_admin import CompactionStats
    from holdfast.broker.api.consumer import Consumer, Reader, Start
    from holdfast.broker.api.producer import MESSAGE_BYTES, RUN_BYTES, Producer
    from holdfast.broker.api.sessions import Sessions
    from holdfast.broker.api.stage import Stage, StageReceipt, Stages
    from holdfast.broker.broker import Broker
    from holdfast.broker.compaction.reading import CompactedReading, messages_at
    from holdfast.broker.dispatch.dispatcher import Dispatcher
    from holdfast.broker.dispatch.pacing import Bucket
    from holdfast.broker.dispatch.types import ConsumerStats, DispatcherStats, DrainingHash, KeyStats
    from holdfast.broker.events.notices import (
        NameChanged,
        Notice,
        PartitionsChanged,
        PermissionsChanged,
        PoliciesChanged,
        ProducerGone,
        TopicAdded,
        TopicClosed,
        TopicGone,
        Unloaded,
    )
    from holdfast.broker.events.outcomes import ProducerOpened, Published
    from holdfast.broker.events.stages import stage_digest
    from holdfast.broker.key_shared import KeyShared
    from holdfast.broker.limit_options import QuotaAction
    from holdfast.broker.member_state import MemberInfo, Setting
    from holdfast.broker.membership import Membership, owner_of
    from holdfast.broker.options import COUNT_MOST, SECONDS_MOST, VISITING, BrokerOptions
    from holdfast.broker.partitioned import PartitionedTopics
    from holdfast.broker.partitions import PARTITIONS_MAX, AutoCreation
    from holdfast.broker.permissions import PermittedAction
    from holdfast.broker.policy import PolicyValue
    from holdfast.broker.quota import Quota, properties_size
    from holdfast.broker.state import (
        STRATEGIES,
        Access,
        Policies,
        Strategy,
        SubscriptionState,
        SubscriptionType,
    )
    from holdfast.broker.subscribing import require_type
    from holdfast.broker.telemetry.metrics import HELP, Page, Sample, label
    from holdfast.broker.telemetry.stats import (
        BrokerStats,
        ExchangeStats,
        LedgerStats,
        SubscriptionStats,
        TopicStats,
    )
    from holdfast.broker.telemetry.traffic import Counts, Handed
    from holdfast.broker.topic import Topic
    from holdfast.broker.topic_policies import LIMIT_POLICIES

_MODULES = {
    "api.admin": "Admin",
    "api.blocking": "BlockingAdmin BlockingBroker BlockingConsumer BlockingProducer BlockingReader "
    "BlockingStage",
    "api.compaction_admin": "CompactionStats",
    "api.consumer": "Consumer Reader Start",
    "api.producer": "MESSAGE_BYTES RUN_BYTES Producer",
    "api.sessions": "Sessions",
    "api.stage": "Stage StageReceipt Stages",
    "broker": "Broker",
    "compaction.reading": "CompactedReading messages_at",
    "dispatch.dispatcher": "Dispatcher",
    "dispatch.types": "ConsumerStats DispatcherStats DrainingHash KeyStats",
    "events.notices": "NameChanged Notice PartitionsChanged PermissionsChanged PoliciesChanged ProducerGone "
    "TopicAdded TopicClosed TopicGone Unloaded",
    "events.outcomes": "ProducerOpened Published",
    "events.stages": "stage_digest",
    "member_state": "MemberInfo Setting",
    "membership": "Membership owner_of",
    "options": "COUNT_MOST SECONDS_MOST VISITING BrokerOptions",
    "partitioned": "PartitionedTopics",
    "partitions": "PARTITIONS_MAX AutoCreation",
    "permissions": "PermittedAction",
    "policy": "PolicyValue",
    "quota": "Quota properties_size",
    "key_shared": "KeyShared",
    "dispatch.pacing": "Bucket",
    "limit_options": "QuotaAction",
    "topic_policies": "LIMIT_POLICIES",
    "state": "STRATEGIES Access Policies Strategy SubscriptionState SubscriptionType",
    "subscribing": "require_type",
    "telemetry.metrics": "HELP Page Sample label",
    "telemetry.stats": "BrokerStats ExchangeStats LedgerStats SubscriptionStats TopicStats",
    "telemetry.traffic": "Counts Handed",
    "topic": "Topic",
}

if not TYPE_CHECKING:  # else a type checker would take any name for one of this module

    def __getattr__(name: str) -> object:
        """Import the module of a name on first use; others are not loaded."""
        import importlib

        for module, names in _MODULES.items():
            if name in names.split():
                return getattr(importlib.import_module(f"holdfast.broker.{module}"), name)
        raise AttributeError(f"module 'holdfast.broker' has no attribute {name!r}")


__all__ = [
    "COUNT_MOST",
    "HELP",
    "LIMIT_POLICIES",
    "MESSAGE_BYTES",
    "PARTITIONS_MAX",
    "RUN_BYTES",
    "SECONDS_MOST",
    "STRATEGIES",
    "VISITING",
    "Access",
    "Admin",
    "AutoCreation",
    "BlockingAdmin",
    "BlockingBroker",
    "BlockingConsumer",
    "BlockingProducer",
    "BlockingReader",
    "BlockingStage",
    "Broker",
    "BrokerOptions",
    "BrokerStats",
    "Bucket",
    "CompactedReading",
    "CompactionStats",
    "Consumer",
    "ConsumerStats",
    "Counts",
    "Dispatcher",
    "DispatcherStats",
    "DrainingHash",
    "ExchangeStats",
    "Handed",
    "KeyShared",
    "KeyStats",
    "LedgerStats",
    "MemberInfo",
    "Membership",
    "NameChanged",
    "Notice",
    "Page",
    "PartitionedTopics",
    "PartitionsChanged",
    "PermissionsChanged",
    "PermittedAction",
    "Policies",
    "PoliciesChanged",
    "PolicyValue",
    "Producer",
    "ProducerGone",
    "ProducerOpened",
    "Published",
    "Quota",
    "QuotaAction",
    "Reader",
    "Sample",
    "Sessions",
    "Setting",
    "Stage",
    "StageReceipt",
    "Stages",
    "Start",
    "Strategy",
    "SubscriptionState",
    "SubscriptionStats",
    "SubscriptionType",
    "Topic",
    "TopicAdded",
    "TopicClosed",
    "TopicGone",
    "TopicStats",
    "Unloaded",
    "label",
    "messages_at",
    "owner_of",
    "properties_size",
    "require_type",
    "stage_digest",
]
