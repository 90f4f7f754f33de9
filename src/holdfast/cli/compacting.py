"""`holdfast topic compact`: compact a topic, wait for the end, or remove its compacted view."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.cli import parsing, partitioning
from holdfast.cli.data import data_command, find_topic, is_remote, short
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers
from holdfast.errors import Busy, HoldfastError
from holdfast.formatting import plural, size_words

if TYPE_CHECKING:
    from holdfast.broker import Broker, CompactionStats

COMPACT = """\
Compacts a topic: of each key its compacted view has the newest message, for
consumers and readers that ask for it. The topic itself keeps all messages as
before. A server compacts in the background; --wait waits for the end. With --data
the command compacts itself, with default options, and always waits. `topic stats`
shows the state. --forget removes the view, with messages that only the view had."""

PAUSES_S = (0.01, 1.0)
"""Time between two looks at the state: at first, and at most."""


def add(verbs: Subparsers) -> None:
    parser = data_command(verbs, "compact", "keep the newest message of each key in a view", COMPACT, compact)
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)
    either = parser.add_mutually_exclusive_group()
    wait = "until the compaction has ended; also behind one that is under way"
    either.add_argument("--wait", action="store_true", help=wait)
    either.add_argument("--forget", action="store_true", help="remove the compacted view")


async def compact(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    names = partitioning.names_of(broker, full)
    if options.forget:
        for each in names:
            await broker.admin.forget_compaction(each)
        return tell(options, {"forgotten": full}, f"{short(full)}: removed the compacted view")
    waits = options.wait or not is_remote(broker)
    await request(broker, names, waits)
    if not waits:
        return tell(options, {"requested": full}, f"{short(full)}: the compaction is requested")
    found = {name: await ended(broker, name) for name in names}
    for name, state in found.items():
        if state.state == "failed":
            kept = "its former view stays" if state.view else "it has no view yet"
            words = f"failed: {state.error}; {kept}; mend the cause, then compact again"
            raise HoldfastError(f"the compaction of {short(name)} {words}")
    lines = [f"{short(name)}: {outcome(state)}" for name, state in found.items()]
    return tell(options, {name: asdict(state) for name, state in found.items()}, "\n".join(lines))


async def request(broker: Broker, names: list[str], waits: bool) -> None:
    """Ask for the compaction of each topic; `waits` for one that is under way.

    Raises:
        Busy: one is being compacted. The others are requested all the same.
    """
    busy: list[Busy] = []
    for each in names:
        while True:
            try:
                await broker.admin.compact(each)
            except Busy as error:
                if waits:  # it may have begun before the last messages
                    await ended(broker, each)
                    continue
                busy.append(error)
            break
    if busy:
        raise busy[0]


async def ended(broker: Broker, name: str) -> CompactionStats:
    """Wait until no compaction of a topic runs, and return its state."""
    pause_s, most_s = PAUSES_S
    while (found := broker.admin.compaction(name)).state == "running":
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, most_s)
    return found


def outcome(found: CompactionStats) -> str:
    """Return what a view has, in words."""
    if not found.view:
        return "there is no compacted view: it was removed"
    return (
        f"{found.kept} of {plural(found.read, 'message')} stay, in {plural(found.entries, 'entry')} of "
        f"{size_words(found.size)}"
    )


def lines_of(found: CompactionStats) -> list[str]:
    """Return lines for the stats of a topic; empty if it was never compacted."""
    lines = []
    if found.view:
        behind = "" if not found.size_behind else f"; {size_words(found.size_behind)} behind"
        lines.append(f"  compacted     {outcome(found)}{behind}")
    if found.state == "running":
        lines.append("  compaction    requested or under way")
    if found.error:
        lines.append(f"  compaction    failed the last time: {found.error}")
    return lines
