"""Serve health, addresses and metrics of the broker."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from holdfast import __version__
from holdfast.broker import HELP, MemberInfo, Page, Sample, label
from holdfast.errors import NotFound
from holdfast.server.http.answers import ClusterAnswer, LeaderAnswer, LookupAnswer
from holdfast.server.http.missing import missing_feature
from holdfast.server.http.refusals import Refusal
from holdfast.server.http.routing import TEXT, Call, Parameter, Routes
from holdfast.server.http.scraping import Scrapes
from holdfast.server.pulsar.lookup import addresses_of, unreplicated_addresses
from holdfast.server.pulsar.setup import Advertised

if TYPE_CHECKING:
    from holdfast.server.http.server import HttpServer

route = Routes("broker", "/admin/v2", "broker")
health_route = Routes("health", "", "broker", action="health")
lookup_route = Routes(
    "lookup", "/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}", "topic", "lookup", "whole"
)
passing_lookup_route = Routes(
    "lookup", "/lookup/v2/topic/non-persistent/{tenant}/{namespace}/{topic}", "topic", "lookup", "whole"
)
metrics_route = Routes("metrics", "", "broker", action="metrics")
describe_route = Routes("description", "", "broker", action="describe")

HEALTH_S = 5.0
"""Time for the disk to confirm earlier requests; then the broker is not healthy."""
METRICS = "text/plain; version=0.0.4; charset=utf-8"


# -- is it well ----------------------------------------------------------------------------------------


@health_route("GET", "/admin/v2/brokers/health", answer=str, media=TEXT)
async def health(call: Call) -> web.Response:
    """Check that the broker confirms requests; otherwise answer 503 with the reason."""
    _require_alive(call)
    try:
        async with asyncio.timeout(HEALTH_S):
            await call.broker.settle()
    except TimeoutError:
        reason = f"the broker confirmed nothing for {HEALTH_S:.0f} s; check its disk"
        raise Refusal(503, reason) from None
    _require_alive(call)
    return web.Response(text="ok")


@health_route("GET", "/admin/v2/brokers/ready", answer=str, media=TEXT)
async def ready(call: Call) -> web.Response:
    """Check that clients can be sent here; answer 503 while the server stops."""
    _require_alive(call)
    if call.server.stopping:
        raise Refusal(503, "the server is stopping; use another one, or retry later")
    return web.Response(text="ok")


@health_route("GET", "/status.html", answer=str, media=TEXT)
async def status(call: Call) -> web.Response:
    """Check that the broker has not failed."""
    _require_alive(call)
    return web.Response(text="OK")


def _require_alive(call: Call) -> None:
    if call.broker.failure is not None:
        raise Refusal(503, "the broker has failed; its log says why")
    if call.broker.stalled_s:
        raise Refusal(503, "the disk is full, and events wait for room; free space on it")


# -- where is it ---------------------------------------------------------------------------------------


@route("GET", "/clusters", answer=list[str], action="lookup")
async def clusters(call: Call) -> list[str]:
    """List the clusters: this one."""
    return [call.broker.options.cluster]


@route("GET", "/clusters/{cluster}", answer=ClusterAnswer, refusals=(404,))
async def cluster(call: Call) -> ClusterAnswer:
    """Return the addresses of a cluster."""
    _require_cluster(call)
    here = call.server.addresses(call.request)
    return ClusterAnswer(
        service_url=here.http_url,
        service_url_tls=here.http_url_tls,
        broker_service_url=here.broker_url,
        broker_service_url_tls=here.broker_url_tls,
    )


@route("GET", "/brokers/version", answer=str, media=TEXT, action="describe")
async def version(call: Call) -> web.Response:
    """Return the version of holdfast."""
    return web.Response(text=__version__)


@route("GET", "/brokers/leaderBroker", answer=LeaderAnswer)
async def leader(call: Call) -> LeaderAnswer:
    """Return the leader: the lowest member of the cluster, or this broker."""
    found = call.broker.membership.leader
    if found is not None:
        return LeaderAnswer(broker_id=host_and_port(found), service_url=found.http_url or found.https_url)
    here = call.server.addresses(call.request)
    return LeaderAnswer(broker_id=call.server.name, service_url=here.http_url or here.http_url_tls)


@route("GET", "/brokers", answer=list[str])
async def brokers(call: Call) -> list[str]:
    """List the brokers, as host:port: the present members of the cluster, or this broker."""
    return _brokers(call)


@route("GET", "/brokers/{cluster}", answer=list[str], refusals=(404,))
async def brokers_of(call: Call) -> list[str]:
    """List the brokers of a cluster, as host:port."""
    feature = missing_feature(call.request.method, call.request.path)
    if feature is not None and call["cluster"] != call.broker.options.cluster:
        raise Refusal(501, feature)  # a path of Pulsar, such as brokers/internal-configuration
    _require_cluster(call)
    return _brokers(call)


def host_and_port(member: MemberInfo) -> str:
    """Return the HTTP address of a member as host:port."""
    return (member.http_url or member.https_url).partition("://")[2]


def _brokers(call: Call) -> list[str]:
    members = call.broker.membership.members()
    return [found for each in members if (found := host_and_port(each))] or [call.server.name]


def _require_cluster(call: Call) -> None:
    if call["cluster"] != call.broker.options.cluster:
        raise NotFound(f"there is no cluster {call['cluster']}; use {call.broker.options.cluster}")


_LOOKUP = (
    Parameter("listenerName", "string", "Which of the advertised addresses.", default=""),
    Parameter("authoritative", "boolean", "Every answer is final.", default=False),
)


@passing_lookup_route("GET", "", query=_LOOKUP, answer=LookupAnswer, refusals=(404,), anywhere=True)
async def lookup_passing(call: Call) -> LookupAnswer:
    """Return the addresses of the member that owns a non-persistent topic, or of this broker."""
    return await lookup(call)


@lookup_route("GET", "", query=_LOOKUP, answer=LookupAnswer, refusals=(404,), anywhere=True)
async def lookup(call: Call) -> LookupAnswer:
    """Return the addresses of a topic's broker: its owner in the cluster, or this broker.

    The topic need not exist yet, but its namespace must."""
    if not call.broker.has_topic(call.topic_name):
        call.broker.require_namespace(call.topic_name)
    listener = call.query("listenerName")
    found = call.server.addresses(call.request, listener)
    if call.topic_name in call.broker.unreplicated.places():
        return _lookup_unreplicated(call, found, listener)
    elsewhere = call.broker.membership.elsewhere(call.topic_name)
    if elsewhere is not None:
        owner = addresses_of(elsewhere, listener)
        if owner.tls_url if call.request.secure else owner.url or owner.tls_url:
            return LookupAnswer(
                broker_url=owner.url,
                broker_url_tls=owner.tls_url,
                http_url=elsewhere.http_url,
                http_url_tls=elsewhere.https_url,
                native_url=owner.url,
            )
    if not found.broker_url and not found.broker_url_tls:
        raise Refusal(503, "the server has no binary port; set listen.port or listen.tls_port, and restart")
    return found


def _lookup_unreplicated(call: Call, here: LookupAnswer, listener: str) -> LookupAnswer:
    unreplicated, wire = call.broker.unreplicated, call.server.wire
    if wire is None:
        raise Refusal(503, "the server has no binary port; set listen.port or listen.tls_port, and restart")
    own = Advertised(here.broker_url, here.broker_url_tls)
    found = unreplicated_addresses(wire, call.topic_name, own, listener)
    member = None if unreplicated.broker_of(call.topic_name) else unreplicated.member_of(call.topic_name)
    return LookupAnswer(
        broker_url=found.url,
        broker_url_tls=found.tls_url,
        http_url=here.http_url if member is None else member.http_url,
        http_url_tls=here.http_url_tls if member is None else member.https_url,
        native_url=found.url,
    )


# -- how is it doing -----------------------------------------------------------------------------------

_PROCESS = {
    "pulsar_active_connections": ("gauge", "Connections of the Pulsar protocol."),
    "process_cpu_seconds_total": ("counter", "Processor time of this process."),
    "process_resident_memory_bytes": ("gauge", "Memory of this process."),
    "process_open_fds": ("gauge", "Open files of this process."),
    "process_max_fds": ("gauge", "How many it may open."),
    "holdfast_http_requests_total": ("counter", "HTTP requests that were answered."),
    "holdfast_held_bytes": ("gauge", "Bytes that are held in memory for clients."),
    "holdfast_held_refused_total": ("counter", "How often something was refused or closed to hold less."),
    "holdfast_build_info": ("gauge", "The version, as a label."),
}


@metrics_route("GET", "/metrics/", answer=str, media=TEXT)
async def metrics_with_slash(call: Call) -> web.StreamResponse:
    """Return the metrics, at the path of some scrapers for Pulsar."""
    return await metrics(call)


@metrics_route("GET", "/metrics", answer=str, media=TEXT)
async def metrics(call: Call) -> web.StreamResponse:
    """Return the metrics in the text format of Prometheus, with Pulsar's names."""
    sheet = await call.server.scrapes.sheet()
    return await call.send(sheet.chunks, sheet.size, {"Content-Type": METRICS})


