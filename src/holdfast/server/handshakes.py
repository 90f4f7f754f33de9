"""Count TLS connections from their first packet on.

The event loop tells a protocol of a TLS connection only after the handshake. A client with ten thousand
unfinished handshakes would not be counted, and would take every descriptor of the process. So the listener
is without TLS: a connection is counted first, and the handshake follows.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import HoldfastError
from holdfast.server.logs import Log

log = Log("holdfast.tls")

Factory = Callable[[], asyncio.Protocol | asyncio.BufferedProtocol]


def after_handshake(
    factory: Factory,
    context: ssl.SSLContext,
    enter: Callable[[str], None],
    leave: Callable[[str], None],
    within_s: float,
) -> Callable[[], asyncio.Protocol]:
    """Return a factory for a listener without TLS, whose connections do the handshake themselves.

    Each connection is counted (`enter`, with its address) until its handshake is over; then the protocol of
    `factory` counts it. One above the limit is closed without an answer: before the handshake no client can
    read one.
    """
    return lambda: _Handshake(factory, context, enter, leave, within_s)


@dataclass
class _Handshake(asyncio.Protocol):
    _factory: Factory
    _context: ssl.SSLContext
    _enter: Callable[[str], None]
    _leave: Callable[[str], None]
    _within_s: float
    _task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        address = str((transport.get_extra_info("peername") or ("unknown",))[0])
        try:
            self._enter(address)
        except HoldfastError as error:
            log.warning("connection refused", peer=address, why=error)
            transport.abort()
            return
        transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._shake(transport, address))

    async def _shake(self, transport: asyncio.Transport, address: str) -> None:
        early = _Early()
        secure: asyncio.Transport | None = None
        try:
            secure = await asyncio.get_running_loop().start_tls(
                transport, early, self._context, server_side=True, ssl_handshake_timeout=self._within_s
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            log.debug("TLS handshake failed", peer=address, why=error)
            transport.abort()
        finally:
            self._leave(address)
        if secure is not None and not early.lost:
            _hand_over(self._factory(), secure, bytes(early.data))


class _Early(asyncio.Protocol):
    """Collects the bytes between the end of the handshake and the real protocol."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: BaseException | None) -> None:
        self.lost = True


def _hand_over(
    protocol: asyncio.Protocol | asyncio.BufferedProtocol, transport: asyncio.Transport, early: bytes
) -> None:
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if not early:
        return
    if isinstance(protocol, asyncio.Protocol):
        protocol.data_received(early)
        return
    while early:
        buffer = memoryview(protocol.get_buffer(len(early)))
        count = min(len(buffer), len(early))
        buffer[:count] = early[:count]
        protocol.buffer_updated(count)
        early = early[count:]
