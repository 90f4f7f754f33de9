"""`holdfast topic message|examine|find|last|trim|backlog-size|internal`: look at single messages."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from holdfast.cli import parsing, partitioning, stream
from holdfast.cli.asking import asking_command, server_of
from holdfast.cli.data import data_command, find_topic, short
from holdfast.cli.output import print_json, tell
from holdfast.cli.parsing import Subparsers, declare
from holdfast.cli.positions import message_id, moment
from holdfast.formatting import plural, size_words
from holdfast.names import topic_name

if TYPE_CHECKING:
    from holdfast.broker import Broker

MESSAGE = """\
Shows the message with an id, also an acknowledged one; nothing changes. Of a
batch: the first message, or the one that the id names."""

EXAMINE = """\
Shows a message by its number from the first or the last one of a topic;
acknowledgements have no influence. A batch counts as one, and is shown whole."""

FIND = """\
Prints the id of the first message from a time on. If there is none, prints the
id of the last message."""

LAST = """\
Prints the id of the last message of a topic."""

TRIM = """\
Deletes messages that no subscription needs and retention does not keep. The
broker does so by itself; this is earlier."""

SIZE = """\
Prints how many bytes are stored behind a message, estimated within its ledger."""

INTERNAL = """\
Prints the stored metadata of a topic as JSON: ledgers, and acknowledged ranges of
each subscription. With --stats the state of ledgers and cursors while it runs."""


def add(verbs: Subparsers) -> None:
    parser = data_command(verbs, "message", "show the message with an id", MESSAGE, message)
    _named(parser)
    parser.add_argument("id", metavar="ID", type=message_id, help="its id, such as 7:42")
    declare(parser, bytes=64)("--bytes SIZE: bytes shown of the message (default 64)")

    parser = asking_command(verbs, "examine", "show a message by its number", EXAMINE, examine)
    _named(parser)
    declare(parser, {"end": str}, end="latest", position=1, bytes=64)("""
        --end earliest|latest: the end from which to count (default latest)
        --position N: the first is 1 (default)
        --bytes SIZE: bytes shown of each message (default 64)
        """)

    parser = data_command(verbs, "find", "print the id of the first message from a time on", FIND, find)
    _named(parser)
    parser.add_argument(
        "--time", type=moment, required=True, metavar="TIME", help="such as 2026-11-15T08:30:00Z or -2h"
    )

    _named(data_command(verbs, "last", "print the id of the last message", LAST, last))
    _named(data_command(verbs, "trim", "delete messages that nothing needs", TRIM, trim))

    parser = asking_command(verbs, "backlog-size", "print the bytes behind a message", SIZE, backlog_size)
    _named(parser)
    parser.add_argument("id", metavar="ID", type=message_id, help="its id, such as 7:42")

    parser = asking_command(verbs, "internal", "print ledgers and cursors as JSON", INTERNAL, internal)
    _named(parser)
    parser.add_argument("--stats", action="store_true", help="the state while it runs")


def _named(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)


async def message(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    found = await broker.admin.get(full, options.id)
    due = await stream.delivery_times(broker, full, [found])
    return stream.show([found], options, "", due)


def examine(options: argparse.Namespace) -> int:
    from holdfast.cli.remote_http import due_of, path_of, restored

    at = f"{path_of(options.name)}/examinemessage"
    query = {"initialPosition": options.end, "messagePosition": options.position}
    data, headers = server_of(options).raw("GET", at, None, query)
    found = restored(data, headers)
    due = {} if (time := due_of(headers)) is None else {(each.ledger, each.entry): time for each in found}
    return stream.show(found, options, "", due)


async def find(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    return _tell_id(options, full, str(await broker.admin.time_of(full, options.time)))


async def last(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    return _tell_id(options, full, str(broker.admin.last_id(full)))


def _tell_id(options: argparse.Namespace, full: str, found: str) -> int:
    is_none = "-" in found  # an empty topic has the id -1:-1
    answer = {"topic": full, "id": None if is_none else found}
    return tell(options, answer, f"{short(full)} has no messages" if is_none else found)


async def trim(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    names, gone = partitioning.names_of(broker, full), 0
    for each in names:
        before = broker.admin.topic_stats(each).entries
        await broker.admin.trim(each)
        gone += max(0, before - broker.admin.topic_stats(each).entries)
    return tell(options, {"trimmed": full, "entries": gone}, f"deleted {plural(gone, 'entry')}")


def backlog_size(options: argparse.Namespace) -> int:
    from holdfast.cli.remote_http import path_of

    body = {"ledgerId": options.id.ledger, "entryId": options.id.entry}
    found: int = server_of(options).send("PUT", f"{path_of(options.name)}/backlogSize", body)
    answer = {"topic": topic_name(options.name), "behind": str(options.id), "bytes": found}
    return tell(options, answer, f"{size_words(found)} behind {options.id}")


def internal(options: argparse.Namespace) -> int:
    from holdfast.cli.remote_http import path_of

    what = "internalStats" if options.stats else "internal-info"
    found = server_of(options).get(f"{path_of(options.name)}/{what}")
    if options.json:
        print_json(found)
    else:
        print(json.dumps(found, indent=2, ensure_ascii=False), flush=True)
    return 0
