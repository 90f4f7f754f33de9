"""Metrics in the Prometheus text format, with the names and labels that Pulsar's dashboards know.

A page has all samples of a metric together, so it is collected topic by topic and written at the end.
`collect` pauses between topics, for callers that share a loop; `metrics` does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from holdfast.broker.api.compaction_admin import compaction_stats
from holdfast.broker.telemetry.traffic import LATENCIES_MS, CompactionTraffic, Handed

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.limiting import LimitFigures
    from holdfast.broker.state import SubscriptionState
    from holdfast.broker.topic import Topic

Sample: TypeAlias = tuple[str, float]

_RATES = (
    *("pulsar_rate_in", "pulsar_throughput_in", "pulsar_storage_write_rate"),
    *("pulsar_rate_out", "pulsar_throughput_out", "pulsar_storage_read_rate"),
)  # in the order of the counters of `Rates`
_LATENCY = "pulsar_storage_write_latency"
_SIZE = "pulsar_entry_size"
_COMPACTION = "pulsar_compaction_latency"


def _classes_of(name: str) -> list[str]:
    """Return the names of the classes of latencies."""
    return [*(f"{name}_le_{str(end).replace('.', '_')}" for end in LATENCIES_MS), f"{name}_overflow"]


_LATENCY_NAMES = _classes_of(_LATENCY)
_COMPACTION_NAMES = _classes_of(_COMPACTION)
_SIZE_NAMES = [
    f"{_SIZE}_le_{end}"
    for end in ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb", "overflow")
]

HELP = {
    "pulsar_broker_topics_count": ("gauge", "Topics of this broker."),
    "pulsar_topics_count": ("gauge", "Topics of a namespace."),
    "holdfast_non_persistent_topics": ("gauge", "Non-persistent topics that this server serves."),
    "holdfast_non_persistent_in_messages_total": ("counter", "Messages to non-persistent topics."),
    "holdfast_non_persistent_in_bytes_total": ("counter", "Bytes to non-persistent topics."),
    "holdfast_non_persistent_dropped_messages_total": (
        "counter",
        "Messages that a subscription of a non-persistent topic could not take, or that had none.",
    ),
    "holdfast_exchange_entries_total": ("counter", "Entries published or passed on to an exchange."),
    "holdfast_exchange_routed_total": ("counter", "Entries of an exchange that a binding matched."),
    "holdfast_exchange_alternate_total": ("counter", "Entries that went to the alternate exchange."),
    "holdfast_exchange_dropped_total": ("counter", "Entries that no binding matched, and no alternate took."),
    "holdfast_exchange_appended_total": ("counter", "Copies that an exchange appended to topics."),
    "holdfast_topic_entries_dropped_total": (
        "counter",
        "Entries that a ring or last-value topic dropped from backlogs.",
    ),
    "pulsar_subscriptions_count": ("gauge", "Subscriptions of a topic."),
    "pulsar_producers_count": ("gauge", "Producers of a topic."),
    "pulsar_consumers_count": ("gauge", "Consumers of a topic."),
    "pulsar_rate_in": ("gauge", "Messages published to a topic in a second."),
    "pulsar_rate_out": ("gauge", "Messages given to consumers of a topic in a second."),
    "pulsar_throughput_in": ("gauge", "Bytes published to a topic in a second."),
    "pulsar_throughput_out": ("gauge", "Bytes given to consumers of a topic in a second."),
    "pulsar_in_messages_total": ("counter", "Messages published to a topic."),
    "pulsar_in_bytes_total": ("counter", "Bytes published to a topic."),
    "pulsar_out_messages_total": ("counter", "Messages given to consumers of a subscription."),
    "pulsar_out_bytes_total": ("counter", "Bytes given to consumers of a subscription."),
    "pulsar_storage_size": ("gauge", "Bytes of a topic's ledgers."),
    "pulsar_storage_backlog_size": ("gauge", "Bytes of a topic that some subscription has to acknowledge."),
    "pulsar_storage_backlog_quota_limit": ("gauge", "Bytes of the backlog quota, of topics with one."),
    "pulsar_storage_backlog_quota_limit_time": (
        "gauge",
        "Seconds of the backlog quota by age, of topics with one.",
    ),
    "pulsar_storage_backlog_age_seconds": (
        "gauge",
        "Age of the oldest unacknowledged entry when the quota by age was looked at, of topics with one.",
    ),
    "pulsar_storage_backlog_quota_exceeded_evictions_total": (
        "counter",
        "How often this member evicted entries beyond a quota, of topics with one.",
    ),
    "holdfast_topic_backlog_exceeded": (
        "gauge",
        "1 while a backlog quota stops the producers of a topic, of topics with one.",
    ),
    "pulsar_publish_rate_limit_times": (
        "counter",
        "How often publishes waited for the rate of a topic, of topics with one.",
    ),
    "pulsar_storage_write_rate": ("gauge", "Entries written for a topic in a second."),
    "pulsar_storage_read_rate": ("gauge", "Entries read of a topic in a second."),
    "pulsar_msg_backlog": ("gauge", "Entries of a topic that some subscription has yet to acknowledge."),
    **dict.fromkeys(_LATENCY_NAMES, ("counter", "Entries by the milliseconds until they were durable.")),
    f"{_LATENCY}_count": ("counter", "Entries that are durable."),
    f"{_LATENCY}_sum": ("counter", "Milliseconds until entries were durable, of all together."),
    **dict.fromkeys(_SIZE_NAMES, ("counter", "Published entries by their size in bytes.")),
    f"{_SIZE}_count": ("counter", "Published entries."),
    f"{_SIZE}_sum": ("counter", "Bytes of published entries."),
    "pulsar_compaction_removed_event_count": (
        "counter",
        "Messages that compactions at this member left out, of topics with a compaction.",
    ),
    "pulsar_compaction_succeed_count": ("counter", "Compactions that succeeded at this member."),
    "pulsar_compaction_failed_count": ("counter", "Compactions that failed at this member."),
    "pulsar_compaction_duration_time_in_mills": (
        "gauge",
        "Milliseconds that the compaction took which made the view.",
    ),
    "pulsar_compaction_read_throughput": ("gauge", "Bytes that compactions read here in a second."),
    "pulsar_compaction_write_throughput": ("gauge", "Bytes that compactions wrote here in a second."),
    "pulsar_compaction_compacted_entries_count": ("gauge", "Entries of the compacted view."),
    "pulsar_compaction_compacted_entries_size": ("gauge", "Bytes of the compacted view."),
    **dict.fromkeys(
        _COMPACTION_NAMES,
        ("counter", "Surviving entries by the milliseconds until they were durable."),
    ),
    f"{_COMPACTION}_count": ("counter", "Surviving entries that are durable."),
    f"{_COMPACTION}_sum": ("counter", "Milliseconds until surviving entries were durable, of all together."),
    "holdfast_topic_compaction_running": ("gauge", "1 while a compaction is requested or under way."),
    "holdfast_topic_compaction_failed": ("gauge", "1 if the last compaction failed, at any member."),
    "holdfast_topic_compaction_behind_bytes": ("gauge", "Bytes of a topic behind its compacted view."),
    "pulsar_subscription_back_log": ("gauge", "Entries that a subscription has yet to acknowledge."),
    "pulsar_subscription_msg_rate_out": ("gauge", "Messages given to its consumers in a second."),
    "pulsar_subscription_msg_throughput_out": ("gauge", "Bytes given to its consumers in a second."),
    "pulsar_subscription_unacked_messages": ("gauge", "Messages that its consumers hold."),
    "pulsar_subscription_delayed": ("gauge", "Entries that are held back until their delivery time."),
    "pulsar_delayed_message_index_size_bytes": ("gauge", "Memory of the entries that are held back."),
    "pulsar_subscription_consumers_count": ("gauge", "Consumers of a subscription."),
    "pulsar_cursor_epoch_increase_count": (
        "counter",
        "How often the position of the cursor was changed by a reset.",
    ),
    "pulsar_cursor_epoch_increase_task_state": (
        "gauge",
        "1 while a reset of the cursor is under way; alert when it stays 1.",
    ),
    "holdfast_subscription_stuck": (
        "gauge",
        "1 while consumers are attached and nothing of the backlog moves; 0 while they are offline.",
    ),
    "holdfast_subscription_draining_hashes": (
        "gauge",
        "Hashes of keys that wait until their former consumer has acknowledged its entries (Key_Shared).",
    ),
    "holdfast_subscription_draining_entries": ("gauge", "Entries of these that are not acknowledged."),
    "holdfast_subscription_entries_damaged_total": (
        "counter",
        "Entries that were damaged on the disk and left out (skip_damaged), since a consumer came.",
    ),
    "holdfast_up": ("gauge", "1 while the broker can confirm what is asked of it."),
    "holdfast_events_total": ("counter", "Durable events, over all restarts."),
    "holdfast_rounds_total": ("counter", "Rounds of the journal since the start."),
    "holdfast_journal_bytes_total": ("counter", "Bytes of these rounds."),
    "holdfast_snapshots_total": ("counter", "Snapshots since the start."),
    "holdfast_pending_bytes": ("gauge", "Bytes that wait for the disk."),
    "holdfast_disk_free_bytes": ("gauge", "What the file system has left."),
    "holdfast_log_time_ahead_seconds": (
        "gauge",
        "Seconds by which log time is ahead of the clock; ages do not advance meanwhile.",
    ),
    "holdfast_publishes_refused_total": ("counter", "Publishes that were refused because the disk is full."),
    "holdfast_cluster_members": ("gauge", "Members of the cluster that can serve clients."),
    "holdfast_cluster_quorate": ("gauge", "1 while this member sees a majority of the cluster."),
    "holdfast_cluster_view": ("gauge", "The number of the view of the cluster."),
    "holdfast_cluster_owned_subscriptions": ("gauge", "Subscriptions that this member owns."),
    "holdfast_cluster_stable_lag_events": ("gauge", "Delivered frames that no majority holds yet."),
    "holdfast_cluster_lacking_topics": ("gauge", "Topics of which this member lacks ledgers."),
    "holdfast_ingest_queues": ("gauge", "Topics that have an ingest queue."),
    "holdfast_ingest_queues_waiting": ("gauge", "Ingest queues that cannot be drained just now."),
    "holdfast_ingest_queues_damaged_total": ("counter", "Ingest queues that ended because of damage."),
    "holdfast_ingest_messages_total": ("counter", "Messages stored from ingest queues since the start."),
    "holdfast_ingest_bytes_total": ("counter", "Bytes of these messages."),
    "holdfast_ingest_refused_total": ("counter", "Local producers that were not let in."),
    "holdfast_tap_connected": ("gauge", "1 while a tap is connected to its service, and that is offered."),
    "holdfast_tap_messages_total": ("counter", "Samples that a tap stored since the start."),
    "holdfast_tap_bytes_total": ("counter", "Bytes of these samples."),
    "holdfast_tap_missed_total": ("counter", "Samples that a tap missed: the service was faster."),
    "holdfast_tap_errors_total": ("counter", "Failed attempts of a tap to connect, to read or to store."),
}


class Page:
    """Samples by the name of their metric."""

    def __init__(self, help: dict[str, tuple[str, str]] = HELP) -> None:  # noqa: A002  # Prometheus' word
        self.help = help
        self._samples: dict[str, bytearray] = {name: bytearray() for name in help}

    def add(self, labels: str, samples: Iterable[Sample]) -> None:
        """Add samples that have the same labels."""
        for name, value in samples:
            self._samples[name] += f"{name}{{{labels}}} {value}\n".encode()

    def chunks(self) -> Iterator[memoryview]:
        """Yield the page without a copy: the description and the samples of each metric."""
        for name, (kind, text) in self.help.items():
            if self._samples[name]:
                yield memoryview(f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode())
                yield memoryview(self._samples[name])

    def text(self) -> str:
        return b"".join(self.chunks()).decode()


def label(name: str, value: str) -> str:
    """Return `name="value"` in the escaped form of the format.

    Example:
        >>> print(label("topic", 'a "b"'))
        topic="a \\"b\\""
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{escaped}"'


