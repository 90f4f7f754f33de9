"""`holdfast subscription ls|create|stats|peek|skip|reset|expire|clear|rm`: cursors of a topic."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast.cli import parsing, rights, stream
from holdfast.cli.asking import asking_command, server_of
from holdfast.cli.data import data_command, find_subscription, find_topic, short
from holdfast.cli.output import print_json, tell
from holdfast.cli.parsing import Subparsers, count, declare
from holdfast.cli.partitioning import names_of
from holdfast.cli.positions import message_id, moment, place, span
from holdfast.cli.topic import SUBSCRIPTION_HEAD, subscription_row
from holdfast.errors import Denied
from holdfast.formatting import plural, text_table
from holdfast.ids import MessageId

if TYPE_CHECKING:
    from holdfast.broker import Broker, SubscriptionStats

PEEK = """\
Shows the next messages that the subscription has not acknowledged; nothing
changes."""

RESET = """\
Moves the cursor forward or back. Messages from the new position on are
delivered, also acknowledged ones; earlier messages are not.

  --to-message 7:42                the message with this id is next
  --to-time 2026-11-15T08:30:00Z   messages published at that time or later
  --to-time -2h                    messages of the last two hours
  --earliest                       all messages that the topic still has
  --latest                         only messages published from now on"""

ANALYZE = """\
Counts entries and messages of a backlog: an entry can be a batch. Reads at most
10,000 entries."""

SHOWN = 5
"""Consumers, and hashes that drain, that the stats name at most."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser(
        "subscription", help="list, create, inspect, move and delete subscriptions of a topic"
    )
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)

    parser = data_command(
        verbs, "ls", "list subscriptions", "Lists the subscriptions of a topic, or of all topics.", ls
    )
    parser.add_argument("topic", nargs="?", metavar="TOPIC", type=parsing.topic)

    parser = data_command(
        verbs,
        "create",
        "create a subscription",
        "Creates a durable subscription of an existing topic.",
        create,
    )
    named(parser)
    declare(parser, types={"start": place}, start="latest")("""
        --start POSITION: earliest, latest, a message id or a time (default latest)
        """)

    named(
        data_command(
            verbs,
            "stats",
            "show cursor and backlog of a subscription",
            "Shows everything about one subscription.",
            stats,
        )
    )

    parser = data_command(verbs, "peek", "show the next messages", PEEK, peek)
    named(parser)
    declare(parser, count=10, bytes=64)("""
        --count N: at most N messages (default 10)
        --bytes SIZE: bytes shown of each message (default 64)
        """)

    parser = data_command(
        verbs,
        "skip",
        "acknowledge the next entries",
        "Acknowledges the next N entries without reading.",
        skip,
    )
    named(parser)
    parser.add_argument("number", type=count, metavar="N")

    _add_reset(verbs)

    parser = data_command(
        verbs,
        "expire",
        "acknowledge entries by age",
        "Acknowledges entries that are older than an age.",
        expire,
    )
    named(parser)
    declare(parser, types={"older_than": span})("--older-than! SPAN: age, such as 30s, 2h, 7d")

    named(
        data_command(
            verbs,
            "clear",
            "acknowledge the whole backlog",
            "Acknowledges the backlog without reading.",
            clear,
        )
    )

    parser = data_command(verbs, "rm", "delete subscriptions", "Deletes subscriptions; messages stay.", rm)
    parser.add_argument("topic", metavar="TOPIC", type=parsing.topic)
    parser.add_argument("names", nargs="+", metavar="SUBSCRIPTION", type=parsing.subscription)

    rights.add_to_subscription(verbs)
    parser = asking_command(verbs, "analyze", "count entries and messages of the backlog", ANALYZE, analyze)
    named(parser)