def scrapes(server: HttpServer) -> Scrapes:
    """Make the metrics pages of a server."""

    def finish(page: Page) -> None:
        base = label("cluster", server.broker.options.cluster)
        page.add(base, _process(server))
        page.add(f"{base},{label('version', __version__)}", [("holdfast_build_info", 1)])

    return Scrapes(server.broker, server.budget, finish, Page({**HELP, **_PROCESS}))


def _process(server: HttpServer) -> list[Sample]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    samples: list[Sample] = [
        ("process_cpu_seconds_total", round(usage.ru_utime + usage.ru_stime, 3)),
        ("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ("holdfast_http_requests_total", server.requests),
        ("holdfast_held_bytes", server.budget.held),
        ("holdfast_held_refused_total", server.budget.refused),
    ]
    if server.wire is not None:
        samples.append(("pulsar_active_connections", len(server.wire.connections)))
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        samples.append(("process_resident_memory_bytes", pages * resource.getpagesize()))
        samples.append(("process_open_fds", sum(1 for _ in Path("/proc/self/fd").iterdir())))
    except OSError:
        pass  # no /proc on this system
    return samples


@describe_route("GET", "/openapi.json", answer=dict[str, Any])
async def openapi(call: Call) -> dict[str, Any]:
    """Return this description."""
    return call.server.description
