"""`holdfast bench pipeline`: the source beside memory, Parquet and text, on the same rows.

Every figure is a median over rounds in which all forms of the rows are read in turn. CPU time stands beside
the clock, because on a shared machine only CPU time can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import figures, running
from bench.figures import Goal, Spread, size_name, spread, table
from bench.running import file_system, machine

OURS = {"alone": "holdfast, an entry each", "batches": "holdfast, 100 in an entry"}
OTHERS = {"memory": "a source in Python, from memory", "parquet": "Spark's Parquet", "text": "Spark's text"}
FORMS = {**OURS, **OTHERS}


@dataclass
class Figures:
    """Figures for a number of cores: by name, [seconds, CPU seconds] of each round."""

    cores: int
    counts: dict[int, int]
    taken: dict[str, list[list[float]]]

    def rates(self, size: int, form: str) -> Spread:
        """Return rows a second."""
        return Spread.of([self.counts[size] / each[0] for each in self.taken[f"{size} {form}"]])

    def cpu_us(self, size: int, form: str) -> float:
        """Return CPU per row, of Spark's JVM and its Python workers."""
        samples = [each[1] / self.counts[size] * 1e6 for each in self.taken[f"{size} {form}"]]
        return Spread.of(samples).median

    def seconds(self, name: str) -> Spread | None:
        found = self.taken.get(name)
        return Spread.of([each[0] for each in found]) if found else None


@dataclass
class Report(figures.Report):
    """The figures of one run, for each number of cores."""

    found: list[Figures] = field(default_factory=list)

    ABOUT = "Medians of {rounds} interleaved rounds [smallest–largest]; all columns, all sums verified"

    def tables(self) -> Iterator[Sequence[str]]:
        for each in self.found:
            for size in each.counts:
                yield rates_table(each, size)

    def goals(self) -> Iterator[Goal]:
        yield from goals_of(self.found)

    def figures(self) -> Mapping[str, Any]:
        return {"figures": [vars(each) for each in self.found]}


def rates_table(found: Figures, size: int) -> list[str]:
    rows = []
    for form, words in FORMS.items():
        rate = found.rates(size, form)
        bytes_s = rate.median * size / 1e6
        rows.append([words, spread(rate), f"{bytes_s:.0f}", f"{found.cpu_us(size, form):.2f}"])
    head = [f"{size_name(size)}, {found.cores} cores, to noop", "rows/s", "MB/s of values", "CPU, µs/row"]
    return table(head, rows)


def goals_of(found: list[Figures]) -> list[Goal]:
    """Judge the goals that were measured, for both ways to write."""
    goals = []
    full = max(found, key=lambda each: each.cores)
    for size in full.counts:
        for peer, least in (("memory", 0.9), ("parquet", 0.7)):
            for form, words in OURS.items():
                ratio = full.rates(size, form).median / full.rates(size, peer).median
                cpu = full.cpu_us(size, peer) / full.cpu_us(size, form)
                text = f"{size_name(size)}: at least {least:.0%} of {OTHERS[peer]}; {words}"
                goals.append(Goal(text, f"{ratio:.0%} by the clock, {cpu:.0%} by CPU", ratio >= least))
        goals += _archive_goals(full, size)
    goals += _stream_goals(full)
    return goals + _scale_goals(found, full)


def _archive_goals(full: Figures, size: int) -> list[Goal]:
    """Judge the source's share of an archive's time.

    Reading to noop includes Spark's own transport; the source's own work is reported beside it.
    """
    written, whole = full.seconds(f"{size} parquet written"), full.seconds(f"{size} archive")
    if written is None or whole is None:
        return []
    reading = Spread.of([each[0] for each in full.taken[f"{size} batches"]]).median
    own = Spread.of([each[1] for each in full.taken[f"{size} own"]]).median / full.cores
    words = (
        f"{reading / written.median:.0%} to noop, {own / written.median:.0%} its own work, of a plain write; "
        f"{reading / whole.median:.0%} and {own / whole.median:.0%} of archive(), which also reads back"
    )
    text = f"{size_name(size)}: the source is under 20 % of an archive's time"
    return [Goal(text, words, reading < 0.2 * written.median)]


