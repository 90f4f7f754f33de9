"""`holdfast bench channel`: one interleaved run over the channel, iceoryx2 and the machine itself."""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from bench import running
from bench.channel_ends import KINDS, SLOTS
from bench.channel_figures import LAYOUTS, Core, Report, Ring
from bench.channel_push import measure_push
from bench.running import Say, machine, missing, parts_argument, sizes_argument
from bench.trips import SIZES, measure_trips
from holdfast import _core

PARTS = ("trips", "core", "push")
RINGS = (4, 64, 512)  # slots: states share one cache line, two, or nine
STREAM_FACTOR = 10  # pushes of a stream for each round trip: they are that much shorter
DISTRIBUTIONS = ("holdfast", "iceoryx2")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="holdfast bench channel",
        description="Measure how long a buffer takes from one process to another, holdfast.Channel beside "
        "iceoryx2's publish-subscribe, in place and copied. `core` measures the hand-over in C++, beside a "
        "cache line and with two layouts of the states. `push` measures a push beside a live, stopped and "
        "dead consumer. pip install 'holdfast[bench]' installs iceoryx2.",
    )
    add = made.add_argument
    add("--sizes", type=sizes_argument, default=list(SIZES), help="payload sizes (64,4k,64k,1M,4M)")
    add("--seconds", type=float, default=0.25, help="length of one measurement (0.25)")
    add("--rounds", type=int, default=9, help="measurements of every cell (9)")
    add(
        "--count",
        type=int,
        default=100_000,
        help="round trips in C++, and pushes, of one measurement (100000)",
    )
    add(
        "--only",
        type=parts_argument(PARTS),
        default=set(PARTS),
        help=f"what to measure, with commas between; of: {', '.join(PARTS)}",
    )
    add(
        "--quick",
        action="store_true",
        help="a first impression in some ten seconds; too short for a comparison",
    )
    add("--json", type=Path, metavar="FILE", help="write all samples to FILE, too")
    return made


def measure_core(rounds: int, count: int) -> Core:
    """Measure the hand-over in C++ with both layouts, in random order in each round."""
    core = Core([], [Ring(slots, layout) for slots in RINGS for layout in LAYOUTS])
    pushes = STREAM_FACTOR * count
    for _ in range(rounds):
        core.line_ns.append(_core.reference_pingpong(count) / 2)
        for ring in random.sample(core.rings, len(core.rings)):
            packed = ring.layout == "packed"
            ring.one_way_ns.append(_core.reference_channel_pingpong(count, ring.slots, packed) / 2)
            push, popped = _core.reference_channel_stream(pushes, ring.slots, packed, True)
            ring.push_ns.append(push)
            ring.popped.append(popped / pushes)
            alone, _ = _core.reference_channel_stream(pushes, ring.slots, packed, False)
            ring.alone_ns.append(alone)
    return core


def run(options: argparse.Namespace, say: Say) -> Report:
    two_cores = len(os.sched_getaffinity(0)) >= 2
    names = ("sizes", "seconds", "rounds", "count")
    report = Report(machine(DISTRIBUTIONS), {name: getattr(options, name) for name in names})
    if "trips" in options.only:
        report.absent = {kind.name: reason for kind in KINDS if (reason := missing(kind.module)) is not None}
        kinds = [kind for kind in KINDS if kind.name not in report.absent]

        def each_round(number: int) -> None:
            say(f"round trips: round {number + 1} of {options.rounds}")
            if two_cores:
                report.line_ns.append(_core.reference_pingpong(options.count) / 2)

        report.results = measure_trips(kinds, options, SLOTS, each_round)
    if "core" in options.only:
        if not two_cores:
            report.absent["core"] = "it needs two cores, and this process may use one"
        else:
            say("the hand-over in C++")
            report.core = measure_core(options.rounds, options.count)
    if "push" in options.only:
        say("a push beside a live, a stopped and a dead consumer")
        report.pushes = measure_push(get_context("spawn"), options.rounds, options.count)
    return report


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.quick:
        options.rounds, options.seconds, options.count = 1, 0.05, min(options.count, 20_000)
    return running.run(options, lambda _: run(options, running.say))
