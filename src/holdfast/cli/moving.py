"""`holdfast topic purge|move|get|reject|drain`: take messages out of backlogs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli import parsing, stream
from holdfast.cli.data import data_command, find_subscription, find_topic
from holdfast.cli.messages import write
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, count
from holdfast.cli.positions import message_id
from holdfast.errors import NotFound
from holdfast.formatting import plural

if TYPE_CHECKING:
    from holdfast.broker import Broker

MOVE = """\
Moves entries of a subscription's backlog to another topic or to an exchange. Each
is appended there and acknowledged here in one step. Entries that consumers hold
stay."""

GET = """\
Takes the next message of a subscription that no consumer holds: it is
acknowledged, and then written to stdout as it is."""

REJECT = """\
Moves a message to the alternate exchange of the subscription, or of its topic,
exactly once. See `holdfast exchange alternate`."""

DRAIN = """\
Moves what subscriptions of the topic still hold to its alternate exchange, then
deletes the topic. With --subscription only that subscription."""


def add(verbs: Subparsers) -> None:
    parser = data_command(
        verbs,
        "purge",
        "drop all messages for all subscriptions",
        "Drops all messages of a topic for all subscriptions, and says how many.",
        purge,
    )
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)

    parser = data_command(verbs, "move", "move a backlog to a topic or exchange", MOVE, move)
    named(parser)
    parser.add_argument("to", metavar="TO", type=parsing.topic, help="a topic or an exchange")
    parser.add_argument("--count", metavar="N", type=count, help="at most N entries (default all)")

    parser = data_command(verbs, "get", "take one message", GET, get)
    named(parser)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--hex", action="store_true", help="print hexadecimal digits, one message per line")
    shape.add_argument("--lines", action="store_true", help="print a newline after the message")

    parser = data_command(verbs, "reject", "move a message to the alternate exchange", REJECT, reject)
    named(parser)
    parser.add_argument("id", metavar="ID", type=message_id, help="its id, such as 7:42")

    parser = data_command(verbs, "drain", "move everything away, then delete", DRAIN, drain)
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)
    words = "delete only this subscription"
    parser.add_argument("--subscription", metavar="NAME", type=parsing.subscription, help=words)


def named(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", type=parsing.topic)
    parser.add_argument("subscription", metavar="SUBSCRIPTION", type=parsing.subscription)


async def purge(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    gone = await broker.admin.purge(full)
    return tell(options, {"purged": full, "entries": gone}, f"dropped {plural(gone, 'entry')}")


async def move(broker: Broker, options: argparse.Namespace) -> int:
    full, name = find_subscription(broker, options.topic, options.subscription)
    to = find_topic(broker, options.to)
    moved = await broker.admin.move(full, name, to, options.count)
    return tell(options, {"moved": moved, "to": to}, f"moved {plural(moved, 'entry')}")


async def get(broker: Broker, options: argparse.Namespace) -> int:
    full, name = find_subscription(broker, options.topic, options.subscription)
    found = await broker.admin.take(full, name)
    if found is None:
        raise NotFound(f"{name} of {options.topic} has no message that can be taken")
    write(stream.rendered(found, options))
    return 0


async def reject(broker: Broker, options: argparse.Namespace) -> int:
    full, name = find_subscription(broker, options.topic, options.subscription)
    moved = await broker.admin.reject(full, name, options.id)
    words = "rejected" if moved else "it was acknowledged or rejected before; nothing changed"
    return tell(options, {"rejected": moved, "id": str(options.id)}, words)


async def drain(broker: Broker, options: argparse.Namespace) -> int:
    if options.subscription is None:
        full = find_topic(broker, options.name)
        moved = await broker.admin.drain_topic(full)
    else:
        full, name = find_subscription(broker, options.name, options.subscription)
        moved = await broker.admin.drain_subscription(full, name)
    answer = {"deleted": full, "subscription": options.subscription, "moved": moved}
    return tell(options, answer, f"moved {plural(moved, 'entry')}, and deleted")
