"""`holdfast bench broker`: the embedded broker beside a plain program with the same rounds, and at scale."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path

from bench import broker_report as printed
from bench.broker_figures import Report
from bench.broker_scale import (
    BURDEN,
    CONDITIONS,
    ENTRIES,
    measure_backlogs,
    measure_costs,
    measure_holes,
    room,
    scaled,
)
from bench.broker_throughput import Plan, measure_throughput
from bench.queue import Disturbance, counts_argument, machine, sizes_argument

PARTS = ("throughput", "peers", "cost", "backlog", "holes")
SIZES = (100, 1 << 10)
BACKLOGS = (10_000, 1_000_000, 10_000_000)
HOLES = 1_000_000
QUICK = 1000
"""How much less of everything a first impression has."""
JOURNAL = 160 << 20
"""Two snapshots' worth and more."""
ROOM = 12 << 30
"""What the largest backlogs and their copies take."""
DISTRIBUTIONS = ("holdfast", "lmdb", "persist-queue", "pyroaring", "msgspec")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="holdfast bench broker",
        description="The embedded broker: publish, consume, acknowledge, beside a plain program that writes "
        "the same bytes twice and syncs one copy in the same rounds; what an entry costs beside large "
        "backlogs, holes, idle topics and subscriptions; how large backlogs open and are searched. Peers "
        "that are not installed are named: pip install 'holdfast[bench]' brings them.",
    )
    add = made.add_argument
    add("--sizes", type=sizes_argument, default=list(SIZES), help="payload sizes (100,1k)")
    add("--batch", type=int, default=1000, help="messages per call (1000)")
    add("--window", type=int, default=4, help="calls under way at once (4)")
    add("--seconds", type=float, default=1.0, help="length of one measurement (1)")
    add("--rounds", type=int, default=7, help="measurements of every cell (7)")
    add("--singles", type=int, default=500, help="messages published one by one in each round (500)")
    add("--backlogs", type=counts_argument, default=list(BACKLOGS), help="entries (10000,1000000,10000000)")
    add("--only", help=f"what to measure, with commas between; of: {', '.join(PARTS)}")
    add(
        "--where",
        type=Path,
        metavar="DIR",
        help="the disk to measure: a directory on it (default: for temporary files)",
    )
    add("--quick", action="store_true", help="a first impression in under a minute; not for judging")
    add("--json", type=Path, metavar="FILE", help="write all samples there too")
    return made


def file_system(directory: Path) -> str:
    """Its type: a benchmark of durable things on memory would say nothing."""
    best, kind = "", "unknown file system"
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, place, name, *_ = line.split()
        inside = directory == Path(place) or Path(place) in directory.parents
        if inside and len(place) >= len(best):
            best, kind = place, name
    return kind


def chosen(only: str | None) -> set[str]:
    if only is None:
        return set(PARTS)
    wanted = {part.strip() for part in only.split(",") if part.strip()}
    for part in sorted(wanted - set(PARTS)):
        raise SystemExit(f"holdfast bench broker: --only {part}: there is no such part; see --help")
    return wanted


def run(options: argparse.Namespace, directory: Path, say: Callable[[str], None]) -> Report:
    parts = chosen(options.only)
    report = Report(
        {**machine(DISTRIBUTIONS), "file_system": file_system(directory)},
        {
            name: getattr(options, name)
            for name in ("sizes", "batch", "window", "seconds", "rounds", "backlogs")
        },
    )
    plan = Plan(
        get_context("spawn"),
        directory,
        options.batch,
        options.window,
        options.rounds,
        options.seconds,
        0 if options.quick else JOURNAL,
        options.singles,
        "peers" in parts,
    )
    divisor = QUICK if options.quick else 1
    for size in options.sizes if {"throughput", "peers"} & parts else ():
        measure_throughput(report, size, plan, say)
        clear(directory)
    if "cost" in parts:
        conditions = CONDITIONS if divisor == 1 else scaled(CONDITIONS, divisor)
        report.costs = measure_costs(plan, conditions, max(options.batch, ENTRIES // divisor), say)
        clear(directory)
    if "backlog" in parts:
        backlogs = tuple(max(options.batch, each // divisor) for each in options.backlogs)
        measure_backlogs(report, plan, backlogs, BURDEN // divisor, say)
        clear(directory)
    if "holes" in parts:
        report.holes = measure_holes(plan, HOLES // divisor, 10 * HOLES // divisor, say)
    return report


def clear(directory: Path) -> None:
    """The disk is for the next part."""
    for each in directory.iterdir():
        shutil.rmtree(each, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.quick:
        options.rounds, options.seconds, options.singles = 1, min(options.seconds, 0.1), 20
    where = (options.where or Path(tempfile.gettempdir())).resolve()
    if not options.quick and room(where) < ROOM:
        raise SystemExit(
            f"holdfast bench broker: {where} has less than {ROOM >> 30} GiB free; say --where DIR"
        )

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    # Let a plain kill clean up too: processes and files go in `finally` clauses.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started = time.monotonic()
    disturbance = Disturbance()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=where))
    try:
        report = run(options, directory, say)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)
        os.sync()
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    report.machine["others_share"] = round(disturbance.share(), 3)
    report.settings["took_s"] = round(time.monotonic() - started, 1)
    print(printed.text(report))
    if options.json is not None:
        text = json.dumps(printed.as_json(report), indent=1, ensure_ascii=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0
