"""The figures of one run of the channel's benchmark, and its goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import figures
from bench.figures import OURS, Goal, Spread, number, size_name, spread, table
from bench.queue_figures import FLAT, LARGE
from bench.rounds import Results
from bench.trips import (
    FORMS,
    IN_PLACE,
    PEER,
    growth,
    one_way_us,
    ratios,
    trip_figures,
    trip_tables,
    trips_of,
)

ONE_WAY_US = 1.5
LINES = 4.0
HALF = 0.5
LAYOUTS = ("packed", "one per cache line")
DEFAULT = LAYOUTS[0]


@dataclass(frozen=True)
class Ring:
    """The hand-over in C++, in ns, with one layout of states and number of slots."""

    slots: int
    layout: str
    one_way_ns: list[float] = field(default_factory=list)
    push_ns: list[float] = field(default_factory=list)  # in a stream, beside a consumer
    popped: list[float] = field(default_factory=list)  # the share of these that the consumer got
    alone_ns: list[float] = field(default_factory=list)  # in a stream, without a consumer


@dataclass(frozen=True)
class Core:
    """The hand-over in C++, beside a cache line that changes cores."""

    line_ns: list[float]  # one way
    rings: list[Ring]


@dataclass(frozen=True)
class Beside:
    """The cost of a push beside a consumer that is live, stopped or dead."""

    state: str
    push_ns: Spread
    displaced: float  # the share of pushes that displaced a datum
    samples: list[float]


@dataclass
class Report(figures.Report):
    """All figures of one run."""

    results: list[Results] = field(default_factory=list)
    line_ns: list[float] = field(default_factory=list)  # a cache line, one way, in each round of these
    core: Core | None = None
    pushes: list[Beside] = field(default_factory=list)

    HEAD = "{cpu}, {cores} cores, Linux {kernel}, Python {python}; "
    ABOUT = "Medians of {rounds} interleaved rounds [smallest–largest]; round trips of {seconds} s per cell"

    def tables(self) -> Iterator[Sequence[str]]:
        yield from trip_tables(self.results, self.settings.get("rounds", 0))
        if self.line_ns:
            yield [f"a cache line, one way, between these rounds: {spread(Spread.of(self.line_ns))} ns"]
        if self.core:
            yield core_table(self.core)
        if self.pushes:
            rows = [[each.state, spread(each.push_ns), f"{each.displaced:.0%}"] for each in self.pushes]
            yield table(["a push of 64 B beside a consumer that is", "ns", "displaced a datum"], rows)

    def goals(self) -> Iterator[Goal]:
        yield from (*_one_way(self.results), *_halves(self.results), *_lines(self.core))
        yield from _no_dearer(self.pushes)

    def figures(self) -> dict[str, Any]:
        return {
            **trip_figures(self.results),
            "line_ns": self.line_ns,
            "core": asdict(self.core) if self.core else None,
            "push": [asdict(item) for item in self.pushes],
        }


def core_table(core: Core) -> list[str]:
    rows = [["a cache line, one way", *[spread(Spread.of(core.line_ns))] * len(LAYOUTS)]]
    for slots in dict.fromkeys(ring.slots for ring in core.rings):
        of = {ring.layout: ring for ring in core.rings if ring.slots == slots}
        rings = [of[layout] for layout in LAYOUTS]
        rows += [
            [f"{slots} slots: a datum, one way", *(spread(Spread.of(ring.one_way_ns)) for ring in rings)],
            ["a push in a stream, a consumer pops", *(spread(Spread.of(ring.push_ns)) for ring in rings)],
            ["of these popped", *(f"{statistics.median(ring.popped):.0%}" for ring in rings)],
            ["a push in a stream, no consumer", *(spread(Spread.of(ring.alone_ns)) for ring in rings)],
        ]
    return table(["C++, ns; states", *LAYOUTS], rows)


def _one_way(all_results: Sequence[Results]) -> Iterator[Goal]:
    times = {
        results.size: Spread.of(one_way_us(trips))
        for results in all_results
        if (trips := trips_of(results, OURS, IN_PLACE))
    }
    if not times:
        return
    slowest = max(times, key=lambda size: times[size].median)
    words = f"at most {number(times[slowest].median)} µs ({size_name(slowest)})"
    yield Goal(f"one way when spinning: p50 under {ONE_WAY_US} µs", words, times[slowest].median < ONE_WAY_US)
    if found := growth(all_results):
        ratio, size = found
        words = f"{ratio:.2f}×: {size_name(size)} takes longest"
        yield Goal(f"flat in the size: all sizes are within {FLAT}×", words, ratio <= FLAT)


def _halves(all_results: Sequence[Results]) -> Iterator[Goal]:
    for results in all_results:
        for form in FORMS if results.size == LARGE else ():
            if ratio := ratios(results, form):
                words = f"{ratio.median:.2f}×"
                yield Goal(f"1 MiB, {form}: at most half of {PEER}'s round trip", words, ratio.median <= HALF)


def _lines(core: Core | None) -> Iterator[Goal]:
    if core is None:
        return
    for_each_ring = {
        ring.slots: Spread.of([mine / line for mine, line in zip(ring.one_way_ns, core.line_ns, strict=True)])
        for ring in core.rings
        if ring.layout == DEFAULT
    }
    slots, ratio = max(for_each_ring.items(), key=lambda item: item[1].median)
    words = f"at most {ratio.median:.2f}× ({slots} slots)"
    yield Goal(f"C++: one way under {LINES:g}× a cache line", words, ratio.median < LINES)


def _no_dearer(pushes: Sequence[Beside]) -> Iterator[Goal]:
    if not pushes:
        return
    live, *others = pushes
    for each in others:
        ratio = each.push_ns.median / live.push_ns.median
        words = f"{ratio:.2f}×: {number(each.push_ns.median)} ns to {number(live.push_ns.median)} ns"
        text = f"a push beside a {each.state} consumer: within {FLAT}× of a live one"
        yield Goal(text, words, ratio <= FLAT)
