"""One way between two processes, holdfast beside iceoryx2: measurement, table and samples.

A transport is measured in two forms: in place, and copied. One way is half of a round trip with receivers
that spin.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from multiprocessing import get_context
from multiprocessing.context import SpawnContext
from typing import Any

from bench.figures import OURS, Spread, number, size_name, spread, table
from bench.links import Kind, Setting
from bench.rounds import SIZE_LIMIT_S, Case, Results, measure_pairs

SIZES = (64, 1 << 12, 1 << 16, 1 << 20, 4 << 20)
PEER = "iceoryx2"
IN_PLACE, COPIED = "zero copy", "copied"
FORMS = {IN_PLACE: "", COPIED: ", copied"}
"""By form: what follows the name of a transport."""
TRIP = "spinning"


class TripEnd:
    """An end that makes round trips with a receiver that spins, and nothing else."""

    def put(self, data: bytes, count: int) -> None:
        raise NotImplementedError

    def put_many(self, batch: list[bytes], count: int) -> None:
        raise NotImplementedError

    def get(self, count: int, reading: str) -> bytes:
        raise NotImplementedError

    def get_many(self, length: int, count: int, reading: str) -> list[bytes]:
        raise NotImplementedError

    def rouse(self, data: bytes) -> None:
        raise NotImplementedError

    def wait(self) -> bytes:
        raise NotImplementedError

    def prepare(self, spinning: bool) -> None:
        pass


def measure_trips(
    kinds: Sequence[Kind], options: argparse.Namespace, slots: int, each_round: Callable[[int], None]
) -> list[Results]:
    """Measure round trips of all sizes in each round, so that sizes can be compared."""
    context: SpawnContext = get_context("spawn")
    wanted: list[tuple[Kind, Setting]] = []
    found: dict[str, tuple[Kind, int]] = {}
    for size in options.sizes:
        for kind in kinds:
            name = f"{kind.name}, {size_name(size)}"
            wanted.append((replace(kind, name=name), Setting(size, slots * size, context)))
            found[name] = kind, size

    def cases(kind: Kind) -> list[Case]:
        # A column has one size: its transports are measured one after the other.
        return [Case(kind, f"{TRIP} {found[kind.name][1]}", reading=kind.readings[0], round_trip=True)]

    together = Results(0)
    limit_s = SIZE_LIMIT_S * len(options.sizes)
    measure_pairs(together, wanted, cases, options.rounds, options.seconds, each_round, limit_s)
    by_size = {size: Results(size, together.rounds) for size in options.sizes}
    for (name, form, _), trips in together.trips.items():
        kind, size = found[name]
        by_size[size].trips[kind.name, form, TRIP] = trips
    for name, reason in together.failed.items():
        kind, size = found[name]
        by_size[size].failed[kind.name] = reason
    return list(by_size.values())


def trips_of(results: Results, name: str, form: str) -> list[tuple[float, float]]:
    """Return the round trips of a transport: p50 and p99 of each round, in µs."""
    return results.trips.get((name + FORMS[form], form, TRIP), [])


def one_way_us(trips: list[tuple[float, float]]) -> list[float]:
    """Return half of the p50 of each round."""
    return [p50 / 2 for p50, _ in trips]


def ratios(results: Results, form: str) -> Spread | None:
    """Return our round trip divided by the peer's, round by round."""
    ours, peers = (trips_of(results, name, form) for name in (OURS, PEER))
    pairs = [mine[0] / other[0] for mine, other in zip(ours, peers, strict=False)]
    return Spread.of(pairs) if pairs else None


def growth(all_results: Sequence[Results]) -> tuple[float, int] | None:
    """Return the slowest size by the quickest, and the slowest; None for one size.

    Ratios are within a round: the cores are near in some rounds, and far in others.
    """
    rounds = {
        results.size: one_way_us(trips)
        for results in all_results
        if (trips := trips_of(results, OURS, IN_PLACE))
    }
    if len(rounds) < 2:
        return None
    least = min(rounds)
    against = {
        size: Spread.of([a / b for a, b in zip(each, rounds[least], strict=True)]).median
        for size, each in rounds.items()
    }
    ratio = max(against.values()) / min(against.values())
    return ratio, max(against, key=lambda size: against[size])


def trip_tables(all_results: Sequence[Results], rounds: int) -> Iterator[Sequence[str]]:
    """Return what failed or was cut short, then a table for each form."""
    for results in all_results:
        lines = [f"failed: {name}: {reason}" for name, reason in results.failed.items()]
        if results.rounds < rounds:
            lines.append(
                f"cut short: {size_name(results.size)} after {results.rounds} rounds, for lack of time"
            )
        if lines:
            yield lines
    for form in FORMS:
        if any(trips_of(results, name, form) for results in all_results for name in (OURS, PEER)):
            yield _one_way_table(all_results, form)


def _one_way_table(all_results: Sequence[Results], form: str) -> list[str]:
    rows = []
    for results in all_results:
        cells = [size_name(results.size)]
        for name in (OURS, PEER):
            trips = trips_of(results, name, form)
            p99 = statistics.median(high / 2 for _, high in trips) if trips else 0.0
            cells.append(f"{spread(Spread.of(one_way_us(trips)))} / {number(p99)}" if trips else "–")
        ratio = ratios(results, form)
        rows.append([*cells, spread(ratio) if ratio else "–"])
    return table([f"{form}, one way, µs p50 / p99", OURS, PEER, f"{OURS} / {PEER}"], rows)


def trip_figures(all_results: Sequence[Results]) -> dict[str, Any]:
    """Return all samples for the JSON."""
    cells = [
        {
            "size": results.size,
            "transport": name,
            "form": form,
            "unit": "µs, one way",
            **asdict(Spread.of(one_way_us(trips))),
            "p99": statistics.median(p99 / 2 for _, p99 in trips),
            "samples": [(p50 / 2, p99 / 2) for p50, p99 in trips],
        }
        for results in all_results
        for form in FORMS
        for name in (OURS, PEER)
        if (trips := trips_of(results, name, form))
    ]
    return {
        "rounds": {size_name(item.size): item.rounds for item in all_results},
        "failed": {size_name(item.size): item.failed for item in all_results if item.failed},
        "results": cells,
    }
