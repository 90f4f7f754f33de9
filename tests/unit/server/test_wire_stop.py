"""A server that stops comes to an end, whatever its requests still wait for."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from holdfast.broker import Broker
from holdfast.wire.options import ServerOptions
from holdfast.wire.server import Server


class Request:
    """As far as a connection that stops needs it."""

    @staticmethod
    def refuse(number: int, reason: Any) -> bytes:
        return b""


async def deaf(released: asyncio.Event) -> None:
    """Ends when it is released; that it is cancelled it does not heed."""
    while not released.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await released.wait()


def test_a_request_that_does_not_end_holds_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        released = asyncio.Event()
        async with Broker.open(tmp_path) as broker:
            server = Server(broker, ServerOptions(port=0))
            await server.start()
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            while not server.connections:
                await asyncio.sleep(0.001)
            (connection,) = server.connections
            task = asyncio.create_task(deaf(released))
            connection._requests[task] = (Request, 1)  # type: ignore[assignment]
            await asyncio.sleep(0)
            stopping = asyncio.create_task(server.stop(grace_s=0.2))
            done, _ = await asyncio.wait([stopping], timeout=20)
            released.set()  # the test ends, also where the server does not
            told = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            await task
            assert done, "the server waits for ever"
            assert told == b"", "the connection was closed"

    asyncio.run(main())
