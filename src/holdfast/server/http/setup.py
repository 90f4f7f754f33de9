"""Options of the HTTP server, with its hook for authorization."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from holdfast.server.budget import Budget
from holdfast.server.config import setting

if TYPE_CHECKING:
    from aiohttp import web

HttpAction = Literal["admin", "consume", "lookup", "metrics", "health", "describe"]
"""The action of a request.

`admin`: inspect or change an object. `consume`: inspect or reset a subscription. `lookup`: find a topic.
`metrics`, `health`: read them. `describe`: read the description of this interface, not of the broker.
"""

Authorize: TypeAlias = Callable[["web.Request", HttpAction, str], Awaitable[str | None]]
"""Checks an action on `broker`, a tenant, a `tenant/namespace`, or a topic (full name). Returns the role, for
the log. Raises `AuthenticationFailed` (401) or `Denied` (403)."""


async def allow_all(request: web.Request, action: HttpAction, resource: str) -> str | None:
    """Allow every action."""
    return None


def welcome(address: str) -> None:
    """Count nothing."""


class Flight(Protocol):
    """Arrow Flight, for reads of whole topics."""

    host: str
    """Name or address for clients; empty: the one that they used for HTTP."""

    async def port(self, tls: bool) -> int:
        """Return its port, with TLS or without; start it if necessary."""


@dataclass(frozen=True)
class HttpOptions:
    """Options of an `HttpServer`, with units in the names; settings have the same meaning here.

    Example:
        >>> HttpOptions(port=0).host
        '127.0.0.1'
    """

    host: str = setting("listen.host")
    port: int | None = setting("listen.http_port")
    https_port: int | None = setting("listen.https_port")
    tls: ssl.SSLContext | None = None
    """Needed for `https_port`."""
    backlog: int = setting("listen.backlog")
    authorize: Authorize = allow_all
    challenge: str = 'Bearer realm="holdfast"'
    """`WWW-Authenticate` of a refusal: the accepted methods."""
    local_names: bool = False
    """Answer only requests that name this machine by an address or as localhost. Without authentication every
    local program is accepted, but a web page in a browser must not be."""
    enter: Callable[[str], None] = welcome
    """Called with the address (no port) of a new connection; raises a HoldfastError above a limit."""
    leave: Callable[[str], None] = welcome
    """Called once for each connection that has entered, at its end."""
    broker_url: str = ""
    """The answer to a lookup without a server of the binary protocol, `pulsar://host:port`."""
    broker_tls_url: str = ""
    flight: Flight | None = None
    """None: Flight is not available."""
    budget: Budget | None = None
    """Memory held for clients; None: a budget of its own."""
    http_body_bytes: int = setting("limits.http_body_bytes")
    frame_s: float = setting("limits.frame_s")
    http_requests: int = setting("limits.http_requests")
    request_s: float = 60.0
    """Time for a request, its body included."""
    unauthenticated_s: float = setting("limits.unauthenticated_s")
    """Time for the head of a request, and for a TLS handshake."""
    keep_alive_s: float = 60.0
    """Idle time after an answer at which a connection is closed."""
