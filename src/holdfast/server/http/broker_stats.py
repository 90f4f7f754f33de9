"""Return figures of the whole broker in the form of `pulsar-admin broker-stats`."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import __version__
from holdfast.broker import Topic
from holdfast.names import namespace_of
from holdfast.server.http.answers import TopicAnswer
from holdfast.server.http.passing_routes import stats_of
from holdfast.server.http.pulsar_stats import Looks
from holdfast.server.http.routing import Call, Routes
from holdfast.server.steps import Steps

if TYPE_CHECKING:
    from holdfast.broker import Broker

route = Routes("broker stats", "/admin/v2/broker-stats", "broker")

BUNDLE = "0x00000000_0xffffffff"
TOPIC_ITEMS = 5
"""Items of a step (see `Steps`) for the figures of a topic."""


class _Camel(msgspec.Struct, rename="camel", kw_only=True):
    """Field names as Java writes them."""


class Usage(_Camel, kw_only=True):
    """The used part of a resource, and all of it."""

    usage: float
    limit: float


class LoadAnswer(_Camel, kw_only=True):
    """The load of this broker."""

    web_service_url: str
    web_service_url_tls: str
    pulsar_service_url: str
    pulsar_service_url_tls: str
    broker_version_string: str
    cpu: Usage
    """In percent of one processor, since the start."""
    memory: Usage
    """Most of the process so far, and all of the machine, in MiB."""
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    num_topics: int = 0
    num_bundles: int = 0
    num_consumers: int = 0
    num_producers: int = 0
    bundles: list[str] = []
    last_update: int = 0
    """Milliseconds since 1970."""


class MetricsAnswer(msgspec.Struct, kw_only=True):
    """Figures with the same labels."""

    dimensions: dict[str, str]
    metrics: dict[str, float]


class _Sum:
    """Figures of several topics together."""

    def __init__(self) -> None:
        self.topics = self.producers = self.consumers = self.subscriptions = 0
        self.size = self.backlog = 0
        self.rates = [0.0] * 6

    async def add(self, broker: Broker, topic: Topic, steps: Steps) -> None:
        self.topics += 1
        self.producers += len(topic.producers)
        self.subscriptions += len(topic.subscriptions)
        self.consumers += sum(each.consumers for each in topic.served)
        self.size += topic.ledgers.size
        self.rates = [a + b for a, b in zip(self.rates, broker.rates.of_topic(topic), strict=True)]
        for each in list(topic.subscriptions.values()):
            self.backlog += topic.backlog(each)
            await steps.did(0.5)
        await steps.did(TOPIC_ITEMS)


def _all_topics(broker: Broker) -> Iterator[tuple[Broker, Topic]]:
    """Yield the topics of this member, also its unreplicated ones."""
    local = broker.unreplicated.local
    for of in [broker] if local is None else [broker, local]:
        for topic in list(of.topics.values()):
            if not of.is_deleted(topic):
                yield of, topic


@route("GET", "/metrics", answer=list[MetricsAnswer])
async def metrics(call: Call) -> list[MetricsAnswer]:
    """Return figures by namespace; /metrics has all others, by topic and subscription."""
    steps, sums = Steps(), dict[str, _Sum]()
    for of, topic in _all_topics(call.broker):
        await sums.setdefault(namespace_of(topic.name), _Sum()).add(of, topic, steps)
    return [
        MetricsAnswer(
            dimensions={"cluster": call.broker.options.cluster, "namespace": name},
            metrics={
                "brk_topics_count": found.topics,
                "brk_no_of_producers": found.producers,
                "brk_no_of_subscriptions": found.subscriptions,
                "brk_no_of_consumers": found.consumers,
                "brk_in_rate": found.rates[0],
                "brk_in_tp_rate": found.rates[1],
                "brk_storage_write_rate": found.rates[2],
                "brk_out_rate": found.rates[3],
                "brk_out_tp_rate": found.rates[4],
                "brk_storage_read_rate": found.rates[5],
                "brk_storage_size": found.size,
                "brk_msg_backlog": found.backlog,
            },
        )
        for name, found in sorted(sums.items())
    ]


Nested = dict[str, dict[str, dict[str, dict[str, TopicAnswer]]]]
"""By namespace, bundle, `persistent` or `non-persistent`, and topic."""


@route("GET", "/topics", answer=Nested)
async def topics(call: Call) -> Nested:
    """Return the stats of all topics, by namespace and bundle. The answer can be large.

    Of non-persistent topics it has those that this server serves."""
    looks, found, steps = Looks(call.server), Nested(), Steps()
    for of, topic in _all_topics(call.broker):
        if of is not call.broker or of.is_deleted(topic):
            continue  # an unreplicated topic has its stats at its own path
        names = found.setdefault(namespace_of(topic.name), {BUNDLE: {"persistent": {}}})
        names[BUNDLE]["persistent"][topic.name] = await looks.topic(topic)
    passing = {} if call.server.wire is None else call.server.wire.non_persistent.topics
    for each in list(passing.values()):
        kinds = found.setdefault(namespace_of(each.name), {BUNDLE: {"persistent": {}}})[BUNDLE]
        kinds.setdefault("non-persistent", {})[each.name] = stats_of(each, call.server.now())
        await steps.did(TOPIC_ITEMS + sum(1 for _ in each.meters()))
    return found


@route("GET", "/destinations", answer=Nested)
async def destinations(call: Call) -> Nested:
    """Return the stats of all topics, at the path of older tools."""
    return await topics(call)


@route("GET", "/load-report", answer=LoadAnswer)
async def load(call: Call) -> LoadAnswer:
    """Return addresses, processor, memory, clients and rates of this broker."""
    steps, found = Steps(), _Sum()
    for of, topic in _all_topics(call.broker):
        await found.add(of, topic, steps)
    here = call.server.addresses(call.request)
    admin = call.broker.admin
    namespaces = [name for tenant in admin.tenants() for name in admin.namespaces(tenant)]
    processors = os.cpu_count() or 1
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s, worked_s = call.server.began
    share = (time.process_time() - worked_s) / max(1e-3, time.monotonic() - began_s)
    pages: Any = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return LoadAnswer(
        web_service_url=here.http_url,
        web_service_url_tls=here.http_url_tls,
        pulsar_service_url=here.broker_url,
        pulsar_service_url_tls=here.broker_url_tls,
        broker_version_string=__version__,
        cpu=Usage(usage=round(100 * share, 1), limit=100.0 * processors),
        memory=Usage(usage=peak_kib / 1024, limit=pages / (1 << 20)),
        msg_rate_in=found.rates[0],
        msg_throughput_in=found.rates[1],
        msg_rate_out=found.rates[3],
        msg_throughput_out=found.rates[4],
        num_topics=found.topics,
        num_bundles=len(namespaces),
        num_consumers=found.consumers,
        num_producers=found.producers,
        bundles=[f"{name}/{BUNDLE}" for name in namespaces],
        last_update=call.broker.clock.now_ns() // 1_000_000,
    )
