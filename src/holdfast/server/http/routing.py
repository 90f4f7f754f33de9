"""Define routes: method, path, handler and description.

The server and the OpenAPI page are both made from the routes, so the page is true. A route is a function
under `@route`: it gets a `Call` and returns the content of the answer's body; None is status 204.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
from aiohttp import web

from holdfast.broker import SubscriptionState, Topic
from holdfast.names import TopicName, namespace_name, tenant_name
from holdfast.server.http.choices import possible
from holdfast.server.http.refusals import Refusal
from holdfast.server.http.scraping import pieces
from holdfast.server.http.setup import HttpAction
from holdfast.server.pace import SLOWEST_BYTES_S

if TYPE_CHECKING:
    from holdfast.broker import Broker
    from holdfast.server.http.server import HttpServer

Handle: TypeAlias = Callable[["Call"], Awaitable[Any]]
Handler = TypeVar("Handler", bound=Handle)
Of = Literal["broker", "tenant", "namespace", "topic"]
"""The kind of resource of a route, on which a role needs a grant."""

Partitioned = Literal["refuse", "each", "first", "whole"]
"""Of a partitioned topic: 405; once for each partition; for partition 0; the handler does it."""

NUMBER_MAX = (1 << 63) - 1
PIECE_BYTES = 64 << 10
"""Bytes of a large answer that are written at once."""
BODY_BYTES = 16 << 10
"""Approximate memory of a request whose body is being received, without the body."""
TEXT = "text/plain"
BYTES = "application/octet-stream"
JSON = "application/json"
_GLOBAL = (
    "isGlobal is not supported: a topic has one value of each policy, none for all clusters; leave it out"
)


@dataclass(frozen=True)
class Parameter:
    """A part of the path, or of the query."""

    name: str
    type: Literal["string", "integer", "boolean"]
    text: str
    default: Any = None
    minimum: int = 0
    maximum: int = NUMBER_MAX
    choices: tuple[str, ...] = ()

    def read(self, value: str) -> Any:
        """Parse a value.

        Raises:
            ValueError: the value has another type, or is out of range.
        """
        if self.type == "boolean":
            if value.lower() not in ("true", "false"):
                raise ValueError(f"{self.name} is {value!r}; use true or false")
            return value.lower() == "true"
        if self.type == "integer":
            digits = value.removeprefix("-")
            number = int(value) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
            if number is None or not self.minimum <= number <= NUMBER_MAX:
                span = f"from {self.minimum} to {self.maximum}"
                raise ValueError(f"{self.name} is {value!r}; use a whole number {span}")
            return number
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.name} is {value!r}; use {' or '.join(self.choices)}")
        return value


PATH = {
    each.name: each
    for each in (
        Parameter("tenant", "string", "A tenant, such as public."),
        Parameter("namespace", "string", "A namespace of the tenant, such as default."),
        Parameter("topic", "string", "A topic of the namespace; write %2F for a slash."),
        Parameter("subscription", "string", "A subscription of the topic."),
        Parameter("exchange", "string", "An exchange of the namespace; write %2F for a slash."),
        Parameter("cluster", "string", "The name of the cluster."),
        Parameter("bundle", "string", "The one bundle of a namespace.", choices=("0x00000000_0xffffffff",)),
        Parameter("setting", "string", "The key of a setting, such as broker.roll_entries."),
        Parameter("value", "string", "The new value."),
        Parameter("key", "string", "The name of a property."),
        Parameter("role", "string", "A role of clients."),
        Parameter("node", "integer", "A node of the cluster.", minimum=1),
        Parameter("ledger", "integer", "A ledger's id."),
        Parameter("entry", "integer", "The number of an entry in its ledger, from 0."),
        Parameter("timestamp", "integer", "Milliseconds since 1970, UTC."),
        Parameter("seconds", "integer", "An age in seconds."),
        Parameter("count", "integer", "The number of entries.", minimum=1),
        Parameter("version", "integer", "A version of a schema, from 0.", minimum=0),
        Parameter("position", "integer", "The first is 1.", minimum=1),
    )
}


@dataclass(frozen=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    handle: Handle
    tag: str
    summary: str
    of: Of
    action: HttpAction
    query: tuple[Parameter, ...] = ()
    body: Any = None
    """The type of the request's JSON; None: no body."""
    body_optional: bool = False
    answer: Any = None
    """The type of the answer; None: no body."""
    media: str = JSON
    refusals: tuple[int, ...] = ()
    """Statuses of this route, beside those of every route."""
    statuses: Mapping[type[Exception], int] = field(default_factory=dict)
    """Statuses of errors that differ from the usual ones."""
    anywhere: bool = False
    """Any member answers, also for unreplicated topics of others."""
    partitioned: Partitioned = "refuse"
    """The effect if the path names a partitioned topic."""

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters of the path."""
        return [PATH[name] for name in re.findall(r"{(\w+)}", self.path)]


class Routes:
    """The routes of one subject, in the order of their comparison with a path."""

    def __init__(
        self,
        tag: str,
        prefix: str,
        of: Of,
        action: HttpAction = "admin",
        partitioned: Partitioned = "refuse",
    ) -> None:
        self.tag = tag
        self._partitioned: Partitioned = partitioned
        self._prefix = prefix
        self._of: Of = of
        self._action: HttpAction = action
        self.all: list[Route] = []

    def __call__(self, method: str, path: str, **more: Any) -> Callable[[Handler], Handler]:
        """Make a function a route; its docstring is the route's summary."""

        def add(handle: Handler) -> Handler:
            assert handle.__doc__, f"{handle.__name__} has no documentation"
            settings = {"of": self._of, "action": self._action, "partitioned": self._partitioned} | more
            if method == "GET" and settings["partitioned"] == "each":
                settings["partitioned"] = "first"
            summary = " ".join(handle.__doc__.split())
            self.all.append(Route(method, self._prefix + path, handle, self.tag, summary, **settings))
            return handle

        return add


