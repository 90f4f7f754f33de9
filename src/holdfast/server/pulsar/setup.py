"""Options of a server of the Pulsar protocol, with its hooks for authentication and authorization."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from holdfast.protocol import FRAME_PADDING_BYTES
from holdfast.server.config import setting
from holdfast.server.listening import ListenOptions

PulsarAction = Literal["lookup", "produce", "consume", "stage", "read"]
"""An action of a client. `stage`: append entries to a stage; `read`: read topics over Flight."""


@dataclass(frozen=True)
class Credentials:
    """Credentials that a client sends when it connects, or when they expire."""

    method: str
    """The name of the method; empty: none."""
    data: bytes
    address: str
    """The client's address."""
    certificate: Mapping[str, Any] | None = None
    """The client's verified certificate, as `SSLSocket.getpeercert` returns it; None without mutual TLS."""


@dataclass(frozen=True)
class Identity:
    """The role of an authenticated client."""

    role: str = ""
    expires_s: float | None = None
    """Seconds from now until the client needs new credentials; a client that cannot renew is closed."""


Authenticate: TypeAlias = Callable[[Credentials], Awaitable[Identity]]
"""Raises `Denied` for invalid credentials."""
Authorize: TypeAlias = Callable[[str, PulsarAction, str, str], None]
"""Checks role, action, topic (full name) or namespace, and subscription; raises `Denied`."""


async def accept_all(credentials: Credentials) -> Identity:
    """Accept every client."""
    return Identity()


def anything(role: str, action: PulsarAction, name: str, subscription: str) -> None:
    """Allow every action."""


@dataclass(frozen=True)
class Advertised:
    """Addresses of this broker for clients of one listener."""

    url: str = ""
    """`pulsar://host:port`; empty: not without TLS."""
    tls_url: str = ""
    """`pulsar+ssl://host:port`; empty: not with TLS."""


@dataclass(frozen=True)
class ServerOptions(ListenOptions):
    """Options of a `Server`.

    Example:
        >>> ServerOptions(port=0).host
        '127.0.0.1'
    """

    port: int | None = setting("listen.port")
    tls_port: int | None = setting("listen.tls_port")
    advertised: Advertised | None = None
    """The answer to LOOKUP; None: the address by which the client came."""
    listeners: Mapping[str, Advertised] = field(default_factory=dict)
    """The same, for clients that name a listener."""
    authenticate: Authenticate = accept_all
    authorize: Authorize = anything
    message_bytes: int = setting("limits.message_bytes")
    requests_in_flight: int = setting("limits.requests_in_flight")
    producers_per_connection: int = setting("limits.producers_per_connection")
    consumers_per_connection: int = setting("limits.consumers_per_connection")
    watchers_per_connection: int = setting("limits.watchers_per_connection")
    partial_batches: int = setting("limits.partial_batches")
    properties_bytes: int = setting("limits.properties_bytes")
    keepalive_s: float = setting("limits.keepalive_s")
    liveness_s: float = setting("limits.liveness_s")
    write_bytes: int = setting("limits.write_bytes")
    volatile_s: float = setting("limits.volatile_s")

    @property
    def frame_bytes(self) -> int:
        return self.message_bytes + FRAME_PADDING_BYTES
