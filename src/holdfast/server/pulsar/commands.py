"""Encode answers as frames, and errors as codes of the protocol."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from holdfast.errors import (
    BadSchema,
    Busy,
    Closed,
    Corrupt,
    CursorModifying,
    Denied,
    Exists,
    Fenced,
    IncompatibleSchema,
    LimitReached,
    Misuse,
    NoQuorum,
    NoSpace,
    NotFound,
    QuotaExceeded,
    QuotaHold,
    Terminated,
    Timeout,
    TooManyConnections,
    Unannounced,
    Unsupported,
)
from holdfast.formatting import plural
from holdfast.ids import MessageId
from holdfast.names import partition_of
from holdfast.protocol import COMMIT_BYTES_MAX, framed
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar.fields import unserved_kind

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection

NO_REQUEST = (1 << 64) - 1
"""The request number of a message that answers no request."""

COMMAND_BYTES_MAX = 128 << 10
"""The largest size of most commands."""

_PAIR = pb.KeyValue.DESCRIPTOR.full_name

REPEATED_MAX = 1000
"""Repeated fields with text (properties, for example) in one command."""

_WORD = 1 << 64


REASON_LENGTH_MAX = 1000
"""Characters of a reason sent to a client: a client can choose its text."""


class Refused(Exception):
    """The error that a client gets as the answer to its request."""

    def __init__(self, code: pb.ServerError, text: str) -> None:
        super().__init__(text if len(text) <= REASON_LENGTH_MAX else f"{text[:REASON_LENGTH_MAX]}…")
        self.code = code


_CODES: dict[type[Exception], pb.ServerError] = {
    BadSchema: pb.IncompatibleSchema,
    Busy: pb.ConsumerBusy,
    Closed: pb.ServiceNotReady,
    Corrupt: pb.ChecksumError,  # not PersistenceError, after which clients retry
    CursorModifying: pb.ServiceNotReady,
    Denied: pb.AuthorizationError,
    Exists: pb.MetadataError,
    Fenced: pb.ProducerFenced,
    IncompatibleSchema: pb.IncompatibleSchema,
    LimitReached: pb.NotAllowedError,
    Misuse: pb.NotAllowedError,
    NoQuorum: pb.ServiceNotReady,
    NoSpace: pb.ProducerBlockedQuotaExceededException,
    NotFound: pb.TopicNotFound,
    QuotaExceeded: pb.ProducerBlockedQuotaExceededException,
    QuotaHold: pb.ProducerBlockedQuotaExceededError,
    Terminated: pb.TopicTerminatedError,
    Timeout: pb.ServiceNotReady,
    TooManyConnections: pb.TooManyRequests,
    Unannounced: pb.ServiceNotReady,  # clients retry
    Unsupported: pb.NotAllowedError,
}


def refusal(error: Exception, codes: Mapping[type[Exception], pb.ServerError] | None = None) -> Refused:
    """Make the refusal for an error; `codes` are special codes of the request.

    Example:
        >>> refusal(Busy("the name is taken"), {Busy: pb.ProducerBusy}).code == pb.ProducerBusy
        True
    """
    if isinstance(error, Refused):
        return error
    code = (codes or {}).get(type(error), _CODES.get(type(error), pb.UnknownError))
    return Refused(code, str(error) or type(error).__name__)


def in_use(subscription: str, others: int) -> Refused:
    """Make the refusal for an UNSUBSCRIBE beside other consumers."""
    words = f"the subscription {subscription!r} has {plural(others, 'other consumer')}"
    return Refused(pb.MetadataError, f"{words}; close all of them first, or use force")


_LARGE: set[int] = {
    pb.BaseCommand.PRODUCER,
    pb.BaseCommand.SUBSCRIBE,
    pb.BaseCommand.GET_OR_CREATE_SCHEMA,
    pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
    pb.BaseCommand.SEEK,
    pb.BaseCommand.STAGE_APPEND,
}
"""Commands with a schema, a list of ids or entries: they may fill a frame."""

_SIZES: dict[int, int] = {
    **dict.fromkeys(_LARGE, 1 << 32),
    pb.BaseCommand.SINK_COMMIT: COMMIT_BYTES_MAX,
}


_KINDS = frozenset(pb.BaseCommand.Type.values())


def require_size(kind: int, size: int) -> None:
    """Check type and size of a command before it is parsed.

    Raises:
        Refused: its type is not known, or it is larger than clients need.
    """
    if kind not in _KINDS:  # the parser would only say that the type is missing
        raise Refused(pb.NotAllowedError, unserved_kind(kind))
    most = _SIZES.get(kind, COMMAND_BYTES_MAX)
    if size > most:
        raise Refused(
            pb.NotAllowedError,
            f"a command of type {kind} has {size} bytes; at most {most} are allowed",
        )


def require_text(message: Message) -> None:
    """Check that every text of a command is UTF-8: protobuf returns other text as bytes.

    Raises:
        UnicodeDecodeError: a field at some depth is not UTF-8.
        Refused: a field with text is repeated too often.
    """
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            for each in value if field.is_repeated else (value,):
                if isinstance(each, bytes):
                    each.decode()
        elif field.message_type is not None and has_text(field.message_type):
            if field.is_repeated and len(value) > REPEATED_MAX:
                reason = f"a command has {len(value)} {field.name}; at most {REPEATED_MAX} are allowed"
                raise Refused(pb.NotAllowedError, reason)
            if field.message_type.full_name == _PAIR:  # a fast path: a command can have many
                pairs = value if field.is_repeated else (value,)
                wrong = [text for each in pairs for text in (each.key, each.value) if isinstance(text, bytes)]
                for each in wrong:
                    each.decode()
                continue
            for each in value if field.is_repeated else (value,):
                require_text(each)


@functools.cache
def has_text(message: Descriptor) -> bool:
    """Return whether messages of this kind have text at any depth.

    Example:
        >>> has_text(pb.KeyValue.DESCRIPTOR), has_text(pb.MessageIdData.DESCRIPTOR)
        (True, False)
    """
    seen, ahead = {message.full_name}, [message]
    for each in ahead:  # grows while it is read; a kind of message can contain itself
        for field in each.fields:
            if field.type == field.TYPE_STRING:
                return True
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                ahead.append(inner)
    return False


def require_properties(connection: Connection, given: Sequence[pb.KeyValue], of: str) -> int:
    """Check the size of the properties of a session or a subscription, and return it.

    Raises:
        LimitReached: they exceed limits.properties_bytes.
    """
    size = sum(each.ByteSize() for each in given)
    most = connection.options.properties_bytes
    if size > most:
        raise LimitReached(f"the properties of {of} have {size} bytes; limits.properties_bytes allows {most}")
    return size


def tell_refused(connection: Connection, what: str, refused: object, **more: Any) -> None:
    """Log the refusal of a message or an acknowledgement.

    Such lines do not take the place of refused requests.
    """
    connection.server.refused_messages.say(
        what, refused, peer=connection.address, role=connection.role, **more
    )


# -- positions ----------------------------------------------------------------------------------------


def id_of(data: pb.MessageIdData) -> MessageId:
    """Read an id, in which clients write −1 as an unsigned number.

    Example:
        >>> id_of(pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1))
        MessageId(ledger=-1, entry=-1, batch=-1)
    """
    return MessageId(signed(data.ledgerId), signed(data.entryId), data.batch_index)


def partition_index(full: str) -> int | None:
    """Return the index of a partition; None for other topics.

    Example:
        >>> partition_index("persistent://public/default/a-partition-3")
        3
    """
    found = partition_of(full)
    return None if found is None else found[1]


def id_data(id: MessageId, batch_index: int = -1) -> pb.MessageIdData:  # noqa: A002  # as everywhere
    """Write the id of an entry, or of a message in its batch."""
    data = pb.MessageIdData(ledgerId=id.ledger % _WORD, entryId=id.entry % _WORD)
    if batch_index >= 0:
        data.batch_index = batch_index
    return data


def signed(number: int) -> int:
    """Read a 64-bit number as signed."""
    return number - _WORD if number >= _WORD >> 1 else number


def bits_of(words: Iterable[int]) -> int:
    """Read an ack set as one number: bit 0 is the batch's first message.

    Example:
        >>> bin(bits_of([5, -1 << 63])).count("1")
        3
    """
    return int.from_bytes(b"".join((word % _WORD).to_bytes(8, "little") for word in words), "little")


# -- answers ------------------------------------------------------------------------------------------


def connected(server_version: str, protocol_version: int, message_bytes_max: int) -> bytes:
    flags = pb.FeatureFlags(
        supports_auth_refresh=True,
        supports_topic_watchers=True,
        supports_get_partitioned_metadata_without_auto_creation=True,
    )
    return framed(
        pb.CommandConnected(
            server_version=server_version,
            protocol_version=protocol_version,
            max_message_size=message_bytes_max,
            feature_flags=flags,
        )
    )


def auth_challenge(server_version: str, protocol_version: int, method: str) -> bytes:
    """Ask the client for new credentials."""
    return framed(
        pb.CommandAuthChallenge(
            server_version=server_version,
            protocol_version=protocol_version,
            challenge=pb.AuthData(auth_method_name=method, auth_data=b"PulsarAuthRefresh"),
        )
    )


def success(request: int) -> bytes:
    return framed(pb.CommandSuccess(request_id=request))


def error(request: int, refused: Refused) -> bytes:
    return framed(pb.CommandError(request_id=request, error=refused.code, message=str(refused)))


def producer_success(
    request: int, name: str, last_sequence: int, epoch: int | None, ready: bool, schema_version: bytes = b""
) -> bytes:
    answer = pb.CommandProducerSuccess(
        request_id=request,
        producer_name=name,
        last_sequence_id=last_sequence,
        schema_version=schema_version,
        producer_ready=ready,
    )
    if epoch is not None:
        answer.topic_epoch = epoch
    return framed(answer)


def send_error(producer: int, sequence: int, refused: Refused) -> bytes:
    return framed(
        pb.CommandSendError(
            producer_id=producer, sequence_id=sequence % _WORD, error=refused.code, message=str(refused)
        )
    )


def close_producer(producer: int) -> bytes:
    """Close a producer at its client, which then opens it again."""
    return framed(pb.CommandCloseProducer(producer_id=producer, request_id=NO_REQUEST))


def close_consumer(consumer: int) -> bytes:
    """Close a consumer at its client, which drops its queue and subscribes again."""
    return framed(pb.CommandCloseConsumer(consumer_id=consumer, request_id=NO_REQUEST))


def active_consumer_change(consumer: int, active: bool) -> bytes:
    return framed(pb.CommandActiveConsumerChange(consumer_id=consumer, is_active=active))


def reached_end_of_topic(consumer: int) -> bytes:
    return framed(pb.CommandReachedEndOfTopic(consumer_id=consumer))


def ack_response(consumer: int, request: int, refused: Refused | None) -> bytes:
    answer = pb.CommandAckResponse(consumer_id=consumer, request_id=request)
    if refused is not None:
        answer.error = refused.code
        answer.message = str(refused)
    return framed(answer)


def last_message_id(request: int, last: pb.MessageIdData, mark_delete: pb.MessageIdData) -> bytes:
    return framed(
        pb.CommandGetLastMessageIdResponse(
            request_id=request, last_message_id=last, consumer_mark_delete_position=mark_delete
        )
    )