def metrics(broker: Broker) -> str:
    """Return all metrics, one sample per line."""
    page = Page()
    for _ in collect(broker, page):
        pass
    return page.text()


def collect(broker: Broker, page: Page) -> Iterator[None]:
    """Add all metrics to the page; pause after each topic and each subscription."""
    base = label("cluster", broker.options.cluster)
    page.add(base, _of_broker(broker))
    for meter, labels in broker.meters:
        page.add(f"{base},{labels}" if labels else base, meter())
    namespaces = dict.fromkeys(broker.machine.state.namespaces.policies, 0)
    local = broker.unreplicated.local
    brokers = [broker] if local is None else [broker, local]
    for of in brokers:
        yield from _topics(of, page, base, namespaces)
    for name, count in namespaces.items():
        page.add(f"{base},{label('namespace', name)}", [("pulsar_topics_count", count)])
    for of in brokers:
        for topic in list(of.exchanges.values()):
            if not of.is_deleted(topic):
                labels = f"{base},{label('namespace', topic.state.namespace)},{label('exchange', topic.name)}"
                page.add(labels, _of_exchange(of, topic))
                yield


def _topics(broker: Broker, page: Page, base: str, namespaces: dict[str, int]) -> Iterator[None]:
    """Add the topics and subscriptions of a broker; count its topics by namespace."""
    for topic in list(broker.topics.values()):
        if broker.is_deleted(topic):  # perhaps in the last pause
            continue
        name = topic.state.namespace
        namespaces[name] = namespaces.get(name, 0) + 1
        labels = f"{base},{label('namespace', name)},{label('topic', topic.name)}"
        page.add(labels, _of_topic(broker, topic))
        for subscription in list(topic.state.subscriptions.values()):
            own = f"{labels},{label('subscription', subscription.name)}"
            page.add(own, _of_subscription(broker, topic, subscription))
            yield
        yield


