"""How the HTTP server is set up, and what it asks of whoever decides who may do what."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from holdfast.server.budget import Budget

if TYPE_CHECKING:
    from aiohttp import web

Action = Literal["admin", "consume", "lookup", "metrics", "health", "describe"]
"""What a request wants.

`admin`: look at something or change it. `consume`: look into a subscription or move it. `lookup`: find a
topic. `metrics`, `health`: as they say. `describe`: what this interface is, which tells nothing of a broker.
"""

Authorize: TypeAlias = Callable[["web.Request", Action, str], Awaitable[str | None]]
"""May this request do that to `broker`, a tenant, a `tenant/namespace`, or a topic (in full)? Answers the
role, for the log. Raises `AuthenticationFailed` (401) or `Denied` (403)."""


async def anybody(request: web.Request, action: Action, resource: str) -> str | None:
    """Everybody may do everything."""
    return None


def welcome(address: str) -> None:
    """Nobody is counted."""


class Flight(Protocol):
    """Where whole topics are read."""

    host: str
    """By which clients find it; empty: by which they came."""

    async def port(self, tls: bool) -> int:
        """Where it listens, with TLS or without; from now on, if it did not before."""


@dataclass(frozen=True)
class HttpOptions:
    """Everything that an `HttpServer` can be told, with units in the names.

    Example:
        >>> HttpOptions(port=0).host
        '127.0.0.1'
    """

    host: str = "127.0.0.1"
    port: int | None = 8080
    """0: any that is free; None: no listener without TLS."""
    https_port: int | None = None
    tls: ssl.SSLContext | None = None
    """Needed for `https_port`."""
    backlog: int = 100
    """Connections that may wait to be accepted."""
    authorize: Authorize = anybody
    challenge: str = 'Bearer realm="holdfast"'
    """`WWW-Authenticate` of a refusal: how somebody can show who it is."""
    local_names: bool = False
    """Only who calls this machine by an address or as localhost is answered: where everybody on it may come
    in, and a web page in somebody's browser must not."""
    enter: Callable[[str], None] = welcome
    """Called with the address (no port) of who connects; raises a HoldfastError if it is one too many."""
    leave: Callable[[str], None] = welcome
    """Called once for each that has entered, when it has gone."""
    broker_url: str = ""
    """What a lookup answers, `pulsar://host:port`, where no wire server is known; empty: nothing."""
    broker_tls_url: str = ""
    flight: Flight | None = None
    """None: nobody reads whole topics here."""
    budget: Budget | None = None
    """For what is held for clients; None: one of its own."""
    body_bytes_max: int = 1 << 20
    """The largest body of a request."""
    body_s: float = 30.0
    """How long a body may take to arrive; a second more for each 16 KiB that have."""
    requests_max: int = 200
    """How many requests are under way; more are told to come again."""
    request_s: float = 60.0
    """How long a request may take, its body included."""
    head_s: float = 10.0
    """How long a client may take to say what it wants, and a TLS handshake."""
    keep_alive_s: float = 60.0
    """How long a silent connection is kept after an answer."""
