"""Options of the HTTP server, with its hook for authorization."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from holdfast.server.cluster_view import ClusterView
from holdfast.server.config import setting
from holdfast.server.listening import ListenOptions

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


class Flight(Protocol):
    """Arrow Flight, for reads of whole topics."""

    host: str
    """Name or address for clients; empty: the one that they used for HTTP."""

    async def port(self, tls: bool) -> int:
        """Return its port, with TLS or without; start it if necessary."""


@dataclass(frozen=True)
class HttpOptions(ListenOptions):
    """Options of an `HttpServer`. `unauthenticated_s` limits the head of a request, and a TLS handshake.

    Example:
        >>> HttpOptions(port=0).host
        '127.0.0.1'
    """

    port: int | None = setting("listen.http_port")
    https_port: int | None = setting("listen.https_port")
    authorize: Authorize = allow_all
    authorizes: bool = False
    """`authorize` asks for grants and permissions. Else a permission would have no effect, and is refused."""
    challenge: str = 'Bearer realm="holdfast"'
    """`WWW-Authenticate` of a refusal: the accepted methods."""
    local_names: bool = False
    """Answer only requests that name this machine by an address or as localhost. Without authentication every
    local program is accepted, but a web page in a browser must not be."""
    broker_url: str = ""
    """The answer to a lookup without a server of the binary protocol, `pulsar://host:port`."""
    broker_tls_url: str = ""
    flight: Flight | None = None
    """None: Flight is not available."""
    cluster: ClusterView | None = None
    """The membership of the broker; None: it is alone."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the server by their keys, to be shown."""
    http_body_bytes: int = setting("limits.http_body_bytes")
    http_requests: int = setting("limits.http_requests")
    request_s: float = 60.0
    """Time for a request, its body included."""
    keep_alive_s: float = 60.0
    """Idle time after an answer at which a connection is closed."""
