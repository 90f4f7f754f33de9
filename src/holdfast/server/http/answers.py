"""JSON of requests and answers, with the names of Pulsar's tools.

Fields without a value here are left out: those tools take the default of a missing field.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from holdfast.ids import MessageId


class _Camel(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=False):
    """Field names as Java writes them."""


# -- positions -----------------------------------------------------------------------------------------


class Position(_Camel, kw_only=True):
    """The position of an entry. Ledger −1 is before all entries, 9223372036854775807 behind them."""

    ledger_id: int
    entry_id: int
    partition_index: int = -1

    @classmethod
    def of(cls, id: MessageId) -> Position:  # noqa: A002  # as everywhere
        return cls(ledger_id=id.ledger, entry_id=id.entry)


class CursorPosition(_Camel, kw_only=True):
    """The target position of a cursor."""

    ledger_id: int
    entry_id: int
    partition_index: int = -1
    batch_index: int = -1
    """Ignored: a batch is delivered whole."""
    is_excluded: bool = False
    """Start behind this position."""
    excluded: bool = False
    """The same: Pulsar's tools write it so."""
    properties: dict[str, str] | None = None
    """Those of a new subscription."""


Target = CursorPosition | Literal["earliest", "latest"] | None
"""A position, `earliest` or `latest`; null: see the route."""


class OffloadAnswer(_Camel, kw_only=True):
    """The state of the last offload; none has run."""

    status: Literal["NOT_RUN"] = "NOT_RUN"
    last_error: str = ""


class Partitions(_Camel, kw_only=True):
    partitions: int = 0
    deleted: bool = False


class FlightAnswer(_Camel, kw_only=True):
    """The address for reads of whole topics (Arrow Flight), and the broker's binary addresses."""

    url: str
    """`grpc://host:port`, or `grpc+tls://host:port` for requests over HTTPS."""
    broker_url: str
    broker_url_tls: str


# -- stats ---------------------------------------------------------------------------------------------


class Rates(_Camel, kw_only=True):
    """Rates over the last 30 to 60 seconds."""

    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0


class DrainingAnswer(_Camel, kw_only=True):
    """A hash that waits until a consumer has acknowledged its entries."""

    hash: int
    unack_msgs: int
    """Entries."""
    blocked_attempts: int
    waiting_consumer: str = ""
    """The consumer that waits for it. (Ours.)"""
    held_at: str = ""
    """The other member whose consumers hold the entries. (Ours.)"""


class ConsumerAnswer(Rates, kw_only=True):
    """A consumer."""

    consumer_name: str = ""
    available_permits: int = 0
    unacked_messages: int = 0
    blocked_consumer_on_unacked_msgs: bool = False
    priority_level: int = 0
    address: str | None = None
    connected_since: str | None = None
    client_version: str | None = None
    metadata: dict[str, str] = {}
    key_hash_ranges: list[str] | None = None
    """Of a Key_Shared consumer: its hashes, as "[first, last]". At most 1,000 are listed."""
    key_hash_range_arrays: list[tuple[int, int]] | None = None
    draining_hashes_count: int = 0
    draining_hashes_cleared_total: int = 0
    draining_hashes_unacked_messages: int = 0
    draining_hashes: list[DrainingAnswer] = []
    """At most 1,000."""


class SubscriptionAnswer(Rates, kw_only=True):
    """A subscription."""

    msg_backlog: int = 0
    backlog_size: int = 0
    msg_backlog_no_delayed: int = 0
    msg_delayed: int = 0
    """Entries that wait for their delivery time, or after a negative acknowledgement."""
    delayed_message_index_size_in_bytes: int = 0
    """Memory of the entries that wait for their delivery time."""
    msg_in_replay: int = 0
    earliest_msg_publish_time_in_backlog: int = 0
    """Milliseconds since 1970; 0: not requested, or the backlog is empty."""
    unacked_messages: int = 0
    blocked_subscription_on_unacked_msgs: bool = False
    type: str = ""
    """Exclusive, Failover, Shared or Key_Shared; empty: no consumer is attached."""
    active_consumer_name: str | None = None
    consumers: list[ConsumerAnswer] = []
    is_durable: bool = True
    durable: bool = True
    is_replicated: bool = False
    replicated: bool = False
    allow_out_of_order_delivery: bool = False
    key_shared_mode: str | None = None
    draining_hashes_count: int = 0
    draining_hashes_cleared_total: int = 0
    draining_hashes_unacked_messages: int = 0
    draining_elsewhere: list[DrainingAnswer] = []
    """Hashes that drain at other members; at most 1,000. The counts have them, too. (Ours.)"""
    non_contiguous_deleted_messages_ranges: int = 0
    subscription_properties: dict[str, str] = {}
    diagnosis: str = ""
    """Why no message is delivered, if none is. (Ours.)"""


