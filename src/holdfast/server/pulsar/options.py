"""How a server is set up, and what it asks of whoever decides who may do what."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from holdfast.server.budget import Budget

Action = Literal["lookup", "produce", "consume", "stage", "read"]
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
Authorize: TypeAlias = Callable[[str, Action, str, str], None]
"""May this role do that to this topic (in full) or namespace, with this subscription? Raises `Denied`."""


async def anybody(credentials: Credentials) -> Identity:
    """Everybody is let in."""
    return Identity()


def anything(role: str, action: Action, name: str, subscription: str) -> None:
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
    """Everything that a `Server` can be told, with units in the names.

    Example:
        >>> ServerOptions(port=0).host
        '127.0.0.1'
    """

    host: str = "127.0.0.1"
    port: int | None = 6650
    """0: any that is free; None: no listener without TLS."""
    backlog: int = 1024
    """How many may wait to be accepted."""
    tls_port: int | None = None
    tls: ssl.SSLContext | None = None
    """Needed for `tls_port`."""
    advertised: Advertised | None = None
    """What LOOKUP answers; None: where the client came in, by the way that it came."""
    listeners: Mapping[str, Advertised] = field(default_factory=dict)
    """The same, for clients that name a listener."""
    authenticate: Authenticate = anybody
    authorize: Authorize = anything
    message_bytes_max: int = 5 << 20
    """The largest message, which clients are told; a frame may be larger by 64 KiB."""
    enter: Callable[[str], None] = welcome
    """Called with the address (no port) of who connects; raises a HoldfastError if it is one too many."""
    leave: Callable[[str], None] = welcome
    """Called once for each that has entered, when it has gone."""
    requests_max: int = 1000
    """How many requests of one connection are under way; it is not read on beyond that."""
    producers_max: int = 10_000
    """How many producers one connection may have; one more is refused."""
    consumers_max: int = 10_000
    """The same for consumers, readers among them."""
    watchers_max: int = 50
    """The same for topic lists that are watched. Each keeps the names that its pattern matches."""
    partial_batches_max: int = 10_000
    """Batches of a subscription that are acknowledged in part; of more, that is not kept."""
    properties_bytes_max: int = 8 << 10
    """Of a producer, a consumer or a subscription."""
    handshake_s: float = 10.0
    """Who has not connected by then is closed."""
    keep_alive_s: float = 30.0
    """A connection that is silent for so long is pinged, and closed if it stays silent as long again."""
    liveness_s: float = 5.0
    """If a name or an exclusive subscription is asked for: how long its holder has to show that it lives."""
    frame_s: float = 30.0
    """How long a frame may take to arrive; a second more for each 16 KiB that have."""
    budget: Budget | None = None
    """For what is held for clients; None: one of its own. HTTP shares it."""
    write_buffer_bytes: int = 512 << 10
    """What may wait for a slow client; beyond that its consumers are given nothing and it is not read."""
    volatile_s: float = 60.0
    """How long the position of a reader that has sought waits for it to come back."""

    @property
    def frame_bytes_max(self) -> int:
        return self.message_bytes_max + (64 << 10)