def _of_broker(broker: Broker) -> Iterator[Sample]:
    store = broker.store.stats()
    yield "pulsar_broker_topics_count", len(broker.topics)
    yield "holdfast_up", int(broker.engine.ended is None and not store.failed)
    yield "holdfast_events_total", broker.machine.log.next_d - 1
    yield "holdfast_rounds_total", store.rounds
    yield "holdfast_journal_bytes_total", store.journal_bytes
    yield "holdfast_snapshots_total", store.snapshots
    yield "holdfast_pending_bytes", broker.machine.log.pending_bytes
    yield "holdfast_disk_free_bytes", store.free_bytes
    yield "holdfast_log_time_ahead_seconds", round(broker.log_time_ahead_s, 3)
    yield "holdfast_publishes_refused_total", store.refused
    yield from broker.membership.samples()


def _of_exchange(broker: Broker, topic: Topic) -> Iterator[Sample]:
    count = broker.machine.state.exchanges.require(topic.id).count
    yield "holdfast_exchange_entries_total", count.published
    yield "holdfast_exchange_routed_total", count.routed
    yield "holdfast_exchange_alternate_total", count.alternate
    yield "holdfast_exchange_dropped_total", count.dropped
    yield "holdfast_exchange_appended_total", count.appended


def _of_topic(broker: Broker, topic: Topic) -> Iterator[Sample]:
    subscriptions = topic.state.subscriptions.values()
    yield "pulsar_subscriptions_count", len(subscriptions)
    yield "pulsar_producers_count", len(topic.state.producers)
    yield "pulsar_consumers_count", sum(each.consumers for each in topic.dispatchers.values())
    counted = broker.rates.published(topic)
    rates = broker.rates.of_topic(topic)
    yield from zip(_RATES, (round(rate, 3) for rate in rates), strict=True)
    yield "pulsar_in_messages_total", counted.messages
    yield "pulsar_in_bytes_total", counted.bytes
    yield "holdfast_topic_entries_dropped_total", broker.machine.state.dropped(topic.id)
    yield "pulsar_storage_size", topic.state.ledgers.size
    yield "pulsar_storage_backlog_size", topic.size_behind(topic.state.acked_to)
    yield from _of_limits(broker.limiting.figures(topic))
    yield from _of_compaction(broker, topic)
    yield "pulsar_msg_backlog", max((topic.backlog(each) for each in subscriptions), default=0)
    yield from _classes(_LATENCY, _LATENCY_NAMES, topic.traffic.latencies, topic.traffic.latency_ms)
    yield from _classes(_SIZE, _SIZE_NAMES, counted.sizes, counted.bytes)


