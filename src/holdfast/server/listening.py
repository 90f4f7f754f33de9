"""Open the ports of a server: without TLS, with it, or both."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import TYPE_CHECKING, Any, ClassVar, Self

from holdfast.errors import Misuse
from holdfast.server.handshakes import Factory, after_handshake

if TYPE_CHECKING:
    from holdfast.server.http.setup import HttpOptions
    from holdfast.server.pulsar.setup import ServerOptions


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
        options: HttpOptions | ServerOptions,
        ports: tuple[int | None, int | None],
        handshake_s: float,
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
                factory = after_handshake(make, options.tls, options.enter, options.leave, handshake_s)
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