class PublisherAnswer(_Camel, kw_only=True):
    """A producer."""

    access_mode: str = "Shared"
    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    average_msg_size: float = 0.0
    producer_id: int = 0
    producer_name: str = ""
    address: str | None = None
    connected_since: str | None = None
    client_version: str | None = None
    metadata: dict[str, str] = {}


class CompactionSummary(_Camel, kw_only=True):
    """The last compaction of a topic; times in milliseconds since 1970, 0: never."""

    last_compaction_removed_event_count: int = 0
    """Messages that were left out."""
    last_compaction_succeed_timestamp: int = 0
    last_compaction_failed_timestamp: int = 0
    last_compaction_duration_time_in_mills: int = 0


class TopicAnswer(Rates, kw_only=True):
    """A topic."""

    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    bytes_in_counter: int = 0
    msg_in_counter: int = 0
    average_msg_size: float = 0.0
    storage_size: int = 0
    backlog_size: int = 0
    publishers: list[PublisherAnswer] = []
    waiting_publishers: int = 0
    subscriptions: dict[str, SubscriptionAnswer] = {}
    replication: dict[str, str] = {}
    deduplication_status: Literal["Enabled", "Disabled"] = "Disabled"
    non_contiguous_deleted_messages_ranges: int = 0
    topic_creation_time_stamp: int = 0
    last_publish_time_stamp: int = 0
    backlog_quota_limit_size: int = -1
    """Bytes; −1: the topic has no such quota."""
    backlog_quota_limit_time: int = -1
    """Seconds, likewise."""
    compaction: CompactionSummary = msgspec.field(default_factory=CompactionSummary)
    oldest_backlog_message_age_seconds: int = -1
    """At the last look, of a topic with a quota by age; −1: not known."""
    publish_rate_limited_times: int = 0
    backlog_exceeded: bool = False
    """A backlog quota stops its producers. (Ours.)"""
    backlog_exceeded_by: dict[str, str] = {}
    """The quotas that do, destination_storage and message_age, with their actions. (Ours.)"""
    dropped_entries: int = 0
    """Entries that a ring or last-value topic dropped from backlogs. (Ours.)"""
    alternate: str | None = None
    """The exchange to which rejected messages go. (Ours.)"""
    unreplicated: bool = False
    """One member of a cluster alone has it. (Ours.)"""


class PartitionsBody(_Camel, kw_only=True):
    """A new partitioned topic."""

    partitions: int
    properties: dict[str, str] = {}


class PartitionsStatsAnswer(TopicAnswer, kw_only=True):
    """A partitioned topic: the sums, and each partition."""

    metadata: Partitions = msgspec.field(default_factory=Partitions)
    partitions: dict[str, TopicAnswer] = {}


class PassingSubscriptionAnswer(SubscriptionAnswer, kw_only=True):
    """A subscription of a non-persistent topic."""

    msg_drop_rate: float = 0.0
    """Messages per second for which no consumer had permits."""
    msg_drop_counter: int = 0
    """The same since its first consumer. (Ours.)"""


class PassingPublisherAnswer(PublisherAnswer, kw_only=True):
    """A producer of a non-persistent topic."""

    msg_drop_rate: float = 0.0


class PassingTopicAnswer(TopicAnswer, kw_only=True):
    """A non-persistent topic."""

    msg_drop_rate: float = 0.0
    msg_drop_counter: int = 0
    """Dropped messages, once for each subscription. (Ours.)"""
    publishers: list[PassingPublisherAnswer] = []  # type: ignore[assignment]
    subscriptions: dict[str, PassingSubscriptionAnswer] = {}  # type: ignore[assignment]


class PassingPartitionsAnswer(PassingTopicAnswer, kw_only=True):
    """A partitioned non-persistent topic: the sums, and each partition that is served here."""

    metadata: Partitions = msgspec.field(default_factory=Partitions)
    partitions: dict[str, PassingTopicAnswer] = {}


