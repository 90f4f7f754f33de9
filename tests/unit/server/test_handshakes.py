"""TLS connections count from their first packet; bytes after the handshake are not lost."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.auth import tls
from holdfast.server.config import Limits, Tls
from holdfast.server.handshakes import after_handshake
from holdfast.server.limits import ConnectionCount
from tests.kit.certificates import Authority
from tests.kit.processes import until
from tests.kit.waiting import eventually


class Echo(asyncio.Protocol):
    """Says everything again."""

    def __init__(self, door: ConnectionCount) -> None:
        self.door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.door.enter("127.0.0.1")
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        assert transport.get_extra_info("ssl_object") is not None

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, error: BaseException | None) -> None:
        self.door.leave("127.0.0.1")


class BufferedEcho(asyncio.BufferedProtocol):
    """The same, into a small buffer of its own."""

    def __init__(self, door: ConnectionCount) -> None:
        self.inner = Echo(door)
        self.buffer = bytearray(3)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.inner.connection_made(transport)

    def connection_lost(self, error: BaseException | None) -> None:
        self.inner.connection_lost(error)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.inner.data_received(bytes(self.buffer[:count]))


Work = Callable[[int, ConnectionCount, ssl.SSLContext], Any]


def serving(
    directory: Path, work: Work, kind: Any = Echo, places: int = 10, handshake_s: float = 20.0
) -> None:
    """Runs `work` in a thread, with the port, the door and the client's context."""
    authority = Authority(directory / "pki")
    certificate, key = authority.certify("server")
    context = tls.server_context(Tls(certificate=certificate, key=key))
    client = ssl.create_default_context(cafile=str(authority.ca))
    door = ConnectionCount(Limits(connections=places))

    async def main() -> None:
        factory = after_handshake(lambda: kind(door), context, door.enter, door.leave, handshake_s)
        server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
        async with server:
            await asyncio.to_thread(work, server.sockets[0].getsockname()[1], door, client)
            await eventually(lambda: door.count == 0)

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Echo, BufferedEcho])
def test_nothing_is_lost(kind: Any, tmp_path: Path) -> None:
    def work(port: int, door: ConnectionCount, context: ssl.SSLContext) -> None:
        for _ in range(20):
            with (
                socket.create_connection(("127.0.0.1", port), timeout=10) as raw,
                context.wrap_socket(
                    raw, server_hostname="localhost", do_handshake_on_connect=False
                ) as secure,
            ):
                secure.sendall(b"hello, at once")  # it leaves with the last packet of the handshake
                assert receive(secure, 14) == b"hello, at once"
                secure.sendall(b"again")
                assert receive(secure, 5) == b"again"

    serving(tmp_path, work, kind)


def receive(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := channel.recv(size)):
        data += part
    return data


def test_handshakes_that_never_end_count(tmp_path: Path) -> None:
    def work(port: int, door: ConnectionCount, context: ssl.SSLContext) -> None:
        held = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(3)]
        for each in held:
            each.sendall(b"\x16\x03\x01")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as fourth:
            assert gone(fourth)
        assert door.count == 3
        assert all(gone(each) for each in held)
        until(lambda: door.count == 0)
        door.enter("127.0.0.1")
        door.leave("127.0.0.1")

    serving(tmp_path, work, places=3, handshake_s=0.2)


def gone(channel: socket.socket) -> bool:
    try:
        while channel.recv(1000):
            pass
    except ConnectionResetError:
        pass
    channel.close()
    return True


def test_what_is_no_handshake(tmp_path: Path) -> None:
    def work(port: int, door: ConnectionCount, context: ssl.SSLContext) -> None:
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b""):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as channel:
                channel.sendall(data)
                channel.shutdown(socket.SHUT_WR)
                assert gone(channel)

    serving(tmp_path, work)
