"""Plans of long runs in which everything comes and goes: `make torture ARGS=--months`.

A plan has no random input: what grows in it grows again in every run that is as long.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.kit.growth import queue, server, simulated
from tests.kit.growth.figures import Run

ROUNDS = 100
"""Of each plan, if neither rounds nor minutes are given."""
WARM_UP = 30
"""Rounds: pools and caches of a process are full after some twenty."""
LEAST_ROUNDS = 3 * WARM_UP
"""Fewer do not tell a slope."""
PLANS: dict[str, Callable[[Path, Iterable[int], int], Run]] = {
    "server": server.months,
    "queues": queue.months,
    "simulated": simulated.months,
}


def play(name: str, rounds: Iterable[int], warm_up: int = WARM_UP) -> Run:
    """Play rounds of a plan in a directory of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-months.") as directory:
        return PLANS[name](Path(directory), rounds, warm_up)
