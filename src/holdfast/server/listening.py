"""Open the ports of a server: without TLS, with it, or both."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from holdfast.errors import Misuse
from holdfast.server.budget import Budget
from holdfast.server.config import setting
from holdfast.server.handshakes import Factory, after_handshake


def welcome(address: str) -> None:
    """Count nothing."""


@dataclass(frozen=True)
class ListenOptions:
    """Options of the servers of all protocols, with units in the names.

    A field that is a setting has the meaning of that setting.
    """

    host: str = setting("listen.host")
    backlog: int = setting("listen.backlog")
    tls: ssl.SSLContext | None = None
    """Needed for a port with TLS."""
    enter: Callable[[str], None] = welcome
    """Called with the address (no port) of a new connection; raises a HoldfastError above a limit."""
    leave: Callable[[str], None] = welcome
    """Called once for each connection that has entered, at its end."""
    budget: Budget | None = None
    """Memory held for clients, shared by the protocols of a server; None: a budget of its own."""
    frame_s: float = setting("limits.frame_s")
    unauthenticated_s: float = setting("limits.unauthenticated_s")


class Listening:
    """Listens from `start` to `stop`, or while `async with` lasts."""

    SCHEMES: ClassVar[tuple[str, str]]
    """Without TLS, and with it."""
    start: Any
    stop: Any

    def __init__(self) -> None:
        self._listeners: list[asyncio.Server] = []
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _listen(
        self,
        make: Factory,
        options: ListenOptions,
        ports: tuple[int | None, int | None],
    ) -> list[int | None]:
        """Open the ports, without TLS and with it; returns their numbers."""
        found: list[int | None] = [None, None]
        for at, port in enumerate(ports):
            factory = make
            if port is None:
                continue
            if at:
                if options.tls is None:
                    raise Misuse(
                        f"port {port} for {self.SCHEMES[1]} has no certificate; give options.tls, too"
                    )
                factory = after_handshake(
                    make, options.tls, options.enter, options.leave, options.unauthenticated_s
                )
            try:
                listener = await asyncio.get_running_loop().create_server(
                    factory, options.host, port, backlog=options.backlog
                )
            except OSError as error:
                raise type(error)(error.errno, _refusal(options.host, port, error)) from None
            self._listeners.append(listener)
            found[at] = int(listener.sockets[0].getsockname()[1])
        if found == [None, None]:
            raise Misuse(f"the server of {self.SCHEMES[0]} has no port; give one, with TLS or without")
        return found

    def _unlisten(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _address(self, host: str, port: int | None, tls_port: int | None) -> str:
        """Return the address for clients on this machine."""
        return f"{self.SCHEMES[port is None]}://{bracketed(host)}:{tls_port if port is None else port}"


def _refusal(host: str, port: int, error: OSError) -> str:
    """Say why an address cannot be listened on, and what to do."""
    at = f"cannot listen on {bracketed(host)}:{port}"
    if isinstance(error, socket.gaierror):
        return f"{at}: the host is not known ({error.strerror}); use an address of this machine"
    if error.errno == errno.EADDRINUSE:
        return f"{at}: address already in use; stop the other process, or use another port"
    return f"{at}: {os.strerror(error.errno or 0)}"


def bracketed(host: str) -> str:
    """Write a host as addresses have it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def usable_host(host: str) -> str:
    """Return the host for clients; this machine's name for an address of all.

    Example:
        >>> usable_host("10.0.0.1"), usable_host("0.0.0.0") == socket.gethostname()
        ('10.0.0.1', True)
    """
    return socket.gethostname() if host in ("0.0.0.0", "::", "") else host
