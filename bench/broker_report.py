"""What the broker's benchmark says: tables, the goals with met or missed, and the same as JSON."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from bench.broker_figures import COST_MEASURES, PLAINS, Cost, Report, Throughput, goals_of
from bench.broker_peers import PEERS
from bench.broker_stations import Sample
from bench.figures import OURS, Spread
from bench.report import table
from bench.units import number, size_name, spread

MEASURES = ("publish", "consume", "consume and ack", "ack with receipt", "both at once")


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
    """How the broker's own rounds looked, which the plain program repeats."""
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
        rows.append(cells)
    head = ["µs per entry beside"]
    for measure in COST_MEASURES:
        head += [f"{measure}, CPU", "elapsed"]
    return table(head, rows)


def scale_lines(report: Report) -> list[str]:
    lines: list[str] = []
    if report.openings:
        rows = [
            [
                f"{number(each.entries)} entries, {each.stop}",
                f"{each.seconds.median:.3f} [{each.seconds.low:.3f}–{each.seconds.high:.3f}]",
                f"{each.redone:,}",
                f"{each.memory_bytes / 1e6:.1f}",
            ]
            for each in report.openings
        ]
        lines += ["", *table(["opening after a stop", "seconds", "events done again", "MB of memory"], rows)]
    if report.seeks:
        rows = [
            [
                f"{number(each.entries)} entries, by {each.by}{', from the disk' if each.cold else ''}",
                number(each.p50_us),
                number(each.p99_us),
            ]
            for each in sorted(report.seeks, key=lambda each: (each.cold, each.by, each.entries))
        ]
        lines += ["", *table(["seek, and the first message from there, µs", "p50", "p99"], rows)]
    if report.holes:
        rows = [
            [f"{number(each.number)}, {each.pattern}", f"{each.memory_bytes / 1e6:.2f}"]
            for each in report.holes
        ]
        lines += ["", *table(["single acknowledgements (holes)", "MB of memory"], rows)]
    return lines


def text(report: Report) -> str:
    """The whole report for a terminal."""
    lines = [
        "{cpu}, {cores} cores, Linux {kernel}, Python {python}, {file_system};"
        " others used {others_share:.0%} of the cores meanwhile".format(**report.machine),
        "Medians of {rounds} interleaved rounds [smallest–largest]; batches of {batch},"
        " {window} under way".format(**report.settings),
    ]
    lines += [f"absent: {name}: {reason}" for name, reason in report.absent.items()]
    lines += [f"failed: {name}: {reason}" for name, reason in report.failed.items()]
    for found in report.throughput:
        if found.samples:
            lines += ["", *throughput_table(found)]
            if line := rounds_line(found):
                lines.append(line)
        if found.singles:
            lines += ["", *singles_table(found)]
    if report.costs:
        lines += ["", *cost_table(report.costs)]
    lines += scale_lines(report)
    if goals := goals_of(report):
        rows = [[goal.text, goal.result, "met" if goal.met else "MISSED"] for goal in goals]
        lines += ["", *table(["goal", "result", ""], rows)]
    return "\n".join(lines)


def _sample(sample: Sample) -> dict[str, Any]:
    return {**asdict(sample), "rate": sample.rate}


def as_json(report: Report) -> dict[str, Any]:
    """Everything measured, with every sample."""
    return {
        "machine": report.machine,
        "settings": report.settings,
        "absent": report.absent,
        "failed": report.failed,
        "throughput": [
            {
                "size": found.size,
                "contestant": name,
                "measure": measure,
                **asdict(Spread.of([each.rate for each in samples])),
                "samples": [_sample(each) for each in samples],
            }
            for found in report.throughput
            for (name, measure), samples in found.samples.items()
        ],
        "singles": [
            {"size": found.size, "contestant": name, "samples_us": times}
            for found in report.throughput
            for name, times in found.singles.items()
        ],
        "shares": [
            {"size": found.size, "of": name, "samples": found.shares(name)}
            for found in report.throughput
            for name in PLAINS
            if found.shares(name)
        ],
        "costs": [
            {
                **asdict(cost.condition),
                "measure": measure,
                "cpu_us": asdict(cost.cpu_us(measure)),
                "wall_us": asdict(cost.wall_us(measure)),
                "samples": [_sample(each) for each in samples],
            }
            for cost in report.costs
            for measure, samples in cost.samples.items()
        ],
        "openings": [asdict(each) for each in report.openings],
        "seeks": [asdict(each) for each in report.seeks],
        "holes": [asdict(each) for each in report.holes],
        "goals": [asdict(goal) for goal in goals_of(report)],
    }