def _stream_goals(full: Figures) -> list[Goal]:
    ours, rate = full.seconds("trigger holdfast"), full.seconds("trigger rate")
    if ours is None or rate is None:
        return []
    words = f"{ours.median * 1000:.0f} ms to {rate.median * 1000:.0f} ms of the rate source"
    if (memory := full.seconds("trigger memory")) is not None:
        words += f"; {memory.median * 1000:.0f} ms of a stream in Python, from memory"
    goal = "a trigger takes at most 20 % more than Spark's rate source"
    return [Goal(goal, words, ours.median <= 1.2 * rate.median)]


def _scale_goals(found: list[Figures], full: Figures) -> list[Goal]:
    goals = []
    one, many, half = (full.seconds(f"scale {name}") for name in ("one ledger", "300 ledgers", "half"))
    if one and many and half:
        words = f"{many.median / one.median:.2f}× the time"
        goals.append(
            Goal("300 ledgers cost what one costs, within 20 %", words, many.median < 1.2 * one.median)
        )
        words = f"{one.median / half.median:.2f}× the time"
        goals.append(Goal("twice the rows take at most 2.2× the time", words, one.median < 2.2 * half.median))
    single = next((each for each in found if each.cores == 1), None)
    if single is not None and full.cores > 1:
        for size in full.counts:
            ratio = full.rates(size, "batches").median / single.rates(size, "batches").median
            words = f"{ratio:.2f}× with {full.cores} cores"
            goals.append(Goal(f"{size_name(size)}: more cores, more rows", words, ratio > 1.2))
    return goals


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="holdfast bench pipeline", description=__doc__.splitlines()[0])
    out.add_argument("--sizes", default="100,256,1024", help="bytes of a message (default %(default)s)")
    out.add_argument(
        "--megabytes", type=int, default=128, help="megabytes of values per size (default %(default)s)"
    )
    out.add_argument("--rounds", type=int, default=7, help="measurements (default %(default)s)")
    out.add_argument("--triggers", type=int, default=30, help="triggers of a stream (default %(default)s)")
    out.add_argument(
        "--cores", default=f"1,{os.cpu_count() or 2}", help="numbers of cores (default %(default)s)"
    )
    out.add_argument("--memory", default="2g", help="memory of Spark's driver (default %(default)s)")
    out.add_argument("--where", type=Path, help="a directory for the data (default: the temporary one)")
    out.add_argument("--quick", action="store_true", help="one round over few rows, to see that it runs")
    out.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE, too")
    return out


def measure(options: argparse.Namespace, folder: Path, cores: int, full: bool) -> Figures:
    """Measure in a process of its own, because a session cannot change its cores."""
    sizes = [int(each) for each in options.sizes.split(",")]
    counts = {size: max(10_000, options.megabytes * 1_000_000 // size // 10_000 * 10_000) for size in sizes}
    job: dict[str, Any] = {
        "cores": cores, "folder": str(folder / f"cores-{cores}"), "rounds": options.rounds, "full": full,
        "sizes": list(counts.items()), "triggers": options.triggers, "memory": options.memory,
        "out": str(folder / f"figures-{cores}.json"),
    }  # fmt: skip
    command = [sys.executable, "-m", "bench.pipeline_worker", json.dumps(job)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the worker with {cores} cores failed:\n{done.stderr[-4000:]}")
    taken = json.loads(Path(job["out"]).read_text())
    shutil.rmtree(job["folder"], ignore_errors=True)
    return Figures(cores, counts, taken)


def run(options: argparse.Namespace, folder: Path) -> Report:
    cores = sorted({int(each) for each in options.cores.split(",")})
    about = {**machine(("pyspark", "pyarrow")), "file_system": file_system(folder)}
    names = ("sizes", "megabytes", "rounds", "triggers", "cores", "memory")
    report = Report(about, {name: getattr(options, name) for name in names})
    for count in cores:
        running.say(f"{count} cores …")
        report.found.append(measure(options, folder, count, count == cores[-1]))
    return report


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.quick:
        options.rounds, options.megabytes, options.triggers = 1, 2, 4
    return running.run(options, lambda folder: run(options, folder))