def _of_limits(found: LimitFigures) -> Iterator[Sample]:
    """Yield metrics of a topic with a publish rate or a backlog quota."""
    if found.publish_paced:
        yield "pulsar_publish_rate_limit_times", found.publish_waits
    if found.backlog_bytes:
        yield "pulsar_storage_backlog_quota_limit", found.backlog_bytes
    if found.backlog_age_s:
        yield "pulsar_storage_backlog_quota_limit_time", found.backlog_age_s
        yield "pulsar_storage_backlog_age_seconds", round(found.oldest_s or 0, 3)
    if found.backlog_bytes or found.backlog_age_s:
        yield "pulsar_storage_backlog_quota_exceeded_evictions_total", found.evictions
        yield "holdfast_topic_backlog_exceeded", int(bool(found.exceeded))


def _of_compaction(broker: Broker, topic: Topic) -> Iterator[Sample]:
    """Yield metrics of a topic that was compacted, or is to be."""
    if topic.state.compaction is None:
        return
    found = compaction_stats(broker, topic)
    rates = broker.rates.of_compaction(topic)
    traffic = broker.compactions.traffic.get(topic.id) or CompactionTraffic()
    yield "pulsar_compaction_removed_event_count", found.removed
    yield "pulsar_compaction_succeed_count", found.succeeded
    yield "pulsar_compaction_failed_count", found.failed
    yield "pulsar_compaction_duration_time_in_mills", found.duration_ms
    yield "pulsar_compaction_read_throughput", round(rates[0], 3)
    yield "pulsar_compaction_write_throughput", round(rates[1], 3)
    yield "pulsar_compaction_compacted_entries_count", found.entries
    yield "pulsar_compaction_compacted_entries_size", found.size
    yield from _classes(_COMPACTION, _COMPACTION_NAMES, traffic.latencies, traffic.latency_ms)
    yield "holdfast_topic_compaction_running", int(found.state == "running")
    yield "holdfast_topic_compaction_failed", int(bool(found.error))
    yield "holdfast_topic_compaction_behind_bytes", found.size_behind


