"""Serve HTTP: listeners, a guard around every route, connections with limits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from holdfast.broker import Broker, Counts
from holdfast.errors import HoldfastError
from holdfast.server.auth.access import ROLE
from holdfast.server.budget import Budget
from holdfast.server.http import (
    all_policies,
    broker_stats,
    brokers,
    bundles,
    cluster,
    compaction_routes,
    configuration,
    delivery_times,
    exchange_routes,
    flight,
    life_routes,
    limit_routes,
    messages,
    namespaces,
    partition_routes,
    passing_routes,
    permission_routes,
    policies,
    property_routes,
    schema_routes,
    subscriptions,
    topics,
)
from holdfast.server.http.answers import LookupAnswer
from holdfast.server.http.connection import HttpConnection, Requests
from holdfast.server.http.missing import missing_feature
from holdfast.server.http.openapi import description
from holdfast.server.http.refusals import Refusal, refusal_of
from holdfast.server.http.routing import JSON, PIECE_BYTES, Call, Route
from holdfast.server.http.setup import HttpOptions
from holdfast.server.listening import Listening, bracketed
from holdfast.server.logs import Log, Refusals
from holdfast.server.pulsar.listing import Listings

if TYPE_CHECKING:
    from holdfast.server.pulsar.listener import Server

log = Log("holdfast.http")

PATH_LENGTH_MAX = 200
"""Characters of a refused path in the log."""

LOOK_S = 1.0
"""Interval of the checks for silent connections, and for late requests."""

_SUBJECTS = (
    brokers.health_route,
    brokers.metrics_route,
    brokers.describe_route,
    configuration.route,  # before brokers/{cluster}
    broker_stats.route,
    limit_routes.of_broker,  # likewise
    brokers.route,
    brokers.lookup_route,
    brokers.passing_lookup_route,
    cluster.route,
    flight.route,
    namespaces.of_broker,
    namespaces.of_tenant,
    namespaces.list_route,
    namespaces.route,
    bundles.route,
    delivery_times.of_namespace,
    limit_routes.of_namespace,
    compaction_routes.of_namespace,
    life_routes.of_namespace,
    permission_routes.route,
    permission_routes.clusters,
    property_routes.of_namespace,
    policies.of_namespace,
    schema_routes.of_namespace,
    all_policies.of_namespace,
    topics.of_namespace,
    topics.route,
    partition_routes.route,
    passing_routes.of_namespace,
    passing_routes.route,
    delivery_times.of_topic,
    limit_routes.of_topic,
    compaction_routes.of_topic,
    life_routes.of_topic,
    permission_routes.of_topic,
    permission_routes.clusters_of_topic,
    property_routes.of_topic,
    property_routes.of_subscription,
    policies.of_topic,
    schema_routes.route,
    schema_routes.of_topic,
    all_policies.of_topic,
    messages.route,
    subscriptions.route,
    exchange_routes.of_namespace,
    exchange_routes.route,
    exchange_routes.of_topic,
    exchange_routes.of_subscription,
)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.~-]+)?(?::\d{1,5})?", re.ASCII)

ROUTES: list[Route] = [route for subject in _SUBJECTS for route in subject.all]
"""All routes, in the order in which a path is compared with them."""


class HttpServer(Listening):
    """Serves a broker over HTTP: stop the server, then close the broker.

    `wire` is the server of the binary protocol beside it: its addresses, and its connections.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> from urllib.request import urlopen
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         async with HttpServer(broker, HttpOptions(port=0)) as server:
        ...             url = f"{server.url}/admin/v2/brokers/health"
        ...             print(await asyncio.to_thread(lambda: urlopen(url).read()))
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        b'ok'
    """

    SCHEMES = ("http", "https")

    def __init__(
        self, broker: Broker, options: HttpOptions | None = None, wire: Server | None = None
    ) -> None:
        super().__init__()
        self.broker = broker
        self.options = options or HttpOptions()
        self.wire = wire
        self.routes = ROUTES
        self.port: int | None = None
        self.https_port: int | None = None
        self.connections: dict[web.RequestHandler, HttpConnection] = {}
        self.requests = 0
        """Requests that were answered."""
        self.stopping = False
        self.budget = self.options.budget or Budget()
        """The memory held for clients."""
        self.refusals = Refusals(log)
        """Refusals, for the log."""
        self.listings = Listings(broker) if wire is None else wire.listings
        self.scrapes = brokers.scrapes(self)
        self.began = (time.monotonic(), time.process_time())
        """The start, and the processor time until then."""
        self._under_way = 0
        self._working = 0
        """The requests in progress that do not wait for their body."""
        self._roles: dict[int, str | None] = {}
        """Roles of requests in progress, by `id`, for the log."""
        self.application = self._application()
        self._runner: web.AppRunner | None = None
        self.unreplicated: HttpServer | None = None
        """Of a member of a cluster: this server, as it serves the unreplicated topics."""

    # -- its life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the ports.

        Raises:
            OSError: an address or a port cannot be opened.
        """
        options = self.options
        self._runner = web.AppRunner(self.application, access_log=None)
        await self._runner.setup()
        try:
            ports = (options.port, options.https_port)
            self.port, self.https_port = await self._listen(self._connect, options, ports)
        except BaseException:
            await self._close()
            raise
        if self.wire is None:
            self.listings.start()
        else:
            self.wire.http_ports = (self.port or 0, self.https_port or 0)
        self.broker.rates.add_source(self.producer_counts)
        self._looking = asyncio.get_running_loop().create_task(self._look(), name="http-look")

    def _connect(self) -> HttpConnection:
        assert self._runner is not None
        assert self._runner.server is not None
        requests = Requests(
            self._runner.server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # as AppRunner passes it
            keepalive_timeout=self.options.keep_alive_s,
            auto_decompress=False,  # a small body must not become a large one
            lingering_time=1.0,
        )
        return HttpConnection(self, requests)

    async def stop(self, grace_s: float = 10.0) -> None:
        """Refuse new requests, answer those in progress, and close the connections."""
        if self._looking is None:
            return
        self.stopping = True
        self._looking.cancel()
        self._looking = None
        self.broker.rates.remove_source(self.producer_counts)
        if self.wire is None:
            self.listings.stop()
        self._unlisten()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._under_way:
                    await asyncio.sleep(0.005)
        self.scrapes.stop()
        await self._close()

    async def _close(self) -> None:
        self._unlisten()
        for connection in list(self.connections.values()):
            connection.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """The address for clients on this machine."""
        return self._address(self.options.host, self.port, self.https_port)

    def now(self) -> float:
        """Return the time of the loop, from which rates of non-persistent topics are computed."""
        return asyncio.get_running_loop().time()

    @property
    def name(self) -> str:
        """This broker, as host:port."""
        return self.url.partition("://")[2]

    @functools.cached_property
    def description(self) -> dict[str, Any]:
        """The OpenAPI page, made at the first request: a start does not wait."""
        return description(self.routes)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for connection in list(self.connections.values()):
                connection.look()

    def producer_counts(self) -> Iterable[tuple[tuple[str, int], Counts]]:
        """Yield the counts of connected producers, for their rates."""
        if self.wire is not None:
            for session, producer in self.wire.producers.items():
                yield ("producer", session), (producer.messages_in, producer.bytes_in)

    # -- where clients find it -------------------------------------------------------------------------

    def addresses(self, request: web.Request, listener: str = "") -> LookupAnswer:
        """Return the addresses of this broker for a client.

        Without an advertised address it is the host of the request: that way is known to work.

        Raises:
            Refusal: no advertised listener has this name.
        """
        host = host_of(request)
        if not host:
            own = request.transport and request.transport.get_extra_info("sockname")
            host = own[0] if own else "127.0.0.1"
        host = bracketed(host)
        url, tls_url = self._binary(host, listener)
        return LookupAnswer(
            broker_url=url,
            broker_url_tls=tls_url,
            http_url="" if self.port is None else f"http://{host}:{self.port}",
            http_url_tls="" if self.https_port is None else f"https://{host}:{self.https_port}",
            native_url=url,
        )

    def _binary(self, host: str, listener: str) -> tuple[str, str]:
        if self.wire is None:
            if listener:
                raise Refusal(404, f"no advertised listener {listener!r}; available: none")
            return self.options.broker_url, self.options.broker_tls_url
        options = self.wire.options
        advertised = options.advertised
        if listener:
            advertised = options.listeners.get(listener)
            if advertised is None:
                known = ", ".join(sorted(options.listeners)) or "none"
                raise Refusal(404, f"no advertised listener {listener!r}; available: {known}")
        if advertised is not None:
            return advertised.url, advertised.tls_url
        port, tls_port = self.wire.port, self.wire.tls_port
        return (
            "" if port is None else f"pulsar://{host}:{port}",
            "" if tls_port is None else f"pulsar+ssl://{host}:{tls_port}",
        )

    # -- requests --------------------------------------------------------------------------------------

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=self.options.http_body_bytes, middlewares=[self._guard])
        app.on_response_prepare.append(_sign)
        for route in self.routes:
            app.router.add_route(route.method, route.path, self._serve(route))
        return app

    def _serve(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            try:
                with self._place(route):
                    call = await self._call(route, request)
                    role = await self.options.authorize(request, route.action, call.resource)
                    self._roles[id(request)] = role
                    self._direct(call)
                await call.read_body()  # outside the limit: a slow body delays no other request
                with self._place(route):
                    answer = await self._answer(route, call)
                    if call.server is not self:  # a deleted topic's name is free when this is answered
                        await self.broker.unreplicated.settle()
                    return answer
            except (HoldfastError, TimeoutError) as error:
                refusal = refusal_of(error, route.statuses)
                if refusal is None:
                    raise
                if refusal.status == 401:
                    refusal.headers["WWW-Authenticate"] = self.options.challenge
                raise refusal from error

        return serve

    async def _answer(self, route: Route, call: Call) -> web.StreamResponse:
        answer = await partition_routes.handled(route, call)
        headers: Mapping[str, str] = {"Content-Type": JSON}
        if route.answer is None:
            return web.Response(status=204)
        if isinstance(answer, web.StreamResponse):
            body = answer.body if isinstance(answer, web.Response) else None
            if not isinstance(body, bytes) or len(body) <= PIECE_BYTES:
                return answer
            headers = answer.headers
        else:
            body = msgspec.json.encode(answer)
            if len(body) <= PIECE_BYTES:
                return web.Response(body=body, content_type=JSON)
        self.budget.require(len(body), "an answer")
        self.budget.hold(call, len(body))
        try:
            return await call.send([memoryview(body)], len(body), headers)
        finally:
            self.budget.hold(call, 0)

    @contextlib.contextmanager
    def _place(self, route: Route) -> Iterator[None]:
        """Count a request in progress, up to the limit; health checks always pass."""
        if route.action == "health":
            yield
            return
        if self._working >= self.options.http_requests:
            words = f"{self._working} requests are in progress, the most that limits.http_requests allows"
            raise Refusal(503, f"{words}; retry later", {"Retry-After": "1"})
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1

    async def _call(self, route: Route, request: web.Request) -> Call:
        """Read a request. Its faults are told to authenticated clients only."""
        try:
            return Call(self, route, request)
        except (HoldfastError, Refusal):
            await self.options.authorize(request, "describe", "broker")
            raise

    def _direct(self, call: Call) -> None:
        """Give a call to the broker of its topic, or refer the client.

        Raises:
            Refusal: another node alone has it.
        """
        unreplicated, full = self.broker.unreplicated, call.topic_name
        if full not in unreplicated.places() or call.route.anywhere:
            return
        if unreplicated.broker_of(full) is not None and self.unreplicated is not None:
            call.server, call.broker = self.unreplicated, self.unreplicated.broker
            return
        member = unreplicated.member_of(full)
        there = "" if member is None else member.https_url if call.request.secure else member.http_url
        if not there or unreplicated.broker_of(full) is not None:
            raise Refusal(503, f"{unreplicated.where(full)}; start that node", {"Retry-After": "1"})
        location = there + call.request.raw_path
        raise Refusal(307, f"{unreplicated.where(full)}; ask {there}", {"Location": location})

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Around every request: limits, time, and refusals as JSON."""
        connection = self.connections.get(request.protocol)
        if connection is not None:
            connection.begins()
        self._under_way += 1
        try:
            if self.stopping:
                raise Refusal(503, "the server is stopping; retry later", {"Retry-After": "1"})
            self._require_own_name(request)
            _require_same_site(request)
            async with asyncio.timeout(self.options.request_s):
                response = await handler(request)
        except Refusal as refusal:
            response = self._refused(request, refusal)
        except web.HTTPException as refused:
            response = self._refused(request, _unmatched(request, refused))
        except TimeoutError as error:
            found = refusal_of(error)
            assert found is not None
            response = self._refused(request, found)
        except asyncio.CancelledError:  # the client has disconnected
            self._roles.pop(id(request), None)
            raise
        except ConnectionError:  # the same, during the answer; raised, aiohttp would log it as a bug
            self._roles.pop(id(request), None)
            return web.Response(status=503)
        except Exception as error:
            words = {"method": request.method, "path": request.path}
            logging.getLogger("holdfast.http").error(
                "request failed", exc_info=error, extra={"fields": words}
            )
            reason = "the request failed by a bug of the server or by damage; the server's log says more"
            response = Refusal(500, reason).response()
        finally:
            self._under_way -= 1
            self.requests += 1
            if connection is not None:
                connection.ends()
        self._note(request, response)
        return response

    def _require_own_name(self, request: web.Request) -> None:
        """Refuse a request by a foreign name, where no credentials are needed.

        A web page can let its own name lead here (DNS rebinding), and is of the same site then.
        """
        name = host_of(request)  # every browser sends it
        if name and self.options.local_names and not is_local(name):
            why = f"the host {name!r} may be another machine's name"
            raise Refusal(403, f"{why}; use localhost or an address, or set authentication.methods")

    def _refused(self, request: web.Request, refusal: Refusal) -> web.Response:
        self.refusals.say(
            "request refused",
            refusal,
            method=request.method,
            path=request.path[:PATH_LENGTH_MAX],
            status=refusal.status,
            peer=request.remote,
            role=self._roles.get(id(request), request.get(ROLE)),
        )
        response = refusal.response()
        if refusal.headers.get("Connection") == "close":
            response.force_close()
        return response

    def _note(self, request: web.Request, response: web.StreamResponse) -> None:
        fields: dict[str, Any] = {"method": request.method, "path": request.path, "status": response.status}
        fields |= {"peer": request.remote, "role": self._roles.pop(id(request), request.get(ROLE))}
        if request.method == "GET" or response.status >= 300:  # refusals were said before
            log.debug("request", **fields)
        else:
            log.info("administered", **fields)


def host_of(request: web.Request) -> str:
    """Return the host that a request names; empty: it names none.

    Raises:
        Refusal: the header is malformed.
    """
    given = request.headers.get("Host", "")
    found = _HOST.fullmatch(given)
    if found is None:
        raise Refusal(400, "the header Host is not name:port")
    return found[1].strip("[]") if found[1] else ""


def is_local(name: str) -> bool:
    """Return whether a host is an address, or a name that always means this machine.

    Example:
        >>> [is_local(each) for each in ("127.0.0.1", "10.0.0.7", "::1", "localhost", "evil.example", "")]
        [True, True, True, True, False, False]
    """
    name = name.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    """Hide the name of the library from network scans."""
    response.headers["Server"] = "holdfast"


def _require_same_site(request: web.Request) -> None:
    """Refuse a change that a web page of another site asks for."""
    if request.method == "GET":
        return
    origin = request.headers.get("Origin")
    here = request.headers.get("Host", "").lower()
    foreign = origin is not None and origin.lower().partition("://")[2] != here
    if foreign or request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise Refusal(403, "the request comes from a web page of another site; send it without a browser")


def _unmatched(request: web.Request, refused: web.HTTPException) -> Refusal:
    """Convert a refusal of the router or of the body's reader."""
    feature = missing_feature(request.method, request.path)
    if feature is not None and isinstance(refused, web.HTTPNotFound | web.HTTPMethodNotAllowed):
        return Refusal(501, feature)
    if isinstance(refused, web.HTTPNotFound):
        reason = f"there is no route {request.path}; /openapi.json lists the routes"
    elif isinstance(refused, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refused.allowed_methods))
        reason = f"{request.path} does not accept {request.method}; use {allowed}"
        return Refusal(405, reason, {"Allow": allowed})
    elif isinstance(refused, web.HTTPRequestEntityTooLarge):
        reason = "the body is larger than limits.http_body_bytes; send less, or raise the limit"
    else:
        reason = refused.text or refused.reason
    return Refusal(refused.status, reason)
