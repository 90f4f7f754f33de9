"""The frame of all benchmarks: arguments, the machine, the load of other processes, output."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.figures import Report

UNITS = {"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20}

Say = Callable[[str], None]


def size_argument(text: str) -> int:
    """Parse 64, 1k, 64KiB, 1M."""
    digits = text.strip().rstrip("bBiIkKmM")
    unit = text.strip()[len(digits) :].lower()
    if not digits.isdecimal() or unit not in UNITS or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 64, 1k, 64KiB or 1M")
    return int(digits) * UNITS[unit]


def sizes_argument(text: str) -> list[int]:
    return [size_argument(part) for part in text.split(",")]


def counts_argument(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers above 0")
    return counts


def parts_argument(parts: Sequence[str]) -> Callable[[str], set[str]]:
    """Return the type of `--only`."""

    def parse(text: str) -> set[str]:
        wanted = {part.strip() for part in text.split(",") if part.strip()}
        for part in sorted(wanted - set(parts)):
            raise argparse.ArgumentTypeError(f"{part!r} is not a part; see --help")
        return wanted

    return parse


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def machine(distributions: Sequence[str]) -> dict[str, Any]:
    versions: dict[str, str] = {}
    for name in distributions:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": versions,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def missing(module: str | None) -> str | None:
    """Return why a peer that needs `module` cannot be measured here, or None."""
    if module is None or find_spec(module) is not None:
        return None
    return f"{module} is not installed: pip install 'holdfast[bench]'"


class Disturbance:
    """Measure the share of the cores that other processes used meanwhile."""

    def __init__(self) -> None:
        self.start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Return ticks of all cores, busy ticks, and our own."""
        line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
        ticks = [float(word) for word in line.split()[1:9]]
        own = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
        return sum(ticks), sum(ticks) - ticks[3] - ticks[4], own

    def share(self) -> float:
        total, busy, own = (now - then for now, then in zip(self._now(), self.start, strict=True))
        return max(0.0, busy - own) / max(1.0, total)


def file_system(directory: Path) -> str:
    """Return the type of a directory's file system: a report on memory would mislead."""
    best, kind = "", "unknown file system"
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, place, name, *_ = line.split()
        inside = directory == Path(place) or Path(place) in directory.parents
        if inside and len(place) >= len(best):
            best, kind = place, name
    return kind


def say(text: str) -> None:
    """Show progress: in place in a terminal, else as a line."""
    terminal = sys.stderr.isatty()
    print(f"\r\033[K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)


def run(options: argparse.Namespace, work: Callable[[Path], Report]) -> int:
    """Measure in a directory of its own, print the report, and write `--json`."""
    # A plain kill must clean up, too: `finally` clauses remove processes, queues and files.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started, disturbance = time.monotonic(), Disturbance()
    where = (getattr(options, "where", None) or Path(tempfile.gettempdir())).resolve()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=where))
    try:
        report = work(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)
    if sys.stderr.isatty():
        say("")
    report.machine["others_share"] = round(disturbance.share(), 3)
    report.settings["took_s"] = round(time.monotonic() - started, 1)
    print(report.text())
    if options.json is not None:
        text = json.dumps(report.as_json(), indent=1, ensure_ascii=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0
