"""What the server's benchmark says: tables, the goals with met or missed, and the same as JSON."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from bench.figures import Spread
from bench.report import table
from bench.server_figures import Key, Report, Sample, goals_of
from bench.units import number, size_name, spread

MEASURES = ("publish", "publish batched", "consume")


def rates_table(report: Report, size: int) -> list[str]:
    """Per contestant and generator: messages a second, and µs of the server's CPU (own + system) for each."""
    rows = []
    pairs = dict.fromkeys((key.contestant, key.generator) for key in report.samples if key.size == size)
    for contestant, generator in pairs:
        cells = [contestant if generator == "frames" else f"{contestant}, official client"]
        for measure in MEASURES:
            samples = report.samples.get(Key(contestant, generator, measure, size))
            cells.append(_cell(samples) if samples else "–")
        rows.append(cells)
    head = [f"{size_name(size)}, messages/s; server's own + system CPU, µs each", *MEASURES]
    return table(head, rows)


def _cell(samples: list[Sample]) -> str:
    rate = spread(Spread.of([each.rate for each in samples]))
    user = statistics.median(each.user_us for each in samples)
    system = statistics.median(each.system_us for each in samples)
    return f"{rate}; {user:.2f} + {system:.2f}"


def idle_table(report: Report) -> list[str]:
    rows = []
    for name, found in report.idle.items():
        rows.append(
            [
                name,
                f"{statistics.median(each.start_s for each in found):.2f}",
                f"{statistics.median(each.start_cpu_s for each in found):.2f}",
                f"{max(each.resident_bytes for each in found) / 1e6:.0f}",
                f"{statistics.median(each.busy for each in found):.2%}",
                report.durability.get(name, ""),
            ]
        )
    return table(
        ["", "start to first publish, s", "CPU, s", "idle RSS, MB", "idle CPU", "what a confirmation means"],
        rows,
    )


def latency_table(report: Report) -> list[str]:
    rows = [[name, *_times(times)] for name, times in report.latencies.items()]
    if report.syncs:
        rows.append(["one fdatasync", *_times(report.syncs)])
    if report.plain:
        rows.append(["a plain program: receive, write, fdatasync, answer", *_times(report.plain)])
    return table(["1,000 messages a second, 100 B, µs until confirmed", "p50", "p99"], rows)


def _times(times: list[tuple[float, float]]) -> list[str]:
    return [spread(Spread.of([pair[at] for pair in times])) for at in (0, 1)]


def text(report: Report) -> str:
    """The whole report for a terminal."""
    lines = [
        "{cpu}, {cores} cores, Linux {kernel}, Python {python}, {file_system};"
        " others used {others_share:.0%} of the cores meanwhile".format(**report.machine),
        "Medians of {rounds} interleaved rounds [smallest–largest]. One connection; a load generator in"
        " Python with plain sockets and frames encoded beforehand, up to {window} messages unanswered;"
        " batches of {batch}".format(**report.settings),
    ]
    lines += [f"absent: {name}: {reason}" for name, reason in report.absent.items()]
    lines += [f"failed: {name}: {reason}" for name, reason in report.failed.items()]
    for size in sorted({key.size for key in report.samples}):
        lines += ["", *rates_table(report, size)]
    if report.idle:
        lines += ["", *idle_table(report)]
    if report.latencies:
        lines += ["", *latency_table(report)]
    if goals := goals_of(report):
        rows = [[goal.text, goal.result, "met" if goal.met else "MISSED"] for goal in goals]
        lines += ["", *table(["goal", "result", ""], rows)]
    return "\n".join(lines)


def as_json(report: Report) -> dict[str, Any]:
    """Everything measured, with every sample."""
    return {
        "machine": report.machine,
        "settings": report.settings,
        "durability": report.durability,
        "absent": report.absent,
        "failed": report.failed,
        "samples": [
            {
                **asdict(key),
                "rate": number(statistics.median(each.rate for each in samples)),
                "samples": [
                    {
                        **asdict(each),
                        "rate": each.rate,
                        "user_us": each.user_us,
                        "system_us": each.system_us,
                    }
                    for each in samples
                ],
            }
            for key, samples in report.samples.items()
        ],
        "idle": {name: [asdict(each) for each in found] for name, found in report.idle.items()},
        "latencies_us": report.latencies,
        "fdatasync_us": report.syncs,
        "plain_us": report.plain,
        "goals": [asdict(goal) for goal in goals_of(report)],
    }
