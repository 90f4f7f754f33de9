"""The figures of one run of the cluster's benchmark, and its goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import figures
from bench.cluster_moves import Join
from bench.cluster_ours import OURS
from bench.figures import Goal, Spread, number, size_name, spread, table
from bench.server_figures import Sample

MEASURES = ("publish", "publish batched", "consume")
CPG, DISK = "raw CPG", "the disk"
SHARE = 0.7
HAND_OVER_S, FAIL_OVER_S = 0.005, 0.1
JOIN_RATE, SLOWED = 100e6, 0.5


@dataclass(frozen=True)
class Key:
    """The contestant, measure and size of a sample."""

    contestant: str
    measure: str
    size: int


@dataclass
class Report(figures.Report):
    """All figures of one run."""

    durability: dict[str, str] = field(default_factory=dict)
    samples: dict[Key, list[Sample]] = field(default_factory=dict)
    limits: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """Messages a second of raw CPG and of the disk, by payload size."""
    hand_overs: list[list[float]] = field(default_factory=list)
    """Seconds, a list for each round."""
    broker_deaths: list[float] = field(default_factory=list)
    """Seconds from a death to the first message elsewhere."""
    node_deaths: list[tuple[float, float]] = field(default_factory=list)
    """The same of a whole node, and of it until Corosync noticed."""
    joins: list[Join] = field(default_factory=list)

    ABOUT = (
        "Medians of {rounds} interleaved rounds [smallest–largest]. Three servers on one machine; one"
        " connection; a load generator in Python with plain sockets and frames encoded beforehand, up to"
        " {window} messages unanswered; batched: {batch} messages in an entry. Ours in network namespaces,"
        " peers on loopback"
    )

    def add(self, key: Key, sample: Sample) -> None:
        self.samples.setdefault(key, []).append(sample)

    def median(self, contestant: str, measure: str, size: int) -> float | None:
        found = self.samples.get(Key(contestant, measure, size))
        return statistics.median(each.rate for each in found) if found else None

    def limit(self, size: int) -> tuple[str, float] | None:
        """Return the slower of raw CPG and the disk, if both were measured."""
        found = [(name, self.limits.get((name, size))) for name in (CPG, DISK)]
        rates = [(name, statistics.median(each)) for name, each in found if each]
        return min(rates, key=lambda pair: pair[1]) if len(rates) == 2 else None

    def tables(self) -> Iterator[Sequence[str]]:
        sizes = {key.size for key in self.samples} | {size for _, size in self.limits}
        for size in sorted(sizes):
            yield rates_table(self, size)
        if self.durability:
            yield table(["", "what a confirmation means"], [list(pair) for pair in self.durability.items()])
        if rows := list(_moves(self)):
            yield table(["a change of owner, ms", "", "median [smallest–largest]"], rows)
        if self.joins:
            yield joins_table(self)

    def goals(self) -> Iterator[Goal]:
        yield from (*_limits(self), *_peers(self), *_owners(self), *_joins(self))

    def figures(self) -> dict[str, Any]:
        return {
            "durability": self.durability,
            "samples": [
                {**asdict(key), "samples": [{**asdict(each), "rate": each.rate} for each in samples]}
                for key, samples in self.samples.items()
            ],
            "limits": [
                {"limit": name, "size": size, "rates": rates} for (name, size), rates in self.limits.items()
            ],
            "hand_over_s": self.hand_overs,
            "broker_death_s": self.broker_deaths,
            "node_death_s": self.node_deaths,
            "joins": [
                {**asdict(each), "bytes_per_s": each.bytes_per_s, "slowed": each.slowed}
                for each in self.joins
            ],
        }


def rates_table(report: Report, size: int) -> list[str]:
    """Return a table: messages a second, and the CPU of all servers per message."""
    rows = []
    for contestant in dict.fromkeys(key.contestant for key in report.samples if key.size == size):
        cells = [contestant]
        for measure in MEASURES:
            samples = report.samples.get(Key(contestant, measure, size))
            cells.append(_cell(samples) if samples else "–")
        rows.append(cells)
    for name in (CPG, DISK):
        if rates := report.limits.get((name, size)):
            rows.append([f"limit: {name}", "–", spread(Spread.of(rates)), "–"])
    return table(
        [f"{size_name(size)}, messages/s; own + system CPU of all servers, µs each", *MEASURES], rows
    )


def _cell(samples: list[Sample]) -> str:
    rate = spread(Spread.of([each.rate for each in samples]))
    user = statistics.median(each.user_us for each in samples)
    system = statistics.median(each.system_us for each in samples)
    return f"{rate}; {user:.1f} + {system:.1f}"


def _ms(seconds: Sequence[float]) -> str:
    found = Spread.of([each * 1e3 for each in seconds])
    return f"{found.median:.1f} [{found.low:.1f}–{found.high:.1f}]"


def _moves(report: Report) -> Iterator[list[str]]:
    if report.hand_overs:
        middle = [statistics.median(each) for each in report.hand_overs]
        p99 = [figures.percentile(each, 0.99) for each in report.hand_overs]
        yield ["hand-over to the next owner", "p50", _ms(middle)]
        yield ["", "p99", _ms(p99)]
    if report.broker_deaths:
        yield ["SIGKILL of the owner's broker, to the first message elsewhere", "", _ms(report.broker_deaths)]
    if report.node_deaths:
        yield [
            "SIGKILL of the owner's Corosync and broker",
            "",
            _ms([whole for whole, _ in report.node_deaths]),
        ]
        yield ["of it until Corosync's new list", "", _ms([noticed for _, noticed in report.node_deaths])]


def joins_table(report: Report) -> list[str]:
    rows = [
        [
            f"{each.backlog_bytes / 1e6:.0f}",
            f"{each.copied_bytes / 1e6:.0f}",
            f"{each.start_s:.2f}",
            f"{each.copy_s:.2f}",
            f"{each.serve_s:.2f}",
            f"{each.whole_s:.2f}",
            f"{each.bytes_per_s / 1e6:.1f}",
            f"{number(each.before_rate)} → {number(each.during_rate)}",
        ]
        for each in report.joins
    ]
    head = [
        "join of a backlog, MB",
        "copied, MB",
        "process start, s",
        "copy, s",
        "until it serves, s",
        "until it has all, s",
        "MB/s",
    ]
    return table([*head, "published meanwhile, 1 KiB messages/s"], rows)


def _limits(report: Report) -> Iterator[Goal]:
    for size in sorted({key.size for key in report.samples}):
        ours, limit = report.median(OURS, "publish batched", size), report.limit(size)
        if ours is not None and limit is not None:
            name, rate = limit
            text = f"publish batched, {size_name(size)}: at least {SHARE:.0%} of the slower limit"
            told = f"{ours / rate:.0%} of {name}: {number(ours)} to {number(rate)}"
            yield Goal(text, told, ours >= SHARE * rate)


def _peers(report: Report) -> Iterator[Goal]:
    """Compare with each peer's best: ours batched, as the peers have no batches."""
    for size in sorted({key.size for key in report.samples}):
        for measure, theirs in (("publish batched", "publish"), ("consume", "consume")):
            ours = report.median(OURS, measure, size)
            for peer in dict.fromkeys(key.contestant for key in report.samples if key.contestant != OURS):
                other = report.median(peer, theirs, size)
                if ours is not None and other is not None:
                    told = f"{ours / other:.1f}×: {number(ours)} to {number(other)}"
                    yield Goal(f"{measure}, {size_name(size)}: ahead of {peer}", told, ours > other)


