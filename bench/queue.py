"""`holdfast bench queue`: one interleaved run over holdfast and the usual transports."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.context import SpawnContext
from pathlib import Path

from bench import running
from bench.attached import measure_attached
from bench.figures import Spread, size_name
from bench.links import Kind, Setting
from bench.ours import HOLDFAST
from bench.peers import PEERS
from bench.queue_figures import Reference, Report
from bench.recovery import measure_recovery
from bench.rounds import Case, cases_of, measure_size
from bench.running import counts_argument, machine, missing, size_argument, sizes_argument
from holdfast import _core

KINDS: tuple[Kind, ...] = (HOLDFAST, *PEERS)
EXTRAS = ("references", "recovery", "attached")
SIZES = (64, 1 << 10, 1 << 16, 1 << 20)
BATCHES = (256, 1000)
CAPACITY = 16 << 20
DISTRIBUTIONS = ("holdfast", "faster-fifo", "pyzmq", "iceoryx2")


def parser() -> argparse.ArgumentParser:
    names = ", ".join([kind.name for kind in KINDS] + list(EXTRAS))
    made = argparse.ArgumentParser(
        prog="holdfast bench queue",
        description="Measure throughput and round trips between two processes, holdfast beside the usual "
        "transports. Further parts measure the limits of the machine itself, recovery after SIGKILL, and the "
        "cost with many attached processes. The report names peers that are not installed: pip install "
        "'holdfast[bench]' installs them.",
    )
    add = made.add_argument
    add("--sizes", type=sizes_argument, default=list(SIZES), help="payload sizes (64,1k,64k,1M)")
    add("--batches", type=counts_argument, default=list(BATCHES), help="messages per batch (256,1000)")
    add("--seconds", type=float, default=0.25, help="length of one measurement (0.25)")
    add("--rounds", type=int, default=5, help="measurements of every cell (5)")
    add("--capacity", type=size_argument, default=CAPACITY, help="bytes of the ring (16M)")
    add("--kills", type=int, default=100, help="writers killed to time recovery (100)")
    add("--only", help=f"what to measure, by parts of names with commas between; of: {names}")
    add(
        "--quick",
        action="store_true",
        help="a first impression in under a minute; too short for a comparison",
    )
    add("--json", type=Path, metavar="FILE", help="write all samples to FILE, too")
    return made


class References:
    """Measure the machine's own limits, between the rounds of each size."""

    def __init__(self, capacity: int, seconds: float) -> None:
        self.capacity = capacity
        self.seconds = min(seconds, 0.1)
        self.two_cores = len(os.sched_getaffinity(0)) >= 2
        self.pingpongs: list[float] = []
        self.copies: dict[int, list[float]] = {}
        self.rings: dict[int, list[float]] = {}

    def sample(self, size: int) -> None:
        copied = _core.reference_memcpy(size, self.capacity, self.seconds)
        self.copies.setdefault(size, []).append(copied)
        if self.two_cores:
            ring = _core.reference_ring(size, self.capacity, self.seconds)
            self.rings.setdefault(size, []).append(ring)
            self.pingpongs.append(_core.reference_pingpong(100_000) / 1e3)

    def write_to(self, report: Report) -> None:
        if self.pingpongs:
            report.pingpong_us = Spread.of(self.pingpongs)
        report.references = [
            Reference(size, Spread.of(copies), Spread.of(self.rings.get(size, [0.0])))
            for size, copies in self.copies.items()
        ]


def chosen(only: str | None) -> tuple[list[Kind], set[str]]:
    """Return the transports and the extra parts that `--only` names; by default all."""
    if only is None:
        return list(KINDS), set(EXTRAS)
    wanted = [part.strip().lower() for part in only.split(",") if part.strip()]
    kinds = [kind for kind in KINDS if any(part in kind.name.lower() for part in wanted)]
    extras = {extra for extra in EXTRAS if any(part in extra for part in wanted)}
    for part in wanted:
        if not any(part in name.lower() for name in [*EXTRAS, *(kind.name for kind in KINDS)]):
            raise SystemExit(f"holdfast bench queue: --only {part}: no part has that in its name; see --help")
    return kinds, extras


def run(options: argparse.Namespace, say: Callable[[str], None]) -> Report:
    context: SpawnContext = get_context("spawn")
    kinds, extras = chosen(options.only)
    report = Report(
        machine(DISTRIBUTIONS),
        {
            "sizes": options.sizes,
            "batches": options.batches,
            "seconds": options.seconds,
            "rounds": options.rounds,
            "capacity": options.capacity,
            "capacity_mib": options.capacity / (1 << 20),
        },
    )
    report.absent = {kind.name: reason for kind in kinds if (reason := missing(kind.module)) is not None}
    kinds = [kind for kind in kinds if kind.name not in report.absent]
    references = References(options.capacity, options.seconds)
    for size in options.sizes:
        setting = Setting(size, options.capacity, context)

        def each_round(number: int, size: int = size) -> None:
            say(f"{size_name(size)}: round {number + 1} of {options.rounds}")
            if "references" in extras:
                references.sample(size)

        def cases(kind: Kind, size: int = size) -> list[Case]:
            return cases_of(kind, size, options.batches)

        results = measure_size(kinds, setting, cases, options.rounds, options.seconds, each_round)
        report.results.append(results)
    references.write_to(report)
    if "recovery" in extras:
        say(f"recovery: {options.kills} kills")
        report.recovery = measure_recovery(context, options.kills)
    if "attached" in extras:
        say("cost beside idle processes")
        report.attached = measure_attached(context, options.rounds * 4)
    return report


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.quick:
        options.rounds, options.seconds, options.kills = 1, 0.05, min(options.kills, 20)
    return running.run(options, lambda _: run(options, running.say))
