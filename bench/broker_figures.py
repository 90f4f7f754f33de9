"""The figures of one run of the broker's benchmark, and the goals that were set before it was written."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.broker_stations import Sample
from bench.figures import OURS, Spread
from bench.goals import Goal
from bench.units import number, size_name

PLAIN = "plain program"
PLAIN_BOTH = "plain, both copies synced"
PLAIN_IN_PLACE = "plain, first copy in place"
PLAINS: dict[str, tuple[bool, bool]] = {
    PLAIN: (False, False),
    PLAIN_BOTH: (True, False),
    PLAIN_IN_PLACE: (False, True),
}
"""With the arguments of `Plain`. The goal speaks of the first."""
SHARE = 0.7
"""Of the plain program, at 1 KiB batched."""
FLAT = 1.25
"""CPU per entry beside a crowd, to CPU per entry alone: two runs of the same thing differ by a tenth here."""
OPEN_S = 2.0
HOLES_BYTES = 10_000_000
BACKLOG_BYTES = 32 << 20
"""What a broker may take for the largest backlog beyond what it takes for the smallest."""


@dataclass
class Throughput:
    """Everything of one payload size."""

    size: int
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=dict)
    """By contestant and measure."""
    singles: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By contestant: µs until one message was durable, median and p99 of each round."""

    def add(self, contestant: str, measure: str, sample: Sample) -> None:
        self.samples.setdefault((contestant, measure), []).append(sample)

    def rates(self, contestant: str, measure: str) -> list[float]:
        return [each.rate for each in self.samples.get((contestant, measure), [])]

    def shares(self, contestant: str = PLAIN, measure: str = "publish") -> list[float]:
        """Ours to theirs, round by round: what is compared was measured one after the other."""
        pairs = zip(self.rates(OURS, measure), self.rates(contestant, measure), strict=False)
        return [ours / theirs for ours, theirs in pairs]


@dataclass(frozen=True)
class Condition:
    """What stands around the entries that are measured."""

    crowd: str
    """ "backlog", "holes", …; "" for nothing at all."""
    number: int

    @property
    def words(self) -> str:
        return f"{self.number:,} {self.crowd}" if self.crowd else "nothing else"


@dataclass
class Cost:
    """What an entry costs under a condition."""

    condition: Condition
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def cpu_us(self, measure: str) -> Spread:
        return Spread.of([each.cpu_us for each in self.samples[measure]])

    def wall_us(self, measure: str) -> Spread:
        return Spread.of([each.wall_us for each in self.samples[measure]])


@dataclass(frozen=True)
class Opening:
    """How long it took to open a directory, and what that took."""

    entries: int
    stop: str
    """ "clean" or "killed"."""
    seconds: Spread
    redone: int
    """Events that had to be done again; the most of all rounds."""
    memory_bytes: int
    """Of the process's own, beyond what it had before; the most of all rounds."""


@dataclass(frozen=True)
class Seek:
    """µs from the call of `seek` to the first message from there; median and p99."""

    entries: int
    by: str
    cold: bool
    """Nothing of the files was in the page cache when it began."""
    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class Holes:
    """What single acknowledgements cost in memory."""

    number: int
    pattern: str
    memory_bytes: int


@dataclass
class Report:
    machine: dict[str, Any]
    settings: dict[str, Any]
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    throughput: list[Throughput] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    openings: list[Opening] = field(default_factory=list)
    seeks: list[Seek] = field(default_factory=list)
    holes: list[Holes] = field(default_factory=list)


COST_MEASURES = ("publish", "consume and ack")


def goals_of(report: Report) -> list[Goal]:
    """Only what this run measured can be judged."""
    return [*_share(report), *_flat(report), *_openings(report), *_seeks(report), *_holes(report)]


def _share(report: Report) -> Iterator[Goal]:
    for each in report.throughput:
        shares = each.shares()
        if each.size != 1024 or not shares:
            continue
        median = statistics.median(shares)
        rates = [statistics.median(each.rates(name, "publish")) for name in (OURS, PLAIN)]
        words = f"{median:.0%}: {number(rates[0])}/s to {number(rates[1])}/s"
        yield Goal(f"1 KiB, batched: at least {SHARE:.0%} of the plain program", words, median >= SHARE)
        synced = min(sample.snapshots for sample in each.samples[OURS, "publish"])
        yield Goal("each of these measurements includes ledger syncs", f"at least {synced} each", synced >= 1)


def _flat(report: Report) -> Iterator[Goal]:
    alone = next((each for each in report.costs if not each.condition.crowd), None)
    if alone is None:
        return
    for crowd in dict.fromkeys(each.condition.crowd for each in report.costs if each.condition.crowd):
        most = max((each for each in report.costs if each.condition.crowd == crowd), key=_number)
        ratios = {
            measure: most.cpu_us(measure).median / alone.cpu_us(measure).median
            for measure in COST_MEASURES
            if measure in most.samples and measure in alone.samples
        }
        words = ", ".join(f"{measure} {ratio:.2f}×" for measure, ratio in ratios.items())
        text = f"cost per entry does not grow with {most.condition.words}: within {FLAT}×"
        yield Goal(text, words, all(ratio <= FLAT for ratio in ratios.values()))


def _number(cost: Cost) -> int:
    return cost.condition.number


def _openings(report: Report) -> Iterator[Goal]:
    for each in report.openings:
        words = (
            f"{each.seconds.median:.2f} s, at most {each.seconds.high:.2f} s; {each.redone:,} events again"
        )
        text = f"{number(each.entries)} entries, {each.stop} stop: open in under {OPEN_S:.0f} s"
        yield Goal(text, words, each.seconds.high < OPEN_S)
    sizes = sorted({each.entries for each in report.openings})
    if len(sizes) > 1:
        least, most = (
            max(each.memory_bytes for each in report.openings if each.entries == size)
            for size in (sizes[0], sizes[-1])
        )
        words = f"{most / 1e6:.1f} MB with {number(sizes[-1])}, {least / 1e6:.1f} MB with {number(sizes[0])}"
        yield Goal("memory does not grow with the backlog", words, most - least <= BACKLOG_BYTES)


def _seeks(report: Report) -> Iterator[Goal]:
    for by, limit in (("id", 1.5), ("time", 3.0)):
        warm = (each for each in report.seeks if each.by == by and not each.cold)
        found = sorted(warm, key=lambda each: each.entries)
        if len(found) > 1:
            ratio = found[-1].p50_us / found[0].p50_us
            words = (
                f"{number(found[-1].p50_us)} µs of {number(found[-1].entries)}, {ratio:.2f}× of the smallest"
            )
            yield Goal(f"seek by {by} does not grow with the backlog: within {limit}×", words, ratio <= limit)


def _holes(report: Report) -> Iterator[Goal]:
    for each in report.holes:
        words = f"{each.memory_bytes / 1e6:.2f} MB"
        text = f"{number(each.number)} holes, {each.pattern}: under {HOLES_BYTES / 1e6:.0f} MB"
        yield Goal(text, words, each.memory_bytes < HOLES_BYTES)


def measure_names(report: Throughput) -> list[str]:
    return list(dict.fromkeys(measure for _, measure in report.samples))


def title(report: Throughput) -> str:
    return size_name(report.size)
