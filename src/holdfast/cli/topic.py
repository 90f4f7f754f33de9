"""`holdfast topic ls|create|stats|set|terminate|truncate|rm`: the topics of a data directory.

`stream`, `moving` and `inspecting` have the verbs for messages, `partitioning` that for partitioned topics,
`compacting` that for compaction.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast.cli import (
    applied,
    compacting,
    expiring,
    inspecting,
    limits,
    moving,
    parsing,
    partitioning,
    rights,
    stream,
)
from holdfast.cli.asking import asking_command, server_of
from holdfast.cli.data import data_command, find_topic, short
from holdfast.cli.output import print_json, tell
from holdfast.cli.parsing import Subparsers, Usage, count, size
from holdfast.cli.positions import span
from holdfast.cli.states import quota_lines, state_words
from holdfast.cli.values import partitions, policy
from holdfast.errors import Busy, Exists
from holdfast.formatting import plural, size_words, text_table

if TYPE_CHECKING:
    from holdfast.broker import Broker, CompactionStats, SubscriptionStats, TopicStats

LS = """\
Lists the topics, one per line. With --non-persistent those of a server that keep
no messages: they exist while clients use them, and each member knows its own."""

CREATE = """\
Creates topics, and the data directory if it is missing. `orders` is short for
persistent://public/default/orders. Options that are not given follow the
broker's settings."""

SET = """\
Changes settings of a topic. The value `default` removes one, and that of the
namespace or the broker applies. Then shows each setting: the value set here, the
value that applies, and its place. With --data, the options of a server are not
known."""

TERMINATE = """\
Refuses further messages of a topic; stored messages can still be consumed. This
cannot be undone: a terminated topic can only be deleted."""

RM = """\
Deletes topics with their messages and subscriptions. Refuses while a
subscription has a backlog, or a producer publishes, unless --force."""

