"""Find topics: their partitions, their broker, the topics of a namespace."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.broker import MemberInfo, Topic
from holdfast.errors import Closed, Misuse, Unsupported
from holdfast.names import (
    FULL_NAME_BYTES_MAX,
    any_topic_name,
    is_persistent,
    namespace_name,
    require_length,
    shown,
)
from holdfast.protocol import framed, framed_body
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.listening import bracketed
from holdfast.server.pulsar.commands import Refused
from holdfast.server.pulsar.listing import EMPTY, Listing
from holdfast.server.pulsar.patterns import TopicPattern
from holdfast.server.pulsar.setup import Advertised

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection
    from holdfast.server.pulsar.listener import Server
    from holdfast.server.pulsar.setup import PulsarAction

_Metadata = pb.CommandPartitionedTopicMetadataResponse
_Lookup = pb.CommandLookupTopicResponse

SCHEMES = ("pulsar:", "pulsar+ssl:")
"""Beginnings of addresses without TLS, and with it."""


def full_name(name: str) -> str:
    """Return the full name of a topic that a client names.

    Raises:
        Refused: the name is not a topic's.
    """
    try:
        require_length(name, "a topic", FULL_NAME_BYTES_MAX)
        return any_topic_name(name)
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

    A producer may name an exchange, too.

    Raises:
        Refused: the name is not a topic's.
        Denied: the client has no grant.
        NotFound: the topic does not exist, and is not created.
    """
    full = full_name(name)
    connection.authorize(action, full, subscription)
    if not is_persistent(full):
        raise Unsupported(f"{full} keeps no message, and no schemas; use a persistent topic")
    unreplicated = connection.broker.unreplicated
    if full in unreplicated.places():
        raise Refused(pb.ServiceNotReady, f"{unreplicated.where(full)}; look it up again")
    if action == "produce":
        return await connection.broker.ensure_destination(full)
    if create:
        return await connection.broker.ensure_topic(full)
    return connection.broker.topic(full)


# -- partitions ---------------------------------------------------------------------------------------


async def partitions(connection: Connection, command: pb.CommandPartitionedTopicMetadata) -> bytes:
    """PARTITIONED_METADATA: answer with the number of partitions; 0: the topic has none.

    A missing topic that gets partitions is created here; another one by its first producer or consumer.
    """
    full = full_name(command.topic)
    connection.authorize("lookup", full, behind=command.original_principal)
    create = command.metadata_auto_creation_enabled
    count = await connection.broker.partitioned.metadata(full, create)
    return framed(_Metadata(request_id=command.request_id, response=_Metadata.Success, partitions=count))


def no_partitions(request: int, refused: Refused) -> bytes:
    return framed(
        _Metadata(request_id=request, response=_Metadata.Failed, error=refused.code, message=str(refused))
    )


# -- which broker -------------------------------------------------------------------------------------


async def broker_of(connection: Connection, command: pb.CommandLookupTopic) -> bytes:
    """LOOKUP: answer with the member that owns the topic; a broker alone is that member.

    Each answer is final, never a redirection: every member serves every topic. An owner without known
    addresses is not named: then the answer is this broker.

    Without an advertised address, the answer for this broker is the address by which the client came. It
    works through a container's port or a tunnel, too.

    An unreplicated topic has a port of its own at its node.
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
    url = connection.url
    if full in connection.broker.unreplicated.places():
        here = advertised or Advertised(*(url if url.startswith(each) else "" for each in SCHEMES))
        found = unreplicated_addresses(connection.server, full, here, command.advertised_listener_name)
        answer.brokerServiceUrl, answer.brokerServiceUrlTls = found.url, found.tls_url
        return framed(answer)
    elsewhere = connection.broker.membership.elsewhere(full)
    if elsewhere is not None:
        found = addresses_of(elsewhere, command.advertised_listener_name)
        if found.tls_url if url.startswith("pulsar+ssl:") else found.url:
            advertised = found
    if advertised is None:
        answer.proxy_through_service_url = True
        if url.startswith("pulsar+ssl:"):
            answer.brokerServiceUrlTls = url
        else:
            answer.brokerServiceUrl = url
    else:
        answer.brokerServiceUrl = advertised.url
        answer.brokerServiceUrlTls = advertised.tls_url
    return framed(answer)


def addresses_of(member: MemberInfo, listener: str = "") -> Advertised:
    """Return the addresses of a member for clients of a listener; empty: none."""
    url, tls_url = member.listeners.get(listener, ("", "")) if listener else (member.url, member.tls_url)
    return Advertised(url, tls_url)


def unreplicated_addresses(server: Server, full: str, here: Advertised, listener: str = "") -> Advertised:
    """Return the addresses of an unreplicated topic for clients of a listener.

    `here` are the addresses of this server for that client.

    Raises:
        Closed: the topic's node is absent, or has no port for its topics.
    """
    unreplicated, own = server.broker.unreplicated, server.unreplicated
    if unreplicated.broker_of(full) is not None:
        found, ports = here, (0, 0) if own is None else (own.port or 0, own.tls_port or 0)
    else:
        member = unreplicated.member_of(full)
        if member is None:
            raise Closed(f"{unreplicated.where(full)}; start that node")
        found, ports = addresses_of(member, listener), member.unreplicated_ports
    found = Advertised(_with_port(found.url, ports[0]), _with_port(found.tls_url, ports[1]))
    if not found.url and not found.tls_url:
        raise Closed(f"{unreplicated.where(full)}; it has no open port for it, see its log")
    return found


def _with_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{bracketed(parts.hostname or '')}:{port}" if url and port else ""


def no_broker(request: int, refused: Refused) -> bytes:
    return framed(
        _Lookup(request_id=request, response=_Lookup.Failed, error=refused.code, message=str(refused))
    )


# -- which topics -------------------------------------------------------------------------------------


async def topics(connection: Connection, command: pb.CommandGetTopicsOfNamespace) -> bytes:
    """GET_TOPICS_OF_NAMESPACE: the client matches patterns that the server cannot."""
    require_namespace_name(command.namespace)
    connection.authorize("lookup", command.namespace)
    listing, passing = EMPTY, connection.server.non_persistent
    if command.mode != pb.CommandGetTopicsOfNamespace.NON_PERSISTENT:
        listing = connection.server.listings.of(command.namespace)
    if command.mode != pb.CommandGetTopicsOfNamespace.PERSISTENT:
        listing = passing.listing_with(command.namespace, listing)
    answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=command.request_id)
    if command.HasField("topics_pattern"):
        with contextlib.suppress(Misuse, Unsupported):
            apart = connection.server.watching.apart  # also to compile it: a KiB of classes takes 30 ms
            pattern = await apart(TopicPattern, command.topics_pattern)
            shown = listing.whole if pattern.whole else listing.short
            listing = Listing(sorted(await apart(pattern.select_shown, shown)))
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
