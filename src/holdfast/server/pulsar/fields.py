"""List every field of a client's commands: honoured, ignored, or refused, with words.

Promises upward: nothing differs in silence. A field whose feature is not here is refused before its command
begins, and a field that this program does not know is logged. Clients' defaults are never refused. Needs from
below: the messages of the protocol. docs/internals/protocol.md shows the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from holdfast.errors import Unsupported
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.logs import Log

LOG = Log("holdfast.wire")

COORDINATOR = "persistent://pulsar/system/transaction_coordinator_assign"
"""The topic that clients with transactions look up first."""

UNKNOWN_MAX = 100
"""Different unknown fields that are logged, each once."""

_PROXY = "the proxy has authenticated its client; the grants of original_principal are checked"
_ONE_BROKER = "every member serves every topic, so no answer depends on it"

HONOURED: dict[str, str] = {
    "CommandConnect": "client_version auth_data protocol_version auth_method_name original_principal "
    "feature_flags",
    "CommandAuthResponse": "response",
    "CommandPartitionedTopicMetadata": "topic request_id original_principal metadata_auto_creation_enabled",
    "CommandLookupTopic": "topic request_id original_principal advertised_listener_name",
    "CommandGetTopicsOfNamespace": "request_id namespace mode topics_pattern topics_hash",
    "CommandWatchTopicList": "request_id watcher_id namespace topics_pattern topics_hash",
    "CommandWatchTopicListClose": "request_id watcher_id",
    "CommandProducer": "topic producer_id request_id producer_name metadata schema epoch "
    "user_provided_producer_name producer_access_mode topic_epoch initial_subscription_name",
    "CommandSend": "producer_id sequence_id num_messages highest_sequence_id",
    "CommandCloseProducer": "producer_id request_id",
    "CommandSubscribe": "topic subscription subType consumer_id request_id consumer_name priority_level "
    "durable start_message_id metadata schema initialPosition force_topic_creation "
    "start_message_rollback_duration_sec subscription_properties consumer_epoch keySharedMeta",
    "CommandAck": "consumer_id ack_type message_id request_id",
    "CommandFlow": "consumer_id messagePermits",
    "CommandUnsubscribe": "consumer_id request_id force",
    "CommandSeek": "consumer_id request_id message_id message_publish_time",
    "CommandCloseConsumer": "consumer_id request_id",
    "CommandRedeliverUnacknowledgedMessages": "consumer_id message_ids consumer_epoch",
    "CommandConsumerStats": "request_id consumer_id",
    "CommandGetLastMessageId": "consumer_id request_id",
    "CommandGetSchema": "request_id topic schema_version",
    "CommandGetOrCreateSchema": "request_id topic schema",
    "MessageMetadata": "producer_name sequence_id publish_time num_messages_in_batch highest_sequence_id "
    "partition_key partition_key_b64_encoded ordering_key compression uncompressed_size event_time "
    "properties null_value uuid num_chunks_from_msg total_chunk_msg_size chunk_id deliver_at_time",
}
"""Fields that have the meaning that they have in Pulsar."""

IGNORED: dict[tuple[str, str], str] = {
    ("CommandConnect", "auth_method"): "clients since 2016 send auth_method_name",
    ("CommandConnect", "proxy_to_broker_url"): _ONE_BROKER,
    ("CommandConnect", "original_auth_data"): _PROXY,
    ("CommandConnect", "original_auth_method"): _PROXY,
    ("CommandConnect", "proxy_version"): "only shown by Pulsar's stats",
    ("CommandAuthResponse", "client_version"): "CONNECT has it",
    ("CommandAuthResponse", "protocol_version"): "CONNECT has it",
    ("CommandPartitionedTopicMetadata", "original_auth_data"): _PROXY,
    ("CommandPartitionedTopicMetadata", "original_auth_method"): _PROXY,
    ("CommandLookupTopic", "authoritative"): "every answer is final; there is no redirection",
    ("CommandLookupTopic", "original_auth_data"): _PROXY,
    ("CommandLookupTopic", "original_auth_method"): _PROXY,
    ("CommandLookupTopic", "properties"): _ONE_BROKER,
    (
        "CommandGetTopicsOfNamespace",
        "properties",
    ): "only brokers with a plug-in select topics by them",
    ("CommandProducer", "encrypted"): "messages are stored as they came; no policy demands encryption",
    (
        "CommandProducer",
        "txn_enabled",
    ): "messages in a transaction are refused, others published",
    ("CommandSend", "is_chunk"): "the metadata of the message says it",
    ("CommandSend", "marker"): "only replicators between clusters send it; the metadata says it, too",
    ("CommandSend", "message_id"): "only replicators between clusters send it",
    ("CommandCloseProducer", "assignedBrokerServiceUrl"): "only brokers send it",
    ("CommandCloseProducer", "assignedBrokerServiceUrlTls"): "only brokers send it",
    ("CommandCloseConsumer", "assignedBrokerServiceUrl"): "only brokers send it",
    ("CommandCloseConsumer", "assignedBrokerServiceUrlTls"): "only brokers send it",
    (
        "CommandAck",
        "validation_error",
    ): "the message counts as acknowledged, as in Pulsar",
    ("CommandAck", "properties"): "they are notes on the cursor that no client reads",
    **dict.fromkeys(
        (("MessageMetadata", name) for name in ("encryption_keys", "encryption_algo", "encryption_param")),
        "stored and delivered unchanged; clients decrypt",
    ),
    ("MessageMetadata", "schema_version"): "stored and delivered unchanged; clients decode by it",
    ("MessageMetadata", "null_partition_key"): "stored and delivered unchanged",
    ("MessageMetadata", "replicated_from"): "stored and delivered unchanged; there is one cluster",
    ("MessageMetadata", "replicate_to"): "stored and delivered unchanged; there is one cluster",
    ("MessageMetadata", "marker_type"): "stored and delivered unchanged; only brokers send it",
    (
        "MessageMetadata",
        "txnid_least_bits",
    ): "a SEND with a transaction is refused",
    (
        "MessageMetadata",
        "txnid_most_bits",
    ): "a SEND with a transaction is refused",
}
"""Why a field has no effect, and does no harm."""

_MANY = (pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared)
_TRANSACTIONS = "transactions are not supported; "

REFUSED: dict[tuple[str, str], tuple[Callable[[Any], bool], str]] = {
    ("CommandSubscribe", "read_compacted"): (
        lambda message: message.read_compacted and message.subType in _MANY,
        "with Shared and Key_Shared readCompacted is not possible; use Exclusive, Failover or a reader",
    ),
    ("CommandSubscribe", "replicate_subscription_state"): (
        lambda message: message.replicate_subscription_state,
        "replicated subscriptions are not supported: a server belongs to one cluster; subscribe without "
        "replicateSubscriptionState",
    ),
    ("CommandSend", "txnid_least_bits"): (bool, _TRANSACTIONS + "nothing was published"),
    ("CommandSend", "txnid_most_bits"): (bool, _TRANSACTIONS + "nothing was published"),
    ("CommandAck", "txnid_least_bits"): (bool, _TRANSACTIONS + "nothing was acknowledged"),
    ("CommandAck", "txnid_most_bits"): (bool, _TRANSACTIONS + "nothing was acknowledged"),
}
"""Whether a message is refused because of a field, and the words. The core checks SEND and ACK."""


KINDS = {
    **dict.fromkeys(range(50, 64), "transactions"),
    **dict.fromkeys((68, 69, 70), "migration to another cluster"),
    **dict.fromkeys(range(71, 80), "scalable topics"),
}
"""Features of commands that this protocol file does not have, by their type."""


def require_served(name: str, message: Message) -> None:
    """Check a request for fields without their feature; log unknown fields.

    Raises:
        Unsupported: the text says which field, and what to do.
    """
    kind = message.DESCRIPTOR.name
    for refuses, words in _BY_KIND.get(kind, ()):
        if refuses(message):
            raise Unsupported(words)
    if name == "partitionMetadata" and str(getattr(message, "topic", "")).startswith(COORDINATOR):
        raise Unsupported(f"{_TRANSACTIONS}create the client without them")
    _note_unknown(kind, message)


def unserved_kind(kind: int) -> str:
    """Return the words for a command that is not served.

    Example:
        >>> unserved_kind(50)
        'commands of type 50 (transactions) are not supported'
    """
    feature = f" ({KINDS[kind]})" if kind in KINDS else ""
    return f"commands of type {kind}{feature} are not supported"


_told: set[tuple[str, int]] = set()


def _note_unknown(kind: str, message: Message) -> None:
    unknown: Any = UnknownFieldSet(message)  # its stub lacks the iterator
    for each in unknown:
        found = (kind, each.field_number)
        if found not in _told and len(_told) < UNKNOWN_MAX:
            _told.add(found)
            LOG.warning(
                "a client sends a field that this program does not know; it has no effect",
                command=kind,
                field=each.field_number,
            )


_BY_KIND: dict[str, list[tuple[Callable[[Any], bool], str]]] = {}
for (_kind, _), _rule in REFUSED.items():
    _BY_KIND.setdefault(_kind, []).append(_rule)
