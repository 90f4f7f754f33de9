"""Who may come in and do what: one object for both protocols, made from the configuration."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from holdfast.errors import Denied
from holdfast.group import Clock, SystemClock
from holdfast.wire import options as wire
from holdfast.wire import tls
from holdfast.wire.auth import Authenticator, Peer, Principal
from holdfast.wire.authorization import Authorizer
from holdfast.wire.config import Config
from holdfast.wire.limits import Admission


class Access:
    """Authentication, authorisation, TLS and the count of connections.

    Example:
        >>> access = Access(Config())
        >>> access.authorize("anonymous", "produce", "persistent://public/default/orders", "")
    """

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.authenticator = Authenticator(config.authentication, self._clock)
        self.authorizer = Authorizer(config.authorization)
        self.admission = Admission(config.limits)
        encrypted = config.listen.tls_port is not None or config.listen.https_port is not None
        self.tls: ssl.SSLContext | None = tls.server_context(config.tls) if encrypted else None

    def use(self, config: Config) -> None:
        """Go by the keys, users, certificates and grants of this configuration from now on.

        Raises:
            BadConfiguration: a file cannot be read or is wrong. What was read before it is in use already.
        """
        if self.tls is not None:
            tls.load(self.tls, config.tls)
        self.authenticator.use(config.authentication)
        self.authorizer.use(config.authorization)

    def close(self) -> None:
        self.authenticator.close()

    # -- for the Pulsar protocol -----------------------------------------------------------------------

    async def authenticate(self, credentials: wire.Credentials) -> wire.Identity:
        """Who is it?

        Raises:
            AuthenticationFailed: what is shown proves nothing.
        """
        peer = Peer(credentials.address, credentials.certificate)
        found = await self.authenticator.begin(credentials.method, credentials.data, peer)
        return wire.Identity(found.role, self._left_s(found))

    def authorize(self, role: str, action: wire.Action, name: str, subscription: str) -> None:
        """May this role do that to a topic (in full), or look into a namespace?

        Raises:
            Denied: it may not.
        """
        if "://" in name:
            may = self.authorizer
            allowed = may.allows_any(role, name) if action == "lookup" else may.allows(role, action, name)
        else:
            allowed = self._looks_into(role, name)
        if not allowed:
            words = {"lookup": "look up", "produce": "produce to", "consume": "consume from"}[action]
            raise Denied(f"the role {role!r} may not {words} {name}")

    def _looks_into(self, role: str, name: str) -> bool:
        tenant, _, namespace = name.partition("/")
        return any(
            self.authorizer.allows_namespace(role, action, tenant, namespace)
            for action in ("produce", "consume", "admin")
        )

    def _left_s(self, principal: Principal) -> float | None:
        if principal.expires_ns is None:
            return None
        return max(0.0, (principal.expires_ns - self._clock.now_ns()) / 1e9)


def server_options(config: Config, access: Access) -> wire.ServerOptions:
    """The configuration as the server of the Pulsar protocol wants it."""
    limits = config.limits
    listeners: Mapping[str, wire.Advertised] = {
        each.name: wire.Advertised(each.url, each.tls_url) for each in config.advertised
    }
    return wire.ServerOptions(
        host=config.listen.host,
        port=config.listen.port,
        backlog=config.listen.backlog,
        tls_port=config.listen.tls_port,
        tls=access.tls,
        advertised=next(iter(listeners.values()), None),
        listeners=listeners,
        authenticate=access.authenticate,
        authorize=access.authorize,
        enter=access.admission.enter,
        leave=access.admission.leave,
        message_bytes_max=limits.message_bytes,
        requests_max=limits.requests_in_flight,
        handshake_s=limits.unauthenticated_s,
        keep_alive_s=limits.keepalive_s,
        liveness_s=limits.liveness_s,
        write_buffer_bytes=limits.write_bytes,
        volatile_s=limits.volatile_s,
    )