UNLOAD = """\
Closes the producers and consumers of a topic, in a cluster at every member.
Their clients reconnect, and nothing is lost."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("topic", help="list, create, produce to, consume from and delete topics")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    parser = data_command(verbs, "ls", "list topics", LS, ls)
    parser.add_argument(
        "--non-persistent", action="store_true", help="those that keep no messages, of a server"
    )

    parser = data_command(verbs, "create", "create topics", CREATE, create, makes=True)
    parser.add_argument("names", nargs="+", metavar="TOPIC", type=parsing.topic)
    parser.add_argument(
        "--exist-ok", action="store_true", help="do not fail if it exists; change nothing then"
    )
    parser.add_argument(
        "--unreplicated", action="store_true", help="the member of a cluster that is asked alone has it"
    )
    parser.add_argument(
        "--partitions", type=partitions, metavar="N", help="with N partitions, each a topic of its own"
    )
    add_policies(parser, default=False)
    partitioning.add(verbs)

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
    moving.add(verbs)
    inspecting.add(verbs)
    compacting.add(verbs)
    rights.add_to_topic(verbs)
    limits.add_to_topic(verbs)

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
    parser.add_argument("--force", action="store_true", help="even if it has a backlog or producers")

    parser = data_command(
        verbs,
        "expire",
        "acknowledge entries by age, for all subscriptions",
        "Acknowledges entries that are older than an age, for all subscriptions.",
        expire,
    )
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)
    parser.add_argument("--older-than", type=span, required=True, metavar="SPAN", help="age, such as 2h, 7d")
    parser = asking_command(verbs, "unload", "let all clients of a topic reconnect", UNLOAD, unload)
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)


POLICIES: dict[str, tuple[str, Any, str, str]] = {
    "retention_bytes": ("--retention-size", size, "SIZE", "bytes kept of acknowledged entries"),
    "retention_s": (
        "--retention-time",
        span,
        "SPAN",
        "time for which acknowledged entries are kept, such as 7d",
    ),
    "ttl_s": ("--ttl", span, "SPAN", "age at which entries count as acknowledged; 0: never"),
    "roll_bytes": ("--roll-size", size, "SIZE", "size at which a ledger is sealed"),
    "roll_entries": ("--roll-entries", count, "N", "number of entries at which a ledger is sealed"),
    "roll_age_s": ("--roll-age", span, "SPAN", "age at which a ledger is sealed"),
    "ring_entries": ("--ring-entries", count, "N", "keep the newest N entries, and drop older ones"),
    "ring_bytes": ("--ring-size", size, "SIZE", "keep about the newest SIZE bytes"),
    "delayed_tick_s": ("--delayed-tick", span, "SPAN", "messages that are due come at most so late"),
    "delayed_most_s": ("--delayed-most", span, "SPAN", "refuse messages with a longer delay; 0: no limit"),
    "compaction_threshold": (
        "--compaction-threshold",
        limits.most_bytes,
        "SIZE",
        "compact when so much is behind the compacted view; 0: only on request",
    ),
    **expiring.OPTIONS,
}
"""The policy, and the option for it."""
SWITCHES = {
    "retention_both": "keep only entries within both limits of retention; no: within either",
    "deduplication": "drop messages that a producer sends twice",
    "last_value": "keep the newest message of each key, and drop older ones",
    "delayed_delivery": "hold messages back until their delivery time (Shared, Key_Shared)",
    **expiring.SWITCHES,
}


def add_policies(parser: argparse.ArgumentParser, default: bool) -> None:
    group = parser.add_argument_group("settings")
    for name, (option, reader, metavar, words) in POLICIES.items():
        read = policy(name, reader, default)
        group.add_argument(option, dest=name, type=read, metavar=metavar, help=words)
    choices = ("yes", "no", "default") if default else ("yes", "no")
    for name, words in SWITCHES.items():
        group.add_argument(f"--{name.replace('_', '-')}", dest=name, choices=choices, help=words)


def policies_of(options: argparse.Namespace) -> dict[str, Any]:
    """Those that were given."""
    named = (*POLICIES, *SWITCHES)
    given = {name: value for name in named if (value := getattr(options, name)) is not None}
    for name in SWITCHES.keys() & given.keys():
        given[name] = {"yes": True, "no": False}.get(given[name], "default")
    return {name: None if value == "default" else value for name, value in given.items()}


async def ls(broker: Broker, options: argparse.Namespace) -> int:
    if options.non_persistent:
        known: Callable[[], list[str]] | None = getattr(broker.admin, "non_persistent_topics", None)
        if known is None:
            raise Usage("--non-persistent needs --server URL: a directory keeps no such topic")
        names = known()
        return tell(options, names, "\n".join(names) if names else "no non-persistent topics")
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
            "unreplicated": each.unreplicated,
            "exceeded": each.exceeded,
        }
        for each in found
    ]
    rows = [
        (
            short(each["name"]),
            each["entries"],
            size_words(each["size_bytes"]),
            *(each["subscriptions"], each["backlog"], state_words(stats)),
        )
        for each, stats in zip(answers, found, strict=True)
    ]
    head = ("TOPIC", "ENTRIES", "SIZE", "SUBSCRIPTIONS", "BACKLOG", "STATE")
    return tell(options, answers, "\n".join(text_table(head, rows)) if rows else "no topics")


async def create(broker: Broker, options: argparse.Namespace) -> int:
    made: list[str] = []
    for name in options.names:
        try:
            await create_one(broker, name, options)
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


async def create_one(broker: Broker, name: str, options: argparse.Namespace) -> None:
    given = policies_of(options)
    if options.partitions is None:
        await broker.admin.create_topic(name, unreplicated=options.unreplicated, **given)
    elif options.unreplicated:
        raise Usage("--partitions and --unreplicated exclude each other: partitions are replicated")
    else:
        await broker.admin.create_partitioned_topic(name, options.partitions, **given)


async def stats(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    if broker.admin.partitions(full):
        return partitioning.tell_stats(broker, full, options)
    found, compaction = broker.admin.topic_stats(full), broker.admin.compaction(full)
    answer = {**asdict(found), "compaction": asdict(compaction)}
    return tell(options, answer, "\n".join(stats_lines(found, compaction)))


def stats_lines(found: TopicStats, compaction: CompactionStats) -> list[str]:
    ledgers = found.ledgers
    opened = "" if not ledgers or ledgers[-1].sealed else ", the last one open"
    lines = [
        f"topic {found.name}: {state_words(found)}",
        f"  holds         {plural(found.entries, 'entry')}, {size_words(found.size_bytes)}"
        + (f", {found.first} to {found.last}" if found.entries else ""),
        f"  ledgers       {len(ledgers)}{opened}",
        f"  subscriptions {len(found.subscriptions)}",
        *([f"  dropped       {plural(found.dropped, 'entry')} of backlogs"] if found.dropped else []),
        *([f"  alternate     {short(found.alternate)}"] if found.alternate else []),
        *quota_lines(found),
        *compacting.lines_of(compaction),
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
    names = partitioning.names_of(broker, full)
    for each in names if wanted else ():
        await broker.admin.set_policies(each, **wanted)
    shown, lines = applied.table(broker, names[0], (*POLICIES, *SWITCHES))
    return tell(options, {"name": full, **shown}, "\n".join([f"topic {full}", *lines]))


async def terminate(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    ends = {each: await broker.admin.terminate(each) for each in partitioning.names_of(broker, full)}
    left = plural(sum(broker.admin.topic_stats(each).entries for each in ends), "entry")
    last = {"last": str(ends[full])} if full in ends else {"lasts": [str(each) for each in ends.values()]}
    return tell(options, {"terminated": full, **last}, f"terminated; {left} can still be read")


async def truncate(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    names = partitioning.names_of(broker, full)
    before = sum(broker.admin.topic_stats(each).entries for each in names)
    for each in names:
        await broker.admin.truncate(each)
    return tell(options, {"truncated": full, "entries": before}, f"deleted {plural(before, 'entry')}")


async def expire(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    await broker.admin.expire_all(full, options.older_than)
    return tell(options, {"expired": full}, f"{short(full)}: acknowledged older entries everywhere")


def unload(options: argparse.Namespace) -> int:
    from holdfast.cli.remote_http import path_of
    from holdfast.names import topic_name

    server_of(options).send("PUT", path_of(options.name) + "/unload")
    full = topic_name(options.name)
    return tell(options, {"unloaded": full}, f"{short(full)}: all clients reconnect")


async def rm(broker: Broker, options: argparse.Namespace) -> int:
    names = [find_topic(broker, name) for name in options.names]
    for full in names:
        found = [broker.admin.topic_stats(one) for one in partitioning.names_of(broker, full)]
        behind = [
            f"{each.name} ({plural(each.backlog, 'message')})"
            for stats in found
            for each in stats.subscriptions.values()
            if each.backlog
        ]
        producers = sorted({name for stats in found for name in stats.producers})
        if producers and not options.force:
            raise Busy(
                f"{short(full)} has producers: {', '.join(producers)}; close them first, or they create it "
                "again; --force removes it all the same"
            )
        if behind and not options.force:
            raise Busy(
                f"{short(full)} has subscriptions with a backlog: {', '.join(behind)}; --force removes it "
                "all the same"
            )
        if broker.admin.partitions(full):
            await broker.admin.delete_partitioned_topic(full, force=True)
        else:
            await broker.admin.delete_topic(full, force=True)
        if not options.json:
            print(f"removed {short(full)}")
    if options.json:
        print_json({"removed": names})
    return 0
