"""Metrics in the Prometheus text format, with the names and labels that Pulsar's dashboards know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.state import SubscriptionState
    from holdfast.broker.topic import Topic

HELP = {
    "pulsar_topics_count": ("gauge", "Topics."),
    "pulsar_subscriptions_count": ("gauge", "Subscriptions of a topic."),
    "pulsar_producers_count": ("gauge", "Producers of a topic."),
    "pulsar_consumers_count": ("gauge", "Consumers of a topic."),
    "pulsar_storage_size": ("gauge", "Bytes of a topic's ledgers."),
    "pulsar_msg_backlog": ("gauge", "Entries of a topic that some subscription has yet to acknowledge."),
    "pulsar_subscription_back_log": ("gauge", "Entries that a subscription has yet to acknowledge."),
    "pulsar_cursor_epoch_increase_count": (
        "counter",
        "How often the position of the cursor was changed by a reset.",
    ),
    "pulsar_cursor_epoch_increase_task_state": (
        "gauge",
        "1 while a reset of the cursor is under way; alert when it stays 1.",
    ),
}


def metrics(broker: Broker) -> str:
    """Everything, one sample a line."""
    samples: dict[str, list[str]] = {name: [] for name in HELP}
    base = {"cluster": broker.options.cluster}
    samples["pulsar_topics_count"].append(_sample("pulsar_topics_count", base, len(broker.topics)))
    for topic in broker.topics.values():
        tenant, namespace, _ = topic.state.name.removeprefix("persistent://").split("/", 2)
        labels = base | {"namespace": f"{tenant}/{namespace}", "topic": topic.state.name}
        for name, value in _of_topic(topic):
            samples[name].append(_sample(name, labels, value))
        for subscription in topic.state.subscriptions.values():
            own = labels | {"subscription": subscription.name}
            for name, value in _of_subscription(topic, subscription):
                samples[name].append(_sample(name, own, value))
    lines: list[str] = []
    for name, (kind, text) in HELP.items():
        if samples[name]:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples[name]]
    return "\n".join(lines) + "\n"


def _of_topic(topic: Topic) -> Iterable[tuple[str, int]]:
    subscriptions = topic.state.subscriptions.values()
    yield "pulsar_subscriptions_count", len(topic.state.subscriptions)
    yield "pulsar_producers_count", len(topic.state.producers)
    yield "pulsar_consumers_count", sum(each.consumers for each in topic.dispatchers.values())
    yield "pulsar_storage_size", sum(ledger.size for ledger in topic.state.ledgers)
    yield "pulsar_msg_backlog", max((topic.backlog(each) for each in subscriptions), default=0)


def _of_subscription(topic: Topic, subscription: SubscriptionState) -> Iterable[tuple[str, int]]:
    dispatcher = topic.dispatchers.get(subscription.id)
    yield "pulsar_subscription_back_log", topic.backlog(subscription)
    rewinds = 0 if dispatcher is None else dispatcher.rewinds
    yield "pulsar_cursor_epoch_increase_count", subscription.reset_number + rewinds
    running = dispatcher is not None and dispatcher.revision.under_revision
    yield "pulsar_cursor_epoch_increase_task_state", int(running)


def _sample(name: str, labels: dict[str, str], value: int) -> str:
    inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
