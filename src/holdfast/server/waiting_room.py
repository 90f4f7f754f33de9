"""Answer HTTP with status 503 and a reason while a member joins its cluster.

Without it, an operator sees only a closed port. Load balancers and `holdfast cluster status` get the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from holdfast.server.listening import Listening, ListenOptions

HEAD_BYTES = 16 << 10
"""The largest head of a request that is read."""
HEAD_S = 5.0
"""Time for the head of a request to arrive."""
CONNECTIONS = 100
"""Connections at once; further ones are closed."""


class WaitingRoom(Listening):
    """Listens on the ports of HTTP, and answers every request alike.

    Example:
        >>> import urllib.error, urllib.request
        >>> def ask(url: str) -> tuple[int, bytes]:
        ...     try:
        ...         urllib.request.urlopen(url)
        ...     except urllib.error.HTTPError as error:
        ...         return error.code, error.read()
        ...     return 200, b""
        >>> async def main() -> None:
        ...     async with WaitingRoom(lambda: "waits for node 2", ListenOptions(), (0, None)) as room:
        ...         print(await asyncio.to_thread(ask, f"http://127.0.0.1:{room.ports[0]}/"))
        >>> asyncio.run(main())
        (503, b'waits for node 2\\n')
    """

    SCHEMES = ("http", "https")

    def __init__(
        self, reason: Callable[[], str], options: ListenOptions, ports: tuple[int | None, int | None]
    ) -> None:
        super().__init__()
        self._reason = reason
        self._options = options
        self.ports: list[int | None] = list(ports)
        self._talks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the ports.

        Raises:
            OSError: a port cannot be opened.
        """
        if self.ports != [None, None]:
            wanted = (self.ports[0], self.ports[1])
            self.ports = await self._listen(self._connection, self._options, wanted)

    async def stop(self) -> None:
        """Close the ports and all connections."""
        self._unlisten()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def _connection(self) -> asyncio.Protocol:
        reader = asyncio.StreamReader(limit=HEAD_BYTES)
        return asyncio.StreamReaderProtocol(reader, self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._talks) >= CONNECTIONS:
            writer.close()
            return
        talk = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request and answer it. Its body is not read."""
        try:
            with contextlib.suppress(
                TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
            ):
                async with asyncio.timeout(HEAD_S):
                    await reader.readuntil(b"\r\n\r\n")
                    body = self._reason().encode() + b"\n"
                    head = (
                        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
                        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
                    )
                    writer.write(head.encode() + body)
                    await writer.drain()
        finally:
            writer.close()
