"""Reduce and keep a seed that has failed in `make nightly`.

STORMS knows how to run a storm of a given seed and length. A failing one is made shorter by bisection, as
long as it fails in the same place. Seed and length go to `tests/kit/kept.json` (`tests/kit/kept.py`).
`tests/simulation/test_kept.py` and `tests/torture/test_kept.py` replay them in every run, and those
WITH_SPARK at night. A storm that is not in here, or that does not fail again, is kept as a seed alone, which
its own test replays (`slices.seeds`).

Each trial runs in its own process, because a storm may crash it or hang. The seed is written down first.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.kit import kept
from tests.kit.broker import cluster, dispatch_storm, exchange_cluster, movers, owners, takers
from tests.kit.broker import kills as broker_kills
from tests.kit.cluster import on_corosync
from tests.kit.cluster import storm as joining
from tests.kit.group import machine, totem
from tests.kit.growth import months
from tests.kit.ledger import checks
from tests.kit.queue import storm as queue_storm
from tests.kit.server import kills as server_kills
from tests.kit.slices import NIGHTLY

HANGS_S = 600.0
"""A storm of the night that takes longer by the clock hangs."""
REDUCING_S = 3600.0
"""The time for reducing a storm; then it stays as short as it is."""


@dataclass(frozen=True)
class Storm:
    """A storm that can be run again."""

    run: Callable[[int, int], object]
    """Called with seed and length; raises the faults."""
    length: int
    tries: int = 1
    """How often it is tried before it counts as sound: real processes do not repeat by their seed."""
    own_test: bool = True
    """A test of its own takes its seeds from `slices.seeds`, and replays those that were not reduced."""


# -- storms of real processes -------------------------------------------------------------------------

QUEUE_KILLS, BROKER_KILLS, SERVER_KILLS = 5000, 100, 40
"""The kills of a storm of the night."""


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


# -- storms around Spark; their modules import Spark, so they are imported when needed --------------------

SINK_LIVES, SINK_LIVES_WITH_SPARK, SINK_STRIKES = 40, 5, 21
SOURCE_ROUNDS, SOURCE_MESSAGES = 10, 80


def sink_plan(name: str, length: int) -> Storm:
    def run(seed: int, length: int) -> None:
        from tests.kit.spark import sink_kill

        faults = sink_kill.PLANS[name](seed, length).faults
        assert faults == [], faults

    return Storm(run, length, tries=2, own_test=False)


def source_plan(name: str) -> Storm:
    def run(seed: int, rounds: int) -> None:
        from tests.kit.spark import source_storm

        with tempfile.TemporaryDirectory() as folder:
            faults = source_storm.PLANS[name](Path(folder), seed, rounds, SOURCE_MESSAGES).faults
        assert faults == [], faults

    return Storm(run, length=SOURCE_ROUNDS, tries=2, own_test=False)


def months_plan(name: str) -> Storm:
    """Return a storm of rounds without a seed; the fewest show that a figure grows."""

    def run(_: int, rounds: int) -> None:
        months.play(name, range(rounds), min(months.WARM_UP, rounds // 3)).require_level()

    return Storm(run, length=months.ROUNDS, tries=2, own_test=False)


SIMULATED = {
    "group": Storm(lambda seed, tenths: machine.run(seed, seconds=tenths / 10), length=100),
    "brokers": Storm(lambda seed, tenths: cluster.run(seed, seconds=tenths / 10), length=120),
    "brokers, every fault": Storm(
        lambda seed, tenths: cluster.everything(seed, seconds=tenths / 10), length=60
    ),
    "joining": Storm(lambda seed, tenths: joining.run(seed, seconds=tenths / 10), length=40),
    "everything": Storm(lambda seed, tenths: owners.everything(seed, tenths / 10), length=40),
    "exchanges": Storm(lambda seed, tenths: exchange_cluster.run(seed, seconds=tenths / 10), length=60),
    "exchanges, every fault": Storm(
        lambda seed, tenths: exchange_cluster.everything(seed, tenths / 10), length=60
    ),
    "moving producers": Storm(lambda seed, tenths: movers.run(seed, tenths / 10), length=60),
    "takers": Storm(takers.run, length=8),
    "cpg": Storm(lambda seed, tenths: totem.run_on_totem(seed, seconds=tenths / 10), length=100),
    "brokers on cpg": Storm(lambda seed, tenths: on_corosync.brokers(seed, tenths / 10), length=40),
    "owners on cpg": Storm(lambda seed, tenths: on_corosync.owners_of(seed, tenths / 10), length=40),
    "joining on cpg": Storm(lambda seed, tenths: on_corosync.joins(seed, tenths / 10), length=40),
    "dispatch": Storm(dispatch_storm.storm, length=200),
    "store": Storm(lambda seed, lives: checks.power_cuts(seed, "group", lives), length=8),
    "store-kill": Storm(checks.a_kill_and_then_a_power_cut, length=8),
}
PROCESSES = {
    **{f"queue {plan.name}": queue_plan(plan) for plan in queue_storm.PLANS},
    **{f"broker {plan.name}": broker_plan(plan) for plan in broker_kills.PLANS},
    **{f"server {plan.name}": server_plan(plan) for plan in server_kills.PLANS},
    "sink simulated": sink_plan("simulated", SINK_LIVES),
    **{f"source {by}": source_plan(by) for by in ("path", "url")},
    **{f"months {name}": months_plan(name) for name in months.PLANS},
}
WITH_SPARK = {
    "sink spark": sink_plan("spark", SINK_LIVES_WITH_SPARK),
    **{f"sink {name}": sink_plan(name, SINK_STRIKES) for name in ("every step", "every step, batches")},
    **{f"source {by}, spark": source_plan(f"{by}, spark") for by in ("path", "url")},
}
"""Each starts a Java of its own: `make nightly` replays the kept ones."""
STORMS = {**SIMULATED, **PROCESSES, **WITH_SPARK}
ITSELF = ("hostile",)
"""Storms that keep the case that failed (`tests/kit/queue/fuzz.py`), not the seed that led to it."""


# -- making it shorter --------------------------------------------------------------------------------

SOUND = "sound"


def fault_of(storm: Storm, seed: int, length: int, tries: int = 1) -> str:
    """Return file and line where a storm fails; empty if it does not."""
    for _ in range(tries):
        try:
            storm.run(seed, length)
        except (Exception, pytest.fail.Exception) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    return ""


def fault_apart(name: str, storm: Storm, seed: int, length: int, hangs_s: float = HANGS_S) -> str:
    """Like `fault_of`, in its own process; a crash or a hang is a fault, too."""
    reading, writing = os.pipe()
    pid = started(writing, name, storm, seed, length)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        ended = bool(select.select([told], [], [], hangs_s)[0])
        fault = os.read(reading, 4096).decode() if ended else "hangs"
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # with all processes that it started
    os.waitpid(pid, 0)
    return "" if fault == SOUND else fault or "the process crashed"


def started(writing: int, name: str, storm: Storm, seed: int, length: int) -> int:
    """Start a process that writes the fault; return its id, which is its group's, too."""
    if storm.tries > 1:  # the parent may have threads of libraries that do not survive a fork
        words = ["-m", "tests.kit.nightly", str(writing), name, str(seed), str(length)]
        os.set_inheritable(writing, True)
        return os.posix_spawn(sys.executable, [sys.executable, *words], os.environ, setsid=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.write(writing, (fault_of(storm, seed, length) or SOUND).encode())
        finally:
            os._exit(0)
    return pid


def shortest(name: str, storm: Storm, seed: int, hangs_s: float = HANGS_S) -> int | None:
    """Return the shortest length that fails in the same place; None if no failure repeats."""
    limit = time.monotonic() + REDUCING_S
    fault = fault_apart(name, storm, seed, storm.length, hangs_s)
    if not fault:
        return None
    sound, failing = 0, storm.length
    while failing - sound > 1 and time.monotonic() < limit:
        middle = (sound + failing) // 2
        if fault_apart(name, storm, seed, middle, hangs_s) == fault:
            failing = middle
        else:
            sound = middle
    return failing


def keep(name: str, seed: int, reduce: bool = True) -> str:
    """Reduce a failing storm and keep it; return the kept entry in words."""
    if name in ITSELF:
        return f"{name}: the cases of seed {seed}, by the fuzzer itself"
    kept.add(name, seed)
    storm = STORMS.get(name) if reduce else None
    length = None if storm is None else shortest(name, storm, seed)
    if storm is not None and length is None and storm.tries > 1:
        length = storm.length  # of real processes, which may not fail again: kept whole
    if storm is None or length is None:
        return f"{name}: seed {seed}"
    kept.add(name, [seed, length], instead=seed)
    return f"{name}: seed {seed}, length {length} of {storm.length}"


def replay(storms: dict[str, Storm]) -> Iterator[tuple[str, int, int, str]]:
    """Run the kept storms; yield name, seed, length and fault of each, empty if sound."""
    for name, entries in sorted(kept.load().items()):
        for entry in entries:
            storm = storms.get(name)
            if storm is not None and isinstance(entry, list if storm.own_test else (list, int)):
                seed, length = entry if isinstance(entry, list) else (entry, storm.length)
                tries = storm.tries if NIGHTLY else 1
                yield name, seed, length, fault_of(storm, seed, length, tries)


def main() -> None:
    """Run a storm for `fault_apart`."""
    writing, name, seed, length = sys.argv[1:]
    storm = STORMS[name]
    os.set_inheritable(int(writing), False)
    told = fault_of(storm, int(seed), int(length), storm.tries) or SOUND
    os.write(int(writing), told.encode())


if __name__ == "__main__":
    main()
