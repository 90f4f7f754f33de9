"""`holdfast bench service`: one interleaved run over services, iceoryx2 and Unix sockets."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from bench import running
from bench.running import Say, machine, missing, parts_argument, sizes_argument
from bench.service_calls import measure_calls
from bench.service_ends import KINDS, SLOTS
from bench.service_figures import Report
from bench.service_publish import measure_publish
from bench.service_recovery import measure_recovery
from bench.trips import PEER, SIZES, measure_trips
from holdfast import _core

PARTS = ("trips", "publish", "recovery", "calls")
DISTRIBUTIONS = ("holdfast", "iceoryx2")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="holdfast bench service",
        description="Measure how long a sample takes from provider to consumer, holdfast.Service beside "
        "iceoryx2's publish-subscribe, in place and copied. `publish` measures a publication beside 1 to 8 "
        "subscribers. `recovery` measures an offer, a connect and a reap after 62 proxies died. `calls` "
        "measures a method beside a Unix socket. pip install 'holdfast[bench]' installs iceoryx2.",
    )
    add = made.add_argument
    add("--sizes", type=sizes_argument, default=list(SIZES), help="payload sizes of trips (64,4k,64k,1M,4M)")
    add("--seconds", type=float, default=0.25, help="length of one measurement of trips (0.25)")
    add("--rounds", type=int, default=9, help="measurements of every cell (9)")
    add("--count", type=int, default=20_000, help="publications, and calls, of one measurement (20000)")
    add(
        "--only",
        type=parts_argument(PARTS),
        default=set(PARTS),
        help=f"what to measure, with commas between; of: {', '.join(PARTS)}",
    )
    add("--quick", action="store_true", help="a first impression; too short for a comparison")
    add("--json", type=Path, metavar="FILE", help="write all samples to FILE, too")
    return made


def measure_line(line_ns: list[float], count: int) -> None:
    """Add the time of a cache line, one way.

    Cores are near in some rounds, and far in others.
    """
    if len(os.sched_getaffinity(0)) >= 2:
        line_ns.append(_core.reference_pingpong(count) / 2)


def run(options: argparse.Namespace, say: Say) -> Report:
    context = get_context("spawn")
    names = ("sizes", "seconds", "rounds", "count")
    report = Report(machine(DISTRIBUTIONS), {name: getattr(options, name) for name in names})
    report.absent = {kind.name: reason for kind in KINDS if (reason := missing(kind.module)) is not None}
    if "trips" in options.only:
        kinds = [kind for kind in KINDS if kind.name not in report.absent]

        def each_round(number: int) -> None:
            say(f"round trips: round {number + 1} of {options.rounds}")
            measure_line(report.line_ns, options.count)

        report.results = measure_trips(kinds, options, SLOTS, each_round)
    if "publish" in options.only:
        say("a publication beside 1 to 8 subscribers")
        peer = PEER not in report.absent
        report.published = measure_publish(context, options.rounds, options.count, peer)
    if "recovery" in options.only:
        say("an offer, a connect and a reap after 62 proxies died")
        report.recovered = measure_recovery(context, options.rounds)
    if "calls" in options.only:
        say("a method, and a Unix socket")
        report.called = measure_calls(
            context, options.rounds, options.count, lambda: measure_line(report.call_line_ns, options.count)
        )
    return report


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.quick:
        options.rounds, options.seconds, options.count = 1, 0.05, min(options.count, 2_000)
    return running.run(options, lambda _: run(options, running.say))
