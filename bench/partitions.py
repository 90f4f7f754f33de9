"""Compare one topic of N partitions with N topics: creation, publish, memory, restart.

Run it with `python -m bench.partitions`. Both run on an embedded broker, each time in a process of its own,
in interleaved rounds. It prints elapsed times and processor times. Before each step Python collects its
garbage; else a step may pay for the objects of the one before.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.broker_stations import Stopwatch
from bench.figures import Goal, Spread, spread, table
from holdfast.broker import Broker
from holdfast.names import partition_name, topic_name

COUNT = 1000
MESSAGES = 100
"""To each topic, in runs of ten."""
WHOLE = topic_name("whole")
STEPS = {
    "create": "creation, each with a subscription",
    "open": "opening a producer for each",
    "publish": "100 messages to each",
    "snapshot": "a snapshot",
    "restart": "a restart",
}
MOST = 1.25
"""The largest cost of partitions, as a multiple of that of topics: two equal runs differ by as much."""


def resident_mb() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def made(broker: Broker, count: int, parted: bool) -> list[str]:
    """Create the topics, with a subscription on each; return their names."""
    if parted:
        await broker.partitioned.create(WHOLE, count)
        await broker.partitioned.subscribe(WHOLE, "s")
        return broker.partitioned.names(WHOLE)
    names = [topic_name(f"topic-{index}") for index in range(count)]
    await asyncio.gather(*(broker.admin.create_topic(each) for each in names))
    await asyncio.gather(*(broker.admin.create_subscription(each, "s") for each in names))
    return names


async def measured(path: str, count: int, parted: bool) -> dict[str, float]:
    """Return seconds of each step, elapsed and of the processor, and the memory."""
    found: dict[str, float] = {}

    async def timed(name: str, work: Callable[[], Any]) -> Any:
        gc.collect()
        with Stopwatch() as watch:
            outcome = await work()
        found[f"{name}_s"], found[f"{name}_cpu_s"] = watch.seconds, watch.cpu_s
        return outcome

    async with Broker.open(path, reserve_bytes=1 << 20) as broker:
        before = resident_mb()
        names = await timed("create", lambda: made(broker, count, parted))
        producers = [broker.producer(each) for each in names]
        await timed("open", lambda: asyncio.gather(*(each.open() for each in producers)))

        async def publish() -> None:
            for _ in range(MESSAGES // 10):
                await asyncio.gather(*(each.send_many([b"x" * 100] * 10) for each in producers))

        await timed("publish", publish)
        await asyncio.gather(*(each.close() for each in producers))
        found["resident_mb"] = resident_mb() - before
        await timed("snapshot", broker.admin.snapshot)
    opening = Broker.open(path, reserve_bytes=1 << 20)
    broker = await timed("restart", opening.__aenter__)
    expected = partition_name(WHOLE, count - 1) if parted else names[-1]
    assert broker.topic(expected).visible == MESSAGES
    await opening.__aexit__(None, None, None)
    return found


def apart(count: int, parted: bool) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "bench.partitions", "--count", str(count)]
    done = subprocess.run(
        [*command, "--only", "partitions" if parted else "topics"], capture_output=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def report(count: int, rounds: list[tuple[dict[str, float], dict[str, float]]]) -> list[str]:
    """Return the table of all rounds and the goals, as lines."""

    def cells(name: str, factor: float = 1e3) -> list[str]:
        return [spread(Spread.of([each[at][name] * factor for each in rounds])) for at in (0, 1)]

    rows, goals = [], []
    for name, words in STEPS.items():
        rows += [[f"{words}, ms", *cells(f"{name}_s")], ["  of the processor", *cells(f"{name}_cpu_s")]]
        ratios = Spread.of([one[f"{name}_cpu_s"] / other[f"{name}_cpu_s"] for one, other in rounds])
        goals.append(Goal(f"{words}: at most {MOST}× of topics", f"{spread(ratios)}×", ratios.median <= MOST))
    rows.append(["memory, MB", *cells("resident_mb", 1)])
    memory = Spread.of([one["resident_mb"] / other["resident_mb"] for one, other in rounds])
    goals.append(Goal(f"memory: at most {MOST}× of topics", f"{spread(memory)}×", memory.median <= MOST))
    judged = [[each.text, each.result, "met" if each.met else "MISSED"] for each in goals]
    head = ["", f"{count:,} partitions", f"{count:,} topics"]
    return [*table(head, rows), "", *table(["goal (processor time)", "result", ""], judged)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="number of partitions, and of topics")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds")
    parser.add_argument("--only", choices=["partitions", "topics"], help="measure one of them once, as JSON")
    options = parser.parse_args()
    if options.only:
        with tempfile.TemporaryDirectory(prefix="holdfast-partitions.") as path:
            work = measured(path, options.count, options.only == "partitions")
            print(json.dumps(asyncio.run(work)))
        return
    before, rounds = os.getloadavg()[0], []
    for _ in range(options.rounds):
        found = {parted: apart(options.count, parted) for parted in random.sample([True, False], 2)}
        rounds.append((found[True], found[False]))
    print("\n".join(report(options.count, rounds)))
    print(f"load of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