def _owners(report: Report) -> Iterator[Goal]:
    if report.hand_overs:
        middle = statistics.median(statistics.median(each) for each in report.hand_overs)
        yield Goal("ownership hand-over under 5 ms", f"{middle * 1e3:.1f} ms", middle < HAND_OVER_S)
    if report.broker_deaths:
        middle = statistics.median(report.broker_deaths)
        text = "fail-over after a broker's death under 100 ms"
        yield Goal(text, f"{middle * 1e3:.0f} ms", middle < FAIL_OVER_S)
    if report.node_deaths:
        behind = statistics.median(whole - noticed for whole, noticed in report.node_deaths)
        text = "fail-over after a node's death within 100 ms of Corosync's detection"
        yield Goal(text, f"{behind * 1e3:.0f} ms", behind < FAIL_OVER_S)


def _joins(report: Report) -> Iterator[Goal]:
    if report.joins:
        rate = statistics.median(each.bytes_per_s for each in report.joins)
        slowed = statistics.median(each.slowed for each in report.joins)
        size = max(each.backlog_bytes for each in report.joins)
        text = f"join of {size / 1e6:.0f} MB at over 100 MB/s"
        yield Goal(text, f"{rate / 1e6:.1f} MB/s", rate > JOIN_RATE)
        yield Goal("publishing slowed by less than half meanwhile", f"by {slowed:.0%}", slowed < SLOWED)
