"""Plans of long runs in which everything comes and goes: `make torture ARGS=--months`.

A plan has no random input: growth repeats in every run of the same length.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.kit.growth import queue, server, simulated
from tests.kit.growth.figures import Run

ROUNDS = 100
"""Rounds of each plan, if neither rounds nor minutes are given."""
WARM_UP = 30
"""Rounds after which the pools and caches of a process are full."""
LEAST_ROUNDS = 3 * WARM_UP
"""The least rounds for a slope."""
PLANS: dict[str, Callable[[Path, Iterable[int], int], Run]] = {
    "server": server.months,
    "queues": queue.months,
    "simulated": simulated.months,
}


def play(name: str, rounds: Iterable[int], warm_up: int = WARM_UP) -> Run:
    """Run rounds of a plan in its own directory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-months.") as directory:
        return PLANS[name](Path(directory), rounds, warm_up)
