"""How the HTTP server is set up, and what it asks of whoever decides who may do what."""

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
"""What a request wants.

`admin`: look at something or change it. `consume`: look into a subscription or move it. `lookup`: find a
topic. `metrics`, `health`: as they say. `describe`: what this interface is, which tells nothing of a broker.
"""

Authorize: TypeAlias = Callable[["web.Request", HttpAction, str], Awaitable[str | None]]
"""May this request do that to `broker`, a tenant, a `tenant/namespace`, or a topic (in full)? Answers the
role, for the log. Raises `AuthenticationFailed` (401) or `Denied` (403)."""


async def anybody(request: web.Request, action: HttpAction, resource: str) -> str | None:
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
    """Everything that an `HttpServer` can be told, with units in the names. Settings mean the same here.

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
    authorize: Authorize = anybody
    challenge: str = 'Bearer realm="holdfast"'
    """`WWW-Authenticate` of a refusal: the ways to authenticate."""
    local_names: bool = False
    """Answer only requests that name this machine by an address or as localhost: where every local program is
    let in, a web page in a browser must not be."""
    enter: Callable[[str], None] = welcome
    """Called with the address (no port) of a new connection; raises a HoldfastError if it is one too many."""
    leave: Callable[[str], None] = welcome
    """Called once for each connection that has entered, at its end."""
    broker_url: str = ""
    """The answer to a lookup, `pulsar://host:port`, where no wire server is known; empty: none."""
    broker_tls_url: str = ""
    flight: Flight | None = None
    """None: whole topics are not read here."""
    budget: Budget | None = None
    """Memory held for clients; None: a budget of its own."""
    body_bytes_max: int = setting("limits.http_body_bytes")
    body_s: float = setting("limits.frame_s")
    requests_max: int = setting("limits.http_requests")
    request_s: float = 60.0
    """Time for a request, its body included."""
    head_s: float = setting("limits.unauthenticated_s")
    """Time for the head of a request, and for a TLS handshake."""
    keep_alive_s: float = 60.0
    """Idle time after an answer at which a connection is closed."""
