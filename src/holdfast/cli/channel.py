"""`holdfast channel ls|stat|watch|doctor|rm`: the channels of this machine, looked at from outside."""

from __future__ import annotations

import argparse
import time
from collections.abc import Container
from dataclasses import asdict
from typing import Any

from holdfast import Channel, ChannelStats, Denied, NotFound, _core
from holdfast.cli import parsing, segments
from holdfast.cli.output import print_json
from holdfast.cli.parsing import Subparsers, command, interval
from holdfast.formatting import plural, size_words, text_table
from holdfast.memory import Participant, channel_faults, channel_stats_of

DOCTOR = """\
Checks every slot and buffer of a channel, even if all its processes are dead or
its bytes are damaged. This changes nothing. The exit status is 0 if the channel
is sound, 1 if there is a fault. A dead process is not a fault: the next
producer or consumer recovers."""

RM = """\
Deletes channels, without a question. The memory is freed when the last process
closes them. Refuses while living processes are attached. With --force, these
keep a channel that no other process can find."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("channel", help="list, inspect, check and delete channels")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    command(verbs, "ls", "list the channels of this machine", "Lists the channels, one per line.", ls)
    for verb in ("stat", "watch"):
        words = "show contents, roles and counters of a channel"
        parser = command(
            verbs,
            verb,
            words if verb == "stat" else "show them again and again",
            "Shows contents, roles and counters of a channel.",
            stat,
        )
        parser.add_argument("name", metavar="NAME", type=parsing.queue)
        help_ = "repeat every S seconds, with rates" + (" (default 1)" if verb == "watch" else "")
        parser.add_argument(
            "--watch", type=interval, metavar="S", default=1.0 if verb == "watch" else None, help=help_
        )
    parser = command(verbs, "doctor", "check a channel", DOCTOR, doctor)
    parser.add_argument("name", metavar="NAME", type=parsing.queue)
    parser = command(verbs, "rm", "delete channels", RM, rm)
    parser.add_argument("names", metavar="NAME", nargs="+", type=parsing.queue)
    parser.add_argument("--force", action="store_true", help="also if processes are attached")


def look(directory: str | None, name: str) -> dict[str, Any]:
    """Inspect a channel; again where a busy channel went on too fast.

    Raises:
        NotFound: there is no such channel; the text names a similar one.
    """
    where = segments.where(directory)
    try:
        return segments.look_until_complete("channel", lambda: _core.inspect_channel(where, name))
    except NotFound:
        raise segments.not_found("channel", directory, name) from None


def ls(options: argparse.Namespace) -> int:
    answers: list[dict[str, Any]] = []
    for name in Channel.list(directory=options.directory):
        try:
            seen = look(options.directory, name)
        except NotFound:
            continue
        except Denied as error:
            answers.append({"name": name, "state": str(error)})
            continue
        faults = channel_faults(seen)
        answer: dict[str, Any] = {"name": name, "state": faults[0] if faults else "sound"}
        if "channel" in seen:
            found = channel_stats_of(name, seen)
            answer |= {
                "slots": found.slots,
                "slot_size_bytes": found.slot_size_bytes,
                "ready": found.ready,
                "held": found.held,
                "producer": found.producer and found.producer.pid,
                "producers": [each and each.pid for each in found.attached_producers],
                "consumer": found.consumer and found.consumer.pid,
                "dead": {each.pid for each in found.participants if not each.alive},
            }
        answers.append(answer)
    keys = ("name", "slots", "slot_size_bytes", "ready", "held", "producers", "consumer", "state")
    if options.json:
        print_json({"channels": [{key: each.get(key) for key in (*keys, "producer")} for each in answers]})
        return 0
    head = ("NAME", "SLOTS", "SIZE", "READY", "HELD", "PRODUCER", "CONSUMER", "STATE")
    rows = [tuple(_shown(key, each.get(key), each.get("dead", ())) for key in keys) for each in answers]
    print("\n".join(text_table(head, rows)) if rows else segments.nothing("channels", options.directory))
    return 0


def _shown(key: str, value: Any, dead: Container[int]) -> str:
    if value is None:
        return "-"
    if key in ("producers", "consumer"):
        pids = value if key == "producers" else [value]
        return (
            ", ".join(f"{pid} (dead)" if pid in dead else str(pid) for pid in pids if pid is not None) or "-"
        )
    return size_words(value) if key == "slot_size_bytes" else str(value)


def stat(options: argparse.Namespace) -> int:
    before: ChannelStats | None = None
    while True:
        found = channel_stats_of(options.name, look(options.directory, options.name))
        if options.json:
            print_json(asdict(found))
        else:
            print("\n".join(stat_lines(found, before, options.watch)), flush=True)
        if options.watch is None:
            return 0
        before = found
        time.sleep(options.watch)


def stat_lines(found: ChannelStats, before: ChannelStats | None, every_s: float | None) -> list[str]:
    """Describe a channel; with rates if an earlier look is there."""
    kind = f", arrays of {found.dtype} {found.shape}" if found.dtype else ""
    noun = "loop" if found.loop else "channel"
    full = "displaces the oldest datum" if found.overflow else "waits"
    lines = [
        f"{noun} {found.name}: {plural(found.slots, 'slot')} of {size_words(found.slot_size_bytes)}{kind}",
        f"  a push into a full ring {full}",
        f"  buffers: {found.buffers} in all, {found.ready} in the ring, {found.held} held, {_back(found)}"
        f"{found.free} free",
    ]
    if found.priorities > 1:
        lines.append(f"  priorities: {found.priorities}, the highest first")
    for number, holder in enumerate(found.attached_producers):
        which = f" {number}" if found.producers > 1 else ""
        lines.append(f"  producer{which}: {_role(holder)}")
    lines.append(f"  consumer: {_role(found.consumer)}")
    for key in ("pushed", "displaced", "cancelled", "popped", "lost", "starved", "recovered", "corrupt"):
        rate = ""
        if before is not None and every_s:
            rate = f"  ({(getattr(found, key) - getattr(before, key)) / every_s:.0f} per second)"
        lines.append(f"  {key}: {getattr(found, key)}{rate}")
    return lines


def _back(found: ChannelStats) -> str:
    return f"{found.returning} on the way back, " if found.loop else ""


def _role(holder: Participant | None) -> str:
    if holder is None:
        return "no process"
    return (
        f"pid {holder.pid} ({segments.process_name(holder.pid)})"
        if holder.alive
        else f"pid {holder.pid}, which is dead"
    )


def report_on(name: str, seen: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on one channel, as JSON has it."""
    faults = channel_faults(seen)
    dead = [each["pid"] for each in seen.get("people", []) if each["active"] and not each["alive"]]
    return {"name": name, "sound": not faults, "faults": faults, "dead": dead}


def reports(directory: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the verdicts on all channels, and the names of unreadable ones."""
    found, denied = [], []
    for name in Channel.list(directory=directory):
        try:
            found.append(report_on(name, look(directory, name)))
        except NotFound:
            continue
        except Denied:
            denied.append(name)
    return found, denied


def doctor(options: argparse.Namespace) -> int:
    seen = look(options.directory, options.name)
    report = report_on(options.name, seen)
    if options.json:
        print_json(report)
        return 0 if report["sound"] else 1
    if "channel" in seen:
        print("\n".join(stat_lines(channel_stats_of(options.name, seen), None, None)))
    for pid in report["dead"]:
        print(f"  pid {pid} died; the next producer or consumer takes its buffers back")
    for fault in report["faults"]:
        print(f"  fault: {fault}")
    sound = report["sound"]
    print("sound" if sound else "damaged: remove the channel with `holdfast channel rm`, create it anew")
    return 0 if sound else 1


def rm(options: argparse.Namespace) -> int:
    return segments.remove(options, "channel", look, Channel.unlink)
