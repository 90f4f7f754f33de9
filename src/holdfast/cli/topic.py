"""`holdfast topic ls|create|stats|set|terminate|truncate|rm`: the topics of a data directory."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast.cli import parsing, stream
from holdfast.cli.data import data_command, find_topic, short
from holdfast.cli.output import print_json, tell
from holdfast.cli.parsing import Subparsers, count, size
from holdfast.cli.positions import span
from holdfast.errors import Busy, Exists
from holdfast.formatting import plural, size_words, text_table

if TYPE_CHECKING:
    from holdfast.broker import Broker, SubscriptionStats, TopicStats

CREATE = """\
Creates topics, and the data directory if it is missing. `orders` is short for
persistent://public/default/orders. Options that are not given follow the
broker's settings."""

SET = """\
Changes settings of a topic. The value `default` restores the broker's setting.
Without options, shows the settings."""

TERMINATE = """\
Refuses further messages of a topic; stored messages can still be consumed. This
cannot be undone: a terminated topic can only be deleted."""

RM = """\
Deletes topics with their messages and subscriptions. Refuses while a
subscription has a backlog, unless --force."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("topic", help="list, create, produce to, consume from and delete topics")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    data_command(verbs, "ls", "list topics", "Lists the topics, one per line.", ls)

    parser = data_command(verbs, "create", "create topics", CREATE, create, makes=True)
    parser.add_argument("names", nargs="+", metavar="TOPIC", type=parsing.topic)
    parser.add_argument(
        "--exist-ok", action="store_true", help="do not fail if it exists; change nothing then"
    )
    add_policies(parser, default=False)

    parser = data_command(
        verbs,
        "stats",
        "show what a topic holds",
        "Shows contents of a topic, and cursors of its subscriptions.",
        stats,
    )
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)

    parser = data_command(verbs, "set", "change settings of a topic", SET, change)
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)
    add_policies(parser, default=True)

    stream.add(verbs)

    parser = data_command(verbs, "terminate", "end a topic: no further publish", TERMINATE, terminate)
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)

    parser = data_command(
        verbs,
        "truncate",
        "delete all messages of a topic",
        "Deletes all messages; every subscription is then at the end.",
        truncate,
    )
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)

    parser = data_command(verbs, "rm", "delete topics", RM, rm)
    parser.add_argument("names", nargs="+", metavar="TOPIC", type=parsing.topic)
    parser.add_argument("--force", action="store_true", help="even if it has a backlog")


POLICIES: dict[str, tuple[str, Any, str, str]] = {
    "retention_bytes": ("--retention-size", size, "SIZE", "bytes kept of acknowledged entries"),
    "retention_s": (
        "--retention-time",
        span,
        "SPAN",
        "time for which acknowledged entries are kept, such as 7d",
    ),
    "ttl_s": ("--ttl", span, "SPAN", "age at which entries count as acknowledged"),
    "roll_bytes": ("--roll-size", size, "SIZE", "size at which a ledger is sealed"),
    "roll_entries": ("--roll-entries", count, "N", "number of entries at which a ledger is sealed"),
    "roll_age_s": ("--roll-age", span, "SPAN", "age at which a ledger is sealed"),
}
"""The policy, and the option for it."""


def add_policies(parser: argparse.ArgumentParser, default: bool) -> None:
    group = parser.add_argument_group("settings")
    for policy, (option, reader, metavar, words) in POLICIES.items():
        group.add_argument(
            option, dest=policy, type=or_default(reader) if default else reader, metavar=metavar, help=words
        )
    choices = ("yes", "no", "default") if default else ("yes", "no")
    group.add_argument("--deduplication", choices=choices, help="drop messages that a producer sends twice")


def or_default(reader: Any) -> Any:
    """Read the word `default` as it is, and other texts with `reader`."""

    def read(text: str) -> Any:
        return "default" if text == "default" else reader(text)

    return read


def policies_of(options: argparse.Namespace) -> dict[str, Any]:
    """Those that were given."""
    named = (*POLICIES, "deduplication")
    given = {name: value for name in named if (value := getattr(options, name)) is not None}
    if "deduplication" in given:
        given["deduplication"] = {"yes": True, "no": False}.get(given["deduplication"], "default")
    return {name: None if value == "default" else value for name, value in given.items()}


async def ls(broker: Broker, options: argparse.Namespace) -> int:
    found = [broker.admin.topic_stats(name) for name in broker.admin.topics()]
    answers: list[dict[str, Any]] = [
        {
            "name": each.name,
            "entries": each.entries,
            "size_bytes": each.size_bytes,
            "ledgers": len(each.ledgers),
            "subscriptions": len(each.subscriptions),
            "backlog": max((one.backlog for one in each.subscriptions.values()), default=0),
            "terminated": each.terminated,
        }
        for each in found
    ]
    rows = [
        (
            short(each["name"]),
            each["entries"],
            size_words(each["size_bytes"]),
            *(each["subscriptions"], each["backlog"], "terminated" if each["terminated"] else "open"),
        )
        for each in answers
    ]
    head = ("TOPIC", "ENTRIES", "SIZE", "SUBSCRIPTIONS", "BACKLOG", "STATE")
    return tell(options, answers, "\n".join(text_table(head, rows)) if rows else "no topics")


async def create(broker: Broker, options: argparse.Namespace) -> int:
    made: list[str] = []
    for name in options.names:
        try:
            await broker.admin.create_topic(name, **policies_of(options))
        except Exists:
            if not options.exist_ok:
                raise
            words = "was there"
        else:
            made.append(name)
            words = "created"
        if not options.json:  # at once: a later name may be refused
            print(f"{name}: {words}")
    if options.json:
        print_json({"created": made})
    return 0


async def stats(broker: Broker, options: argparse.Namespace) -> int:
    found = broker.admin.topic_stats(find_topic(broker, options.name))
    return tell(options, asdict(found), "\n".join(stats_lines(found)))


def stats_lines(found: TopicStats) -> list[str]:
    ledgers = found.ledgers
    opened = "" if not ledgers or ledgers[-1].sealed else ", the last one open"
    lines = [
        f"topic {found.name}: {'terminated' if found.terminated else 'open'}",
        f"  holds         {plural(found.entries, 'entry')}, {size_words(found.size_bytes)}"
        + (f", {found.first} to {found.last}" if found.entries else ""),
        f"  ledgers       {len(ledgers)}{opened}",
        f"  subscriptions {len(found.subscriptions)}",
    ]
    if found.subscriptions:
        rows = [subscription_row(each) for each in found.subscriptions.values()]
        lines += ["", *text_table(SUBSCRIPTION_HEAD, rows)]
    return lines


SUBSCRIPTION_HEAD = ("SUBSCRIPTION", "BACKLOG", "ACKED TO", "NEXT", "HOLES", "RESETS")


def subscription_row(each: SubscriptionStats) -> tuple[object, ...]:
    return (
        each.name,
        each.backlog,
        each.mark_delete,
        each.read_position,
        each.individually_acknowledged,
        each.reset_number,
    )


async def change(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    wanted = policies_of(options)
    if wanted:
        await broker.admin.set_policies(full, **wanted)
    settings = broker.admin.policies(full)
    shown = {name: getattr(settings, name) for name in (*POLICIES, "deduplication")}
    lines = [
        f"  {name:16} {'as the broker has it' if value is None else value}" for name, value in shown.items()
    ]
    return tell(options, {"name": full, **shown}, "\n".join([f"topic {full}", *lines]))


async def terminate(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    last = await broker.admin.terminate(full)
    left = plural(broker.admin.topic_stats(full).entries, "entry")
    return tell(options, {"terminated": full, "last": str(last)}, f"terminated; {left} can still be read")


async def truncate(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    before = broker.admin.topic_stats(full).entries
    await broker.admin.truncate(full)
    return tell(options, {"truncated": full, "entries": before}, f"deleted {plural(before, 'entry')}")


async def rm(broker: Broker, options: argparse.Namespace) -> int:
    names = [find_topic(broker, name) for name in options.names]
    for full in names:
        behind = [
            f"{each.name} ({plural(each.backlog, 'message')})"
            for each in broker.admin.topic_stats(full).subscriptions.values()
            if each.backlog
        ]
        if behind and not options.force:
            raise Busy(
                f"{short(full)} has subscriptions with a backlog: {', '.join(behind)}; --force removes it "
                "all the same"
            )
        await broker.admin.delete_topic(full, force=True)
        if not options.json:
            print(f"removed {short(full)}")
    if options.json:
        print_json({"removed": names})
    return 0
