"""What `make nightly` does with a seed that has failed: make its storm shorter, and keep it.

STORMS knows how to run a storm of a given seed and length. A failing one is made shorter by bisection, as
long as it fails in the same place; seed and length go to `tests/kit/kept.json`. In every run
`tests/simulation/test_kept.py` and `tests/torture/test_kept.py` replay them. A storm that is not in here, or
that does not fail again, is kept as a seed alone, which its own test replays (`slices.seeds`).
"""

from __future__ import annotations

import fcntl
import json
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.kit.broker import cluster, dispatch_storm
from tests.kit.broker import kills as broker_kills
from tests.kit.group import machine
from tests.kit.ledger import checks
from tests.kit.queue import storm as queue_storm
from tests.kit.server import kills as server_kills
from tests.kit.slices import all_kept, kept_file


@dataclass(frozen=True)
class Storm:
    """How to run a storm again."""

    run: Callable[[int, int], object]
    """By seed and length; raises what it finds."""
    length: int
    tries: int = 1
    """How often one is tried before it counts as sound: real processes do not repeat by their seed."""


# -- storms of real processes -------------------------------------------------------------------------

QUEUE_KILLS, BROKER_KILLS, SERVER_KILLS = 5000, 100, 40
"""How many kills a storm of the night has."""


def queue_plan(plan: queue_storm.Plan) -> Storm:
    def run(seed: int, kills: int) -> None:
        faults = queue_storm.run(replace(plan, seed=seed, kills=kills, seconds=120.0)).faults
        assert faults == [], faults

    return Storm(run, length=QUEUE_KILLS, tries=3)


def broker_plan(plan: broker_kills.Plan) -> Storm:
    def run(seed: int, kills: int) -> None:
        faults = broker_kills.run(replace(plan, seed=seed, kills=kills, seconds=120.0)).faults
        assert faults == [], faults

    return Storm(run, length=BROKER_KILLS, tries=3)


def server_plan(plan: server_kills.Plan) -> Storm:
    def run(seed: int, kills: int) -> None:
        faults = server_kills.run(replace(plan, seed=seed, kills=kills, seconds=120.0)).faults
        assert faults == [], faults

    return Storm(run, length=SERVER_KILLS, tries=2)


SIMULATED = {
    "group": Storm(lambda seed, tenths: machine.run(seed, seconds=tenths / 10), length=100),
    "brokers": Storm(lambda seed, tenths: cluster.run(seed, seconds=tenths / 10), length=120),
    "dispatch": Storm(dispatch_storm.storm, length=200),
    "store": Storm(lambda seed, lives: checks.power_cuts(seed, "group", lives), length=8),
    "store-kill": Storm(checks.a_kill_and_then_a_power_cut, length=8),
}
PROCESSES = {
    **{f"queue {plan.name}": queue_plan(plan) for plan in queue_storm.PLANS},
    **{f"broker {plan.name}": broker_plan(plan) for plan in broker_kills.PLANS},
    **{f"server {plan.name}": server_plan(plan) for plan in server_kills.PLANS},
}
STORMS = {**SIMULATED, **PROCESSES}


# -- making it shorter --------------------------------------------------------------------------------


def fault_of(storm: Storm, seed: int, length: int) -> str:
    """Return where a storm fails, as file and line; empty if it does not."""
    for _ in range(storm.tries):
        try:
            storm.run(seed, length)
        except (Exception, pytest.fail.Exception) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    return ""


def shortest(storm: Storm, seed: int) -> int | None:
    """Return the length at which a storm still fails in the same place; None if the whole does not fail."""
    fault = fault_of(storm, seed, storm.length)
    if not fault:
        return None
    sound, failing = 0, storm.length
    while failing - sound > 1:
        middle = (sound + failing) // 2
        if fault_of(storm, seed, middle) == fault:
            failing = middle
        else:
            sound = middle
    return failing


def keep(name: str, seed: int) -> str:
    """Reduce a failing storm and write it down; return what was kept, in words."""
    storm = STORMS.get(name)
    length = None if storm is None else shortest(storm, seed)
    if storm is not None and length is None and storm.tries > 1:
        length = storm.length  # of real processes, which need not fail again: kept whole
    entry: int | list[int] = seed if length is None else [seed, length]
    path = kept_file()
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = json.load(file)
        if entry not in known.setdefault(name, []):
            known[name].append(entry)
        file.seek(0)
        file.truncate()
        json.dump(known, file, indent=2, sort_keys=True)
        file.write("\n")
    if length is None:
        return f"{name}: seed {seed}"
    return f"{name}: seed {seed}, length {length} of {STORMS[name].length}"


def replay(storms: dict[str, Storm]) -> Iterator[tuple[str, int, int, str]]:
    """Run what is kept of these storms; yield name, seed, length and the fault of each, empty if sound."""
    for name, entries in sorted(all_kept().items()):
        for entry in entries:
            if name in storms and not isinstance(entry, int):
                seed, length = entry
                yield name, seed, length, fault_of(storms[name], seed, length)
