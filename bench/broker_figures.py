"""The figures of one run of the broker's benchmark, and its goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import figures
from bench.broker_peers import PEERS
from bench.broker_stations import Sample
from bench.figures import OURS, Goal, Spread, number, size_name, spread, table

PLAIN = "plain program"
PLAIN_BOTH = "plain, both copies synced"
PLAIN_IN_PLACE = "plain, first copy in place"
PLAINS: dict[str, tuple[bool, bool]] = {
    PLAIN: (False, False),
    PLAIN_BOTH: (True, False),
    PLAIN_IN_PLACE: (False, True),
}
"""With the arguments of `Plain`. The goal is about the first."""
SHARE = 0.7
"""The goal for the share of the plain program's rate, at 1 KiB batched."""
FLAT = 1.25
"""The goal for the ratio of CPU per entry beside a crowd to CPU per entry alone. Two equal runs differ by a
tenth."""
MEASURES = ("publish", "consume", "consume and ack", "ack with receipt", "both at once")
COST_MEASURES = ("publish", "consume and ack", "housekeeping")
"""The last one is of each topic, in one turn."""
TURN_S, TURN_SHARE = 5.0, 0.05
"""Seconds between two turns of housekeeping, and the goal for their share of a core."""
OPEN_S = 2.0
HOLES_BYTES = 10_000_000
BACKLOG_BYTES = 32 << 20
"""The goal for the memory of the largest backlog beyond that of the smallest."""


@dataclass
class Throughput:
    """All samples of one payload size."""

    size: int
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=dict)
    """By contestant and measure."""
    singles: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By contestant: µs until one message was durable, the median and p99 of each round."""

    def add(self, contestant: str, measure: str, sample: Sample) -> None:
        self.samples.setdefault((contestant, measure), []).append(sample)

    def rates(self, contestant: str, measure: str) -> list[float]:
        return [each.rate for each in self.samples.get((contestant, measure), [])]

    def shares(self, contestant: str = PLAIN, measure: str = "publish") -> list[float]:
        """Return our rate over theirs, round by round, because a round measures both close together."""
        pairs = zip(self.rates(OURS, measure), self.rates(contestant, measure), strict=False)
        return [ours / theirs for ours, theirs in pairs]


@dataclass(frozen=True)
class Condition:
    """The crowd that stands around the measured entries."""

    crowd: str
    """"backlog", "holes", …; "" for nothing else."""
    number: int

    @property
    def words(self) -> str:
        return f"{self.number:,} {self.crowd}" if self.crowd else "nothing else"


@dataclass
class Cost:
    """The cost of an entry under a condition."""

    condition: Condition
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    memory_bytes: int = 0
    """Memory of the process beyond what it had before."""

    def cpu_us(self, measure: str) -> Spread:
        return Spread.of([each.cpu_us for each in self.samples[measure]])

    def wall_us(self, measure: str) -> Spread:
        return Spread.of([each.wall_us for each in self.samples[measure]])


@dataclass(frozen=True)
class Opening:
    """The time, events and memory of opening a directory."""

    entries: int
    stop: str
    """ "clean" or "killed"."""
    seconds: Spread
    redone: int
    """Events that were applied again; the most of all rounds."""
    memory_bytes: int
    """Memory of the process beyond what it had before; the most of all rounds."""


@dataclass(frozen=True)
class Seek:
    """µs from the call of `seek` to the first message from there; median and p99."""

    entries: int
    by: str
    cold: bool
    """True if none of the files was in the page cache."""
    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class Holes:
    """The memory of single acknowledgements."""

    number: int
    pattern: str
    memory_bytes: int


@dataclass
class Report(figures.Report):
    """All figures of one run."""

    throughput: list[Throughput] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    openings: list[Opening] = field(default_factory=list)
    seeks: list[Seek] = field(default_factory=list)
    holes: list[Holes] = field(default_factory=list)

    ABOUT = (
        "Medians of {rounds} interleaved rounds [smallest–largest]; batches of {batch}, {window} under way"
    )

    def tables(self) -> Iterator[Sequence[str]]:
        for found in self.throughput:
            if found.samples:
                line = rounds_line(found)
                yield [*throughput_table(found), *([line] if line else [])]
            if found.singles:
                yield singles_table(found)
        if self.costs:
            yield cost_table(self.costs)
        if self.openings:
            rows = [
                [
                    f"{number(each.entries)} entries, {each.stop}",
                    f"{each.seconds.median:.3f} [{each.seconds.low:.3f}–{each.seconds.high:.3f}]",
                    f"{each.redone:,}",
                    f"{each.memory_bytes / 1e6:.1f}",
                ]
                for each in self.openings
            ]
            yield table(["opening after a stop", "seconds", "events done again", "MB of memory"], rows)
        if self.seeks:
            rows = [
                [
                    f"{number(each.entries)} entries, by {each.by}{', from the disk' if each.cold else ''}",
                    number(each.p50_us),
                    number(each.p99_us),
                ]
                for each in sorted(self.seeks, key=lambda each: (each.cold, each.by, each.entries))
            ]
            yield table(["seek, and the first message from there, µs", "p50", "p99"], rows)
        if self.holes:
            rows = [
                [f"{number(each.number)}, {each.pattern}", f"{each.memory_bytes / 1e6:.2f}"]
                for each in self.holes
            ]
            yield table(["single acknowledgements (holes)", "MB of memory"], rows)

    def goals(self) -> Iterator[Goal]:
        yield from (*_share(self), *_flat(self), *_policies(self))
        yield from (*_openings(self), *_seeks(self), *_holes(self))

    def figures(self) -> dict[str, Any]:
        return {
            "throughput": [
                {
                    "size": found.size,
                    "contestant": name,
                    "measure": measure,
                    **asdict(Spread.of([each.rate for each in samples])),
                    "samples": [_sample(each) for each in samples],
                }
                for found in self.throughput
                for (name, measure), samples in found.samples.items()
            ],
            "singles": [
                {"size": found.size, "contestant": name, "samples_us": times}
                for found in self.throughput
                for name, times in found.singles.items()
            ],
            "shares": [
                {"size": found.size, "of": name, "samples": found.shares(name)}
                for found in self.throughput
                for name in PLAINS
                if found.shares(name)
            ],
            "costs": [
                {
                    **asdict(cost.condition),
                    "measure": measure,
                    "memory_bytes": cost.memory_bytes,
                    "cpu_us": asdict(cost.cpu_us(measure)),
                    "wall_us": asdict(cost.wall_us(measure)),
                    "samples": [_sample(each) for each in samples],
                }
                for cost in self.costs
                for measure, samples in cost.samples.items()
            ],
            "openings": [asdict(each) for each in self.openings],
            "seeks": [asdict(each) for each in self.seeks],
            "holes": [asdict(each) for each in self.holes],
        }


def throughput_table(found: Throughput) -> list[str]:
    order = [OURS, *PLAINS, *PEERS]
    names = sorted(dict.fromkeys(name for name, _ in found.samples), key=order.index)
    measures = [measure for measure in MEASURES if any(key[1] == measure for key in found.samples)]
    rows = []
    for name in names:
        cells = [name]
        for measure in measures:
            rates = found.rates(name, measure)
            cells.append(_rate(rates, found.size) if rates else "–")
        rows.append(cells)
    for name in PLAINS:
        if shares := found.shares(name):
            share = Spread.of(shares)
            words = f"{share.median:.0%} [{share.low:.0%}–{share.high:.0%}]"
            rows.append([f"holdfast / {name}", words, *["–"] * (len(measures) - 1)])
    return table([f"{size_name(found.size)}, entries/s (MB/s)", *measures], rows)


def _rate(rates: list[float], size: int) -> str:
    return f"{spread(Spread.of(rates))} ({statistics.median(rates) * size / 1e6:,.0f})"


def rounds_line(found: Throughput) -> str | None:
    """Return a line about the broker's own rounds, which the plain program repeats."""
    ours = [each for each in found.samples.get((OURS, "publish"), []) if each.rounds]
    if not ours:
        return None
    each_bytes = statistics.median(sample.round_bytes / sample.rounds for sample in ours)
    per_message = statistics.median(sample.round_bytes / sample.messages for sample in ours)
    syncs = Spread.of([float(sample.snapshots) for sample in ours])
    cpu = Spread.of([sample.cpu_us for sample in ours])
    return (
        f"the broker's rounds: {each_bytes / 1024:,.0f} KiB each, {per_message:,.0f} bytes per entry; "
        f"{syncs.low:.0f} to {syncs.high:.0f} ledger syncs in each measurement; "
        f"{number(cpu.median)} µs of CPU per entry"
    )


