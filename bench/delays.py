"""Measure a million delayed messages: memory, publishes, the scan after a restart.

`python -m bench.delays --messages 1000000` prints one line per step. The memory is that of the schedule, as
the broker counts it, beside the growth of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from pathlib import Path

from holdfast import Broker

RUN = 1000
PAUSE_S = 0.02
SHOWN = 20_000


def resident_mib() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


async def publish(broker: Broker, topic: str, count: int, size: int, after_s: float | None) -> float:
    """Publish messages one by one entry; return messages per second."""
    data, began = [bytes(size)] * RUN, time.perf_counter()
    async with broker.producer(topic) as producer:
        for _ in range(count // RUN):
            await producer.publish(data, deliver_after=after_s)
    return count / (time.perf_counter() - began)


async def scanned(broker: Broker, topic: str, count: int) -> tuple[float, int]:
    """Wait until a subscription holds all messages back; return seconds and bytes."""
    began = time.perf_counter()
    while True:
        stats = broker.admin.subscription_stats(topic, "later").dispatch
        if stats is not None and stats.scheduled_entries == count:
            return time.perf_counter() - began, stats.scheduled_bytes
        await asyncio.sleep(PAUSE_S)


async def measure(path: str, count: int, size: int) -> None:
    """Print the figures of one run."""
    async with Broker.open(path, sync="os") as broker:
        for topic in ("delayed", "plain"):
            await broker.admin.create_topic(topic)
            await broker.admin.create_subscription(topic, "later", start="earliest")
        rate = await publish(broker, "plain", SHOWN, size, None)
        print(f"publish without delays         {rate:12,.0f} messages/s", flush=True)
        before = resident_mib()
        async with broker.consumer("delayed", "later", type="shared"):
            rate = await publish(broker, "delayed", count, size, 86_400.0)
            print(f"publish with a delay           {rate:12,.0f} messages/s, scanned meanwhile", flush=True)
            _, held = await scanned(broker, "delayed", count)
            grown = resident_mib() - before
            print(f"memory of {count:,} delayed  {held / (1 << 20):10.1f} MiB; process {grown:+.0f} MiB")
            rate = await publish(broker, "plain", SHOWN, size, None)
            print(f"publish beside them            {rate:12,.0f} messages/s", flush=True)
            rate = await publish(broker, "delayed", SHOWN, size, None)
            print(f"publish to the same topic      {rate:12,.0f} messages/s, delivered behind them")
    async with Broker.open(path, sync="os") as broker:
        before = resident_mib()
        async with broker.consumer("delayed", "later", type="shared"):
            seconds, held = await scanned(broker, "delayed", count)
            grown = resident_mib() - before
            print(f"scan after a restart           {seconds:12.1f} s, {count / seconds:,.0f} entries/s")
            print(f"memory after it                {held / (1 << 20):12.1f} MiB; process {grown:+.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="number of delayed messages")
    parser.add_argument("--size", type=int, default=100, help="bytes of each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-delays.") as path:
        asyncio.run(measure(path, options.messages // RUN * RUN, options.size))


if __name__ == "__main__":
    main()
