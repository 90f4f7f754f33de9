"""Serve the unreplicated topics of a member, on ports of their own.

Clients find its port by a lookup, at any member. HTTP needs no port of its own: the member's server passes
each request to the broker that has the topic.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from holdfast.broker import Broker, Quota
from holdfast.server.pulsar.listener import Server

if TYPE_CHECKING:
    from holdfast.server.config import Config
    from holdfast.server.http import HttpServer
    from holdfast.server.pulsar.setup import ServerOptions


def unreplicated_options(config: Config, options: ServerOptions) -> ServerOptions:
    """Return the options of the second server: the same, with other ports."""
    ports = (config.cluster.unreplicated_port, config.cluster.unreplicated_tls_port)
    return dataclasses.replace(
        options,
        port=None if options.port is None else ports[0],
        tls_port=None if options.tls_port is None else ports[1],
        advertised=None,
        listeners={},
    )


async def serve_unreplicated(
    parts: contextlib.AsyncExitStack,
    broker: Broker,
    config: Config,
    server: Server | None,
    stop: Callable[[Callable[[float], Awaitable[None]]], Awaitable[None]],
) -> tuple[int, int]:
    """Open the server of a member's unreplicated topics, which `parts` closes with `stop`.

    Returns its ports without TLS and with it; 0: not open.
    """
    local = broker.unreplicated.local
    if local is None:
        return 0, 0
    quota = Quota(local, config.limits)
    quota.start()
    parts.callback(quota.stop)
    if server is None:
        return 0, 0
    own = server.unreplicated = Server(local, unreplicated_options(config, server.options))
    await own.start()
    parts.push_async_callback(stop, own.stop)
    return own.port or 0, own.tls_port or 0


def pass_unreplicated(http: HttpServer) -> None:
    """Let a member's HTTP server pass requests on to the broker of its unreplicated topics."""
    local = http.broker.unreplicated.local
    if local is not None:
        wire = None if http.wire is None else http.wire.unreplicated
        options = dataclasses.replace(http.options, cluster=None)
        http.unreplicated = type(http)(local, options, wire)
        local.rates.add_source(http.unreplicated.producer_counts)
