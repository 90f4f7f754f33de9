"""A server stops even if its requests still wait."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

from holdfast.broker import Broker
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar.listener import Server
from holdfast.server.pulsar.requests import Request
from holdfast.server.pulsar.setup import ServerOptions
from tests.kit.server.wire_raw import Raw
from tests.kit.waiting import eventually


class Deaf:
    """Ends when it is released; that it is cancelled it does not heed."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def handle(self, connection: Any, message: Any) -> None:
        self.begun.set()
        while not self.released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.released.wait()
        self.ended.set()


def test_a_request_that_does_not_end_holds_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        deaf = Deaf()
        async with Broker.open(tmp_path) as broker:
            server = Server(broker, ServerOptions(port=0))
            await server.start()
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await eventually(lambda: server.connections)
            (connection,) = server.connections
            request = Request("deaf", deaf.handle, lambda number, reason: b"")
            connection._request(request, pb.CommandSuccess(request_id=1), 10)
            await asyncio.wait_for(deaf.begun.wait(), 20)
            stopping = asyncio.create_task(server.stop(grace_s=0.2))
            done, _ = await asyncio.wait([stopping], timeout=20)
            deaf.released.set()  # the test ends, also where the server does not
            told = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            await asyncio.wait_for(deaf.ended.wait(), 20)
            assert done, "the server waits for ever"
            assert told == b"", "the connection was closed"

    asyncio.run(main())


def test_a_client_that_reset_its_connection_holds_nobody(tmp_path: Path) -> None:
    """Also before the server knows of it: the system then refuses to end the stream."""

    async def main() -> None:
        async with Broker.open(tmp_path) as broker:
            server = Server(broker, ServerOptions(port=0))
            await server.start()
            raw = await asyncio.to_thread(Raw, server.url)
            (connection,) = server.connections
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            raw.socket.close()
            connection.close()
            await asyncio.wait_for(connection.lost, 20)
            await server.stop()

    asyncio.run(main())
