"""Measure a million delayed messages: memory, publishes, the scan after a restart.

`python -m bench.delays` prints medians of rounds, with the smallest and the largest; each round has a broker
of its own. The memory is that of the schedule, as the broker counts it, beside the growth of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import resource
import tempfile
import time
from pathlib import Path

from bench.broker_stations import Stopwatch
from bench.figures import Goal, Spread, spread, table
from holdfast import Broker

RUN = 1000
PAUSE_S = 0.02
DAY_S = 86_400.0
SHOWN = 200_000
"""Messages of each publish that is compared."""
MEMORY_MIB = 200.0
MOST = 1.25
"""The largest cost of a publish beside delayed messages, as a multiple of that beside others. Two equal
publishes differ by as much."""
BESIDE, BEHIND = "publish to another topic", "publish to the same topic"
KINDS = {True: "beside delayed messages", False: "beside as many without a delay"}
HELD, GREW = "memory of the schedule, MiB", "growth of the process, MiB"
Round = dict[str, float]
"""The figures of one round, by name."""


def resident_mib() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


async def publish(
    told: Round, name: str, broker: Broker, topic: str, count: int, size: int, after_s: float | None = None
) -> None:
    """Publish messages one by one entry; note rate and cost."""
    gc.collect()
    data = [bytes(size)] * RUN
    async with broker.producer(topic) as producer:
        with Stopwatch() as watch:
            for _ in range(count // RUN):
                await producer.publish(data, deliver_after=after_s)
    sample = watch.sample(count)
    told[f"{name}, messages/s"], told[f"{name}, µs of the processor"] = sample.rate, sample.cpu_us


async def scanned(broker: Broker, topic: str, count: int) -> tuple[float, int]:
    """Wait until a subscription holds so many messages back; return seconds and bytes."""
    began = time.perf_counter()
    while True:
        stats = broker.admin.subscription_stats(topic, "later").dispatch
        if stats is not None and stats.scheduled_entries >= count:
            return time.perf_counter() - began, stats.scheduled_bytes
        await asyncio.sleep(PAUSE_S)


async def beside(told: Round, path: str, count: int, size: int, delayed: bool) -> None:
    """Publish many messages, delayed or not, and others beside them; a consumer is attached."""
    kind, shown, delay_s = KINDS[delayed], min(SHOWN, count), DAY_S if delayed else None
    async with Broker.open(path, sync="os") as broker:
        for topic in ("many", "plain"):
            await broker.admin.create_topic(topic)
            await broker.admin.create_subscription(topic, "later", start="earliest")
        await publish({}, "", broker, "plain", shown, size)  # the first one is slower
        before = resident_mib()
        async with broker.consumer("many", "later", type="shared"):
            name = "publish with a delay, scanned meanwhile" if delayed else "publish without a delay"
            await publish(told, name, broker, "many", count, size, delay_s)
            if delayed:
                _, held = await scanned(broker, "many", count)
                told[HELD], told[GREW] = held / (1 << 20), resident_mib() - before
            await publish(told, f"{BESIDE}, {kind}", broker, "plain", shown, size)
            await publish(told, f"{BEHIND}, {kind}", broker, "many", shown, size)


async def measure(path: Path, count: int, size: int) -> Round:
    """Return the figures of one round."""
    told: Round = {}
    for delayed in random.sample([True, False], 2):
        await beside(told, str(path / str(delayed)), count, size, delayed)
    async with Broker.open(path / "True", sync="os") as broker:
        before = resident_mib()
        async with broker.consumer("many", "later", type="shared"):
            told["scan after a restart, s"], held = await scanned(broker, "many", count)
            told[f"{HELD} (after it)"] = held / (1 << 20)
            told[f"{GREW} (after it)"] = resident_mib() - before
    return told


def report(count: int, rounds: list[Round]) -> list[str]:
    """Return the table of all rounds and the goals, as lines."""
    rows = [[name, spread(Spread.of([each[name] for each in rounds]))] for name in sorted(rounds[0])]
    goals = []
    for name in (BESIDE, BEHIND):
        one, other = (f"{name}, {KINDS[delayed]}, µs of the processor" for delayed in (True, False))
        found = Spread.of([each[one] / each[other] for each in rounds])
        text = f"{name}, {KINDS[True]}: at most {MOST}× the cost {KINDS[False]}"
        goals.append(Goal(text, f"{spread(found)}×", found.median <= MOST))
    most = max(each[name] for each in rounds for name in each if name.startswith((HELD, GREW)))
    goals.append(Goal(f"memory under {MEMORY_MIB:.0f} MiB", f"{most:.0f} MiB at most", most < MEMORY_MIB))
    judged = [[each.text, each.result, "met" if each.met else "MISSED"] for each in goals]
    head = [f"{count:,} delayed messages", "median [smallest–largest]"]
    return [*table(head, rows), "", *table(["goal", "result", ""], judged)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="number of delayed messages")
    parser.add_argument("--size", type=int, default=100, help="bytes of each")
    parser.add_argument("--rounds", type=int, default=5, help="rounds")
    options = parser.parse_args()
    before, count, rounds = os.getloadavg()[0], options.messages // RUN * RUN, []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="holdfast-delays.") as path:
            rounds.append(asyncio.run(measure(Path(path), count, options.size)))
    print("\n".join(report(count, rounds)))
    print(f"load of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
