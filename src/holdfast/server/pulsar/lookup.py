"""Find topics: their partitions, their broker, the topics of a namespace."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from holdfast.broker import Topic
from holdfast.errors import Misuse, NotFound, Unsupported
from holdfast.names import FULL_NAME_BYTES_MAX, TopicName, namespace_name, require_length, shown
from holdfast.protocol import framed, framed_body
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar.commands import Refused
from holdfast.server.pulsar.listing import EMPTY, Listing
from holdfast.server.pulsar.patterns import TopicPattern

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection
    from holdfast.server.pulsar.setup import PulsarAction

_Metadata = pb.CommandPartitionedTopicMetadataResponse
_Lookup = pb.CommandLookupTopicResponse


def full_name(name: str) -> str:
    """Return the full name of a topic that a client names.

    Raises:
        Refused: the name is not a topic's.
    """
    try:
        require_length(name, "a topic", FULL_NAME_BYTES_MAX)
        return str(TopicName.parse(name))
    except Misuse as error:
        raise Refused(pb.InvalidTopicName, str(error)) from error


def require_namespace_name(name: str) -> None:
    """Raise Refused for a name that is not a namespace's."""
    try:
        namespace_name(name)
    except Misuse as error:
        raise Refused(pb.InvalidTopicName, str(error)) from error


async def topic_for(
    connection: Connection, name: str, action: PulsarAction, subscription: str = "", create: bool = True
) -> Topic:
    """Return the topic that a client names; create it if it is absent.

    Raises:
        Refused: the name is not a topic's.
        Denied: the client has no grant.
        NotFound: the topic does not exist, and is not created.
    """
    full = full_name(name)
    connection.authorize(action, full, subscription)
    if create:
        return await connection.broker.ensure_topic(full)
    return connection.broker.topic(full)


# -- partitions ---------------------------------------------------------------------------------------


async def partitions(connection: Connection, command: pb.CommandPartitionedTopicMetadata) -> bytes:
    """PARTITIONED_METADATA: answer 0, for no topic has partitions yet. Create no topic."""
    full = full_name(command.topic)
    connection.authorize("lookup", full, behind=command.original_principal)
    broker = connection.broker
    broker.require_namespace(full)
    wanted = broker.options.create_topics and command.metadata_auto_creation_enabled
    if not wanted and not broker.has_topic(full):
        raise NotFound(f"there is no topic {full}; create it first")
    return framed(_Metadata(request_id=command.request_id, response=_Metadata.Success, partitions=0))


def no_partitions(request: int, refused: Refused) -> bytes:
    return framed(
        _Metadata(request_id=request, response=_Metadata.Failed, error=refused.code, message=str(refused))
    )


# -- which broker -------------------------------------------------------------------------------------


async def broker_of(connection: Connection, command: pb.CommandLookupTopic) -> bytes:
    """LOOKUP: answer with this broker.

    Without an advertised address, the answer is the address by which the client came. It works through a
    container's port or a tunnel, too.
    """
    full = full_name(command.topic)
    connection.authorize("lookup", full, behind=command.original_principal)
    connection.broker.require_namespace(full)
    options = connection.options
    advertised = options.advertised
    if command.advertised_listener_name:
        advertised = options.listeners.get(command.advertised_listener_name)
        if advertised is None:
            known = ", ".join(sorted(options.listeners)) or "none"
            raise Refused(
                pb.ServiceNotReady,
                f"no advertised listener {shown(command.advertised_listener_name)}; available: {known}",
            )
    answer = _Lookup(request_id=command.request_id, response=_Lookup.Connect, authoritative=True)
    if advertised is None:
        url = connection.url
        answer.proxy_through_service_url = True
        if url.startswith("pulsar+ssl:"):
            answer.brokerServiceUrlTls = url
        else:
            answer.brokerServiceUrl = url
    else:
        answer.brokerServiceUrl = advertised.url
        answer.brokerServiceUrlTls = advertised.tls_url
    return framed(answer)


def no_broker(request: int, refused: Refused) -> bytes:
    return framed(
        _Lookup(request_id=request, response=_Lookup.Failed, error=refused.code, message=str(refused))
    )


# -- which topics -------------------------------------------------------------------------------------


async def topics(connection: Connection, command: pb.CommandGetTopicsOfNamespace) -> bytes:
    """GET_TOPICS_OF_NAMESPACE: the client matches patterns that the server cannot."""
    require_namespace_name(command.namespace)
    connection.authorize("lookup", command.namespace)
    listing = EMPTY
    if command.mode != pb.CommandGetTopicsOfNamespace.NON_PERSISTENT:
        listing = connection.server.listings.of(command.namespace)
    answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=command.request_id)
    if command.HasField("topics_pattern"):
        with contextlib.suppress(Misuse, Unsupported):
            pattern = TopicPattern(command.topics_pattern)
            shown = listing.whole if pattern.whole else listing.short
            listing = Listing(sorted(await connection.server.watching.apart(pattern.select_shown, shown)))
            answer.filtered = True
    if command.topics_hash == listing.hash:
        answer.topics_hash, answer.changed = listing.hash, False
        return _topics_frame(answer.SerializeToString())
    return _topics_frame(listing.encoded + answer.SerializeToString())  # later fields win


def _topics_frame(body: bytes) -> bytes:
    """Frame an answer that is encoded already: the list can be long."""
    return framed_body(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, body)


def no_stats(request: int, refused: Refused) -> bytes:
    return framed(
        pb.CommandConsumerStatsResponse(
            request_id=request, error_code=refused.code, error_message=str(refused)
        )
    )
