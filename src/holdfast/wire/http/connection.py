"""A connection of the HTTP server: counted, and closed when its client does not say what it wants."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from holdfast.errors import HoldfastError
from holdfast.wire.http.refusals import Refusal

if TYPE_CHECKING:
    from holdfast.wire.http.server import HttpServer


class HttpConnection(asyncio.Protocol):
    """Stands before aiohttp's own protocol, and passes everything on."""

    def __init__(self, server: HttpServer, inner: web.RequestHandler) -> None:
        self._server = server
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._entered = False
        self._busy = False
        self._since: float | None = self._loop.time()
        """Since when it has been saying what it wants; None: it has said it, or is silent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        self._address = str(peer[0])
        try:
            self._server.options.enter(self._address)
        except HoldfastError as error:
            refused = Refusal(503, str(error)).plain()
            transport.write(refused)
            transport.close()
            return
        self._entered = True
        self._server.connections[self._inner] = self
        self._inner.connection_made(transport)

    def connection_lost(self, error: BaseException | None) -> None:
        self._transport = None
        if self._entered:
            self._entered = False
            del self._server.connections[self._inner]
            self._server.options.leave(self._address)
            self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if not self._entered:
            return
        if self._since is None and not self._busy:
            self._since = self._loop.time()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        if self._entered:
            self._inner.eof_received()
        return None

    def pause_writing(self) -> None:
        if self._entered:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._entered:
            self._inner.resume_writing()

    # -- what the server says --------------------------------------------------------------------------

    def begins(self) -> None:
        """A request has come in as far as its headers."""
        self._busy = True
        self._since = None

    def ends(self) -> None:
        """It was answered."""
        self._busy = False

    def look(self) -> None:
        """Does it take too long?"""
        if self._since is not None and self._loop.time() - self._since > self._server.options.head_s:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
