"""How a server is set up, and what it asks of whoever decides who may do what."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from holdfast.protocol.sizes import FRAME_PADDING_BYTES
from holdfast.server.budget import Budget
from holdfast.server.config import setting

PulsarAction = Literal["lookup", "produce", "consume", "stage", "read"]
"""What a client wants. `stage`: keep entries for a topic that it does not name yet."""


@dataclass(frozen=True)
class Credentials:
    """What a client shows when it connects, or when it is asked again."""

    method: str
    """The name of the method; empty: none."""
    data: bytes
    address: str
    """Where it comes from."""
    certificate: Mapping[str, Any] | None = None
    """Its own, verified, as `SSLSocket.getpeercert` tells it; None without mutual TLS."""


@dataclass(frozen=True)
class Identity:
    """Who somebody is."""

    role: str = ""
    expires_s: float | None = None
    """So long from now; then the client is asked again, or closed if it cannot answer."""


Authenticate: TypeAlias = Callable[[Credentials], Awaitable[Identity]]
"""Raises `Denied` where the credentials are not good."""
Authorize: TypeAlias = Callable[[str, PulsarAction, str, str], None]
"""May this role do that to this topic (in full) or namespace, with this subscription? Raises `Denied`."""


async def anybody(credentials: Credentials) -> Identity:
    """Everybody is let in."""
    return Identity()


def anything(role: str, action: PulsarAction, name: str, subscription: str) -> None:
    """Everybody may do everything."""


def welcome(address: str) -> None:
    """Nobody is counted."""


@dataclass(frozen=True)
class Advertised:
    """Where clients of one listener find this broker."""

    url: str = ""
    """`pulsar://host:port`; empty: not without TLS."""
    tls_url: str = ""
    """`pulsar+ssl://host:port`; empty: not with TLS."""


@dataclass(frozen=True)
class ServerOptions:
    """Everything that a `Server` can be told, with units in the names. Settings mean the same here.

    Example:
        >>> ServerOptions(port=0).host
        '127.0.0.1'
    """

    host: str = setting("listen.host")
    port: int | None = setting("listen.port")
    backlog: int = setting("listen.backlog")
    tls_port: int | None = setting("listen.tls_port")
    tls: ssl.SSLContext | None = None
    """Needed for `tls_port`."""
    advertised: Advertised | None = None
    """The answer to LOOKUP; None: the address by which the client came."""
    listeners: Mapping[str, Advertised] = field(default_factory=dict)
    """The same, for clients that name a listener."""
    authenticate: Authenticate = anybody
    authorize: Authorize = anything
    message_bytes_max: int = setting("limits.message_bytes")
    enter: Callable[[str], None] = welcome
    """Called with the address (no port) of a new connection; raises a HoldfastError if it is one too many."""
    leave: Callable[[str], None] = welcome
    """Called once for each connection that has entered, at its end."""
    requests_max: int = setting("limits.requests_in_flight")
    producers_max: int = setting("limits.producers_per_connection")
    consumers_max: int = setting("limits.consumers_per_connection")
    watchers_max: int = setting("limits.watchers_per_connection")
    partial_batches_max: int = setting("limits.partial_batches")
    properties_bytes_max: int = setting("limits.properties_bytes")
    handshake_s: float = setting("limits.unauthenticated_s")
    keep_alive_s: float = setting("limits.keepalive_s")
    liveness_s: float = setting("limits.liveness_s")
    frame_s: float = setting("limits.frame_s")
    budget: Budget | None = None
    """Memory held for clients; None: a budget of its own. HTTP shares it."""
    write_buffer_bytes: int = setting("limits.write_bytes")
    volatile_s: float = setting("limits.volatile_s")

    @property
    def frame_bytes_max(self) -> int:
        return self.message_bytes_max + FRAME_PADDING_BYTES
