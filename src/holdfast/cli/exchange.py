"""`holdfast exchange ls|create|info|bind|unbind|alternate|delete`: exchanges and their bindings."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.cli import parsing
from holdfast.cli.data import data_command, find_subscription, short
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, declare
from holdfast.formatting import plural, text_table

if TYPE_CHECKING:
    from holdfast.broker import Broker, ExchangeStats

CREATE = """\
Creates an exchange. Messages that are published to it go to the topics that are
bound to it:

  direct   the message's key equals the binding's key
  fanout   every bound topic
  topic    the binding is a pattern of words with dots: * is one word, # any number

Messages that no binding takes go to the alternate exchange; without one they are
counted and dropped."""

BIND = """\
Binds a topic to an exchange by a key, or by a pattern if the exchange is of kind
topic. A fanout exchange ignores the key.

  holdfast exchange bind prices nyse 'stock.*.nyse'"""

ALTERNATE = """\
Sets the alternate exchange of an exchange, a topic or a subscription. From an
exchange it takes messages that no binding takes; from a topic or a subscription
those that consumers reject. Without an exchange, removes it."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("exchange", help="list, create, bind and delete exchanges")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    data_command(verbs, "ls", "list exchanges", "Lists the exchanges, one per line.", ls)

    parser = data_command(verbs, "create", "create an exchange", CREATE, create, makes=True)
    parser.add_argument("name", metavar="EXCHANGE", type=parsing.topic)
    declare(parser, types={"alternate": parsing.topic}, kind="direct")("""
        --kind direct|fanout|topic: how bindings are compared (default direct)
        --alternate EXCHANGE: takes messages that no binding takes
        --unreplicated: the member of a cluster that is asked alone has it
        --deduplication: drop messages that a producer sends twice
        """)

    parser = data_command(verbs, "info", "show bindings and counts", "Shows bindings and counts.", info)
    parser.add_argument("name", metavar="EXCHANGE", type=parsing.topic)

    for verb, words, description, work in (
        ("bind", "bind a topic to an exchange", BIND, bind),
        ("unbind", "remove a binding", "Removes a binding; without a key all of the topic.", unbind),
    ):
        parser = data_command(verbs, verb, words, description, work)
        parser.add_argument("name", metavar="EXCHANGE", type=parsing.topic)
        parser.add_argument("topic", metavar="TOPIC", type=parsing.topic)
        parser.add_argument("key", nargs="?", metavar="KEY", help="key, or pattern")

    parser = data_command(verbs, "alternate", "set an alternate exchange", ALTERNATE, alternate)
    parser.add_argument("name", metavar="NAME", type=parsing.topic, help="an exchange or a topic")
    parser.add_argument("exchange", nargs="?", metavar="EXCHANGE", type=parsing.topic)
    words = "of this subscription of the topic"
    parser.add_argument("--subscription", metavar="NAME", type=parsing.subscription, help=words)

    parser = data_command(
        verbs, "delete", "delete an exchange", "Deletes an exchange with its bindings.", delete
    )
    parser.add_argument("name", metavar="EXCHANGE", type=parsing.topic)
    parser.add_argument("--force", action="store_true", help="even if it has producers or is an alternate")


HEAD = ("EXCHANGE", "KIND", "BINDINGS", "PUBLISHED", "DROPPED", "ALTERNATE")


async def ls(broker: Broker, options: argparse.Namespace) -> int:
    found = [broker.admin.exchange_stats(name) for name in broker.admin.exchanges()]
    rows = [
        (
            short(each.name),
            each.kind,
            len(each.bindings),
            each.published,
            each.dropped,
            short(each.alternate or "-"),
        )
        for each in found
    ]
    words = "\n".join(text_table(HEAD, rows)) if rows else "no exchanges"
    return tell(options, [asdict(each) for each in found], words)


async def create(broker: Broker, options: argparse.Namespace) -> int:
    await broker.admin.create_exchange(
        options.name,
        options.kind,
        alternate=options.alternate,
        unreplicated=options.unreplicated,
        deduplication=options.deduplication or None,
    )
    return tell(options, {"created": options.name}, f"{options.name}: created")


async def info(broker: Broker, options: argparse.Namespace) -> int:
    found = broker.admin.exchange_stats(options.name)
    return tell(options, asdict(found), "\n".join(lines(found)))


def lines(found: ExchangeStats) -> list[str]:
    out = [
        f"exchange {found.name}: {found.kind}{', unreplicated' if found.unreplicated else ''}",
        f"  alternate     {short(found.alternate or 'none')}",
        f"  producers     {len(found.producers)}",
        f"  published     {plural(found.published, 'entry')}: {found.routed} routed, "
        f"{found.to_alternate} to the alternate, {found.dropped} dropped",
        f"  appended      {found.appended} copies in topics",
        f"  bindings      {len(found.bindings)}",
    ]
    if found.bindings:
        rows = [(short(topic), key or "-") for topic, key in found.bindings]
        out += ["", *text_table(("TOPIC", "KEY"), rows)]
    return out


async def bind(broker: Broker, options: argparse.Namespace) -> int:
    await broker.admin.bind(options.name, options.topic, options.key or "")
    answer = {"exchange": options.name, "topic": options.topic, "key": options.key or ""}
    return tell(options, answer, f"{options.topic}: bound to {options.name}")


async def unbind(broker: Broker, options: argparse.Namespace) -> int:
    await broker.admin.unbind(options.name, options.topic, options.key)
    answer = {"exchange": options.name, "topic": options.topic, "key": options.key}
    return tell(options, answer, f"{options.topic}: no longer bound to {options.name}")


async def alternate(broker: Broker, options: argparse.Namespace) -> int:
    if options.subscription is not None:
        find_subscription(broker, options.name, options.subscription)
    await broker.admin.set_alternate(options.name, options.exchange, options.subscription)
    answer = {"name": options.name, "subscription": options.subscription, "alternate": options.exchange}
    return tell(options, answer, f"{options.name}: the alternate exchange is {options.exchange or 'none'}")


async def delete(broker: Broker, options: argparse.Namespace) -> int:
    await broker.admin.delete_exchange(options.name, options.force)
    return tell(options, {"deleted": options.name}, f"deleted {options.name}")
