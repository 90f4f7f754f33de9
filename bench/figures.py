"""Figures of all benchmarks: samples, tables, goals, and a report as text and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

OURS = "holdfast"


@dataclass(frozen=True)
class Spread:
    """A median with the smallest and the largest sample."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def percentiles_us(times_ns: Sequence[int]) -> tuple[float, float]:
    """Return the median and the 99th percentile, in µs."""
    return percentile(times_ns, 0.5) / 1e3, percentile(times_ns, 0.99) / 1e3


@dataclass(frozen=True)
class Goal:
    text: str
    result: str
    met: bool


def number(value: float) -> str:
    """Return three digits and a unit: 1.05 M, 350 k, 42."""
    for limit, divisor, unit in ((1e6, 1e6, " M"), (1e3, 1e3, " k")):
        if value >= limit * 0.9995:
            return f"{_three_digits(value / divisor)}{unit}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def spread(values: Spread) -> str:
    return f"{number(values.median)} [{number(values.low)}–{number(values.high)}]"


def size_name(size: int) -> str:
    if size >= 1 << 20 and size % (1 << 20) == 0:
        return f"{size >> 20} MiB"
    if size >= 1 << 10 and size % (1 << 10) == 0:
        return f"{size >> 10} KiB"
    return f"{size} B"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the first column left and the others right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    text = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return [text[0], "-" * max(len(line) for line in text), *text[1:]]


@dataclass
class Report:
    """One run: machine, settings, absent peers; a subclass adds its figures."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    HEAD = "{cpu}, {cores} cores, Linux {kernel}, Python {python}, {file_system}; "
    ABOUT = ""
    """A sentence on how it was measured, with names of settings in braces."""

    def tables(self) -> Iterator[Sequence[str]]:
        """Return the tables of this run, each as lines."""
        yield from ()

    def goals(self) -> Iterator[Goal]:
        """Return the goals that this run can judge."""
        yield from ()

    def figures(self) -> Mapping[str, Any]:
        """Return all samples."""
        return {}

    def text(self) -> str:
        """Return the report for a terminal."""
        others = "others used {others_share:.0%} of the cores meanwhile"
        lines = [(self.HEAD + others).format(**self.machine), self.ABOUT.format(**self.settings)]
        lines += [f"absent: {name}: {reason}" for name, reason in self.absent.items()]
        lines += [f"failed: {name}: {reason}" for name, reason in self.failed.items()]
        for each in self.tables():
            lines += ["", *each]
        if goals := list(self.goals()):
            rows = [[goal.text, goal.result, "met" if goal.met else "MISSED"] for goal in goals]
            lines += ["", *table(["goal", "result", ""], rows)]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the report as data."""
        told = {name: getattr(self, name) for name in ("machine", "settings", "absent", "failed")}
        return {**told, **self.figures(), "goals": [asdict(goal) for goal in self.goals()]}
