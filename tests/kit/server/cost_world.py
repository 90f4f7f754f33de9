"""A broker with both servers in this process, and the counted cost of a client.

Costs are counted, not timed: steps of the interpreter, bytes of answers, bytes that are held for a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from unittest import mock

from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.events import SubscriptionCreate, TopicCreate
from holdfast.broker.quota import Quota
from holdfast.broker.state import SILENT
from holdfast.server import Server, ServerOptions
from holdfast.server import steps as steps_module
from holdfast.server.budget import Budget
from holdfast.server.config import Limits
from holdfast.server.http import HttpOptions, HttpServer
from holdfast.server.pulsar.connection import Connection
from tests.kit.server.wire_raw import Raw, full

Answered = TypeVar("Answered")

STEP_INSTRUCTIONS = 60_000
"""Instructions of Python between two turns of the loop, at most: some milliseconds."""


class CostWorld:
    """`with CostWorld(topics=100) as world:`, then `world.raw()` for clients."""

    def __init__(
        self,
        topics: int = 0,
        name_bytes: int = 0,
        limits: Limits | None = None,
        broker: dict[str, Any] | None = None,
        http: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._topics = [f"topic-{number:05}-".ljust(name_bytes, "x") for number in range(topics)]
        self._limits = limits
        self._broker = broker or {}
        self.budget = Budget(options.pop("held_bytes", 512 << 20))
        self._options = ServerOptions(port=0, budget=self.budget, **options)
        self._http = HttpOptions(port=0, budget=self.budget, **(http or {}))
        self._parts = contextlib.AsyncExitStack()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="cost-world", daemon=True)
        self._clients = contextlib.ExitStack()
        self.broker: Broker
        self.server: Server
        self.http: HttpServer

    def __enter__(self) -> CostWorld:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()
        self.run(self._parts.aclose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _start(self) -> None:
        directory = self._parts.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        small: dict[str, Any] = {"reserve_bytes": 1 << 20, "journal_bytes": 1 << 20, "sync": "os"}
        options = BrokerOptions(**small, **self._broker, require_namespaces=True)
        self.broker = await Broker.start(Path(directory), options)
        self._parts.push_async_callback(self.broker.close)
        await self.create(self._topics)
        if self._limits is not None:
            quota = Quota(self.broker, self._limits)
            quota.start()
            self._parts.callback(quota.stop)
        self.server = Server(self.broker, self._options)
        await self.server.start()
        self._parts.push_async_callback(self.server.stop, 0.5)
        self.http = HttpServer(self.broker, self._http, self.server)
        await self.http.start()
        self._parts.push_async_callback(self.http.stop, 0.5)
        for listener in (*self.server._listeners, *self.http._listeners):
            for each in listener.sockets:  # accepted ones inherit it: the kernel buffers little, uncounted
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)

    async def create(self, names: list[str], subscriptions: tuple[str, ...] = ()) -> None:
        """Create topics, all in a few frames, each with these subscriptions."""
        events = [TopicCreate(full(name), self.broker.random.token(16), SILENT) for name in names]
        made = await asyncio.gather(*(self.broker.engine.submit(event) for event in events))
        more = [SubscriptionCreate(each.topic, name, 0) for each in made for name in subscriptions]
        await asyncio.gather(*(self.broker.engine.submit(event) for event in more))

    def run(self, work: Coroutine[Any, Any, Answered], timeout_s: float = 20.0) -> Answered:
        """Run a coroutine on the world's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    # -- clients ---------------------------------------------------------------------------------------

    def raw(self, **more: Any) -> Raw:
        """Open a client of the Pulsar protocol."""
        return self._clients.enter_context(Raw(self.server.url, **more))

    def connection(self, raw: Raw) -> Connection:
        """Return the server's end of a connection."""
        host, port = raw.socket.getsockname()

        async def find() -> Connection:
            return next(each for each in self.server.connections if each.address == f"{host}:{port}")

        return self.run(find())

    def idle(self) -> None:
        """Wait until the loop has nothing left to do."""

        async def turns() -> None:
            before = -1
            while before != (before := self._done()):
                for _ in range(50):
                    await asyncio.sleep(0)
                await asyncio.sleep(0.01)

        self.run(turns())

    def _done(self) -> int:
        return sum(len(each._requests) + held(each) for each in self.server.connections)


def held(connection: Connection) -> int:
    """Return the bytes that the server holds in memory for this client."""
    transport = connection._transport
    waiting = 0 if transport is None else transport.get_write_buffer_size()
    return waiting + connection._out_bytes + connection.reader.pending


class Steps:
    """Counts the instructions of Python that one thread executes, in any function."""

    def __init__(self) -> None:
        self.count = 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[Steps]:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield self
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += 1
        return self._stepped


def _a_turn(line: steps_module.Line) -> Coroutine[Any, Any, None]:
    """Replace a place in the line, which only a running loop advances."""
    return asyncio.sleep(0)


async def steps_of(work: Coroutine[Any, Any, Any]) -> list[int]:
    """Run work until it ends or waits for a task; return instructions per step."""
    taken: list[int] = []
    patch = mock.patch.object(steps_module.Line, "wait", new=_a_turn)
    with contextlib.suppress(StopIteration), contextlib.closing(work), patch:
        waits = None
        while waits is None:  # it only gives others a turn
            with Steps().counting() as steps:
                try:
                    waits = work.send(None)
                finally:
                    taken.append(steps.count)
    return taken
