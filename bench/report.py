"""What the benchmark says: aligned plain-text tables, the goals with met or missed, and the same as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.figures import OURS, Report, Spread, best_peer, best_peer_trip, rate_of, trip_of
from bench.goals import goals_of
from bench.rounds import Results
from bench.units import number, size_name, spread

ROUND_TRIPS = ("spinning", "blocking", "asleep")
READING_NAMES = {"copy": "", "iterate": ", iterated", "view": ", view"}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned first column, right-aligned others."""
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
    ratio = ["holdfast / best peer"]
    for measure in measures:
        ours, peer = rate_of(results, measure), best_peer(results, measure)
        ratio.append(f"{ours / peer[1]:.2f} × {peer[0]}" if ours and peer else "–")
    return table([f"{size_name(results.size)}, messages/s", *measures], [*rows, ratio])


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
    ratio = ["holdfast / best peer"]
    for measure in ROUND_TRIPS:
        ours, peer = trip_of(results, measure), best_peer_trip(results, measure)
        ratio.append(f"{ours / peer[1]:.2f} × {peer[0]}" if ours and peer else "–")
    return table([f"{size_name(results.size)}, round trip µs p50 / p99", *ROUND_TRIPS], [*rows, ratio])


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


def text(report: Report) -> str:
    """The whole report for a terminal."""
    lines: list[str] = [
        "{cpu}, {cores} cores, Linux {kernel}, Python {python};"
        " others used {others_share:.0%} of the cores meanwhile".format(**report.machine),
        "Medians of {rounds} interleaved rounds of {seconds} s per cell [smallest–largest];"
        " ring of {capacity_mib:g} MiB".format(**report.settings),
    ]
    lines += [f"absent: {name}: {reason}" for name, reason in report.absent.items()]
    for results in report.results:
        lines += [f"failed: {name}: {reason}" for name, reason in results.failed.items()]
        if results.rounds < report.settings["rounds"]:
            lines.append(
                f"cut short: {size_name(results.size)} after {results.rounds} rounds, for lack of time"
            )
        if results.rates:
            lines += ["", *throughput_table(results)]
        if results.trips:
            lines += ["", *round_trip_table(results)]
    if report.references:
        lines += ["", *reference_table(report)]
    if report.pingpong_us:
        lines.append(f"a cache line there and back, both cores spinning: {spread(report.pingpong_us)} µs")
    if report.recovery:
        recovery = report.recovery
        lines += [
            "",
            f"a get that a killed writer blocks goes on {spread(recovery.us)} µs after the kernel released",
            f"the dead one's lock (p99 {number(recovery.p99_us)} µs), or {spread(recovery.from_kill_us)} µs"
            f" after the call of kill(); {recovery.kills} kills",
        ]
    if report.attached:
        rows = [[str(item.others), spread(item.pair_ns)] for item in report.attached]
        lines += ["", *table(["other processes attached", "one put and one get, ns"], rows)]
    if goals := goals_of(report):
        rows = [[goal.text, goal.result, "met" if goal.met else "MISSED"] for goal in goals]
        lines += ["", *table(["goal", "result", ""], rows)]
    return "\n".join(lines)


def _cell(size: int, key: tuple[str, str, str], unit: str, medians: list[float]) -> dict[str, Any]:
    transport, reading, measure = key
    names = {"size": size, "transport": transport, "reading": reading, "measure": measure, "unit": unit}
    return {**names, **asdict(Spread.of(medians))}


def as_json(report: Report) -> dict[str, Any]:
    """Everything measured, with every sample."""
    cells: list[dict[str, Any]] = []
    for results in report.results:
        for key, rates in results.rates.items():
            cells.append({**_cell(results.size, key, "messages/s", rates), "samples": rates})
        for key, trips in results.trips.items():
            p99 = statistics.median(high for _, high in trips)
            cell = _cell(results.size, key, "µs", [p50 for p50, _ in trips])
            cells.append({**cell, "p99": p99, "samples": trips})
    return {
        "machine": report.machine,
        "settings": report.settings,
        "absent": report.absent,
        "rounds": {size_name(item.size): item.rounds for item in report.results},
        "failed": {size_name(item.size): item.failed for item in report.results if item.failed},
        "results": cells,
        "references": [asdict(item) for item in report.references],
        "pingpong_us": asdict(report.pingpong_us) if report.pingpong_us else None,
        "recovery": asdict(report.recovery) if report.recovery else None,
        "attached": [asdict(item) for item in report.attached],
        "goals": [asdict(goal) for goal in goals_of(report)],
    }
