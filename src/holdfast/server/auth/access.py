"""Check access of clients: one object for both protocols, made from the configuration."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import AuthenticationFailed, Denied
from holdfast.names import shown
from holdfast.server.auth import tls
from holdfast.server.auth.authentication import Authenticator, Peer, Principal
from holdfast.server.auth.authorization import Authorizer
from holdfast.server.budget import Budget
from holdfast.server.config import Config, options_of
from holdfast.server.limits import ConnectionCount
from holdfast.server.pulsar import setup as wire
from holdfast.system import Clock, SystemClock

if TYPE_CHECKING:
    from aiohttp import web

    from holdfast.server.http import setup as http


ROLE = "role"
"""Where a request of HTTP keeps the role that is checked."""
ORIGINAL_PRINCIPAL = "X-Original-Principal"
"""The header in which a Pulsar proxy names the role of its client."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address.

    Example:
        >>> [is_loopback(each) for each in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "127.example.com")]
        [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Access:
    """Authentication, authorization, TLS and the count of connections.

    Example:
        >>> access = Access(Config())
        >>> access.authorize("anonymous", "produce", "persistent://public/default/orders", "")
    """

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._http = config.http
        self.authenticator = Authenticator(config.authentication, self._clock)
        self.authorizer = Authorizer(config.authorization)
        self.connections = ConnectionCount(config.limits)
        self.budget = Budget(config.limits.held_bytes)
        encrypted = config.listen.tls_port is not None or config.listen.https_port is not None
        self.tls: ssl.SSLContext | None = tls.server_context(config.tls) if encrypted else None

    def use(self, config: Config) -> None:
        """Apply the keys, users, certificates and grants of this configuration from now on.

        Authorities removed from `tls.ca` stay accepted: a context in use can only add them.

        Raises:
            BadConfiguration: a file cannot be read or is invalid; nothing changes.
        """
        if self.tls is not None:
            tls.server_context(config.tls)  # raises before anything is changed
        self.authenticator.use(config.authentication)
        self.authorizer.use(config.authorization)
        if self.tls is not None:
            tls.load(self.tls, config.tls)

    def close(self) -> None:
        self.authenticator.close()

    # -- for the Pulsar protocol -----------------------------------------------------------------------

    async def authenticate(self, credentials: wire.Credentials) -> wire.Identity:
        """Find the role of a client.

        Raises:
            AuthenticationFailed: the credentials are invalid or missing.
        """
        peer = Peer(credentials.address, credentials.certificate)
        found = await self.authenticator.begin(credentials.method, credentials.data, peer)
        return wire.Identity(found.role, self._left_s(found))

    def authorize(self, role: str, action: wire.PulsarAction, name: str, subscription: str) -> None:
        """Check that a role may do an action on a topic or a namespace.

        Raises:
            Denied: no grant allows it.
        """
        may = self.authorizer
        if action == "stage":
            if not may.allows_somewhere(role, "produce"):
                raise Denied(f"the role {shown(role)} may not stage entries: {needs('produce', 'any topic')}")
            return
        if action == "read":
            if not self._allows_http(role, "consume", "broker"):
                raise Denied(f"the role {shown(role)} may not read: {needs('consume', 'any topic')}")
            return
        if not (self._looks_up(role, name) if action == "lookup" else may.allows(role, action, name)):
            words = {"lookup": "look up", "produce": "produce to", "consume": "consume from"}[action]
            granted = "produce, consume or admin" if action == "lookup" else action
            raise Denied(f"the role {shown(role)} may not {words} {name}: {needs(granted, name)}")
        if action == "consume":
            self._require_subscription(role, name, subscription)

    def _require_subscription(self, role: str, name: str, subscription: str) -> None:
        """Refuse a consumer of a subscription that is for other roles.

        Raises:
            Denied: the text says why.
        """
        why = self.authorizer.why_not(role, name, subscription) if subscription else ""
        if why:
            raise Denied(f"the role {shown(role)} may not consume from {subscription!r} of {name}: {why}")

    def _looks_up(self, role: str, name: str) -> bool:
        """Return whether a role has any grant on a topic or on a whole namespace."""
        if "://" in name:
            return self.authorizer.allows_any(role, name)
        tenant, _, namespace = name.partition("/")
        return any(
            self.authorizer.allows_namespace(role, action, tenant, namespace)
            for action in ("produce", "consume", "admin")
        )

    # -- for HTTP --------------------------------------------------------------------------------------

    async def authorize_http(
        self, request: web.Request, action: http.HttpAction, resource: str
    ) -> str | None:
        """Check that a request may do an action; return its role, None without authentication.

        The resource is `broker`, a tenant, a `tenant/namespace`, or a topic.

        Raises:
            AuthenticationFailed: the credentials are invalid or missing.
            Denied: no grant allows it.
        """
        if (action == "health" and self._http.health_open) or (
            action == "metrics" and self._http.metrics_open
        ):
            return None
        if request.transport is None:
            raise AuthenticationFailed("the client has disconnected")
        address = (request.transport.get_extra_info("peername") or ("unknown",))[0]
        peer = Peer(str(address), request.transport.get_extra_info("peercert") or None)
        found = await self.authenticator.http(request.headers.get("Authorization"), peer)
        # A proxy names the role of its client: both roles need the grant.
        for role in (found.role, *request.headers.getall(ORIGINAL_PRINCIPAL, ())):
            request[ROLE] = role  # a refusal names it in the log
            if not self._allows_http(role, action, resource):
                raise Denied(_denied_http(role, action, resource))
            if action == "consume":
                self._require_subscription(role, resource, request.match_info.get("subscription", ""))
        return found.role

    async def readable(self, header: str | None, topics: Sequence[str]) -> tuple[str, list[bool]]:
        """Find the role behind a header `Authorization`, and which topics it may read.

        For Flight: the rules are those of HTTP for the action consume, but a certificate names no role there.

        Raises:
            AuthenticationFailed: the credentials are invalid or missing.
        """
        found = await self.authenticator.http(header, Peer("Flight"))
        return found.role, [self._allows_http(found.role, "consume", each) for each in topics]

    def _allows_http(self, role: str, action: http.HttpAction, resource: str) -> bool:
        may = self.authorizer
        if action in ("health", "describe"):
            return True  # every authenticated client may
        if action == "metrics":
            return may.allows_broker(role) or role in self._http.metrics_roles
        if action == "lookup":
            return resource == "broker" or self._looks_up(role, resource)
        if resource == "broker" and action == "consume":  # from some topic
            return may.allows_somewhere(role, "consume") or may.allows_somewhere(role, "admin")
        if resource == "broker":
            return may.allows_broker(role)
        if "://" in resource:
            # A consumer may inspect and reset its subscription, as over the Pulsar protocol.
            consumes = action == "consume" and may.allows(role, "consume", resource)
            return consumes or may.allows(role, "admin", resource)
        tenant, slash, namespace = resource.partition("/")
        if slash:
            return may.allows_namespace(role, "admin", tenant, namespace)
        return may.allows_tenant(role, "admin", tenant)

    def _left_s(self, principal: Principal) -> float | None:
        if principal.expires_ns is None:
            return None
        return max(0.0, (principal.expires_ns - self._clock.now_ns()) / 1e9)


def needs(actions: str, resource: str) -> str:
    """Say which grant a role lacks."""
    name = resource.partition("://")[2] or resource
    return f"it needs a grant of {actions} on {name} (authorization.grants, or a permission)"


def _denied_http(role: str, action: http.HttpAction, resource: str) -> str:
    name = shown(role)
    if action == "metrics":
        return f"the role {name} may not read the metrics: list it in http.metrics_roles"
    if (action, resource) == ("consume", "broker"):
        return f"the role {name} may not consume from any topic: {needs('consume', 'any topic')}"
    if resource == "broker":
        return f"the role {name} may not administer the broker: only authorization.superusers may"
    if action == "lookup":
        return f"the role {name} may not look up {resource}: {needs('produce, consume or admin', resource)}"
    if action == "consume":
        return f"the role {name} may not consume from {resource}: {needs('consume or admin', resource)}"
    return f"the role {name} may not administer {resource}: {needs('admin', resource)}"


def server_options(config: Config, access: Access) -> wire.ServerOptions:
    """Make the options of the server of the Pulsar protocol."""
    listeners: Mapping[str, wire.Advertised] = {
        each.name: wire.Advertised(each.url, each.tls_url) for each in config.advertised
    }
    return wire.ServerOptions(
        tls=access.tls,
        advertised=next(iter(listeners.values()), None),
        listeners=listeners,
        authenticate=access.authenticate,
        authorize=access.authorize,
        enter=access.connections.enter,
        leave=access.connections.leave,
        budget=access.budget,
        **options_of(wire.ServerOptions, config),
    )


def http_options(config: Config, access: Access, flight: http.Flight | None = None) -> http.HttpOptions:
    """Make the options of the HTTP server."""
    from holdfast.server.http.setup import HttpOptions
    from holdfast.server.settings import shown_settings

    return HttpOptions(
        tls=access.tls,
        authorize=access.authorize_http,
        authorizes=config.authorization.enabled,
        challenge=access.authenticator.http_challenge,
        local_names=is_loopback(config.listen.host) and not config.authentication.methods,
        enter=access.connections.enter,
        leave=access.connections.leave,
        flight=flight,
        budget=access.budget,
        keep_alive_s=2 * config.limits.keepalive_s,
        settings=shown_settings(config),
        **options_of(HttpOptions, config),
    )
