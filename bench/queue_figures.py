"""The figures of one run of the queue's benchmark, and its goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import figures
from bench.figures import OURS, Goal, Spread, number, size_name, spread, table
from bench.rounds import Results

ROUND_TRIPS = ("spinning", "blocking", "asleep")
READING_NAMES = {"copy": "", "iterate": ", iterated", "view": ", view"}
SMALL = 64
LARGE = 1 << 20
FLAT = 1.15  # medians of the same operation differ by a tenth between two runs on a shared machine


@dataclass(frozen=True)
class Reference:
    """The machine's own limits for one payload size."""

    size: int
    memcpy_bytes_per_s: Spread
    ring_messages_per_s: Spread


@dataclass(frozen=True)
class Attached:
    """The cost of one put and one get beside other idle processes."""

    others: int
    pair_ns: Spread


@dataclass(frozen=True)
class Recovery:
    """The time that a get waited for a killed writer."""

    kills: int
    us: Spread  # from the moment at which the kernel released the writer's lock
    p99_us: float
    from_kill_us: Spread  # from the call of kill(), the kernel's own part included


@dataclass
class Report(figures.Report):
    """All figures of one run."""

    results: list[Results] = field(default_factory=list)
    pingpong_us: Spread | None = None
    references: list[Reference] = field(default_factory=list)
    recovery: Recovery | None = None
    attached: list[Attached] = field(default_factory=list)

    HEAD = "{cpu}, {cores} cores, Linux {kernel}, Python {python}; "
    ABOUT = (
        "Medians of {rounds} interleaved rounds of {seconds} s per cell [smallest–largest];"
        " ring of {capacity_mib:g} MiB"
    )

    def tables(self) -> Iterator[Sequence[str]]:
        for results in self.results:
            lines = [f"failed: {name}: {reason}" for name, reason in results.failed.items()]
            if results.rounds < self.settings["rounds"]:
                words = f"after {results.rounds} rounds, for lack of time"
                lines.append(f"cut short: {size_name(results.size)} {words}")
            if lines:
                yield lines
            if results.rates:
                yield throughput_table(results)
            if results.trips:
                yield round_trip_table(results)
        lines = reference_table(self) if self.references else []
        if self.pingpong_us:
            lines.append(f"a cache line there and back, both cores spinning: {spread(self.pingpong_us)} µs")
        if lines:
            yield lines
        if recovery := self.recovery:
            yield [
                f"a get that a killed writer blocks goes on {spread(recovery.us)} µs after the kernel"
                " released",
                f"the dead one's lock (p99 {number(recovery.p99_us)} µs), or"
                f" {spread(recovery.from_kill_us)} µs after the call of kill(); {recovery.kills} kills",
            ]
        if self.attached:
            rows = [[str(item.others), spread(item.pair_ns)] for item in self.attached]
            yield table(["other processes attached", "one put and one get, ns"], rows)

    def goals(self) -> Iterator[Goal]:
        for results in self.results:
            if results.size == SMALL:
                yield from (*_single(results), *_batched(results), *_round_trip(results))
            if results.size == LARGE:
                yield from _bandwidth(self, results)
        yield from (*_recovery(self), *_attached(self))

    def figures(self) -> dict[str, Any]:
        cells: list[dict[str, Any]] = []
        for results in self.results:
            for key, rates in results.rates.items():
                cells.append({**_cell(results.size, key, "messages/s", rates), "samples": rates})
            for key, trips in results.trips.items():
                p99 = statistics.median(high for _, high in trips)
                cell = _cell(results.size, key, "µs", [p50 for p50, _ in trips])
                cells.append({**cell, "p99": p99, "samples": trips})
        return {
            "rounds": {size_name(item.size): item.rounds for item in self.results},
            "failed": {size_name(item.size): item.failed for item in self.results if item.failed},
            "results": cells,
            "references": [asdict(item) for item in self.references],
            "pingpong_us": asdict(self.pingpong_us) if self.pingpong_us else None,
            "recovery": asdict(self.recovery) if self.recovery else None,
            "attached": [asdict(item) for item in self.attached],
        }


def rate_of(results: Results, measure: str, reading: str = "copy") -> float | None:
    """Return our median in a throughput column."""
    values = results.rates.get((OURS, reading, measure))
    return statistics.median(values) if values else None


def trip_of(results: Results, measure: str) -> float | None:
    """Return our median round trip, in µs."""
    values = results.trips.get((OURS, "copy", measure))
    return statistics.median(p50 for p50, _ in values) if values else None


def best_peer(results: Results, measure: str) -> tuple[str, float] | None:
    """Return the fastest other transport in a throughput column."""
    rates = {
        key[0]: statistics.median(values)
        for key, values in results.rates.items()
        if key[0] != OURS and key[2] == measure
    }
    return max(rates.items(), key=lambda item: item[1]) if rates else None


def best_peer_trip(results: Results, measure: str) -> tuple[str, float] | None:
    """Return the other transport with the lowest median round trip."""
    trips = {
        key[0]: statistics.median(p50 for p50, _ in values)
        for key, values in results.trips.items()
        if key[0] != OURS and key[2] == measure
    }
    return min(trips.items(), key=lambda item: item[1]) if trips else None


