"""Compare one topic of N partitions with N topics: creation, publish, memory, restart.

Run it with `python -m bench.partitions [N]`. Both run on an embedded broker in a process of their own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.broker import Broker
from holdfast.names import partition_name, topic_name

COUNT = 1000
MESSAGES = 100
"""To each topic, in runs of ten."""
WHOLE = topic_name("whole")


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
    found: dict[str, float] = {}

    async def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        outcome = await work()
        found[name] = time.perf_counter() - began
        return outcome

    async with Broker.open(path, reserve_bytes=1 << 20) as broker:
        before = resident_mb()
        names = await timed("create_s", lambda: made(broker, count, parted))
        producers = [broker.producer(each) for each in names]
        await timed("open_s", lambda: asyncio.gather(*(each.open() for each in producers)))

        async def publish() -> None:
            for _ in range(MESSAGES // 10):
                await asyncio.gather(*(each.send_many([b"x" * 100] * 10) for each in producers))

        await timed("publish_s", publish)
        await asyncio.gather(*(each.close() for each in producers))
        found["resident_mb"] = resident_mb() - before
        await timed("snapshot_s", broker.admin.snapshot)
    began = time.perf_counter()
    async with Broker.open(path, reserve_bytes=1 << 20) as broker:
        found["restart_s"] = time.perf_counter() - began
        expected = partition_name(WHOLE, count - 1) if parted else names[-1]
        assert broker.topic(expected).visible == MESSAGES
    return found


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    rows: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for _ in range(3):
        for parted in (True, False):
            command = [sys.executable, "-m", "bench.partitions", str(count), "parted" if parted else "plain"]
            rows[parted].append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    print(f"{'':12} {count} partitions   {count} topics   (best of three)")
    for name in rows[True][0]:
        best = [min(each[name] for each in rows[parted]) for parted in (True, False)]
        print(f"{name:12} {best[0]:14.3f} {best[1]:14.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        with tempfile.TemporaryDirectory() as directory:
            work = measured(directory, int(sys.argv[1]), sys.argv[2] == "parted")
            print(json.dumps(asyncio.run(work)))
    else:
        main()
