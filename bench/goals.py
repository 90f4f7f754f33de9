"""The goals that were set before anything was measured, and whether a run met them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.figures import Report, best_peer, rate_of, trip_of
from bench.rounds import Results
from bench.units import number

SMALL = 64
LARGE = 1 << 20
FLAT = 1.15  # medians of one and the same operation differ by a tenth between two runs on a shared machine


@dataclass(frozen=True)
class Goal:
    text: str
    result: str
    met: bool


def goals_of(report: Report) -> list[Goal]:
    """Only what this run measured can be judged."""
    goals: list[Goal] = []
    for results in report.results:
        if results.size == SMALL:
            goals += [*_single(results), *_batched(results), *_round_trip(results)]
        if results.size == LARGE:
            goals += _bandwidth(report, results)
    return [*goals, *_recovery(report), *_attached(report)]


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
