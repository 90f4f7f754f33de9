"""Measure publish, consume and acknowledge: the broker, the plain program, the peers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from pathlib import Path

from bench.answers import BenchError
from bench.broker_figures import PLAIN, PLAINS, Report, Throughput
from bench.broker_ours import Ours
from bench.broker_peers import PEERS, Plain
from bench.broker_stations import Setting, Station
from bench.figures import OURS
from bench.running import missing

CALIBRATION_S = 0.2
RECEIPTS_SHARE = 8
"""The divisor for acknowledgements with receipts, each of which waits for a sync of its own."""


@dataclass(frozen=True)
class Plan:
    """The amount of a measurement."""

    context: SpawnContext
    directory: Path
    batch: int
    window: int
    rounds: int
    seconds: float
    round_bytes: int
    """The least bytes that a measurement of the broker writes to its journal: enough to make a snapshot due.
    """
    singles: int
    peers: bool


def measure_throughput(report: Report, size: int, plan: Plan, say: Callable[[str], None]) -> Throughput:
    """Measure all contestants at one payload size, in each round one after another.

    The order is random, but the plain program follows the broker, whose rounds it repeats.
    """
    found = Throughput(size)
    report.throughput.append(found)
    stations: dict[str, Station] = {}
    batches: dict[str, int] = {}

    def setting(name: str) -> Setting:
        place = plan.directory / f"{size}-{''.join(filter(str.isalnum, name))}"
        return Setting(place, size, plan.batch, plan.window)

    def attempt(name: str, action: Callable[[Station], None]) -> None:
        station = stations.get(name)
        if station is None:
            return
        try:
            action(station)
        except BenchError as error:  # only this contestant is given up
            report.failed[name] = str(error)
            stations.pop(name).kill()

    try:
        stations[OURS] = Station(plan.context, OURS, Ours, setting(OURS))
        for name, arguments in PLAINS.items():
            stations[name] = Station(plan.context, name, Plain, setting(name), *arguments)
        for name, (kind, module, _) in PEERS.items() if plan.peers else ():
            reason = missing(module)
            if reason is not None:
                report.absent[name] = reason
                continue
            try:
                stations[name] = Station(plan.context, name, kind, setting(name))
            except BenchError as error:
                report.failed[name] = str(error)
        stations[OURS].call("subscribe")
        for name in list(stations):
            attempt(name, lambda station: warm_up(station, plan, batches))
        for turn in range(plan.rounds):
            say(f"{size} B: round {turn + 1} of {plan.rounds}")
            groups: list[Callable[[], None]] = [
                lambda: attempt(OURS, lambda _: ours_and_plain(found, stations, batches[OURS], plan))
            ]
            for name in PEERS:
                if name in stations:
                    groups.append(
                        lambda name=name: attempt(  # type: ignore[misc]
                            name, lambda station: peer(found, name, station, batches, plan)
                        )
                    )
            for group in random.sample(groups, len(groups)):
                group()
    finally:
        for station in stations.values():
            station.kill()
    return found


def warm_up(station: Station, plan: Plan, batches: dict[str, int]) -> None:
    """Set how many batches fill about the time of a sample, after slow first ones."""
    name = station.name
    if name in PLAINS:
        station.call("rounds", 1000, 64, 64 << 20)
        station.call("rest")
        return
    if name in PEERS and not PEERS[name][2]:
        station.call("single", 8)
        return
    count = 4
    while (sample := station.sample("publish", count)).seconds < min(CALIBRATION_S, plan.seconds):
        count *= 4
    batches[name] = max(4, int(count * plan.seconds / sample.seconds))
    if name == OURS:
        batches[name] = max(batches[name], plan.round_bytes * count // max(1, sample.round_bytes))
    station.call("clear" if name == OURS else "drain")
    station.call("rest")


def ours_and_plain(found: Throughput, stations: dict[str, Station], batches: int, plan: Plan) -> None:
    ours = stations[OURS]
    published = ours.sample("publish", batches)
    found.add(OURS, "publish", published)
    ours.call("rest")
    for name in random.sample(list(PLAINS), len(PLAINS)):
        if name in stations:
            sample = stations[name].sample(
                "rounds", published.messages, published.rounds, published.round_bytes
            )
            found.add(name, "publish", sample)
            stations[name].call("rest")
    found.add(OURS, "consume", ours.sample("consume", batches, "none"))
    found.add(OURS, "consume and ack", ours.sample("consume", batches, "each"))
    ours.call("clear")
    few = max(1, batches // RECEIPTS_SHARE)
    ours.call("publish", few)
    found.add(OURS, "ack with receipt", ours.sample("consume", few, "receipt"))
    found.add(OURS, "both at once", ours.sample("both", batches))
    ours.call("clear")
    found.singles.setdefault(OURS, []).append(ours.call("single", plan.singles))
    ours.call("clear")
    ours.call("rest")
    if PLAIN in stations:
        found.add(PLAIN, "consume", stations[PLAIN].sample("consume", batches))
        found.singles.setdefault(PLAIN, []).append(stations[PLAIN].call("single", plan.singles))
        stations[PLAIN].call("rest")


def peer(found: Throughput, name: str, station: Station, batches: dict[str, int], plan: Plan) -> None:
    if name in batches:
        found.add(name, "publish", station.sample("publish", batches[name]))
        station.call("rest")
        found.add(name, "ack with receipt", station.sample("acknowledge", batches[name]))
        station.call("drain")
    found.singles.setdefault(name, []).append(station.call("single", plan.singles))
    station.call("rest")
