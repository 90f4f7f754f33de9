"""Direct connections between members: authenticated, with messages of bounded size.

```
 joiner                                            donor
   │ hello: magic, version, node, nonce a ────────►  │
   │ ◄──────────── magic, version, node, nonce b,    │  proof = HMAC-SHA256(secret, role, nodes, a, b)
   │               proof of the donor                │
   │ proof of the joiner ─────────────────────────►  │  a stranger gets no further
   │ ◄───────── frames: u32 size, bytes ──────────►  │
```

Both sides prove that they know the cluster's secret. The nonces are of this connection, so a recorded proof
is worth nothing. A TLS context may be given on top: the proofs do not hide what is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import hmac
import os
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from holdfast.errors import AuthenticationFailed, BadConfiguration, Corrupt, HoldfastError, Unsupported
from holdfast.system import Randomness, SystemRandomness

MAGIC = b"HFpeer"
VERSION = 1
MESSAGE_MAX = 16 << 20
"""The largest message, in bytes. Chunks of files are 1 MiB."""
STRANGERS_MAX = 16
"""Connections that have not proved themselves, at most. A further one takes the place of the oldest.

A member proves itself at once, so connections that only hold a place do not keep it out.
"""
GREETING_S = 5.0
"""Time in which a connection must prove itself."""
QUIET_S = 10.0
"""Time after which a peer that neither sends nor takes anything is given up."""

_HELLO = struct.Struct("<6sHQ32s")
_PROOF = 32
_SIZE = struct.Struct("<I")


class Channel(Protocol):
    """A connection to another member. Each wait ends, at the latest by a timeout."""

    async def send(self, message: bytes) -> None:
        """Send a message; wait while the peer does not take it.

        Raises:
            OSError: the connection has ended, or the peer is quiet for too long.
        """

    async def receive(self, timeout: float = QUIET_S) -> bytes:
        """Return the next message.

        Raises:
            OSError: the connection has ended, or the peer is quiet for too long.
            Corrupt: the message is larger than any.
        """

    async def close(self) -> None:
        """Close it. A second call does nothing."""


Handler: TypeAlias = Callable[[int, Channel], Awaitable[None]]
"""Serves a connection of another node."""


class Link(Protocol):
    """The way to the other members, beside the group."""

    async def serve(self, handler: Handler) -> None:
        """Accept connections of other members, until `close`."""

    async def connect(self, node: int) -> Channel:
        """Connect to a node.

        Raises:
            OSError: it does not answer.
            AuthenticationFailed: it does not know the secret.
        """

    async def close(self) -> None:
        """Stop accepting, and end all connections."""


class TcpChannel:
    """A `Channel` over TCP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, message: bytes) -> None:
        self._writer.write(_SIZE.pack(len(message)))
        self._writer.write(message)
        async with asyncio.timeout(QUIET_S):
            await self._writer.drain()

    async def receive(self, timeout: float = QUIET_S) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                if size > MESSAGE_MAX:
                    raise Corrupt(
                        f"a member announced a message of {size} bytes; at most {MESSAGE_MAX} are sent"
                    )
                return await self._reader.readexactly(size)
        except EOFError as error:
            raise ConnectionResetError("the member closed the connection") from error

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class TcpLink:
    """Connections over TCP. `addresses` has `host:port` of every node.

    Example:
        >>> async def main() -> None:
        ...     async def answer(node: int, channel: Channel) -> None:
        ...         await channel.send(b"hello " + await channel.receive())
        ...     one = TcpLink(1, {1: "127.0.0.1:0"}, b"secret")
        ...     await one.serve(answer)
        ...     two = TcpLink(2, {1: one.address}, b"secret")
        ...     channel = await two.connect(1)
        ...     await channel.send(b"two")
        ...     print(await channel.receive())
        ...     await channel.close()
        ...     await one.close()
        >>> asyncio.run(main())
        b'hello two'
    """

    def __init__(
        self,
        node: int,
        addresses: Mapping[int, str],
        secret: bytes,
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        random: Randomness | None = None,
    ) -> None:
        self._node = node
        self._addresses = addresses
        self._secret = secret
        self._server_tls, self._client_tls = server_tls, client_tls
        self._random = random or SystemRandomness()
        self._server: asyncio.Server | None = None
        self._strangers: dict[asyncio.StreamWriter, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused = 0
        """Connections that did not prove themselves."""

    @property
    def address(self) -> str:
        """Where it listens, as `host:port`."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def serve(self, handler: Handler) -> None:
        host, port = _split(self._addresses[self._node])

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._strangers) >= STRANGERS_MAX:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.transport.abort()
            self._strangers[writer] = None
            task = asyncio.get_running_loop().create_task(self._serve_one(reader, writer, handler))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        try:
            self._server = await asyncio.start_server(accept, host, port, ssl=self._server_tls, limit=1 << 22)
        except OSError as error:
            address = self._addresses[self._node]
            at = f"cannot listen on {address}, the address of node {self._node} for transfers"
            if error.errno == errno.EADDRINUSE:
                raise OSError(
                    error.errno, f"{at}: address already in use; stop the other process, or use another port"
                ) from None
            known = not isinstance(error, socket.gaierror) and error.errno is not None
            why = os.strerror(error.errno or 0).lower() if known else error.strerror
            raise BadConfiguration(f"{at} ({why}); is cluster.node the id of this machine?") from error

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
    ) -> None:
        channel = TcpChannel(reader, writer)
        try:
            try:
                async with asyncio.timeout(GREETING_S):
                    node = await self._greet(reader, writer)
            finally:
                self._strangers.pop(writer, None)
            await handler(node, channel)
        except (OSError, EOFError, HoldfastError) as error:
            self.refused += isinstance(error, AuthenticationFailed | EOFError | Unsupported | TimeoutError)
        finally:
            writer.transport.abort() if not writer.is_closing() else None

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        """Prove both sides to each other, as the donor; return the joiner's node."""
        node, theirs = _opened(await reader.readexactly(_HELLO.size))
        ours = self._random.token(32)
        writer.write(_HELLO.pack(MAGIC, VERSION, self._node, ours))
        writer.write(self._proof(b"donor", node, self._node, theirs, ours))
        await writer.drain()
        proof = await reader.readexactly(_PROOF)
        if not hmac.compare_digest(proof, self._proof(b"joiner", node, self._node, theirs, ours)):
            raise AuthenticationFailed(
                f"node {node} does not know the secret of this cluster; compare the files"
            )
        return node

    async def connect(self, node: int) -> TcpChannel:
        address = self._addresses.get(node)
        if address is None:
            raise ConnectionError(f"no address of node {node} is configured; add it")
        async with asyncio.timeout(GREETING_S):
            reader, writer = await asyncio.open_connection(
                *_split(address), ssl=self._client_tls, limit=1 << 22
            )
            try:
                ours = self._random.token(32)
                writer.write(_HELLO.pack(MAGIC, VERSION, self._node, ours))
                there, theirs = _opened(await reader.readexactly(_HELLO.size))
                proof = await reader.readexactly(_PROOF)
                expected = self._proof(b"donor", self._node, node, ours, theirs)
                if there != node:
                    raise AuthenticationFailed(
                        f"{address} is node {there}, not node {node}; correct cluster.nodes or cluster.node"
                    )
                if not hmac.compare_digest(proof, expected):
                    raise AuthenticationFailed(
                        f"node {node} at {address} has another secret; copy cluster.secret_file from it"
                    )
                writer.write(self._proof(b"joiner", self._node, node, ours, theirs))
                return TcpChannel(reader, writer)
            except BaseException as error:
                writer.transport.abort()
                if isinstance(error, EOFError):
                    raise ConnectionResetError(f"{address} ended the connection") from error
                raise

    def _proof(self, role: bytes, joiner: int, donor: int, one: bytes, other: bytes) -> bytes:
        what = struct.pack("<8sQQ", role, joiner, donor) + one + other
        return hmac.new(self._secret, what, hashlib.sha256).digest()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _opened(data: bytes) -> tuple[int, bytes]:
    magic, version, node, nonce = _HELLO.unpack(data)
    if magic != MAGIC:
        raise AuthenticationFailed("the other side is not a member of a holdfast cluster; check the address")
    if version != VERSION:
        raise Unsupported(
            f"node {node} speaks version {version} of copies, this one {VERSION}; update the older one"
        )
    return node, nonce


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
