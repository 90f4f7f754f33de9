"""The figures of one run, as data. `goals` judges them, `report` prints them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.rounds import Results

OURS = "holdfast"


@dataclass(frozen=True)
class Spread:
    """A median with the smallest and the largest of its samples."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Reference:
    """The machine's own limits for one payload size."""

    size: int
    memcpy_bytes_per_s: Spread
    ring_messages_per_s: Spread


@dataclass(frozen=True)
class Attached:
    """What one put and one get together cost with so many other processes attached and idle."""

    others: int
    pair_ns: Spread


@dataclass(frozen=True)
class Recovery:
    """How long a get that a killed writer blocked went on to wait."""

    kills: int
    us: Spread  # from the moment at which the kernel released the writer's lock
    p99_us: float
    from_kill_us: Spread  # from the call of kill(), the kernel's own part included


@dataclass
class Report:
    machine: dict[str, Any]
    settings: dict[str, Any]
    absent: dict[str, str] = field(default_factory=dict)
    results: list[Results] = field(default_factory=list)
    pingpong_us: Spread | None = None
    references: list[Reference] = field(default_factory=list)
    recovery: Recovery | None = None
    attached: list[Attached] = field(default_factory=list)


def rate_of(results: Results, measure: str, reading: str = "copy") -> float | None:
    """Our median in a throughput column."""
    values = results.rates.get((OURS, reading, measure))
    return statistics.median(values) if values else None


def trip_of(results: Results, measure: str) -> float | None:
    """Our median round trip, µs."""
    values = results.trips.get((OURS, "copy", measure))
    return statistics.median(p50 for p50, _ in values) if values else None


def best_peer(results: Results, measure: str) -> tuple[str, float] | None:
    """The fastest other transport in a throughput column."""
    rates = {
        key[0]: statistics.median(values)
        for key, values in results.rates.items()
        if key[0] != OURS and key[2] == measure
    }
    return max(rates.items(), key=lambda item: item[1]) if rates else None


def best_peer_trip(results: Results, measure: str) -> tuple[str, float] | None:
    """The other transport with the lowest median round trip."""
    trips = {
        key[0]: statistics.median(p50 for p50, _ in values)
        for key, values in results.trips.items()
        if key[0] != OURS and key[2] == measure
    }
    return min(trips.items(), key=lambda item: item[1]) if trips else None
