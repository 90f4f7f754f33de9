"""`holdfast namespace|topic limits`: show and set maximums, rates and backlog quotas."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from holdfast.cli import applied, parsing, partitioning
from holdfast.cli.data import data_command, find_topic
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, size
from holdfast.cli.positions import span
from holdfast.cli.values import number, policy

if TYPE_CHECKING:
    from holdfast.broker import Broker

OF_TOPIC = """\
Shows the limits of a topic: those set for it, those that apply, and their place.
With options, changes them at once. The value 0 is without limit; `default` lets
that of the namespace or the broker apply. With --data, the options of a server
are not known."""

OF_NAMESPACE = """\
Shows the limits of a namespace, for topics without their own, and those that
apply to them. With options, changes them at once. The value 0 is without limit;
`default` lets that of the broker apply. With --data, the options of a server are
not known."""

ACTIONS = {
    "hold": "producer_request_hold",
    "exception": "producer_exception",
    "evict": "consumer_backlog_eviction",
}
SHORT = {long: short for short, long in ACTIONS.items()}


def most_bytes(text: str) -> int:
    """Read 0, or a size."""
    return 0 if text == "0" else size(text)


def period(text: str) -> float:
    """Read a span of time above 0."""
    if (seconds := span(text)) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a period; use a span above 0, such as 30s")
    return seconds


def action(text: str) -> str:
    """Read hold, exception or evict."""
    if text not in ACTIONS:
        raise argparse.ArgumentTypeError(f"{text!r} is not an action; use {', '.join(ACTIONS)}")
    return ACTIONS[text]


OPTIONS: dict[str, tuple[Any, str, str]] = {
    "producers_max": (number, "N", "producers of a topic"),
    "consumers_max": (number, "N", "consumers of a topic"),
    "subscription_consumers_max": (number, "N", "consumers of a subscription"),
    "subscriptions_max": (number, "N", "subscriptions of a topic"),
    "topics_max": (number, "N", "topics of a namespace"),
    "message_bytes_max": (most_bytes, "SIZE", "size of the largest message"),
    "unacked_max": (number, "N", "unacknowledged messages of a consumer"),
    "subscription_unacked_max": (number, "N", "unacknowledged messages of a subscription"),
    "backlog_bytes": (most_bytes, "SIZE", "quota of the backlog, in bytes"),
    "backlog_bytes_action": (action, "ACTION", "beyond it: hold, exception or evict"),
    "backlog_age_s": (span, "SPAN", "quota of the backlog, by the age of the oldest message"),
    "backlog_age_action": (action, "ACTION", "beyond it: hold, exception or evict"),
    "publish_rate_messages": (number, "N", "messages published per second"),
    "publish_rate_bytes": (most_bytes, "SIZE", "bytes published per second"),
    "dispatch_rate_messages": (number, "N", "messages of a topic delivered in a period"),
    "dispatch_rate_bytes": (most_bytes, "SIZE", "bytes of a topic delivered in a period"),
    "dispatch_rate_period_s": (period, "SPAN", "the period of these rates"),
    "subscription_rate_messages": (number, "N", "messages of a subscription delivered in a period"),
    "subscription_rate_bytes": (most_bytes, "SIZE", "bytes of a subscription delivered in a period"),
    "subscription_rate_period_s": (period, "SPAN", "the period of these rates"),
    "subscribe_rate": (number, "N", "how often a consumer may subscribe in a period"),
    "subscribe_rate_period_s": (period, "SPAN", "the period of this rate"),
}
"""The limit; how its value is read, and what the help says."""


def add_to_topic(verbs: Subparsers) -> None:
    parser = data_command(verbs, "limits", "show or set limits of a topic", OF_TOPIC, of_topic)
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)
    _add(parser, [name for name in OPTIONS if name != "topics_max"])


def add_to_namespace(verbs: Subparsers) -> None:
    parser = data_command(verbs, "limits", "show or set limits of a namespace", OF_NAMESPACE, of_namespace)
    parser.add_argument("name", metavar="TENANT/NAMESPACE", type=parsing.namespace)
    _add(parser, list(OPTIONS))


def option_of(name: str) -> str:
    """Return the option of a limit.

    Example:
        >>> option_of("backlog_age_s"), option_of("producers_max")
        ('--backlog-age', '--producers-max')
    """
    return "--" + name.removesuffix("_s").replace("_", "-")


def _add(parser: argparse.ArgumentParser, names: list[str]) -> None:
    group = parser.add_argument_group("limits")
    for name in names:
        reader, metavar, words = OPTIONS[name]
        read = policy(name, reader, default=True)
        group.add_argument(option_of(name), dest=name, type=read, metavar=metavar, help=words)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    given = {name: value for name in OPTIONS if (value := getattr(options, name, None)) is not None}
    return {name: None if value == "default" else value for name, value in given.items()}


async def of_topic(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    names, given = partitioning.names_of(broker, full), _given(options)
    for each in names if given else ():
        await broker.admin.set_limits(each, **given)
    limits = [name for name in OPTIONS if name != "topics_max"]
    return _tell(broker, options, f"topic {full}", names[0], limits)


async def of_namespace(broker: Broker, options: argparse.Namespace) -> int:
    if given := _given(options):
        await broker.admin.set_limits(options.name, **given)
    return _tell(broker, options, f"namespace {options.name}", options.name, [*OPTIONS])


def _tell(broker: Broker, options: argparse.Namespace, title: str, of: str, names: list[str]) -> int:
    shown, lines = applied.table(broker, of, names, _word)
    others = {name: shown.pop(name) for name in ("applied", "from")}
    answer = {"name": title.partition(" ")[2], "limits": shown, **others}
    return tell(options, answer, "\n".join([title, *lines]))


def _word(value: Any) -> str:
    if isinstance(value, str):
        return SHORT.get(value, value)
    return "no limit" if value == 0 else applied.word(value)
