"""Define the events that change a broker, one file per noun. `base` has their rules.

Example:
    >>> from holdfast.broker.events import LedgerRoll, decode
    >>> event = LedgerRoll(topic=3, ledger=7)
    >>> decode(event.kind, event.version, event.encode()) == event
    True
"""

from holdfast.broker.events.base import Context, Event, decode, kinds
from holdfast.broker.events.cursors import Ack, Advance, Fence, Reset, SubscriptionCreate, SubscriptionDelete
from holdfast.broker.events.deduplication import DeduplicationExpire, DeduplicationForget
from holdfast.broker.events.ledgers import LedgerRoll, LedgerTrim
from holdfast.broker.events.namespaces import (
    NamespaceCreate,
    NamespaceDelete,
    NamespaceUpdate,
    TenantCreate,
    TenantDelete,
    TenantUpdate,
)
from holdfast.broker.events.notices import (
    ConsumerGone,
    LedgersGone,
    Notice,
    ProducerGone,
    ProducerReady,
    SubscriptionGone,
    SubscriptionMoved,
    TopicAdded,
    TopicClosed,
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
from holdfast.broker.events.schemas import SchemaAdd
from holdfast.broker.events.sessions import (
    ConsumerJoin,
    ConsumerLeave,
    ProducerClose,
    ProducerOpen,
    ViewChange,
)
from holdfast.broker.events.stages import (
    SinkCommit,
    SinkForget,
    StageAppend,
    StageDrop,
    StageOpen,
    require_stage,
    stage_digest,
)
from holdfast.broker.events.time_repair import TimeRepair
from holdfast.broker.events.topics import PolicySet, TopicCreate, TopicDelete, TopicTerminate, TopicTruncate

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
    "TopicAdded",
    "TopicClosed",
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
    "require_stage",
    "stage_digest",
]
