"""`holdfast queue ls|create|stat|recover|close|purge|rm|demo`: the queues themselves."""

from __future__ import annotations

import argparse
import grp
import sys
import time
from dataclasses import asdict
from typing import Any

from holdfast import Misuse, NotFound, Queue, QueueStats, Recovered
from holdfast.cli import messages, parsing, queue_demo, segments
from holdfast.cli.output import print_json, tell
from holdfast.cli.parsing import Subparsers, Usage, command, declare, interval, mode
from holdfast.formatting import age_words, plural, size_words, text_table

RECOVER = """\
Recovers what dead participants left, and prints what was recovered. This
command is never necessary: a process that is blocked by a dead one recovers by
itself. It cleans up before the next consumer attaches.

A queue in a directory on a disk outlives a reboot. Its bytes may then be
incomplete, so it is refused until --adopt accepts them."""

RM = """\
Deletes queues, without a question. The memory is freed when the last process
detaches. Refuses while living processes are attached. With --force, these keep
a queue that no other process can find."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("queue", help="list, create, inspect, fill, empty, recover and delete queues")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    command(
        verbs, "ls", "list the queues of this machine", "Lists the queues in the directory, one per line.", ls
    )

    _add_create(verbs)

    parser = command(
        verbs,
        "stat",
        "show what a queue holds",
        "Shows contents, participants and counters of a queue.",
        stat,
    )
    parser.add_argument("name", metavar="NAME", type=parsing.queue)
    parser.add_argument("--watch", type=interval, metavar="S", help="repeat every S seconds, with rates")

    messages.add(verbs)

    parser = command(verbs, "recover", "recover after dead processes now", RECOVER, recover)
    parser.add_argument("name", metavar="NAME", type=parsing.queue)
    parser.add_argument("--adopt", action="store_true", help="accept a queue from before the last boot")

    parser = command(
        verbs,
        "close",
        "close the queue: no further put; gets end when it is empty",
        "Refuses further messages; stored messages can still be got.",
        close,
    )
    parser.add_argument("name", metavar="NAME", type=parsing.queue)

    parser = command(
        verbs,
        "purge",
        "drop all waiting messages",
        "Settles all waiting messages without delivering them.",
        purge,
    )
    parser.add_argument("name", metavar="NAME", type=parsing.queue)

    parser = command(verbs, "rm", "delete queues", RM, rm)
    parser.add_argument("names", nargs="+", metavar="NAME", type=parsing.queue)
    parser.add_argument("--force", action="store_true", help="even while processes are attached")

    queue_demo.add(verbs)


def _add_create(verbs: Subparsers) -> None:
    parser = command(
        verbs, "create", "create a queue", "Creates a queue. All its memory is allocated now.", create
    )
    names = {"name": parsing.queue, "dead_letter": parsing.queue}
    declare(
        parser, names, capacity=16 << 20, delivery="at-least-once", participants=64, checksum="header"
    )("""
        name NAME
        --capacity SIZE: such as 64k, 64M, 1G (default 16M)
        --delivery at-least-once|at-most-once: if a consumer died, deliver its message again (default), or do
            not
        --participants N: attached processes, at most (default 64)
        --max-deliveries N: deliveries of a message before it goes to --dead-letter
        --dead-letter NAME: queue for messages with too many deliveries; created if missing
        --stall-limit S: skip an unfinished message of a living writer after S seconds (default: never)
        --checksum header|full: checksum of the header, or of all bytes (default header)
        """)
    parser.add_argument("--mode", type=mode, default=0o600, help="permissions (default 600)")
    parser.add_argument("--group", type=group, help="owning group, by name or number")
    declare(parser)("--exist-ok: do not fail if it exists with the same parameters")


def group(text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        return grp.getgrnam(text).gr_gid
    except KeyError:
        raise argparse.ArgumentTypeError(f"there is no group {text!r}") from None


def ls(options: argparse.Namespace) -> int:
    answers = []
    for name, seen in segments.look_at_all(options.directory):
        held = (seen.get("queue") or {}).get("blocks", {})
        answers.append(
            {
                "name": name,
                "capacity_bytes": seen.get("params", {}).get("capacity"),
                "ready": held.get("READY", 0) + held.get("RETRY", 0),
                "taken": held.get("TAKEN", 0),
                "attached": sum(each["active"] for each in seen.get("people", [])),
                "alive": len(segments.living(seen)),
                "dead": len(segments.dead(seen)),
                "state": segments.state_words(seen),
            }
        )
    head = ("NAME", "CAPACITY", "READY", "TAKEN", "ATTACHED", "ALIVE", "DEAD", "STATE")
    rows = [
        (
            each["name"],
            "?" if each["capacity_bytes"] is None else size_words(each["capacity_bytes"]),
            *(each[key] for key in ("ready", "taken", "attached", "alive", "dead", "state")),
        )
        for each in answers
    ]
    table = "\n".join(text_table(head, rows)) if rows else segments.nothing("queues", options.directory)
    return tell(options, answers, table)


def create(options: argparse.Namespace) -> int:
    try:
        queue = Queue.create(
            options.name,
            capacity=options.capacity,
            delivery=options.delivery,
            participants=options.participants,
            max_deliveries=options.max_deliveries,
            dead_letter=options.dead_letter,
            stall_limit=options.stall_limit,
            checksum=options.checksum,
            mode=options.mode,
            group=options.group,
            exist_ok=options.exist_ok,
            directory=options.directory,
        )
    except Misuse as error:
        words = str(error)
        for name in ("max_deliveries", "dead_letter", "stall_limit"):
            words = words.replace(name, f"--{name.replace('_', '-')}")
        raise Usage(words) from None
    queue.detach()
    seen = segments.look(options.directory, options.name)
    params = seen["params"]
    return tell(
        options,
        {"name": options.name, "path": seen["path"], **params},
        f"{seen['path']}: {size_words(params['capacity'])}, {params['delivery']}, "
        f"messages up to {plural(params['message_size_max'], 'byte')}",
    )


def stat(options: argparse.Namespace) -> int:
    before: QueueStats | None = None
    try:
        while True:
            stats = segments.stats(options.directory, options.name)
            if options.json:
                print_json(asdict(stats))
            else:
                again = options.watch is not None and sys.stdout.isatty()
                text = "\n".join(stat_lines(stats, before, options.watch or 1.0))
                print(f"\033[H\033[2J{text}" if again else text, flush=True)
            if options.watch is None:
                return 0
            before = stats
            time.sleep(options.watch)
    except KeyboardInterrupt:
        if options.watch is None:
            raise
        return 0  # the way to end a watch


def stat_lines(stats: QueueStats, before: QueueStats | None = None, span: float = 1.0) -> list[str]:
    """Everything in `QueueStats`, in words; with rates where there was a look before."""

    def rate(key: str) -> str:
        if before is None:
            return ""
        return f"   {(getattr(stats, key) - getattr(before, key)) / max(span, 1e-3):,.0f}/s"

    waits = stats.ready + stats.returned
    lines = [
        f"queue {stats.name}: {'closed' if stats.closed else 'open'}, {stats.delivery}, "
        f"messages up to {plural(stats.message_size_max, 'byte')}",
        f"  space         {size_words(stats.used_bytes)} of {size_words(stats.capacity_bytes)} in use, "
        f"{size_words(stats.free_bytes)} free",
        f"  waiting       {waits:,} ({stats.ready:,} new, {stats.returned:,} came back)",
        f"  taken         {stats.taken:,} and not settled",
        f"  being written {stats.writing:,}"
        + (f", {stats.fenced_blocks:,} fenced" if stats.fenced_blocks else ""),
        "since it was made",
        f"  put           {stats.put:,} ({size_words(stats.put_bytes)}){rate('put')}",
        f"  delivered     {stats.delivered:,}, of these {stats.redelivered:,} again{rate('delivered')}",
        f"  settled       {stats.settled:,}, given back {stats.given_back:,}{rate('settled')}",
        f"  recovered     {stats.skipped:,} half-written skipped, {stats.handed_on:,} handed on, "
        f"{stats.released:,} released",
        f"  fenced        {stats.fenced:,}, to the dead-letter queue {stats.dead_lettered:,}, "
        f"damaged {stats.corrupt:,}",
        f"  positions     {stats.positions_left:,} left",
        f"participants: {len(stats.participants)}",
    ]
    hands = {each.slot: each for each in stats.holders}
    for each in stats.participants:
        state = "alive" if each.alive else "DEAD: the next in need cleans up after it"
        held = hands.get(each.slot)
        what = (
            f"; holds {held.taken} taken, {held.writing} being written, {held.fenced} fenced, "
            f"the oldest for {age_words(held.oldest_ms / 1000)}"
            if held is not None
            else ""
        )
        since = age_words(max(0.0, time.time() - each.joined_ms / 1000))
        lines.append(f"  slot {each.slot:<4} pid {each.pid:<8} joined {since} ago, {state}{what}")
    return lines


def recover(options: argparse.Namespace) -> int:
    adopted = options.adopt and not segments.look(options.directory, options.name).get("this_boot", True)
    left, recovered = recover_now(options.name, options.directory, options.adopt)
    stats = segments.stats(options.directory, options.name)
    waits = stats.ready + stats.returned
    if options.json:
        blocks = [asdict(each) for each in left]
        print_json({**asdict(recovered), "adopted": adopted, "waiting": waits, "blocks": blocks})
        return 0
    if adopted:
        print("adopted, from before the last boot")
    for each in left:
        print(f"position {each.position}, pid {each.pid}: {each.words}")
    print(f"recovered: {recovered_words(recovered)}; {plural(waits, 'message')} waiting now")
    return 0


def recover_now(name: str, directory: str | None, adopt: bool) -> tuple[list[segments.Left], Recovered]:
    """Attach and recover; returns the blocks of dead participants, and the counts.

    The blocks are listed before: attaching alone already recovers, where it gets a dead participant's slot.
    """
    left = segments.left_by_the_dead(directory, name)
    with Queue.open(name, adopt=adopt, directory=directory) as queue:
        queue.recover()
    still = {each.position for each in segments.left_by_the_dead(directory, name)} if left else set()
    done = [each for each in left if each.position not in still]
    outcomes = [each.outcome for each in done]
    return done, Recovered(outcomes.count("skip"), outcomes.count("hand_on"), outcomes.count("release"))


def recovered_words(recovered: Recovered) -> str:
    parts = []
    if recovered.skipped:
        parts.append(f"{plural(recovered.skipped, 'half-written message')} skipped")
    if recovered.handed_on:
        parts.append(f"{plural(recovered.handed_on, 'message')} handed on")
    if recovered.released:
        parts.append(f"{plural(recovered.released, 'message')} released")
    return ", ".join(parts) or "nothing; no dead participant left anything"


def close(options: argparse.Namespace) -> int:
    with Queue.open(options.name, directory=options.directory) as queue:
        queue.close()
    waits = segments.stats(options.directory, options.name)
    return tell(
        options,
        {"closed": options.name, "waiting": waits.ready + waits.returned},
        f"closed; {plural(waits.ready + waits.returned, 'message')} can still be got",
    )


def purge(options: argparse.Namespace) -> int:
    with Queue.open(options.name, directory=options.directory) as queue:
        purged = queue.purge()
    return tell(options, {"purged": purged}, f"dropped {plural(purged, 'message')}")


def rm(options: argparse.Namespace) -> int:
    return segments.remove(options, "queue", look, Queue.unlink)


def look(directory: str | None, name: str) -> dict[str, Any]:
    """Inspect a queue.

    Raises:
        NotFound: there is no such queue; the text names a similar one.
    """
    try:
        return segments.look(directory, name)
    except NotFound:
        raise segments.not_found("queue", directory, name) from None
