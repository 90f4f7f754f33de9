"""`holdfast topic produce|consume|peek`: the messages of a topic."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.cli import parsing
from holdfast.cli.data import data_command, find_topic
from holdfast.cli.messages import data_record, dump, shaped, whole, write
from holdfast.cli.output import notice, print_json, tell
from holdfast.cli.parsing import Subparsers, Usage, count, declare
from holdfast.cli.positions import Place, moment, place, span
from holdfast.errors import Timeout
from holdfast.formatting import age_words, plural

if TYPE_CHECKING:
    from holdfast._core import TopicMessage
    from holdfast.broker import Broker, Consumer, Reader

PRODUCE = """\
Publishes a message, or several, and returns when they are on the disk. The data
is the argument, or a file, or stdin.

  holdfast topic produce orders hello              the five bytes "hello"
  holdfast topic produce orders --file photo.jpg   the file as one message
  date | holdfast topic produce orders             all of stdin as one message
  holdfast topic produce orders --lines < log      every line a message, without its newline
  holdfast topic produce orders --lines --separator : < log
                                                   "smith:nails" is the message "nails" with the key "smith"

The topic must exist, unless --create creates it."""

CONSUME = """\
Writes messages to stdout as they are; in a terminal, and with --lines, a newline
follows each. Ends when no message is left, unless --timeout waits for more.

