"""`holdfast doctor [NAME | DIR]`: what is wrong, and what will become of it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast import NotFound, Queue, Recovered
from holdfast.cli import channel, directory, environment, segments, service
from holdfast.cli.output import print_json
from holdfast.cli.parsing import Subparsers, Usage, command, declare
from holdfast.cli.queue import recover_now, recovered_words
from holdfast.formatting import age_words, plural, size_words
from holdfast.memory import faults_of, names_of

DESCRIPTION = """\
Without NAME: checks whether this machine can run queues, and lists queues,
channels and services with problems.

With NAME: shows everything about one queue, even if all its processes are dead
or its bytes are damaged: header, living and dead participants, contents, each
block that a dead process owns, and how recovery will treat it. This changes
nothing. --recover then attaches, recovers, and prints what was recovered. If no
queue has that name, a channel or service is shown, as by `holdfast channel
doctor NAME` and `holdfast service doctor NAME`.

With DIR: checks a data directory that no broker has open. Every block of every
file is read; nothing is changed. A note is a problem that the next start
repairs. A fault is a confirmed message that is damaged or missing, with its
file and position. If a queue, channel or service has the same name, write
./DIR. A note says if log time is ahead of this machine's clock, as after a
wrong clock: --repair-time opens the directory and sets it back.