def throughput_table(results: Results) -> list[str]:
    measures = list(dict.fromkeys(key[2] for key in results.rates))
    rows_of = dict.fromkeys((key[0], key[1]) for key in results.rates)
    order = {"copy": 0, "iterate": 1, "view": 2}
    rows = []
    for name, reading in sorted(rows_of, key=lambda row: (row[0] != OURS, row[0], order[row[1]])):
        cells = [name + READING_NAMES[reading]]
        for measure in measures:
            values = results.rates.get((name, reading, measure))
            cells.append(spread(Spread.of(values)) if values else "–")
        rows.append(cells)
    ratios = ratio_row((rate_of(results, each), best_peer(results, each)) for each in measures)
    return table([f"{size_name(results.size)}, messages/s", *measures], [*rows, ratios])


def round_trip_table(results: Results) -> list[str]:
    names = sorted(dict.fromkeys(key[0] for key in results.trips), key=lambda name: (name != OURS, name))
    rows = []
    for name in names:
        cells = [name]
        for measure in ROUND_TRIPS:
            values = results.trips.get((name, "copy", measure))
            if values:
                p99 = statistics.median(high for _, high in values)
                cells.append(f"{spread(Spread.of([p50 for p50, _ in values]))} / {number(p99)}")
            else:
                cells.append("–")
        rows.append(cells)
    ratios = ratio_row((trip_of(results, each), best_peer_trip(results, each)) for each in ROUND_TRIPS)
    return table([f"{size_name(results.size)}, round trip µs p50 / p99", *ROUND_TRIPS], [*rows, ratios])


def ratio_row(pairs: Iterable[tuple[float | None, tuple[str, float] | None]]) -> list[str]:
    """Return the row of our median divided by the best peer's, for each column."""
    cells = (f"{ours / peer[1]:.2f} × {peer[0]}" if ours and peer else "–" for ours, peer in pairs)
    return ["holdfast / best peer", *cells]


def reference_table(report: Report) -> list[str]:
    rows = [
        [
            size_name(item.size),
            f"{item.memcpy_bytes_per_s.median / 1e9:.1f} GB/s",
            number(item.memcpy_bytes_per_s.median / item.size),
            spread(item.ring_messages_per_s),
        ]
        for item in report.references
    ]
    header = ["the machine's own limits", "memcpy", "memcpy, messages/s", "plain C++ ring, messages/s"]
    return table(header, rows)


def _cell(size: int, key: tuple[str, str, str], unit: str, medians: list[float]) -> dict[str, Any]:
    transport, reading, measure = key
    names = {"size": size, "transport": transport, "reading": reading, "measure": measure, "unit": unit}
    return {**names, **asdict(Spread.of(medians))}


def _single(results: Results) -> Iterator[Goal]:
    rate, peer = rate_of(results, "single"), best_peer(results, "single")
    if rate is None:
        return
    if peer is not None:
        ratio = rate / peer[1]
        words = f"{ratio:.2f}×: {number(rate)}/s to {number(peer[1])}/s of {peer[0]}"
        yield Goal("64 B, single calls: at least 3× the best peer", words, ratio >= 3)
    yield Goal("64 B, single calls: over 2 M/s", f"{number(rate)}/s", rate > 2e6)


def _batched(results: Results) -> Iterator[Goal]:
    measures = dict.fromkeys(key[2] for key in results.rates if key[2].startswith("batch"))
    rates = {measure: rate for measure in measures if (rate := rate_of(results, measure)) is not None}
    if not rates:
        return
    measure, rate = max(rates.items(), key=lambda item: item[1])
    yield Goal("64 B, batched: over 10 M/s", f"{number(rate)}/s ({measure})", rate > 10e6)
    for measure, rate in rates.items():
        if peer := best_peer(results, measure):
            words = f"{rate / peer[1]:.2f}×: {number(rate)}/s to {number(peer[1])}/s of {peer[0]}"
            yield Goal(f"64 B, {measure}: above the best peer", words, rate > peer[1])


def _round_trip(results: Results) -> Iterator[Goal]:
    p50 = trip_of(results, "spinning")
    if p50 is not None:
        yield Goal("64 B, round trip when spinning: p50 under 3 µs", f"{number(p50)} µs", p50 < 3)


def _bandwidth(report: Report, results: Results) -> Iterator[Goal]:
    reference = next((item for item in report.references if item.size == LARGE), None)
    if reference is None:
        return
    limit = reference.memcpy_bytes_per_s.median
    for reading, name in (("view", "read in place"), ("copy", "copied out")):
        rate = rate_of(results, "single", reading)
        if rate is not None:
            bandwidth = rate * results.size
            words = f"{bandwidth / limit:.0%}: {bandwidth / 1e9:.1f} of {limit / 1e9:.1f} GB/s"
            yield Goal(f"1 MiB, {name}: at least 70 % of memcpy", words, bandwidth >= 0.7 * limit)


def _recovery(report: Report) -> Iterator[Goal]:
    recovery = report.recovery
    if recovery is None:
        return
    words = f"median {number(recovery.us.median)} µs"
    yield Goal("blocked by a killed writer: on within 1 ms", words, recovery.us.median < 1000)
    words = f"{number(recovery.us.high)} µs of {recovery.kills} kills, p99 {number(recovery.p99_us)} µs"
    yield Goal("the same, the longest", words, recovery.us.high < 1000)


def _attached(report: Report) -> Iterator[Goal]:
    if len(report.attached) < 2:
        return
    fewest, most = report.attached[0], report.attached[-1]
    ratio = most.pair_ns.median / fewest.pair_ns.median
    words = (
        f"{ratio:.2f}×: {number(most.pair_ns.median)} ns beside {most.others},"
        f" {number(fewest.pair_ns.median)} ns beside {fewest.others}"
    )
    yield Goal(f"cost does not grow with those attached: within {FLAT}×", words, ratio <= FLAT)