class LedgerAnswer(_Camel, kw_only=True):
    """A ledger."""

    ledger_id: int
    entries: int
    size: int
    offloaded: bool = False
    under_replicated: bool = False


class CursorAnswer(_Camel, kw_only=True):
    """The internal state of a cursor."""

    mark_delete_position: str
    read_position: str
    waiting_read_op: bool
    pending_read_ops: int
    messages_consumed_counter: int
    cursor_ledger: int = -1
    cursor_ledger_last_entry: int = -1
    individually_deleted_messages: str
    state: str = "Open"
    active: bool = False
    number_of_entries_since_first_not_acked_message: int
    total_non_contiguous_deleted_messages_range: int
    subscription_have_pending_read: bool
    subscription_have_pending_replay_read: bool
    properties: dict[str, int] = {}
    revision_num: int
    """Resets and rewinds of the cursor."""
    is_under_revision: int
    """1 during a reset."""
    reset_number: int
    """Resets of the cursor, over all restarts. (Ours.)"""
    partly_acknowledged: int
    """Batches of which some messages are acknowledged. (Ours.)"""
    owner: str
    """The member of the cluster that dispatches the subscription; empty: none. (Ours.)"""
    owner_epoch: int
    """Rises with each change of the owner. (Ours.)"""


class InternalAnswer(_Camel, kw_only=True):
    """The internal state of a topic."""

    entries_added_counter: int
    number_of_entries: int
    total_size: int
    current_ledger_entries: int
    current_ledger_size: int
    last_ledger_created_timestamp: str | None
    waiting_cursors_count: int
    pending_add_entries_count: int
    last_confirmed_entry: str
    state: str
    ledgers: list[LedgerAnswer]
    cursors: dict[str, CursorAnswer]
    schema_ledgers: list[LedgerAnswer] = []
    compacted_ledger: LedgerAnswer


class PartitionsInternalAnswer(_Camel, kw_only=True):
    """The internal state of all partitions."""

    metadata: Partitions
    partitions: dict[str, InternalAnswer]


class InfoPosition(_Camel, kw_only=True):
    ledger_id: int
    entry_id: int


class InfoRange(_Camel, kw_only=True):
    lower_endpoint: InfoPosition
    upper_endpoint: InfoPosition


class InfoLedger(_Camel, kw_only=True):
    ledger_id: int
    entries: int | None = None
    size: int | None = None
    timestamp: int | None = None
    is_offloaded: bool = False


class InfoCursor(_Camel, kw_only=True):
    version: int = 0
    cursors_ledger_id: int = -1
    mark_delete: InfoPosition
    individual_deleted_messages: list[InfoRange] = []


class InfoAnswer(_Camel, kw_only=True):
    """The stored metadata of a topic."""

    version: int = 0
    creation_date: str
    modification_date: str
    ledgers: list[InfoLedger]
    terminated_position: InfoPosition | None = None
    cursors: dict[str, InfoCursor]


class BacklogLedger(_Camel, kw_only=True):
    entries: int
    timestamp: int
    size: int
    ledger_id: int


class BacklogCursor(_Camel, kw_only=True):
    cursor_backlog: int
    cursor_ledger_id: int = -1


class BacklogAnswer(_Camel, kw_only=True):
    """The stored entries, and the backlog of each subscription."""

    storage_size: int
    total_messages: int
    """Entries, as Pulsar counts them here."""
    message_backlog: int
    broker_name: str
    topic_name: str
    data_ledger_details: list[BacklogLedger]
    cursor_details: dict[str, BacklogCursor]
    stat_generated_at: int


class AnalysisAnswer(_Camel, kw_only=True):
    """The counted part of a subscription's backlog."""

    entries: int
    messages: int
    filter_rejected_entries: int = 0
    filter_accepted_entries: int
    filter_rescheduled_entries: int = 0
    filter_rejected_messages: int = 0
    filter_accepted_messages: int
    filter_rescheduled_messages: int = 0
    aborted: bool
    """The backlog is longer than the counted part."""


# -- tenants, namespaces, policies ---------------------------------------------------------------------

Roles = Annotated[list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=1000)]


class TenantBody(_Camel, kw_only=True, forbid_unknown_fields=True):
    """A tenant. An empty list of clusters means all clusters."""

    admin_roles: Roles = []
    allowed_clusters: Roles = []