The exit status is 0 if all is sound, 1 if there is a fault. A dead process is
not a fault: the next process that is blocked by it recovers."""

LISTED = 20
"""Blocks that are named one by one; the others are only counted."""


def add(nouns: Subparsers) -> None:
    parser = command(
        nouns,
        "doctor",
        "check this machine, its queues, channels, services and data directories",
        DESCRIPTION,
        doctor,
    )
    declare(parser)("""
        name [NAME]: name of a queue, channel or service, or path of a data directory
        --recover: then recover what dead processes left in NAME
        --repair-time: set the log time of DIR back to this machine's clock; no server may run on DIR
        """)


def doctor(options: argparse.Namespace) -> int:
    if options.name is not None and means_directory(options):
        if options.recover:
            raise Usage("--recover is for queues: a broker recovers its directory when it opens it")
        if options.repair_time:
            return directory.repair_time(options.name, options.json)
        return directory.examine(options.name, options.json)
    if options.repair_time:
        raise Usage("--repair-time needs a data directory DIR")
    if options.name is not None:
        other = means_other(options)
        if other is not None:
            if options.recover:
                raise Usage(f"--recover is for queues: the next process that uses a {other} recovers")
            return channel.doctor(options) if other == "channel" else service.doctor(options)
        try:
            return examine_queue(options)
        except NotFound as error:
            error.add_note(f"there is no channel, service or directory {options.name}, either")
            raise
    if options.recover:
        raise Usage("--recover needs the NAME of a queue")
    return examine_machine(options)


def means_directory(options: argparse.Namespace) -> bool:
    """A queue, channel or service comes first, where the name could be either."""
    if not directory.is_directory(options.name):
        return False
    return "/" in options.name or not (
        means_other(options) or options.name in Queue.list(directory=options.directory)
    )


def means_other(options: argparse.Namespace) -> str | None:
    """Return "channel" or "service"; None for a queue and for an unknown name."""
    where = options.directory
    if options.name in Queue.list(directory=where):
        return None
    return next((kind for kind in ("channel", "service") if options.name in names_of(kind, where)), None)


def examine_machine(options: argparse.Namespace) -> int:
    checks = environment.checks(segments.where(options.directory))
    fit = not any(each.status == "bad" for each in checks)
    seen = list(segments.look_at_all(options.directory)) if fit else []
    reports = [report_on(options.directory, name, each) for name, each in seen if "denied" not in each]
    denied = [name for name, each in seen if "denied" in each]
    others = {
        kind: module.reports(options.directory) if fit else ([], [])
        for kind, module in (("channel", channel), ("service", service))
    }
    sound = fit and all(each.sound for each in reports)
    sound = sound and all(each["sound"] for found, _ in others.values() for each in found)
    if options.json:
        print_json(
            {
                "sound": sound,
                "environment": [asdict(each) for each in checks],
                "queues": [report_record(each) for each in reports],
                **{f"{kind}s": found for kind, (found, _) in others.items()},
                "denied": denied + [name for _, hidden in others.values() for name in hidden],
            }
        )
        return 0 if sound else 1
    width = max(len(each.what) for each in checks)
    for each in checks:
        print(f"{each.status:4}  {each.what:{width}}  {each.words}")
    print(f"\n{environment.summary(checks)}")
    for report in reports:
        if not report.sound or report.left:
            print(f"queue {report.name}: {report.verdict}")
    for name in denied:
        print(f"queue {name}: another user's, which cannot be looked at")
    broken = sum(not each.sound for each in reports)
    print(f"{plural(len(reports), 'queue')} looked at, {broken} with problems")
    for kind, (found, hidden) in others.items():
        for other in found:
            if not other["sound"]:
                print(f"{kind} {other['name']}: damaged: {other['faults'][0]}")
        for name in hidden:
            print(f"{kind} {name}: another user's, which cannot be looked at")
        if found or hidden:
            broken = sum(not other["sound"] for other in found)
            print(f"{plural(len(found), kind)} looked at, {broken} with problems")
    return 0 if sound else 1


@dataclass(frozen=True)
class Report:
    """Findings in one queue."""

    name: str
    sound: bool
    verdict: str
    faults: list[str]
    damaged: list[dict[str, Any]]
    """Blocks whose header or payload cannot be what was put there."""
    left: list[segments.Left]
    """Blocks in dead hands."""
    seen: dict[str, Any]


def report_on(directory: str | None, name: str, seen: dict[str, Any]) -> Report:
    """Check the header of every block, and each payload that has a checksum."""
    damaged = []
    left: list[segments.Left] = []
    if "queue" in seen:
        damaged = [block for block in segments.blocks(directory, name) if block.get("fault") is not None]
        left = segments.left_by_the_dead(directory, name)
    faults = faults_of(seen)
    busy = "queue" in seen and seen["queue"]["overtaken"] and len(faults) == 1
    sound = (not faults or busy) and not damaged
    return Report(name, sound, verdict(seen, faults, damaged, left, busy), faults, damaged, left, seen)


def verdict(
    seen: dict[str, Any],
    faults: list[str],
    damaged: list[dict[str, Any]],
    left: list[segments.Left],
    busy: bool,
) -> str:
    """One line."""
    if "queue" in seen and not seen["this_boot"] and len(faults) == 1 and not damaged:
        return (
            "from before the last boot: `holdfast queue recover --adopt` takes it over, "
            "`holdfast queue rm` drops it"
        )
    if busy:
        return "sound as far as it could be seen: it is too busy for a complete look"
    if faults:
        return f"damaged: {faults[0]}"
    if damaged:
        words = plural(len(damaged), "message")
        return f"damaged: {words}; each is set aside when it is got, the others are sound"
    held = seen["queue"]["blocks"]
    waits = plural(held["READY"] + held["RETRY"], "message")
    parts = [
        f"sound: {waits} waiting, {held['TAKEN']} taken",
        plural(len(segments.living(seen)), "living process"),
    ]
    if not segments.living(seen):
        parts[1] = "no process attached"
    outcomes = [each.outcome for each in left]
    counts = Recovered(outcomes.count("skip"), outcomes.count("hand_on"), outcomes.count("release"))
    parts.append(f"to recover: {recovered_words(counts)}" if left else "nothing to recover")
    return "; ".join(parts)


def examine_queue(options: argparse.Namespace) -> int:
    report = report_on(options.directory, options.name, segments.look(options.directory, options.name))
    recovered: Recovered | None = None
    if not options.json:
        print("\n".join(report_lines(report)))
    if options.recover and (not report.faults or report.sound):
        _, recovered = recover_now(options.name, options.directory, adopt=False)
    if options.json:
        answer = {**report_record(report), "recovered": None if recovered is None else asdict(recovered)}
        print_json(answer)
    elif recovered is not None:
        print(f"recovered: {recovered_words(recovered)}")
    elif options.recover:
        print("not recovered: it would have to be trusted first", file=sys.stderr)
    return 0 if report.sound else 1


def report_record(report: Report) -> dict[str, Any]:
    """For JSON, whose numbers are not made for 64 bits everywhere."""
    record = asdict(report)
    for key in ("fingerprint", "fingerprint_here"):
        if key in record["seen"]:
            record["seen"][key] = f"{record['seen'][key]:#018x}"
    return record


def report_lines(report: Report) -> list[str]:
    seen = report.seen
    lines = [f"queue {report.name}", *header_lines(seen)]
    if "queue" in seen:
        lines += [
            *parameter_lines(seen["params"]),
            *people_lines(seen),
            *content_lines(seen),
            *left_lines(report),
        ]
    for block in report.damaged[:LISTED]:
        lines.append(
            f"damaged block  position {block['position']}, {block['state']}: {block['fault']} is wrong"
        )
    if len(report.damaged) > LISTED:
        lines.append(f"               and {len(report.damaged) - LISTED} more")
    lines += [f"fault          {fault}" for fault in report.faults]
    return [*lines, f"verdict        {report.verdict}"]


def header_lines(seen: dict[str, Any]) -> list[str]:
    if "path" not in seen:
        return []
    created = datetime.fromtimestamp(seen["created_ns"] / 1e9, UTC) if seen["created_ns"] < 1 << 62 else None
    same = seen["fingerprint"] == seen["fingerprint_here"]
    return [
        f"file           {seen['path']}, {size_words(seen['size'])}",
        f"header         version {seen['version']} (this library: {seen['version_here']}), "
        f"fingerprint {seen['fingerprint']:#018x} ({'as here' if same else 'ANOTHER than here'})",
        f"made           {created:%Y-%m-%d %H:%M:%S} UTC by pid {seen['creator_pid']}, "
        f"{'since the last boot' if seen['this_boot'] else 'BEFORE the last boot'}"
        if created
        else "made           at no sensible time",
    ]


def parameter_lines(params: dict[str, Any]) -> list[str]:
    limit = params["stall_limit_ms"]
    letters = f"after delivery {params['max_deliveries']} to {params['dead_letter']}"
    return [
        f"parameters     capacity {size_words(params['capacity'])}, messages up to "
        f"{plural(params['message_size_max'], 'byte')}, {params['delivery']}, "
        f"{plural(params['participants'], 'participant')}",
        f"               checksum {params['checksum']}, "
        f"stall limit {'none' if limit is None else f'{limit / 1000} s'}, "
        f"dead letters {letters if params['max_deliveries'] else 'none'}",
    ]


def people_lines(seen: dict[str, Any]) -> list[str]:
    people = [each for each in seen["people"] if each["active"] or each["alive"]]
    hands = {each["slot"]: each for each in seen["queue"]["holders"]}
    lines = [f"participants   {len(segments.living(seen))} alive, {len(segments.dead(seen))} dead"]
    for each in people:
        held = hands.get(each["slot"])
        what = ""
        if held is not None:
            what = (
                f", holds {held['taken']} taken, {held['writing'] + held['fenced']} half-written, "
                f"the oldest for {age_words(held['oldest_ms'] / 1000)}"
            )
        state = "alive" if each["alive"] else "dead"
        lines.append(f"               slot {each['slot']}: pid {each['pid']}, {state}{what}")
    return lines


def content_lines(seen: dict[str, Any]) -> list[str]:
    queue = seen["queue"]
    names = {
        "READY": "wait for their first delivery",
        "RETRY": "came back and wait for another",
        "TAKEN": "delivered and not settled",
        "RESERVED": "being written",
        "FENCED": "being written, too slowly",
        "DONE": "settled, their space not reused yet",
        "SKIP": "passed over, their space not reused yet",
    }
    lines = [
        f"holds          positions {queue['tail']} to {queue['end']}, read up to {queue['read']}"
        f"{', closed' if queue['closed'] else ''}"
    ]
    for state, words in names.items():
        if queue["blocks"][state]:
            size = size_words(queue["bytes"][state])
            lines.append(f"               {queue['blocks'][state]:,} {state} ({size}): {words}")
    return lines


def left_lines(report: Report) -> list[str]:
    lines = [
        f"{'of the dead' if number == 0 else '':14} position {each.position}, {each.state} by pid {each.pid} "
        f"(slot {each.slot}): {each.words}"
        for number, each in enumerate(report.left[:LISTED])
    ]
    if len(report.left) > LISTED:
        lines.append(f"               and {len(report.left) - LISTED} more")
    return lines