def _add_reset(verbs: Subparsers) -> None:
    parser = data_command(verbs, "reset", "move the cursor", RESET, reset)
    named(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-message", dest="to", type=message_id, metavar="L:E", help="a message id")
    where.add_argument(
        "--to-time",
        dest="to",
        type=moment,
        metavar="TIME",
        help="a time, such as 2026-11-15T08:30:00Z or -2h",
    )
    where.add_argument("--earliest", dest="to", action="store_const", const="earliest", help="the beginning")
    where.add_argument("--latest", dest="to", action="store_const", const="latest", help="the end")


def named(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", type=parsing.topic)
    parser.add_argument("name", metavar="SUBSCRIPTION", type=parsing.subscription)


async def ls(broker: Broker, options: argparse.Namespace) -> int:
    if options.topic is None:
        topics = broker.admin.topics()
    else:  # this needs no grant on others
        topics = names_of(broker, find_topic(broker, options.topic))
    found = [
        (topic, each) for topic in topics for each in broker.admin.topic_stats(topic).subscriptions.values()
    ]
    if options.json:
        print_json([{"topic": topic, **asdict(each)} for topic, each in found])
    elif not found:
        print("no subscriptions")
    elif len(topics) > 1 or options.topic is None:
        rows = [(short(topic), *subscription_row(each)) for topic, each in found]
        print("\n".join(text_table(("TOPIC", *SUBSCRIPTION_HEAD), rows)))
    else:
        print("\n".join(text_table(SUBSCRIPTION_HEAD, [subscription_row(each) for _, each in found])))
    return 0


async def create(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.topic)
    await broker.admin.create_subscription(full, options.name, start=options.start)
    return tell_place(broker, options, full, "created")


async def stats(broker: Broker, options: argparse.Namespace) -> int:
    full, name = find_subscription(broker, options.topic, options.name)
    if broker.admin.partitions(full):
        each = {topic: broker.admin.subscription_stats(topic, name) for topic in names_of(broker, full)}
        answer = {"topic": full, "name": name, "partitions": {k: asdict(v) for k, v in each.items()}}
        return tell(options, answer, "\n".join(line for of in each.items() for line in stats_lines(*of)))
    found = broker.admin.subscription_stats(full, name)
    return tell(options, {"topic": full, **asdict(found)}, "\n".join(stats_lines(full, found)))


def stats_lines(topic: str, found: SubscriptionStats) -> list[str]:
    batches = plural(found.partly_acknowledged, "batch")
    shown = ", ".join(found.consumers[:SHOWN]) + (", …" if len(found.consumers) > SHOWN else "")
    served = [f"  consumers     {len(found.consumers)}, {found.type}: {shown}"] if found.consumers else []
    lines = [
        f"subscription {found.name} of {topic}",
        f"  backlog       {plural(found.backlog, 'message')}",
        f"  acknowledged  up to {found.mark_delete}, {found.individually_acknowledged:,} single ones behind"
        + (f", and parts of {batches}" if found.partly_acknowledged else ""),
        f"  next          {found.read_position}",
        f"  resets        {found.reset_number}" + (", one under way" if found.under_revision else ""),
    ]
    if found.scheduled:
        lines.insert(2, f"  delayed       {plural(found.scheduled, 'entry')} until their delivery time")
    if found.draining:
        moves = [f"{each.hash} of {each.holder} for {each.waiting or 'none'}" for each in found.draining]
        shown = ", ".join(moves[:SHOWN]) + (", …" if len(moves) > SHOWN else "")
        served.append(f"  draining      {plural(len(moves), 'hash')}: {shown}")
    return lines + served + ([f"  state         {found.diagnosis}"] if found.diagnosis else [])


async def peek(broker: Broker, options: argparse.Namespace) -> int:
    full, name = find_subscription(broker, options.topic, options.name)
    messages = await broker.admin.peek(full, name, options.count)
    due = await stream.delivery_times(broker, full, messages)
    return stream.show(messages, options, f"{name} has acknowledged everything", due)


async def skip(broker: Broker, options: argparse.Namespace) -> int:
    return await moved(broker, options, broker.admin.skip, "skipped", options.number, alone=True)


async def reset(broker: Broker, options: argparse.Namespace) -> int:
    alone = isinstance(options.to, MessageId)
    return await moved(broker, options, broker.admin.reset, "reset", options.to, alone=alone)


async def expire(broker: Broker, options: argparse.Namespace) -> int:
    return await moved(broker, options, broker.admin.expire, "expired", options.older_than)


async def clear(broker: Broker, options: argparse.Namespace) -> int:
    return await moved(broker, options, broker.admin.clear, "cleared")


async def moved(
    broker: Broker,
    options: argparse.Namespace,
    move: Callable[..., Awaitable[Any]],
    done: str,
    *more: object,
    alone: bool = False,
) -> int:
    """Move a subscription, on each partition; tell where it stands then.

    With `alone`, the place means something within one topic only.
    """
    full, name = find_subscription(broker, options.topic, options.name)
    names = [full] if alone else names_of(broker, full)
    for each in names:
        await move(each, name, *more)
    return tell_place(broker, options, full, done)


def tell_place(broker: Broker, options: argparse.Namespace, topic: str, done: str) -> int:
    """Tell what was done, and the cursor, if the role may see it."""
    try:
        if broker.admin.partitions(topic):
            names = names_of(broker, topic)
            left = sum(broker.admin.subscription_stats(each, options.name).backlog for each in names)
            words = f"{options.name} has a backlog of {plural(left, 'message')} in {len(names)} partitions"
            return tell(options, {"topic": topic, "name": options.name, "backlog": left}, f"{done}: {words}")
        found = broker.admin.subscription_stats(topic, options.name)
    except Denied:
        return tell(options, {"topic": topic, "name": options.name}, f"{done}: {options.name}")
    backlog = f"{options.name} has a backlog of {plural(found.backlog, 'message')}"
    words = f"{done}: {backlog}, next is {found.read_position}"
    return tell(options, {"topic": topic, **asdict(found)}, words)


def analyze(options: argparse.Namespace) -> int:
    from holdfast.cli.remote_http import path_of, quoted

    at = f"{path_of(options.topic)}/subscription/{quoted(options.name)}/analyzeBacklog"
    found = server_of(options).send("POST", at)
    more = "; the backlog is longer" if found["aborted"] else ""
    words = f"{plural(found['entries'], 'entry')} with {plural(found['messages'], 'message')}{more}"
    return tell(options, found, words)


async def rm(broker: Broker, options: argparse.Namespace) -> int:
    found = [find_subscription(broker, options.topic, name) for name in options.names]
    for full, name in found:
        await broker.admin.delete_subscription(full, name, force=True)
        if not options.json:
            print(f"removed {name} of {short(full)}")
    if options.json:
        print_json({"removed": options.names})
    return 0
