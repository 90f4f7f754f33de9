"""`make torture ARGS=--months`: long runs in which everything comes and goes, and no figure may grow.

    python -m tests.kit.torture --months --minutes 30
    python -m tests.kit.torture --months --rounds 500 --plan server

Each plan plays rounds (see tests/kit/growth) for its share of the time, and prints a table: each figure at
the beginning and at the end, its slope, and whether it grows. Ends with status 1 if one does.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.kit.growth import queue, server, simulated
from tests.kit.growth.figures import Run

ROUNDS = 100
"""Of each plan, if neither rounds nor minutes are given."""
WARM_UP = 30
"""Rounds: pools and caches of a process are full after some twenty."""
PLANS: dict[str, Callable[[Path, Iterable[int], int], Run]] = {
    "server": server.months,
    "queues": queue.months,
    "simulated": simulated.months,
}


def rounds_of(options: argparse.Namespace, plans: int) -> Iterator[int]:
    """Count rounds until their number, or the plan's share of the time, is reached."""
    if options.minutes is None:
        yield from range(options.rounds or ROUNDS)
        return
    end = time.monotonic() + options.minutes * 60 / plans
    for number in itertools.count():
        if time.monotonic() >= end and number > 3 * WARM_UP:
            return
        yield number


def torture_months(options: argparse.Namespace) -> int:
    """Play each plan; return the exit status."""
    if options.minutes is None and (options.rounds or ROUNDS) < 3 * WARM_UP:
        raise SystemExit(
            f"torture: --rounds {options.rounds} is too few to tell a slope; give at least {3 * WARM_UP}"
        )
    plans = [name for name in PLANS if options.plan in (None, name)]
    if not plans:
        raise SystemExit(f"torture: no plan {options.plan!r} here; choose one of {sorted(PLANS)}")
    growing = []
    for name in plans:
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-months.") as directory:
            run = PLANS[name](Path(directory), rounds_of(options, len(plans)), WARM_UP)
        print(run.table(), flush=True)
        growing += [f"{name}: {each.name}" for each in run.growing()]
    print(f"FAULTS: {'; '.join(growing)} grows" if growing else "No figure grows.")
    return 1 if growing else 0
