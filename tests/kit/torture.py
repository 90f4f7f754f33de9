"""`make torture`: run kill storms (kit/queue/storm.py) one after another.

    python -m tests.kit.torture --kills 100000                                # on the queue
    python -m tests.kit.torture --minutes 30 --plan "stall limit" --seed 7    # one plan, from a seed on
    python -m tests.kit.torture --broker --minutes 30                         # or --server, --sink, --source
    python -m tests.kit.torture --cluster --minutes 30                        # simulated: any number of seeds
    python -m tests.kit.torture --months --rounds 500 --plan server           # no figure may grow

It prints each storm's account and, at the end, the sum. It ends with status 1 at the first fault.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tests.kit import nightly, running
from tests.kit.broker import kills as broker_kills
from tests.kit.growth import months
from tests.kit.queue import storm
from tests.kit.server import kills as server_kills
from tests.kit.slices import NIGHTLY, base
from tests.kit.spark import sink_kill, source_storm

P = TypeVar("P")
COUNTS = (
    "kills",
    "stops",
    "put",
    "delivered",
    "redelivered",
    "recovered",
    "fenced",
    "buried",
    "given_up",
    "lost",
)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Kill storms on the queue; every message is accounted for.")
    parser.add_argument("--kills", type=int, default=20_000, help="end after this many kills (default 20000)")
    parser.add_argument("--minutes", type=float, help="end after this time instead")
    parser.add_argument("--round", type=int, default=1000, help="kills of one storm (default 1000)")
    parser.add_argument(
        "--seed", type=int, help="of the first storm; the next has the next (default: random)"
    )
    parser.add_argument("--plan", help="only this kind of storm")
    parser.add_argument("--broker", action="store_true", help="on a broker's directory, not on a queue")
    parser.add_argument("--server", action="store_true", help="on a server, with clients that come back")
    parser.add_argument("--cluster", action="store_true", help="on simulated clusters; a seed repeats")
    parser.add_argument("--sink", action="store_true", help="on Spark's driver and workers, and the broker")
    parser.add_argument("--source", action="store_true", help="no kills: compare Spark with the client")
    parser.add_argument(
        "--months", action="store_true", help="create and delete for long: no figure may grow"
    )
    parser.add_argument("--rounds", type=int, help="with --months: rounds of each plan (default 100)")
    parser.add_argument(
        "--keep", help="with --broker, --server: copy the directory of a storm with faults there"
    )
    return parser.parse_args()


def main() -> int:
    options = parsed()
    kinds = {
        "server": torture_server,
        "sink": torture_sink,
        "source": torture_source,
        "broker": torture_broker,
        "cluster": torture_cluster,
        "months": torture_months,
    }
    torture = next((kinds[kind] for kind in kinds if getattr(options, kind)), torture_queue)
    try:
        return torture(options)
    except Exception:
        if not at:
            raise
        return told(*at[0], [traceback.format_exc()])
    finally:
        for note in notes:
            note.close()


at: list[tuple[str, int]] = []
"""Name and seed of the running storm."""
notes: list[running.Writer] = []


def begin(storm: str, seed: int) -> None:
    """Note which storm starts: a night keeps it if it fails, crashes or hangs."""
    at[:] = [(storm, seed)]
    if NIGHTLY:
        notes.extend([] if notes else [running.Writer()])
        notes[0].write(running.TORTURE, storm, seed)


def chosen(plans: Sequence[P], options: argparse.Namespace) -> list[P]:
    """Return the plans, or the one with the requested name."""
    if options.plan is None:
        return list(plans)
    named: dict[Any, P] = {getattr(plan, "name", plan): plan for plan in plans}
    if options.plan not in named:
        raise SystemExit(f"torture: no plan {options.plan!r} here; choose one of {sorted(named)}")
    return [named[options.plan]]


def begun(options: argparse.Namespace) -> tuple[int, float, int]:
    """Return the first seed, the time limit, and the number of kills."""
    chosen_seed = base() if NIGHTLY else random.SystemRandom().getrandbits(20)
    seed = chosen_seed if options.seed is None else int(options.seed)
    if options.minutes:
        return seed, time.monotonic() + options.minutes * 60, sys.maxsize
    return seed, float("inf"), options.kills


def told(storm: str, seed: int, faults: list[str]) -> int:
    """Print the faults of a storm; `make nightly` also reduces and keeps it."""
    print("FAULTS:", *faults[:20], sep="\n  ")
    if NIGHTLY:
        try:
            print("kept:", nightly.keep(storm, seed))
        except (OSError, ValueError) as error:
            print(f"NOT KEPT: {storm}, seed {seed}: {error}")
    return 1


def torture_queue(options: argparse.Namespace) -> int:
    plans = chosen(storm.PLANS, options)
    seed, limit, wanted = begun(options)
    sums = dict.fromkeys(COUNTS, 0)
    storms = 0
    began = time.monotonic()
    try:
        while sums["kills"] < wanted and time.monotonic() < limit:
            kills = min(options.round, wanted - sums["kills"])
            plan = replace(plans[storms % len(plans)], kills=kills, seed=seed + storms)
            begin(f"queue {plan.name}", plan.seed)
            account = storm.run(replace(plan, seconds=max(1.0, limit - time.monotonic())))
            print(account.words(), flush=True)
            storms += 1
            for key in COUNTS:
                sums[key] += getattr(account, key)
            if account.faults:
                return told(f"queue {plan.name}", plan.seed, account.faults)
    except KeyboardInterrupt:
        print("stopped")
    seconds = time.monotonic() - began
    sum_told = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in sums.items())
    print(f"{storms} storms from seed {seed} in {seconds:.0f} s: {sum_told}. No fault.")
    return 0


def torture_broker(options: argparse.Namespace) -> int:
    """Kill lives of a broker, one after another (kit/broker/kills.py)."""
    plans = chosen(broker_kills.PLANS, options)
    seed, limit, wanted = begun(options)
    kills = storms = confirmed = 0
    while kills < wanted and time.monotonic() < limit:
        plan = replace(
            plans[storms % len(plans)], kills=min(options.round, wanted - kills), seed=seed + storms
        )
        begin(f"broker {plan.name}", plan.seed)
        account = broker_kills.run(
            replace(plan, seconds=max(1.0, min(60.0, limit - time.monotonic()))), options.keep
        )
        print(account.words(), flush=True)
        storms, kills, confirmed = storms + 1, kills + account.kills, confirmed + account.confirmed
        if account.faults:
            return told(f"broker {plan.name}", plan.seed, account.faults)
    print(f"{storms} storms from seed {seed}: kills {kills}, confirmed {confirmed}. No fault.")
    return 0


SIMULATED = (
    "everything",
    "brokers, every fault",
    "joining",
    "brokers",
    "exchanges, every fault",
    "moving producers",
    "takers",
    "cpg",
    "brokers on cpg",
    "owners on cpg",
    "joining on cpg",
)
"""The storms over simulated clusters (`nightly.SIMULATED`)."""


def torture_cluster(options: argparse.Namespace) -> int:
    """Run simulated clusters under faults of every kind; without `--minutes`, each storm once."""
    names = chosen(SIMULATED, options)
    seed, limit, _ = begun(options)
    storms = 0
    while time.monotonic() < limit and (options.minutes or storms < len(names)):
        name, at_seed = names[storms % len(names)], seed + storms
        begin(name, at_seed)
        began = time.monotonic()
        storm_of = nightly.SIMULATED[name]
        storm_of.run(at_seed, storm_of.length)
        print(f"{name}, seed {at_seed}: sound, {time.monotonic() - began:.1f} s", flush=True)
        storms += 1
    print(f"{storms} storms from seed {seed}. No fault.")
    return 0


def torture_server(options: argparse.Namespace) -> int:
    """Kill servers under load, one after another (kit/server/kills.py)."""
    plans = chosen(server_kills.PLANS, options)
    seed, limit, wanted = begun(options)
    sums = dict.fromkeys(("kills", "stops", "confirmed", "receipted", "resent"), 0)
    storms = 0
    while sums["kills"] < wanted and time.monotonic() < limit:
        plan = replace(plans[storms % len(plans)], kills=wanted - sums["kills"], seed=seed + storms)
        seconds = max(1.0, min(60.0, limit - time.monotonic()))
        begin(f"server {plan.name}", plan.seed)
        account = server_kills.run(replace(plan, seconds=seconds), options.keep)
        print(account.words(), flush=True)
        storms += 1
        for key in sums:
            sums[key] += getattr(account, key)
        if account.faults:
            return told(f"server {plan.name}", plan.seed, account.faults)
    sum_told = ", ".join(f"{key} {value}" for key, value in sums.items())
    print(f"{storms} storms from seed {seed}: {sum_told}. No fault.")
    return 0


def torture_sink(options: argparse.Namespace) -> int:
    """Kill everything around the sink, with Spark and with its simulation (sink_kill.py)."""
    plans = chosen([*sink_kill.PLANS], options)
    seed, limit, wanted = begun(options)
    storms = kills = 0
    while kills < wanted and time.monotonic() < limit:
        plan = plans[storms % len(plans)]
        begin(f"sink {plan}", seed + storms)
        account = sink_kill.PLANS[plan](seed + storms, nightly.STORMS[f"sink {plan}"].length)
        print(f"{plan} (seed {seed + storms}): {account.words()}", flush=True)
        kills += account.kills.total() + account.restarts
        if account.faults:
            return told(f"sink {plan}", seed + storms, account.faults)
        storms += 1
    print(f"{storms} storms from seed {seed}: {kills} strikes. No fault.")
    return 0


SOURCE_ORDER = ("path", "url", "path", "url", "path, spark", "url", "path", "url", "path", "url, spark")
"""The transports of the storms; every fifth is with Spark."""


def torture_source(options: argparse.Namespace) -> int:
    """Compare random streams with the official client, every fifth with Spark (source_storm.py).

    `--kills` counts the rounds of publishing, trimming and resetting.
    """
    plans = chosen(SOURCE_ORDER, options)
    seed, limit, wanted = begun(options)
    sums: Counter[str] = Counter()
    storms, rounds = 0, nightly.SOURCE_ROUNDS
    while storms * rounds < wanted and time.monotonic() < limit:
        plan = plans[storms % len(plans)]
        begin(f"source {plan}", seed + storms)
        with tempfile.TemporaryDirectory() as folder:
            storm = source_storm.PLANS[plan]
            account = storm(Path(folder), seed + storms, rounds, nightly.SOURCE_MESSAGES)
        print(f"by {plan} (seed {seed + storms}): {account.words()}", flush=True)
        sums += account.counts
        if account.faults:
            return told(f"source {plan}", seed + storms, account.faults)
        storms += 1
    print(f"{storms} storms from seed {seed}: {source_storm.Account(sums).words()}. No fault.")
    return 0


def torture_months(options: argparse.Namespace) -> int:
    """Run rounds that create and delete everything; print the figures that grow (kit/growth)."""
    if options.minutes is None and (options.rounds or months.ROUNDS) < months.LEAST_ROUNDS:
        least = months.LEAST_ROUNDS
        raise SystemExit(
            f"torture: --rounds {options.rounds} is too few to tell a slope; give at least {least}"
        )
    plans = chosen([*months.PLANS], options)
    growing = []
    for name in plans:
        begin(f"months {name}", 0)
        run = months.play(name, rounds_of(options, len(plans)))
        print(run.table(), flush=True)
        if run.growing():
            told(f"months {name}", 0, [f"{each.name} grows" for each in run.growing()])
        growing += run.growing()
    if not growing:
        print("No figure grows.")
    return 1 if growing else 0


def rounds_of(options: argparse.Namespace, plans: int) -> Iterator[int]:
    """Count rounds until their number, or the plan's share of the time, is reached."""
    if options.minutes is None:
        yield from range(options.rounds or months.ROUNDS)
        return
    end = time.monotonic() + options.minutes * 60 / plans
    for number in itertools.count():
        if time.monotonic() >= end and number > months.LEAST_ROUNDS:
            return
        yield number


if __name__ == "__main__":
    sys.exit(main())
