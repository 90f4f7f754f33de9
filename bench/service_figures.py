"""The figures of one run of the service's benchmark, and its goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import figures
from bench.figures import OURS, Goal, Spread, number, size_name, spread, table
from bench.queue_figures import FLAT
from bench.rounds import Results
from bench.trips import FORMS, PEER, ratios, trip_figures, trip_tables

SMALL = 1 << 10
SMALL_RATIO = 1 / 3
RECOVERY_US = 1000.0
CALL_US = 5.0

ELSEWHERE, SPINNING, ASLEEP = "do not take", "spin", "sleep"
STATES = (ELSEWHERE, SPINNING, ASLEEP)
OFFER, CONNECT, REAP = "offer", "connect", "reap"
CALL_SPINNING, CALL_BLOCKING = "method, spinning", "method, as it is"
SOCKET_SPINNING, SOCKET_BLOCKING = "Unix socket, polled", "Unix socket, blocking"


@dataclass(frozen=True)
class Published:
    """The cost of a publication, beside subscribers in one state."""

    transport: str
    size: int
    subscribers: int
    state: str
    publish_ns: Spread
    samples: list[float]


@dataclass(frozen=True)
class Recovered:
    """The time of an operation after many deaths, and after none."""

    name: str
    logs: int
    dead_us: Spread
    none_us: Spread
    samples: list[tuple[float, float]]


@dataclass(frozen=True)
class Called:
    """Round trips of calls: p50 and p99 of each round, in µs."""

    name: str
    samples: list[tuple[float, float]]

    @property
    def p50_us(self) -> Spread:
        return Spread.of([p50 for p50, _ in self.samples])


@dataclass
class Report(figures.Report):
    """All figures of one run."""

    results: list[Results] = field(default_factory=list)
    line_ns: list[float] = field(default_factory=list)  # a cache line, one way, in each round of these
    published: list[Published] = field(default_factory=list)
    recovered: list[Recovered] = field(default_factory=list)
    called: list[Called] = field(default_factory=list)
    call_line_ns: list[float] = field(default_factory=list)  # the same, in each round of these

    HEAD = "{cpu}, {cores} cores, Linux {kernel}, Python {python}; "
    ABOUT = "Medians of {rounds} interleaved rounds [smallest–largest]; round trips of {seconds} s per cell"

    def tables(self) -> Iterator[Sequence[str]]:
        yield from trip_tables(self.results, self.settings.get("rounds", 0))
        if self.line_ns:
            yield [f"a cache line, one way, between these rounds: {spread(Spread.of(self.line_ns))} ns"]
        for state in STATES if self.published else ():
            yield publish_table(self.published, state)
        if self.recovered:
            rows = [
                [f"{each.name}, after {each.logs} proxies died", spread(each.dead_us), spread(each.none_us)]
                for each in self.recovered
            ]
            yield table(["recovery, µs", "in all", "after none died"], rows)
        if self.called:
            rows = [
                [each.name, spread(each.p50_us), number(statistics.median(p99 for _, p99 in each.samples))]
                for each in self.called
            ]
            yield table(["a call, round trip, µs", "p50", "p99"], rows)
        if self.call_line_ns:
            yield [f"a cache line, one way, between these rounds: {spread(Spread.of(self.call_line_ns))} ns"]

    def goals(self) -> Iterator[Goal]:
        yield from _beside_peer(self.results)
        yield from _flat(self.published)
        for each in self.recovered:
            words = f"{number(each.dead_us.median)} µs, of which {number(each.none_us.median)} without deaths"
            text = f"{each.name} after {each.logs} proxies died: under {RECOVERY_US / 1e3:g} ms"
            yield Goal(text, words, each.dead_us.median < RECOVERY_US)
        yield from _calls(self.called)

    def figures(self) -> dict[str, Any]:
        return {
            **trip_figures(self.results),
            "line_ns": self.line_ns,
            "publish": [asdict(item) for item in self.published],
            "recovery": [asdict(item) for item in self.recovered],
            "call_line_ns": self.call_line_ns,
            "calls": [{**asdict(item), "p50_us": asdict(item.p50_us)} for item in self.called],
        }


def publish_table(published: Sequence[Published], state: str) -> list[str]:
    mine = [each for each in published if each.state == state]
    columns = sorted({(each.transport, each.size) for each in mine})
    rows = []
    for count in sorted({each.subscribers for each in mine}):
        cells = {(each.transport, each.size): each.publish_ns for each in mine if each.subscribers == count}
        rows.append([f"{count}", *(spread(cells[column]) for column in columns)])
    header = [f"a publication, ns; subscribers {state}", *(f"{name}, {size_name(s)}" for name, s in columns)]
    return table(header, rows)


def _beside_peer(all_results: Sequence[Results]) -> Iterator[Goal]:
    for form in FORMS:
        found = {results.size: ratio for results in all_results if (ratio := ratios(results, form))}
        if not found:
            continue
        size = max(found, key=lambda size: found[size].median)
        words = f"at most {found[size].median:.2f}× ({size_name(size)})"
        text = f"{form}: at least as fast as {PEER} at every size"
        yield Goal(text, words, found[size].median <= 1)
        small = [ratio.median for size, ratio in found.items() if size <= SMALL]
        if small:
            text = f"{form}: three times as fast as {PEER} at small sizes"
            yield Goal(text, f"{max(small):.2f}× of its time", max(small) <= SMALL_RATIO)


def _flat(published: Sequence[Published]) -> Iterator[Goal]:
    ours = {
        (each.state, each.subscribers, each.size): each.samples
        for each in published
        if each.transport == OURS
    }
    if not ours:
        return
    counts = sorted({subscribers for _, subscribers, _ in ours})
    sizes = sorted({size for _, _, size in ours})

    def goal(text: str, one: tuple[str, int, int], other: tuple[str, int, int]) -> Goal:
        ratio = Spread.of([a / b for a, b in zip(ours[other], ours[one], strict=True)]).median
        medians = [number(statistics.median(ours[each])) for each in (other, one)]
        return Goal(text, f"{ratio:.2f}×: {medians[0]} ns to {medians[1]} ns", ratio <= FLAT)

    text = f"a publication of {size_name(sizes[-1])}: within {FLAT}× of {size_name(sizes[0])}"
    yield goal(text, (ELSEWHERE, counts[0], sizes[0]), (ELSEWHERE, counts[0], sizes[-1]))
    for state in (ELSEWHERE, SPINNING):
        text = f"{counts[-1]} subscribers that {state}: a publication within {FLAT}× of {counts[0]}"
        yield goal(text, (state, counts[0], sizes[0]), (state, counts[-1], sizes[0]))


def _calls(called: Sequence[Called]) -> Iterator[Goal]:
    by_name = {each.name: each for each in called}
    if CALL_SPINNING not in by_name:
        return
    mine = by_name[CALL_SPINNING].p50_us.median
    words = f"{number(mine)} µs"
    if SOCKET_BLOCKING in by_name:
        words += f"; a Unix socket takes {number(by_name[SOCKET_BLOCKING].p50_us.median)} µs"
    yield Goal(f"a call's round trip when spinning: p50 under {CALL_US:g} µs", words, mine < CALL_US)
