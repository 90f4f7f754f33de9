"""The account of a run: every frame and every buffer is in exactly one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from examples.acquisition.acquire import Report
from holdfast import ChannelStats


@dataclass(frozen=True)
class Account:
    """Frames and buffers at the end of a run."""

    report: Report
    analysed: list[int]
    """The numbers that analysing processes wrote down, in this order."""
    displaced: list[int]
    """The numbers that came back to the producer."""
    kills: int
    stats: ChannelStats
    damage: list[str]
    """The faults that `Loop.check()` found."""

    @property
    def lost(self) -> int:
        """Frames that an analysing process had when it was killed."""
        return self.report.acquired - len({*self.analysed, *self.displaced})

    @property
    def leaked(self) -> int:
        """Buffers that are neither free nor in a ring."""
        stats = self.stats
        return stats.buffers - stats.free - stats.returning - stats.ready

    def faults(self) -> list[str]:
        """Return everything that must not be, in words."""
        both = {*self.analysed} & {*self.displaced}
        strange = {*self.analysed, *self.displaced} - {*range(self.report.acquired)}
        found = {
            f"{self.leaked} buffers leaked": self.leaked != 0,
            f"{self.stats.ready} frames are still in the ring": self.stats.ready != 0,
            "a frame was analysed twice": len({*self.analysed}) != len(self.analysed),
            "a frame was displaced twice": len({*self.displaced}) != len(self.displaced),
            "frames were analysed out of order": self.analysed != sorted(self.analysed),
            f"frames were analysed and displaced: {sorted(both)[:5]}": bool(both),
            f"frames were never acquired: {sorted(strange)[:5]}": bool(strange),
            f"{self.lost} frames were lost by {self.kills} kills": self.lost > self.kills,
            f"the channel missed {self.report.missed_by_channel} deadlines": self.report.missed_by_channel
            > 0,
            f"loan and push waited {self.report.waits} times": self.report.waits > 0,
        }
        return [words for words, wrong in found.items() if wrong] + self.damage

    def lines(self, rate: float) -> list[str]:
        """Return the account in words."""
        report, stats = self.report, self.stats
        rows: list[tuple[str, Any, str]] = [
            ("frames acquired", report.acquired, f"one each {1000 / rate:g} ms"),
            ("analysed", len(self.analysed), "each once, in order"),
            ("displaced", len(self.displaced), "newer frames took their places in the ring"),
            ("lost", self.lost, "an analysing process had them when it was killed"),
            ("kills", self.kills, "of the analysing process, with SIGKILL"),
            ("deadlines missed", report.missed_by_channel, "by the channel: its calls computed or waited"),
            ("", report.missed_by_kernel, "not by the channel: woken late, or the processor taken away"),
            ("waits", report.waits, "inside loan and push"),
            ("preemptions", report.preempted, "inside loan and push, by the kernel"),
            ("buffers", stats.buffers, f"{stats.free} free, {stats.returning} on the way back"),
            ("buffers leaked", self.leaked, ""),
        ]
        times = (
            ("loan, fill, push", report.path_ns),
            ("loan, push", report.calls_ns),
            ("  processor time", report.processor_ns),
            ("woken late by", report.woken_late_ns),
        )
        return [
            *(f"{name:18} {count:>9,}   {words}".rstrip() for name, count, words in rows),
            *(f"{name:18} {words_of(values)}" for name, values in times),
        ]


def words_of(values: list[int]) -> str:
    """Return median, 99th percentile and the longest time of some nanoseconds."""
    ordered = sorted(values) or [0]
    ranks = (("p50", 0.5), ("p99", 0.99), ("worst", 1.0))
    return "   ".join(
        f"{name} {ordered[min(len(ordered) - 1, int(rank * len(ordered)))] / 1000:>9,.1f} µs"
        for name, rank in ranks
    )
