"""A broker with an HTTP server on its own loop, and real requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import aiohttp
import pytest

from holdfast.broker import Broker, BrokerOptions
from holdfast.group import Group
from holdfast.server import Server, ServerOptions
from holdfast.server.cluster_view import ClusterView
from holdfast.server.http import HttpOptions, HttpServer
from tests.kit.cli.data import Cli

Answered = TypeVar("Answered")

T = "/admin/v2/persistent/public/default"
"""The path of the tests' topics."""


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """Return the reason of a refusal, which has no other field."""
        (key, reason), *more = self.json.items()
        assert (key, more) == ("reason", [])
        assert isinstance(reason, str)
        return reason


class Elsewhere:
    """Flight as HTTP needs it; the real one is in tests/process/flight/test_flight.py."""

    host = ""

    async def port(self, tls: bool) -> int:
        return 8081


class HttpWorld:
    """A broker with an HTTP server; its loop runs in a thread."""

    def __init__(
        self,
        http: HttpOptions | None = None,
        wire: bool | ServerOptions = False,
        group: Group | None = None,
        cluster: Callable[[Broker], ClusterView] | None = None,
        **options: Any,
    ) -> None:
        self._http = http or HttpOptions(
            port=0, broker_url="pulsar://127.0.0.1:6650", flight=Elsewhere(), authorizes=True
        )
        self._wire = ServerOptions(port=0) if wire is True else wire
        self._group = group
        self._cluster = cluster
        small: dict[str, Any] = {"reserve_bytes": 1 << 20, "journal_bytes": 1 << 20, "sync": "os"}
        self._options = BrokerOptions(**{**small, "require_namespaces": True, **options})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http-world", daemon=True)
        self._parts = contextlib.AsyncExitStack()
        self.broker: Broker
        self.server: HttpServer
        self.wire: Server | None = None
        self._session: aiohttp.ClientSession
        self._made = 0

    def __enter__(self) -> HttpWorld:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._parts.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        # A page of metrics shows the state before the request, also on a slow machine.
        self._parts.enter_context(mock.patch("holdfast.server.http.scraping.SMALL_S", math.inf))
        directory = self._parts.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        self.broker = await Broker.start(Path(directory), self._options, group=self._group)
        self._parts.push_async_callback(self.broker.close)
        if self._wire:
            self.wire = await self._parts.enter_async_context(Server(self.broker, self._wire))
        if self._cluster is not None:
            self._http = replace(self._http, cluster=self._cluster(self.broker))
        self.server = HttpServer(self.broker, self._http, self.wire)
        await self.server.start()
        self._parts.push_async_callback(self.server.stop, 2.0)
        self._session = await self._parts.enter_async_context(aiohttp.ClientSession(self.server.url))

    def run(self, work: Coroutine[Any, Any, Answered], timeout_s: float = 30.0) -> Answered:
        """Run a coroutine on the world's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    # -- requests --------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, **more: Any) -> Answer:
        """Send a request, as a program would."""
        return self.run(self.asking(method, path, **more))

    async def asking(self, method: str, path: str, **more: Any) -> Answer:
        async with self._session.request(method, path, **more) as response:
            return Answer(response.status, response.headers, await response.read())

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        found = self.ask("GET", path)
        assert found.status == 200, (path, found)
        return found.json

    def done(self, method: str, path: str, **more: Any) -> None:
        """Send a request whose answer is only its success."""
        found = self.ask(method, path, **more)
        assert (found.status, found.body) == (204, b""), (path, found)

    # -- what tests start with -------------------------------------------------------------------------

    def topic(self, messages: int = 0, subscription: str | None = None, batch: int = 1) -> str:
        """Create a topic with `messages` messages, and perhaps a subscription; return its path."""
        self._made += 1
        name = f"topic-{self._made}"
        self.run(self._fill(name, messages, subscription, batch))
        return f"{T}/{name}"

    async def _fill(self, name: str, messages: int, subscription: str | None, batch: int) -> None:
        await self.broker.admin.create_topic(name)
        if subscription is not None:
            await self.broker.admin.create_subscription(name, subscription)
        async with self.broker.producer(name, batch=batch) as p:
            if messages:
                await p.send_many([b"message %d" % number for number in range(messages)])

    def publish(self, name: str, data: bytes = b"x") -> None:
        """Publish one message."""

        async def work() -> None:
            async with self.broker.producer(name) as p:
                await p.send(data)

        self.run(work())

    def backlog(self, path: str, subscription: str = "s") -> int:
        return int(self.get(f"{path}/stats")["subscriptions"][subscription]["msgBacklog"])

    @contextlib.asynccontextmanager
    async def consuming(self, path: str, subscription: str = "s", **more: Any) -> AsyncIterator[Any]:
        """Open a consumer of the topic at a path."""
        async with self.broker.consumer(path.rpartition("/")[2], subscription, **more) as consumer:
            yield consumer


@pytest.fixture(scope="module")
def http() -> Iterator[HttpWorld]:
    """Share one server among all tests of a module: each creates its own topics."""
    with HttpWorld() as world:
        yield world


@pytest.fixture(params=["directory", "server"])
def holdfast(request: pytest.FixtureRequest, cli: Cli, http: HttpWorld) -> Cli:
    """Call the commands on a directory, and on a server."""
    if request.param == "server":
        cli.ask(http.server.url)
    return cli
