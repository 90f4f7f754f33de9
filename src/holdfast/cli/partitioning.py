"""`holdfast topic partitions`: show partitioned topics, and add partitions."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.cli import parsing
from holdfast.cli.data import data_command, find_topic, short
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers
from holdfast.cli.states import state_words
from holdfast.cli.values import partitions as partitions_of
from holdfast.errors import Misuse
from holdfast.formatting import plural, size_words, text_table
from holdfast.names import partition_name

if TYPE_CHECKING:
    from holdfast.broker import Broker

PARTITIONS = """\
Shows the partitioned topics, or the number of partitions of one. With a number,
adds partitions until the topic has so many. There are never fewer: their
messages would be lost. `holdfast topic create --partitions N` creates such a
topic."""


def add(verbs: Subparsers) -> None:
    parser = data_command(verbs, "partitions", "show or add partitions", PARTITIONS, partitions)
    parser.add_argument("name", nargs="?", metavar="TOPIC", type=parsing.topic)
    parser.add_argument("count", nargs="?", metavar="N", type=partitions_of, help="partitions afterwards")


def names_of(broker: Broker, full: str) -> list[str]:
    """Return the partitions of a topic; the topic itself if it has none."""
    return [partition_name(full, index) for index in range(broker.admin.partitions(full))] or [full]


async def partitions(broker: Broker, options: argparse.Namespace) -> int:
    if options.name is None:
        found = broker.admin.partitioned_topics()
        rows = [(short(name), number) for name, number in found.items()]
        table = "\n".join(text_table(("TOPIC", "PARTITIONS"), rows)) if rows else "no partitioned topics"
        return tell(options, [{"name": name, "partitions": number} for name, number in found.items()], table)
    full = find_topic(broker, options.name)
    if options.count is not None:
        await broker.admin.grow_partitions(full, options.count)
    number = broker.admin.partitions(full)
    if not number:
        raise Misuse(f"{short(full)} is not partitioned, and cannot become so; create another topic")
    return tell(
        options, {"name": full, "partitions": number}, f"{short(full)} has {plural(number, 'partition')}"
    )


def tell_stats(broker: Broker, full: str, options: argparse.Namespace) -> int:
    """Show the contents of all partitions."""
    found = {name: broker.admin.topic_stats(name) for name in names_of(broker, full)}
    compactions = {name: broker.admin.compaction(name) for name in found}
    rows = [
        (
            short(name),
            each.entries,
            size_words(each.size_bytes),
            len(each.subscriptions),
            max((one.backlog for one in each.subscriptions.values()), default=0),
            compactions[name].state,
            state_words(each),
        )
        for name, each in found.items()
    ]
    total = plural(sum(each.entries for each in found.values()), "entry")
    size = size_words(sum(each.size_bytes for each in found.values()))
    lines = [f"topic {full}: {plural(len(found), 'partition')}, {total}, {size}", ""]
    head = ("PARTITION", "ENTRIES", "SIZE", "SUBSCRIPTIONS", "BACKLOG", "COMPACTED", "STATE")
    lines += text_table(head, rows)
    each_whole = [{**asdict(each), "compaction": asdict(compactions[name])} for name, each in found.items()]
    answer = {"name": full, "partitions": each_whole}
    return tell(options, answer, "\n".join(lines))
