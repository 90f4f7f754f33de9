"""The events that change a broker, one kind a file. What they promise each other stands in `base`.

Example:
    >>> from holdfast.broker.events import LedgerRoll, decode
    >>> event = LedgerRoll(topic=3, ledger=7)
    >>> decode(event.kind, event.version, event.encode()) == event
    True
"""

from holdfast.broker.events.ack import Ack
from holdfast.broker.events.advance import Advance
from holdfast.broker.events.base import Context, Event, decode, kinds
from holdfast.broker.events.consumer_join import ConsumerJoin
from holdfast.broker.events.consumer_leave import ConsumerLeave
from holdfast.broker.events.deduplication_expire import DeduplicationExpire
from holdfast.broker.events.deduplication_forget import DeduplicationForget
from holdfast.broker.events.fence import Fence
from holdfast.broker.events.ledger_roll import LedgerRoll
from holdfast.broker.events.ledger_trim import LedgerTrim
from holdfast.broker.events.namespace_create import NamespaceCreate
from holdfast.broker.events.namespace_delete import NamespaceDelete
from holdfast.broker.events.namespace_update import NamespaceUpdate
from holdfast.broker.events.notices import (
    ConsumerGone,
    LedgersGone,
    Notice,
    ProducerGone,
    ProducerReady,
    SubscriptionGone,
    SubscriptionMoved,
    TopicGone,
)
from holdfast.broker.events.outcomes import (
    Committed,
    ConsumerJoined,
    Done,
    ProducerOpened,
    Published,
    Revised,
    SchemaAdded,
    Staged,
    SubscriptionCreated,
    TopicCreated,
    TopicTerminated,
    Trimmed,
)
from holdfast.broker.events.policy_set import PolicySet
from holdfast.broker.events.producer_close import ProducerClose
from holdfast.broker.events.producer_open import ProducerOpen
from holdfast.broker.events.reset import Reset
from holdfast.broker.events.schema_add import SchemaAdd
from holdfast.broker.events.sink_commit import SinkCommit
from holdfast.broker.events.sink_forget import SinkForget
from holdfast.broker.events.stage_append import StageAppend, stage_digest
from holdfast.broker.events.stage_drop import StageDrop
from holdfast.broker.events.stage_open import StageOpen
from holdfast.broker.events.subscription_create import SubscriptionCreate
from holdfast.broker.events.subscription_delete import SubscriptionDelete
from holdfast.broker.events.tenant_create import TenantCreate
from holdfast.broker.events.tenant_delete import TenantDelete
from holdfast.broker.events.tenant_update import TenantUpdate
from holdfast.broker.events.time_repair import TimeRepair
from holdfast.broker.events.topic_create import TopicCreate
from holdfast.broker.events.topic_delete import TopicDelete
from holdfast.broker.events.topic_terminate import TopicTerminate
from holdfast.broker.events.topic_truncate import TopicTruncate
from holdfast.broker.events.view_change import ViewChange

__all__ = [
    "Ack",
    "Advance",
    "Committed",
    "ConsumerGone",
    "ConsumerJoin",
    "ConsumerJoined",
    "ConsumerLeave",
    "Context",
    "DeduplicationExpire",
    "DeduplicationForget",
    "Done",
    "Event",
    "Fence",
    "LedgerRoll",
    "LedgerTrim",
    "LedgersGone",
    "NamespaceCreate",
    "NamespaceDelete",
    "NamespaceUpdate",
    "Notice",
    "PolicySet",
    "ProducerClose",
    "ProducerGone",
    "ProducerOpen",
    "ProducerOpened",
    "ProducerReady",
    "Published",
    "Reset",
    "Revised",
    "SchemaAdd",
    "SchemaAdded",
    "SinkCommit",
    "SinkForget",
    "StageAppend",
    "StageDrop",
    "StageOpen",
    "Staged",
    "SubscriptionCreate",
    "SubscriptionCreated",
    "SubscriptionDelete",
    "SubscriptionGone",
    "SubscriptionMoved",
    "TenantCreate",
    "TenantDelete",
    "TenantUpdate",
    "TimeRepair",
    "TopicCreate",
    "TopicCreated",
    "TopicDelete",
    "TopicGone",
    "TopicTerminate",
    "TopicTerminated",
    "TopicTruncate",
    "Trimmed",
    "ViewChange",
    "decode",
    "kinds",
    "stage_digest",
]