With --subscription, each message is acknowledged after it was written, and the
next call continues behind it. A new subscription begins at --start. Without
--subscription the command reads from --start and changes nothing."""

PEEK = """\
Shows messages from a position on, also acknowledged ones; nothing changes.
Messages that were trimmed cannot be shown."""

RUN = 1000
"""Messages that are published, or acknowledged, together."""
STUCK_S = 60.0
"""Time to wait for a message of a backlog; longer is a fault."""


def add(verbs: Subparsers) -> None:
    parser = data_command(verbs, "produce", "publish messages", PRODUCE, produce)
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)
    parser.add_argument("data", nargs="?", metavar="DATA", help="the message")
    parser.add_argument("--file", metavar="FILE", help="send a file as one message; - is stdin")
    parser.add_argument("--lines", action="store_true", help="send every line of stdin as a message")
    parser.add_argument("--separator", metavar="TEXT", help="with --lines: text between key and message")
    parser.add_argument(
        "--count", type=count, default=1, metavar="N", help="publish the message N times (default 1)"
    )
    parser.add_argument("--key", metavar="KEY", help="key of all messages")
    parser.add_argument(
        "--property",
        dest="properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of all messages; repeatable",
    )
    parser.add_argument(
        "--event-time", type=moment, metavar="TIME", help="event time, such as 2026-11-15T08:30:00Z or -2h"
    )
    later = parser.add_mutually_exclusive_group()
    later.add_argument(
        "--deliver-at",
        type=moment,
        metavar="TIME",
        help="shared subscriptions get the messages at this time, others at once",
    )
    later.add_argument(
        "--deliver-after", type=span, metavar="SPAN", help="the same, so long from now: 30s, 15m, 2h or 7d"
    )
    parser.add_argument(
        "--producer",
        type=parsing.producer,
        metavar="NAME",
        help="name of the producer, used by deduplication",
    )
    parser.add_argument("--create", action="store_true", help="create the topic and the directory if missing")

    parser = data_command(verbs, "consume", "receive messages", CONSUME, consume)
    declare(
        parser,
        types={"start": place, "name": parsing.topic, "subscription": parsing.subscription},
    )("""
        name TOPIC
        --subscription NAME: subscription that acknowledges what was printed
        --start POSITION: earliest (default), latest, a message id or a time; an existing subscription
            continues at its cursor
        --count N: at most N messages (default: all)
        --timeout S: wait at most S seconds for each further message
        """)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--hex", action="store_true", help="print hexadecimal digits, one message per line")
    shape.add_argument("--lines", action="store_true", help="print a newline after each message")

    parser = data_command(verbs, "peek", "show messages without a subscription", PEEK, peek)
    declare(parser, types={"start": place, "name": parsing.topic}, start="earliest", count=10, bytes=64)("""
        name TOPIC
        --start POSITION: earliest (default), a message id or a time
        --count N: at most N messages (default 10)
        --bytes SIZE: bytes shown of each message (default 64)
        """)


# -- produce ------------------------------------------------------------------------------------------


async def produce(broker: Broker, options: argparse.Namespace) -> int:
    if sum((options.data is not None, options.file is not None, options.lines)) > 1:
        raise Usage("DATA, --file and --lines exclude each other")
    if options.separator is not None and (
        not options.lines or options.key is not None or not options.separator
    ):
        raise Usage("--separator needs --lines, some text, and no --key")
    if not options.create:
        find_topic(broker, options.name)
    properties = properties_of(options.properties)
    done, last = 0, None
    async with broker.producer(options.name, name=options.producer) as producer:
        for key, run in runs(options):
            ids = await producer.send_many(
                run,
                key=key,
                properties=properties,
                event_time=options.event_time,
                deliver_at=options.deliver_at,
                deliver_after=options.deliver_after,
            )
            done, last = done + len(ids), ids[-1] if ids[-1].ledger >= 0 else None  # an exchange has no ids
    return tell(
        options,
        {"published": done, "last": None if last is None else str(last)},
        f"published {plural(done, 'message')}" + ("" if last is None else f", the last is {last}"),
    )


def properties_of(given: Sequence[str]) -> dict[str, str] | None:
    pairs = [each.partition("=") for each in given]
    for each, (name, equals, _) in zip(given, pairs, strict=True):
        if not name or not equals:
            raise Usage(f"--property {each}: write NAME=VALUE")
    return {name: value for name, _, value in pairs} or None


def runs(options: argparse.Namespace) -> Iterator[tuple[str | None, list[bytes]]]:
    """Yield the messages that are published together: one call has one key."""
    if not options.lines:
        left, data = options.count, whole(options)
        while left > 0:
            yield options.key, [data] * min(RUN, left)
            left -= RUN
        return
    lines = (line.removesuffix(b"\n") for line in sys.stdin.buffer for _ in range(options.count))
    if options.separator is None:
        while run := list(islice(lines, RUN)):
            yield options.key, run
        return
    separator = os.fsencode(options.separator)
    for line in lines:
        key, found, data = line.partition(separator)
        yield (key.decode(errors="replace"), [data]) if found else (None, [line])


# -- consume ------------------------------------------------------------------------------------------


async def consume(broker: Broker, options: argparse.Namespace) -> int:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "stdout is closed; nothing was consumed")
    full = find_topic(broker, options.name)
    left = sys.maxsize if options.count is None else options.count
    queue = min(RUN, left)
    start: Place = options.start or "earliest"
    if options.subscription is None:
        async with broker.reader(full, start=start, receiver_queue=queue) as reader:
            await read(reader, left, options)
        return 0
    if options.start is not None:
        if options.subscription in broker.admin.subscriptions(full):
            notice(
                f"--start has no effect: the subscription {options.subscription} exists and continues at its "
                "cursor; to move it, use `holdfast subscription reset`"
            )
        elif not isinstance(start, str):
            await broker.admin.create_subscription(full, options.subscription, start)
    async with broker.consumer(
        full, options.subscription, start=start, receiver_queue=queue, receipts=True
    ) as consumer:
        await take(broker, full, consumer, left, options)
    return 0


async def read(reader: Reader, left: int, options: argparse.Namespace) -> None:
    while left > 0 and (options.timeout is not None or await reader.has_more()):
        messages = await some(reader, left, options)
        for message in messages:
            write(rendered(message, options))
        left -= len(messages)
        if not messages:
            return


async def take(
    broker: Broker, topic: str, consumer: Consumer, left: int, options: argparse.Namespace
) -> None:
    """Acknowledge the messages that were written, also when a write fails."""
    while left > 0:
        if options.timeout is None and backlog(broker, topic, consumer) == 0:
            return
        messages = await some(consumer, left, options)
        if not messages:
            return
        written = 0
        try:
            for message in messages:
                write(rendered(message, options))
                written += 1
        finally:
            if written:
                await consumer.ack_many(messages[:written])
        left -= written


def backlog(broker: Broker, topic: str, consumer: Consumer) -> int | None:
    """Return the backlog; the consumer of a server knows it without a grant of admin."""
    known: Callable[[], int | None] | None = getattr(consumer, "backlog", None)
    if known is not None:
        return known()
    return broker.admin.subscription_stats(topic, consumer.subscription).backlog


async def some(receiver: Consumer | Reader, left: int, options: argparse.Namespace) -> list[TopicMessage]:
    """Up to a run of messages; none when the time is over."""
    try:
        return await receiver.receive_many(
            min(RUN, left), timeout=STUCK_S if options.timeout is None else options.timeout
        )
    except Timeout:
        if options.timeout is None:
            raise
        return []


def rendered(message: TopicMessage, options: argparse.Namespace) -> bytes:
    data = bytes(message.data)
    if options.json:
        record = {**record_of(message), **data_record(data)}
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"
    return shaped(data, options)


# -- looking ------------------------------------------------------------------------------------------


async def peek(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    messages = await broker.admin.examine(full, options.start, options.count)
    return show(messages, options, "no message there", await delivery_times(broker, full, messages))


Due: TypeAlias = dict[tuple[int, int], datetime]
"""The delivery times of entries, by ledger and entry; without those that have none."""


async def delivery_times(broker: Broker, topic: str, messages: Sequence[TopicMessage]) -> Due:
    """Return when messages are due; messages of a batch have one time."""
    entries = {(each.ledger, each.entry): each.id for each in messages}
    found = {at: await broker.admin.delivery_time(topic, each) for at, each in entries.items()}
    return {at: time for at, time in found.items() if time is not None}


def show(messages: Sequence[TopicMessage], options: argparse.Namespace, nothing: str, due: Due) -> int:
    for message in messages:
        data = bytes(message.data)
        shown = data[: options.bytes]
        time = due.get((message.ledger, message.entry))
        if options.json:
            at = {"deliver_at": time.isoformat() if time else None}
            print_json({**record_of(message), **at, **data_record(shown, len(shown) == len(data))})
        else:
            print("\n".join([head(message, len(data), time), *dump(shown)]))
            if len(shown) < len(data):
                print(f"  … {plural(len(data) - len(shown), 'more byte')}")
    if not messages and not options.json:
        print(nothing)
    return 0


def record_of(message: TopicMessage) -> dict[str, Any]:
    """All but the data, for JSON."""
    return {
        "id": str(message.id),
        "time": message.publish_time.isoformat() if message.publish_time else None,
        "event_time": message.event_time.isoformat() if message.event_time else None,
        "key": text_of(message.key),
        "properties": dict(message.properties or {}),
        "producer": message.producer,
        "sequence": message.sequence,
        "redelivered": message.redelivery_count,
        "size": len(message.data),
    }


def head(message: TopicMessage, length: int, due: datetime | None) -> str:
    parts = [str(message.id), plural(length, "byte")]
    if message.publish_time:
        age = max(0.0, (datetime.now(UTC) - message.publish_time).total_seconds())
        parts.append(f"published {age_words(age)} ago")
    if due:
        parts.append(f"due {due.isoformat(timespec='milliseconds')}")
    if message.key:
        parts.append(f"key {text_of(message.key)}")
    parts += [f"{name}={value}" for name, value in (message.properties or {}).items()]
    return "  ".join(parts)


def text_of(key: str | bytes | None) -> str | None:
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else key
