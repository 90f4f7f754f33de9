"""Count the connections of the HTTP server, and close those of slow clients."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from holdfast.errors import HoldfastError
from holdfast.server.http.refusals import Refusal
from holdfast.server.logs import Log
from holdfast.server.pace import Pace

if TYPE_CHECKING:
    from holdfast.server.http.server import HttpServer


log = Log("holdfast.http")

_ACKED = 120
"""Offset of tcpi_bytes_acked in struct tcp_info of Linux."""


class Requests(web.RequestHandler):
    """The protocol of aiohttp, with our own answer to malformed requests."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a malformed request without its bytes, and log it without a traceback.

        The bytes may contain credentials, and any client could fill the log with tracebacks.
        """
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        log.debug("malformed request", peer=request.remote, why=type(exc).__name__)
        refused = Refusal(status, "the request is not valid HTTP").response()
        refused.headers["Server"] = "holdfast"
        refused.force_close()
        return refused


class HttpConnection(asyncio.Protocol):
    """Wraps the protocol of aiohttp: counts the connection, and limits its times."""

    def __init__(self, server: HttpServer, inner: web.RequestHandler) -> None:
        self._server = server
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._entered = False
        self._busy = False
        self._reading = Pace(server.options.keep_alive_s)
        """The transfer of an answer to the client."""
        self._taken = 0
        """Bytes that its machine had acknowledged when that began."""
        self._since: float | None = self._loop.time()
        """The start of an incomplete request head; None: no head is incomplete."""

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
        """Note that the head of a request is complete."""
        self._busy = True
        self._since = None

    def ends(self) -> None:
        """Note that the request was answered."""
        self._busy = False

    def look(self) -> None:
        """Close a client that sends a head or reads an answer too slowly."""
        now, options = self._loop.time(), self._server.options
        if self._since is not None and now - self._since > options.unauthenticated_s:
            self.close()
        elif self._transport is not None:
            if not self._transport.get_write_buffer_size():
                self._reading.end()
                return
            taken = _taken(self._transport)
            if not self._reading.running:
                self._taken = taken
                self._reading.begin(now)
            elif self._reading.late(now, taken - self._taken):
                self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _taken(transport: asyncio.Transport) -> int:
    """Return the bytes that the client's machine has acknowledged; 0: unknown."""
    try:
        told = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        return int.from_bytes(told[_ACKED : _ACKED + 8], sys.byteorder)
    except (OSError, AttributeError):
        return 0