class PolicyBody(_Camel, kw_only=True, forbid_unknown_fields=True):
    """A policy as JSON.

    An unknown field is refused: a limit with a misspelt name would be none.
    """


class Ring(PolicyBody, kw_only=True):
    """The limits of a ring topic; null: no limit."""

    entries: int | None = None
    bytes: int | None = None


class Retention(PolicyBody, kw_only=True):
    """Retention of acknowledged messages, while both limits hold; −1: unlimited, both 0: none."""

    retention_time_in_minutes: Annotated[int, msgspec.Meta(ge=-1, le=10_000_000)]
    retention_size_in_mb: Annotated[int, msgspec.Meta(ge=-1, le=1 << 40)] = msgspec.field(
        name="retentionSizeInMB"
    )


class DelayedDelivery(PolicyBody, kw_only=True):
    """Delivery times of messages; null: the value from above applies."""

    active: bool | None = None
    """Whether Shared and Key_Shared subscriptions hold messages back until their delivery time."""
    tick_time: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] | None = None
    """Milliseconds by which a message may come late."""
    max_delivery_delay_in_millis: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000_000)] | None = None
    """The longest delay; a message with a longer one is refused. 0: no limit."""


Seconds = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
"""0: forever."""


Minutes = Annotated[int, msgspec.Meta(ge=0, le=16_000_000)]
"""0: never."""


class InactiveTopics(PolicyBody, kw_only=True):
    """When an unused topic is deleted."""

    inactive_topic_delete_mode: Literal[
        "delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"
    ] = "delete_when_no_subscriptions"
    """Whether a topic with subscriptions counts as unused, if none has a backlog or a consumer."""
    max_inactive_duration_seconds: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 0
    delete_while_inactive: bool = False


class AutoSubscriptionCreation(PolicyBody, kw_only=True):
    """Whether consumers create missing subscriptions."""

    allow_auto_subscription_creation: bool


SubTypes = list[Literal["Exclusive", "Failover", "Shared", "Key_Shared"]]
"""Types of subscriptions."""


class Bundles(_Camel, kw_only=True):
    """The parts of a namespace, which Pulsar divides among brokers; here it has one."""

    boundaries: list[str] = msgspec.field(default_factory=lambda: ["0x00000000", "0xffffffff"])
    num_bundles: int = 1


class AutoTopicCreation(PolicyBody, kw_only=True):
    """How missing topics are created in a namespace."""

    allow_auto_topic_creation: bool = True
    topic_type: Literal["partitioned", "non-partitioned"] = "non-partitioned"
    default_num_partitions: int | None = None
    """Of partitioned topics."""


# -- the broker ----------------------------------------------------------------------------------------


class ClusterAnswer(_Camel, kw_only=True):
    """The addresses of a cluster."""

    service_url: str
    service_url_tls: str
    broker_service_url: str
    broker_service_url_tls: str


class LeaderAnswer(_Camel, kw_only=True):
    broker_id: str
    service_url: str


class LookupAnswer(_Camel, kw_only=True):
    """The addresses of a topic's broker."""

    broker_url: str
    broker_url_tls: str
    http_url: str
    http_url_tls: str
    native_url: str


# -- schemas -------------------------------------------------------------------------------------------


class SchemaBody(_Camel, kw_only=True):
    """A schema in a request."""

    type: str
    schema: str = ""
    """Its definition; for KEY_VALUE `{"key": …, "value": …}`."""
    properties: dict[str, str] = {}


class SchemaAnswer(_Camel, kw_only=True):
    """A version of a topic's schema."""

    version: int
    type: str
    timestamp: int = 0
    data: str = ""
    properties: dict[str, str] = {}


class SchemaAnswers(_Camel, kw_only=True):
    get_schema_responses: list[SchemaAnswer]


class _Version(_Camel, kw_only=True):
    version: int


class VersionAnswer(_Camel, kw_only=True):
    """A version, as Pulsar nests it."""

    version: _Version

    @classmethod
    def of(cls, version: int) -> VersionAnswer:
        return cls(version=_Version(version=version))


class Compatible(_Camel, kw_only=True):
    """Whether a schema could follow those of a topic."""

    compatibility: bool
    schema_compatibility_strategy: str
    reason: str = ""
    """Why not. (Ours.)"""
