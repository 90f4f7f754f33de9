"""`holdfast bench broker`: the embedded broker beside a plain program with the same rounds, and at scale."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path

from bench import running
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
from bench.running import counts_argument, file_system, machine, parts_argument, sizes_argument

CROWDS = tuple(dict.fromkeys(each.crowd for each in CONDITIONS if each.crowd))
PARTS = ("throughput", "peers", "cost", "backlog", "holes")
SIZES = (100, 1 << 10)
BACKLOGS = (10_000, 1_000_000, 10_000_000)
HOLES = 1_000_000
QUICK = 1000
"""The divisor of all amounts for `--quick`."""
JOURNAL = 160 << 20
"""Bytes of journal per measurement: more than two snapshots need."""
ROOM = 12 << 30
"""Bytes of disk that the largest backlogs and their copies need."""
DISTRIBUTIONS = ("holdfast", "lmdb", "persist-queue", "pyroaring", "msgspec")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="holdfast bench broker",
        description="Measure the embedded broker. It publishes, consumes and acknowledges beside a plain "
        "program that writes the same bytes twice and syncs one copy in the same rounds. Further parts "
        "measure the cost of an entry beside large backlogs, holes, idle topics and subscriptions, and how "
        "large backlogs open and are searched. The report names peers that are not installed: pip install "
        "'holdfast[bench]' installs them.",
    )
    add = made.add_argument
    add("--sizes", type=sizes_argument, default=list(SIZES), help="payload sizes (100,1k)")
    add("--batch", type=int, default=1000, help="messages per call (1000)")
    add("--window", type=int, default=4, help="calls in flight (4)")
    add("--seconds", type=float, default=1.0, help="length of one measurement (1)")
    add("--rounds", type=int, default=7, help="measurements of every cell (7)")
    add("--singles", type=int, default=500, help="messages published one by one in each round (500)")
    add("--backlogs", type=counts_argument, default=list(BACKLOGS), help="entries (10000,1000000,10000000)")
    add(
        "--only",
        type=parts_argument(PARTS),
        default=set(PARTS),
        help=f"parts to measure, separated by commas; of: {', '.join(PARTS)}",
    )
    add(
        "--crowds",
        default="",
        metavar="LIST",
        help=f"crowds of the part cost, separated by commas; of: {', '.join(CROWDS)} (default: all)",
    )
    add(
        "--where",
        type=Path,
        metavar="DIR",
        help="a directory on the disk to measure (default: that for temporary files)",
    )
    add(
        "--quick",
        action="store_true",
        help="a first impression in under a minute; too short for a comparison",
    )
    add("--json", type=Path, metavar="FILE", help="write all samples to FILE, too")
    return made


def run(options: argparse.Namespace, directory: Path, say: Callable[[str], None]) -> Report:
    parts = options.only
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
        wanted = options.crowds.split(",") if options.crowds else CROWDS
        chosen = tuple(each for each in CONDITIONS if not each.crowd or each.crowd in wanted)
        conditions = chosen if divisor == 1 else scaled(chosen, divisor)
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
    """Free the disk for the next part."""
    for each in directory.iterdir():
        shutil.rmtree(each, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    for crowd in options.crowds.split(",") if options.crowds else ():
        if crowd not in CROWDS:
            raise SystemExit(f"holdfast bench broker: there is no crowd {crowd!r}; see --help")
    if options.quick:
        options.rounds, options.seconds, options.singles = 1, min(options.seconds, 0.1), 20
    where = (options.where or Path(tempfile.gettempdir())).resolve()
    if not (options.quick or options.crowds) and room(where) < ROOM:
        raise SystemExit(
            f"holdfast bench broker: {where} has less than {ROOM >> 30} GiB free; "
            "name another disk with --where DIR"
        )
    try:
        return running.run(options, lambda directory: run(options, directory, running.say))
    finally:
        os.sync()