class Call:
    """One request, as its route sees it."""

    def __init__(self, server: HttpServer, route: Route, request: web.Request) -> None:
        self.server = server
        self.broker: Broker = server.broker
        self.route = route
        self.request = request
        self.body: Any = None
        self._path: dict[str, Any] = {}
        for parameter in route.parameters:
            try:
                self._path[parameter.name] = parameter.read(request.match_info[parameter.name])
            except ValueError as error:
                raise Refusal(412, f"{error}") from None
        self._query = {each.name: self._read_query(each) for each in route.query}
        if "topic" in self._path and request.query.get("isGlobal", "").lower() == "true":
            raise Refusal(412, _GLOBAL)
        self.tenant = str(self._path.get("tenant", ""))
        self.namespace = ""
        """`tenant/namespace`."""
        self.topic_name = ""
        """The full name."""
        if "topic" in self._path or "exchange" in self._path:
            local = self._path.get("topic") or self._path["exchange"]
            name = TopicName.parse(f"persistent://{self.tenant}/{self['namespace']}/{local}")
            domain = "non-" if "/non-persistent/" in route.path else ""
            self.topic_name, self.namespace = f"{domain}{name}", f"{name.tenant}/{name.namespace}"
        elif "namespace" in self._path:
            self.namespace = namespace_name(f"{self.tenant}/{self['namespace']}")
        elif "tenant" in self._path:
            tenant_name(self.tenant)

    def of(self, topic: str) -> Call:
        """Return the same call for another topic (full name): a partition."""
        other = copy.copy(self)
        other.topic_name = topic
        return other

    def __getitem__(self, name: str) -> Any:
        """Return a part of the path."""
        return self._path[name]

    @property
    def resource(self) -> str:
        """The resource on which the role needs a grant."""
        named = {"tenant": self.tenant, "namespace": self.namespace, "topic": self.topic_name}
        return named.get(self.route.of, "broker")

    @property
    def topic(self) -> Topic:
        """The topic that the path names.

        Raises:
            NotFound: the topic does not exist.
        """
        return self.broker.topic(self.topic_name)

    @property
    def subscription(self) -> SubscriptionState:
        """The subscription that the path names.

        Raises:
            NotFound: the topic or the subscription does not exist.
        """
        return self.topic.subscription(self["subscription"])

    def query(self, name: str) -> Any:
        """Return a parameter of the query, or its default."""
        return self._query[name]

    def _read_query(self, parameter: Parameter) -> Any:
        value = self.request.query.get(parameter.name)
        if value is None:
            return parameter.default
        try:
            return parameter.read(value)
        except ValueError as error:
            raise Refusal(400, str(error)) from None

    async def _read(self) -> bytes:
        """Receive the body within its time limit, and count it in the budget."""
        options, budget = self.server.options, self.server.budget
        data, loop = bytearray(), asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(None) as limit:
                while True:
                    limit.reschedule(began + options.frame_s + len(data) / SLOWEST_BYTES_S)
                    budget.hold(self, BODY_BYTES + len(data))
                    chunk = await self.request.content.readany()
                    if not chunk:
                        return bytes(data)
                    if len(data) + len(chunk) > options.http_body_bytes:
                        raise web.HTTPRequestEntityTooLarge(options.http_body_bytes)
                    budget.require(len(chunk), "a body")
                    data += chunk
        except TimeoutError:
            why = f"the body is incomplete after {loop.time() - began:.0f} s, with {len(data)} bytes"
            words = f"{why}; send faster, or raise limits.frame_s"
            raise Refusal(400, words, {"Connection": "close"}) from None
        finally:
            budget.hold(self, 0)

    async def send(
        self, chunks: list[memoryview], size: int, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Send a large answer in pieces as the client reads it, without a copy."""
        response = web.StreamResponse(headers=headers)
        response.content_length = size
        try:
            await response.prepare(self.request)
            for piece in pieces(chunks, PIECE_BYTES):
                await response.write(piece)  # does not wait while the socket takes it
                await asyncio.sleep(0)
            await response.write_eof()
        except BaseException:  # an answer that has begun cannot become an error
            if self.request.transport is not None:
                self.request.transport.abort()
            raise
        return response

    async def read_body(self) -> None:
        """Receive and parse the body, if the route has one."""
        if self.route.body is None:
            return
        data = await self._read()
        if not data.strip():
            if not self.route.body_optional:
                raise Refusal(400, "the request has no body; send JSON, as /openapi.json describes it")
            return
        try:
            self.body = msgspec.json.decode(data, type=self.route.body)
        except msgspec.MsgspecError as error:
            words = f"the body is not the JSON that /openapi.json describes: {error}"
            values = possible(str(error), self.route.body)
            raise Refusal(400, f"{words}; use {', '.join(values)}" if values else words) from None
        except UnicodeDecodeError as error:
            words = f"the body is not the JSON that /openapi.json describes: it is not UTF-8 ({error})"
            raise Refusal(400, words) from None
        except RecursionError:
            raise Refusal(400, "the JSON of the body is nested too deeply") from None