def singles_table(found: Throughput) -> list[str]:
    rows = []
    order = [OURS, *PLAINS, *PEERS]
    for name, times in sorted(found.singles.items(), key=lambda item: order.index(item[0])):
        p99 = statistics.median(high for _, high in times)
        rows.append([name, f"{spread(Spread.of([p50 for p50, _ in times]))} / {number(p99)}"])
    return table([f"{size_name(found.size)}, one by one, µs until durable", "p50 / p99"], rows)


def cost_table(costs: list[Cost]) -> list[str]:
    rows = []
    for each in costs:
        cells = [each.condition.words]
        for measure in COST_MEASURES:
            known = measure in each.samples
            cells.append(spread(each.cpu_us(measure)) if known else "–")
            cells.append(spread(each.wall_us(measure)) if known else "–")
        rows.append([*cells, f"{each.memory_bytes / 1e6:.0f}"])
    head = ["µs per entry beside"]
    for measure in COST_MEASURES:
        head += [f"{measure}, CPU", "elapsed"]
    return table([*head, "MB"], rows)


def _sample(sample: Sample) -> dict[str, Any]:
    return {**asdict(sample), "rate": sample.rate}


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


def _policies(report: Report) -> Iterator[Goal]:
    """Compare topics with policies with as many without, round by round."""
    known = {each.condition.crowd: each for each in report.costs}
    without, with_them = (known.get(crowd) for crowd in ("idle topics", "topics with policies"))
    if without is None or with_them is None:
        return
    medians = {}
    for measure in COST_MEASURES:
        pairs = zip(with_them.samples[measure], without.samples[measure], strict=True)
        medians[measure] = statistics.median(ours.cpu_us / theirs.cpu_us for ours, theirs in pairs)
    turn = medians.pop("housekeeping")
    words = ", ".join(f"{measure} {ratio:.2f}×" for measure, ratio in medians.items())
    text = f"an entry beside {with_them.condition.words} costs what it does beside others: within {FLAT}×"
    yield Goal(text, words, all(ratio <= FLAT for ratio in medians.values()))
    share = with_them.cpu_us("housekeeping").median * with_them.condition.number / (TURN_S * 1e6)
    words = f"{share:.1%}, {turn:.2f}× of that of others"
    text = f"turns of housekeeping over {with_them.condition.words}: at most {TURN_SHARE:.0%} of a core"
    yield Goal(text, words, share <= TURN_SHARE)


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
