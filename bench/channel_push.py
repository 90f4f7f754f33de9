"""Measure the cost of a push beside a live, a stopped and a dead consumer."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess

from bench.answers import BenchError, answer
from bench.channel_figures import Beside
from bench.cores import pin, pinned, two_cores
from bench.figures import Spread
from bench.ours import SPIN_S
from bench.worker import READY
from holdfast import Channel, ChannelProducer

LIVE, STOPPED, DEAD = "live", "stopped", "dead"
SLOTS = 16
SIZE = 64
TOGETHER = 50  # pushes between two looks at the clock
LIMIT_S = 60.0


def keep_popping(control: Connection, name: str, core: int | None) -> None:
    """Pop until this process is killed."""
    pin(core)
    consumer = Channel.open(name).consumer()
    consumer.spin = SPIN_S
    control.send(READY)
    while True:
        with consumer.pop():
            pass


def push_ns(producer: ChannelProducer, pushes: int) -> float:
    """Return the median time of a push, from groups of pushes."""
    push, loan, clock = producer.push, producer.loan, time.perf_counter_ns
    times: list[int] = []
    for _ in range(max(1, pushes // TOGETHER)):
        start = clock()
        for _ in range(TOGETHER):
            push(loan())
        times.append(clock() - start)
    return statistics.median(times) / TOGETHER


class Consumers:
    """A channel for each state of a consumer, with its process in that state."""

    def __init__(self, context: SpawnContext, core: int | None) -> None:
        self.producers: dict[str, ChannelProducer] = {}
        self.channels: dict[str, Channel] = {}
        self.processes: list[BaseProcess] = []
        for state in (LIVE, STOPPED, DEAD):
            name = f"bench-push-{state}-{os.getpid()}-{os.urandom(4).hex()}"
            self.channels[state] = Channel.create(name, slots=SLOTS, slot_size=SIZE)
            self.producers[state] = self.channels[state].producer()
            ours, theirs = context.Pipe()
            process = context.Process(target=keep_popping, args=(theirs, name, core), daemon=True)
            process.start()
            self.processes.append(process)
            theirs.close()
            if answer(ours, f"the {state} consumer", LIMIT_S) != READY:
                raise BenchError(f"the {state} consumer is not ready")
            self._change(process, state)

    @staticmethod
    def _change(process: BaseProcess, state: str) -> None:
        if state == STOPPED:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGSTOP)
        elif state == DEAD:
            process.kill()
            process.join()

    def displaced(self, state: str) -> float:
        """Return the share of the pushes that displaced a datum."""
        stats = self.channels[state].stats()
        return stats.displaced / stats.pushed

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        for channel in self.channels.values():
            channel.close()
            Channel.unlink(channel.name)


def measure_push(context: SpawnContext, rounds: int, pushes: int) -> list[Beside]:
    """Measure all states in random order, in each round."""
    first, second = two_cores()
    consumers = Consumers(context, second)
    samples: dict[str, list[float]] = {state: [] for state in consumers.producers}
    try:
        with pinned(first):
            for _ in range(rounds + 1):
                for state in random.sample(list(samples), len(samples)):
                    samples[state].append(push_ns(consumers.producers[state], pushes))
            displaced = {state: consumers.displaced(state) for state in samples}
    finally:
        consumers.close()
    # The first round warmed up.
    return [
        Beside(state, Spread.of(values[1:]), displaced[state], values[1:])
        for state, values in samples.items()
    ]
