"""The figures of one run of the server's benchmark, and its goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import figures
from bench.figures import Goal, Spread, number, size_name, spread, table

OURS = "holdfast serve"
MEASURES = ("publish", "publish batched", "consume")
PUBLISH_US, CONSUME_US = 1.5, 2.0
START_S, IDLE_BYTES, IDLE_SHARE = 1.0, 80_000_000, 0.01
SYNC_TIMES = 3.0
RATE = 1000.0
"""Messages a second for latencies."""


@dataclass(frozen=True)
class Sample:
    """One measurement. Processor time of the server is split into user and system."""

    messages: int
    seconds: float
    user_s: float
    system_s: float
    client_s: float = 0.0
    """Processor time of the official client, if it was the generator."""

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def user_us(self) -> float:
        return self.user_s / self.messages * 1e6

    @property
    def system_us(self) -> float:
        return self.system_s / self.messages * 1e6


@dataclass(frozen=True)
class Key:
    """The contestant, generator, measure and size of a sample."""

    contestant: str
    generator: str
    """"frames": pre-encoded frames; "client": the official client."""
    measure: str
    """ "publish", "publish batched", "consume"."""
    size: int


@dataclass(frozen=True)
class Idle:
    """A server without clients."""

    start_s: float
    """From its start to the first confirmed publish."""
    start_cpu_s: float
    """Processor time until then: the start time on an otherwise idle machine."""
    resident_bytes: int
    busy: float
    """Share of one core without requests."""


@dataclass
class Report(figures.Report):
    """All figures of one run."""

    durability: dict[str, str] = field(default_factory=dict)
    samples: dict[Key, list[Sample]] = field(default_factory=dict)
    idle: dict[str, list[Idle]] = field(default_factory=dict)
    latencies: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """µs until confirmed at 1,000 a second, median and p99 of each round."""
    syncs: list[tuple[float, float]] = field(default_factory=list)
    """µs of one fdatasync at the same pace on the same disk, median and p99 of each round."""

    plain: list[tuple[float, float]] = field(default_factory=list)
    """The same for a program that only receives, writes, syncs and answers."""

    def add(self, key: Key, sample: Sample) -> None:
        self.samples.setdefault(key, []).append(sample)

    def median(self, key: Key, what: str) -> float | None:
        found = self.samples.get(key)
        return statistics.median(getattr(each, what) for each in found) if found else None

    ABOUT = (
        "Medians of {rounds} interleaved rounds [smallest–largest]. One connection; a load generator in"
        " Python with plain sockets and frames encoded beforehand, up to {window} messages unanswered;"
        " batches of {batch}"
    )

    def tables(self) -> Iterator[Sequence[str]]:
        for size in sorted({key.size for key in self.samples}):
            yield rates_table(self, size)
        if self.idle:
            yield idle_table(self)
        if self.latencies:
            yield latency_table(self)

    def goals(self) -> Iterator[Goal]:
        yield from (*_cpu(self), *_idle(self), *_limit(self), *_latency(self))

    def figures(self) -> dict[str, Any]:
        return {
            "durability": self.durability,
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
                for key, samples in self.samples.items()
            ],
            "idle": {name: [asdict(each) for each in found] for name, found in self.idle.items()},
            "latencies_us": self.latencies,
            "fdatasync_us": self.syncs,
            "plain_us": self.plain,
        }


def rates_table(report: Report, size: int) -> list[str]:
    """Return a table: messages a second, and the server's CPU per message (user + system)."""
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


def _cpu(report: Report) -> Iterator[Goal]:
    for measure, limit, words in (
        ("publish", PUBLISH_US, "publish, unbatched"),
        ("consume", CONSUME_US, "Shared consume with individual acks"),
    ):
        for key, samples in report.samples.items():
            if (key.contestant, key.generator, key.measure) == (OURS, "frames", measure):
                found = Spread.of([each.user_us for each in samples])
                text = f"{words}, {key.size} B: under {limit} µs of the server's own CPU"
                told = f"{found.median:.2f} µs [{found.low:.2f}–{found.high:.2f}]"
                yield Goal(text, told, found.median < limit)


def _idle(report: Report) -> Iterator[Goal]:
    if found := report.idle.get(OURS):
        start = Spread.of([each.start_s for each in found])
        cpu = statistics.median(each.start_cpu_s for each in found)
        told = f"{start.median:.2f} s [{start.low:.2f}–{start.high:.2f}], {cpu:.2f} s of it CPU"
        yield Goal(f"start to first accepted publish under {START_S:.0f} s", told, start.median < START_S)
        most = max(each.resident_bytes for each in found)
        yield Goal("idle RSS under 80 MB", f"{most / 1e6:.1f} MB", most < IDLE_BYTES)
        busy = statistics.median(each.busy for each in found)
        yield Goal("idle CPU under 1 %", f"{busy:.2%}", busy < IDLE_SHARE)


def _limit(report: Report) -> Iterator[Goal]:
    """Say which side was busy, and so the limit. Frames show the server's limit."""
    key = Key(OURS, "client", "publish batched", 1024)
    samples = report.samples.get(key)
    frames = report.median(Key(OURS, "frames", "publish batched", 1024), "rate")
    if not samples or frames is None:
        return
    server = statistics.median((each.user_s + each.system_s) / each.seconds for each in samples)
    client = statistics.median(each.client_s / each.seconds for each in samples)
    rate = statistics.median(each.rate for each in samples)
    told = (
        f"client {number(rate)}/s at {client:.0%} of a core, server at {server:.0%};"
        f" with frames {number(frames)}/s"
    )
    text = "1 KiB batched: the client, not the server, is the limit"
    yield Goal(text, told, frames > rate and client > server)


def _latency(report: Report) -> Iterator[Goal]:
    if report.syncs and (times := report.latencies.get(OURS)):
        ours = statistics.median(p99 for _, p99 in times)
        sync = statistics.median(p99 for _, p99 in report.syncs)
        middle = statistics.median(p50 for p50, _ in times)
        sync50 = statistics.median(p50 for p50, _ in report.syncs)
        told = (
            f"{ours / sync:.1f}×: p99 {number(ours)} µs to {number(sync)} µs;"
            f" medians {number(middle)} µs to {number(sync50)} µs"
        )
        if report.plain:
            plain = statistics.median(p99 for _, p99 in report.plain)
            told += f"; a plain program {plain / sync:.1f}×"
        text = f"publish p99 within {SYNC_TIMES:.0f}× of one fdatasync's, at 1,000 messages a second"
        yield Goal(text, told, ours <= SYNC_TIMES * sync)
