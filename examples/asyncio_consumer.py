"""Receive messages from other processes inside an event loop, beside its other tasks.

python examples/asyncio_consumer.py
"""

import asyncio
import multiprocessing
import os
import time

from holdfast import Queue, Timeout

SENSORS = 2
READINGS = 20


def sensor(name: str, number: int) -> None:
    """Put readings, from another process without asyncio."""
    with Queue.open(name) as queue:
        for reading in range(READINGS):
            queue.put(f"sensor {number}: {20 + reading / 10:.1f} °C".encode())
            time.sleep(0.005)


async def consume(queue: Queue) -> int:
    count = 0
    async for message in queue:  # until the queue is closed; the next step settles the message
        count += 1
        if count % 10 == 0:
            print(f"{count:3}  {bytes(message.data).decode()}")
    return count


async def heartbeat() -> int:
    """Count how often the loop ran while the consumers waited."""
    beats = 0
    try:
        while True:
            await asyncio.sleep(0.01)
            beats += 1
    except asyncio.CancelledError:
        return beats


async def main() -> None:
    name = f"readings.{os.getpid()}"
    with Queue.create(name, capacity=1 << 16) as queue:
        try:
            await queue.aget(timeout=0.05)
        except Timeout as error:
            print(f"nothing yet: {error}")
        start = multiprocessing.get_context("spawn").Process
        sensors = [start(target=sensor, args=(name, number)) for number in range(SENSORS)]
        for process in sensors:
            process.start()
        beating = asyncio.create_task(heartbeat())
        consumers = [asyncio.create_task(consume(queue)) for _ in range(2)]
        for process in sensors:
            await asyncio.to_thread(process.join)
        queue.close()
        counts = await asyncio.gather(*consumers)
        beating.cancel()
        print(f"{sum(counts)} readings in two tasks; meanwhile the loop beat {await beating} times")
    Queue.unlink(name)


if __name__ == "__main__":
    asyncio.run(main())
