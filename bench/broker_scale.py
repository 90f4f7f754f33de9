"""Measure whether costs stay flat: an entry beside a crowd, large backlogs, holes."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from bench.broker_figures import Condition, Cost, Holes, Opening, Report, Seek
from bench.broker_ours import OTHER, Ours, drop_cache, resident_bytes
from bench.broker_stations import Setting, Station
from bench.broker_throughput import Plan
from bench.figures import Spread
from holdfast.ledger.acks import AckState

SIZE = 100
"""Bytes of a payload. It is small, because the cost besides the bytes is what might grow."""
ENTRIES = 500_000
"""Entries of one measurement: enough for a snapshot in each, whose cost is part of it."""
SEEKS = 200
BURDEN = 48 << 20
"""Bytes of journal behind the last snapshot at the kill: three quarters of the most."""

CONDITIONS = (
    Condition("", 0),
    Condition("entries of backlog", 10_000),
    Condition("entries of backlog", 1_000_000),
    Condition("entries of backlog", 10_000_000),
    Condition("entries in hand", 1_000_000),
    Condition("holes", 1_000),
    Condition("holes", 1_000_000),
    Condition("idle topics", 10_000),
    Condition("topics with policies", 10_000),
    Condition("idle subscriptions", 1_000),
    Condition("idle consumers", 100),
)


TOPICS = ("idle topics", "topics with policies")
"""Crowds of topics: a turn of housekeeping looks at each."""


def scaled(conditions: tuple[Condition, ...], divisor: int) -> tuple[Condition, ...]:
    """Return the conditions with less of everything, for `--quick`."""
    return tuple(Condition(each.crowd, max(1, each.number // divisor)) for each in conditions)


def prepare(station: Station, condition: Condition) -> None:
    """Create the crowd, then the measured subscription.

    With holes, the consumer keeps as many entries as there are holes. "entries in hand" has only the kept
    entries, to tell the two apart. In both cases the measured subscription is the crowd's own.
    """
    number = condition.number
    match condition.crowd:
        case "entries of backlog":
            station.call("subscribe", "behind", "earliest")
            station.call("grow", number)
        case "holes":
            station.call("subscribe", "live", "earliest")
            station.call("grow", 2 * number)
            station.call("hole", number)
        case "entries in hand":
            station.call("subscribe", "live", "earliest")
            station.call("grow", number)
            station.call("hold", number)
        case "idle topics" | "topics with policies":
            station.call("topics", number, condition.crowd != "idle topics")
        case "idle subscriptions":
            station.call("subscriptions", number, False)
        case "idle consumers":
            station.call("grow", 1)
            station.call("subscriptions", number, True)
    if condition.crowd not in ("holes", "entries in hand"):
        station.call("subscribe")


def measure_costs(
    plan: Plan, conditions: tuple[Condition, ...], entries: int, say: Callable[[str], None]
) -> list[Cost]:
    """Measure each condition in a broker of its own; each round in random order."""
    costs = {each: Cost(each) for each in conditions}
    stations: dict[Condition, Station] = {}
    batches = max(1, entries // plan.batch)
    try:
        for number, condition in enumerate(conditions):
            say(f"cost: bringing {condition.words}")
            place = Setting(plan.directory / f"cost-{number}", SIZE, plan.batch, plan.window)
            station = stations[condition] = Station(plan.context, condition.words, Ours, place)
            prepare(station, condition)
            station.call("publish", batches)
            station.call("consume", batches, "each")
            station.call("rest")
            costs[condition].memory_bytes = station.call("memory")
        for turn in range(plan.rounds):
            say(f"cost: round {turn + 1} of {plan.rounds}")
            for condition in random.sample(conditions, len(conditions)):
                station, samples = stations[condition], costs[condition].samples
                samples.setdefault("publish", []).append(station.sample("publish", batches))
                samples.setdefault("consume and ack", []).append(station.sample("consume", batches, "each"))
                if condition.crowd in TOPICS:
                    samples.setdefault("housekeeping", []).append(station.sample("turn"))
                station.call("rest")
        for station in stations.values():
            station.close()
    finally:
        for station in stations.values():
            station.kill()
    return [costs[each] for each in conditions]


# -- backlogs -----------------------------------------------------------------------------------------


def measure_backlogs(
    report: Report, plan: Plan, backlogs: tuple[int, ...], burden: int, say: Callable[[str], None]
) -> None:
    """Grow one topic to each backlog in turn; measure seeks, and opening after either stop."""
    place = Setting(plan.directory / "backlog", SIZE, plan.batch, plan.window)
    here = 0
    for entries in backlogs:
        say(f"scale: a backlog of {entries:,}")
        with Station(plan.context, "backlog", Ours, place) as station:
            if here == 0:
                station.call("subscribe", "behind", "earliest")
            station.call("grow", entries - here)
            here = entries
            station.call("rest")
            warm_up(place.directory)
            for by, cold in (("id", False), ("time", False), ("id", True), ("time", True)):
                p50, p99 = station.call("seeks", SEEKS, by, cold)
                report.seeks.append(Seek(entries, by, cold, p50, p99))
        report.openings += [
            open_again(plan, place, entries, "clean", 0),
            open_again(plan, place, entries, "killed", burden),
        ]


def warm_up(directory: Path) -> None:
    """Read all files into the page cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass


def open_again(plan: Plan, place: Setting, entries: int, stop: str, burden: int) -> Opening:
    """Open the directory several times, each in a new process with a cold page cache."""
    seconds: list[float] = []
    redone = memory = 0
    for _ in range(plan.rounds):
        if stop == "killed":
            with Station(plan.context, "victim", Ours, place) as victim:
                victim.call("burden", burden)
                victim.send("publish", 1000, OTHER)
                time.sleep(0.02)
                victim.kill()
        drop_cache(place.directory)
        with Station(plan.context, "opened", Ours, place) as station:
            took, again, grown = station.call("opened")
            seconds.append(took)
            redone, memory = max(redone, again), max(memory, grown)
    return Opening(entries, stop, Spread.of(seconds), redone, memory)


# -- holes --------------------------------------------------------------------------------------------


class Acks:
    """The acknowledgements of one subscription alone."""

    def scatter(self, count: int, among: int) -> int:
        """Acknowledge `count` messages at random positions; return the bytes of memory taken."""
        places = random.Random(count).sample(range(1, among), count)
        before = resident_bytes()
        self.state = AckState()
        for start in range(0, count, 1000):
            self.state.ack_ranges([(each, each + 1) for each in places[start : start + 1000]], among)
        return resident_bytes() - before

    def close(self) -> None:
        pass


def measure_holes(plan: Plan, count: int, among: int, say: Callable[[str], None]) -> list[Holes]:
    """Measure the memory of holes, alone and in a broker that is opened again."""
    say(f"scale: {count:,} holes")
    with Station(plan.context, "holes", Acks) as station:
        found = [Holes(count, f"at random among {among:,}", station.call("scatter", count, among))]
    memory: dict[int, int] = {}
    for holes in (0, count):
        place = Setting(plan.directory / f"holes-{holes}", SIZE, plan.batch, plan.window)
        with Station(plan.context, "holes", Ours, place) as station:
            station.call("subscribe", "live", "earliest")
            station.call("grow", 2 * count)
            station.call("hole", holes)
        with Station(plan.context, "holes", Ours, place) as station:
            memory[holes] = station.call("opened")[2]
        shutil.rmtree(place.directory, ignore_errors=True)
    return [*found, Holes(count, "every second one, in an open broker", max(0, memory[count] - memory[0]))]


def room(directory: Path) -> int:
    """Return the free bytes of a directory's disk."""
    return shutil.disk_usage(directory).free
