"""The measurement of partitions runs and prints; speed is not tested."""

from __future__ import annotations

from bench import partitions


def test_measure() -> None:
    rounds = [(partitions.apart(3, True), partitions.apart(3, False))]
    lines = partitions.report(3, rounds)
    assert lines[0].split("  ")[-1].strip() == "3 topics"
    assert len(lines) == 3 + 2 * len(partitions.STEPS) + 1 + 2 + len(partitions.STEPS) + 1
    assert "memory: at most 1.25× of topics" in lines[-1]
