"""Measure the cost of a put and a get against the number of attached processes.

One process puts and gets; the others are attached and sleep.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext

from bench.figures import Spread
from bench.queue_figures import Attached
from bench.worker import READY, payload
from holdfast import Queue

OTHERS = (1, 8, 32, 64, 128)
PAIRS = 4000  # puts and gets of one sample


def keep_attached(control: Connection, names: dict[int, str]) -> None:
    """Fork one child per other participant, attached to each queue that wants it.

    Runs in a process of its own. The children are forked, because a hundred new interpreters would take
    longer than the measurement. No holdfast object is open here, so a child inherits none.
    """
    children = []
    release_read, release_write = os.pipe()
    ready_read, ready_write = os.pipe()
    for number in range(max(names)):
        child = os.fork()
        if child == 0:
            os.close(release_write)
            queues = [Queue.open(name) for others, name in names.items() if number < others]
            os.write(ready_write, b"." * bool(queues))
            os.read(release_read, 1)  # until the parent closes its end, or dies
            os._exit(0)
        children.append(child)
    for _ in children:
        os.read(ready_read, 1)
    control.send(READY)
    with contextlib.suppress(EOFError):
        control.recv()
    os.close(release_write)
    for child in children:
        os.waitpid(child, 0)


def sample_ns(queue: Queue, data: bytes, pairs: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(pairs):
        queue.put(data)
        with queue.get() as message:
            bytes(message.data)
    return (time.perf_counter_ns() - start) / pairs


def measure_attached(
    context: SpawnContext, rounds: int, others: tuple[int, ...] = OTHERS, pairs: int = PAIRS
) -> list[Attached]:
    data = payload(64)
    queues: dict[int, Queue] = {}
    names = {count: f"bench-attached-{os.getpid()}-{count}" for count in others}
    ours, theirs = context.Pipe()
    keeper = context.Process(target=keep_attached, args=(theirs, names), daemon=True)
    try:
        for count, name in names.items():
            queues[count] = Queue.create(name, capacity=1 << 20, participants=max(others) + 8)
        keeper.start()
        theirs.close()
        if ours.recv() != READY:
            raise RuntimeError("the idle processes did not attach")
        samples: dict[int, list[float]] = {count: [] for count in others}
        for _ in range(rounds + 1):
            for count in random.sample(others, len(others)):
                samples[count].append(sample_ns(queues[count], data, pairs))
    finally:
        ours.close()
        if keeper.is_alive():
            keeper.join(30)
        for count, queue in queues.items():
            queue.detach()
            Queue.unlink(names[count])
    # The first round warmed up.
    return [Attached(count, Spread.of(values[1:])) for count, values in samples.items()]