def _classes(name: str, names: Sequence[str], counts: Sequence[int], total: float) -> Iterator[Sample]:
    """Yield the classes of a histogram, not cumulative, as Pulsar has them."""
    yield from zip(names, counts, strict=True)
    yield f"{name}_count", sum(counts)
    yield f"{name}_sum", round(total, 3)


def _of_subscription(broker: Broker, topic: Topic, subscription: SubscriptionState) -> Iterator[Sample]:
    dispatcher = topic.dispatcher_of(subscription)
    yield "pulsar_subscription_back_log", topic.backlog(subscription)
    handed = Handed(0, 0) if dispatcher is None else dispatcher.handed
    rates = broker.rates.per_second(("subscription", subscription.id), handed)
    yield "pulsar_subscription_msg_rate_out", round(rates[0], 3)
    yield "pulsar_subscription_msg_throughput_out", round(rates[1], 3)
    yield "pulsar_out_messages_total", handed.messages
    yield "pulsar_out_bytes_total", handed.bytes
    rewinds = 0 if dispatcher is None else dispatcher.rewinds
    yield "pulsar_cursor_epoch_increase_count", subscription.reset_number + rewinds
    running = dispatcher is not None and dispatcher.under_revision
    yield "pulsar_cursor_epoch_increase_task_state", int(running)
    stats = None if dispatcher is None else dispatcher.stats()
    unacked = 0 if stats is None else sum(each.pending_messages for each in stats.consumers)
    yield "pulsar_subscription_unacked_messages", unacked
    yield "pulsar_subscription_delayed", 0 if stats is None else stats.scheduled_entries
    yield "pulsar_delayed_message_index_size_bytes", 0 if stats is None else stats.scheduled_bytes
    yield "pulsar_subscription_consumers_count", 0 if stats is None else len(stats.consumers)
    yield "holdfast_subscription_stuck", int(stats is not None and stats.diagnosis.stuck)
    keys = [] if stats is None else [each.keys for each in stats.consumers if each.keys is not None]
    yield "holdfast_subscription_draining_hashes", sum(each.draining_count for each in keys)
    yield "holdfast_subscription_draining_entries", sum(each.draining_entries for each in keys)
    yield "holdfast_subscription_entries_damaged_total", 0 if stats is None else stats.entries_damaged
