"""Measure the next offer, connect and reap after 62 proxies that held samples were killed.

A nursery forks the victims: each connects, subscribes and takes a sample. It opens no service itself.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext

from bench.answers import BenchError
from bench.figures import Spread
from bench.helper import Helper
from bench.service_ends import FIND_S, event_service, unused_name
from bench.service_figures import CONNECT, OFFER, REAP, Recovered
from bench.worker import READY
from holdfast import Service, Skeleton

LOGS = 62  # as many proxies as an instance can have
SIZE = 64
PROVIDER, PROXY, KILL = "provider", "proxy", "kill"
PUBLISH_EVERY_S = 0.0005


def service() -> type[Service]:
    # One loan, the newest, and two for each subscriber.
    return event_service(SIZE, 2 + 2 * LOGS, LOGS)


def provide(name: str, ready: Callable[[], None]) -> None:
    """Publish until this process is killed."""
    skeleton = service().offer(name)
    skeleton.data.send(b"first")
    ready()
    while True:
        with skeleton.data.loan(1):
            time.sleep(PUBLISH_EVERY_S)


def hold(name: str, ready: Callable[[], None]) -> None:
    """Hold a sample until this process is killed."""
    proxy = service().find(name, FIND_S)
    subscription = proxy.data.subscribe(history=1)
    with subscription.take(FIND_S):
        ready()
        while True:
            signal.pause()


def nursery(control: Connection) -> None:
    """Fork a victim for each order, and kill all victims by another."""
    control.send(READY)
    victims: list[int] = []
    try:
        while True:
            kind, name = control.recv()
            if kind == KILL:
                end(victims)
            else:
                victims.append(fork(provide if kind == PROVIDER else hold, name))
            control.send(READY)
    finally:
        end(victims)


def fork(work: Callable[[str, Callable[[], None]], None], name: str) -> int:
    """Return the pid of a child that is ready."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            work(name, lambda: os.close(write) if os.write(write, b".") else None)
        os._exit(1)
    os.close(write)
    ready = os.read(read, 1)
    os.close(read)
    if not ready:
        os.waitpid(child, 0)
        raise BenchError("a victim ended before it was ready")
    return child


def end(victims: list[int]) -> None:
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    for victim in victims:
        os.waitpid(victim, 0)
    victims.clear()


class Victims:
    def __init__(self, context: SpawnContext, logs: int) -> None:
        self.helper, self.logs = Helper(context, nursery), logs
        self.helper.ready()

    def start(self, name: str, skeleton: Skeleton | None) -> None:
        """Start the proxies, each with another sample; without `skeleton` a provider, too."""
        if skeleton is None:
            self.helper.order((PROVIDER, name))
        for _ in range(self.logs):
            if skeleton is not None:
                skeleton.data.send(b"")
            self.helper.order((PROXY, name))

    def kill(self) -> None:
        self.helper.order((KILL, ""))


def timed_us(act: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter_ns()
    result = act()
    return (time.perf_counter_ns() - start) / 1e3, result


def offer_us(victims: Victims) -> tuple[float, float]:
    """Return the times of an offer after deaths, and after no death.

    All processes but the tracer died.
    """
    name = unused_name("recovery")
    victims.start(name, None)
    with service().trace(name, FIND_S):  # the memory is used on
        victims.kill()
        times = []
        for dead in (victims.logs, 0):
            elapsed, skeleton = timed_us(lambda: service().offer(name))
            assert isinstance(skeleton, Skeleton)
            with skeleton:
                if not skeleton.reused or skeleton.stats().recovered < dead:
                    raise BenchError("the offer did not clear the dead proxies")
            times.append(elapsed)
    service().unlink(name)
    return times[0], times[1]


def connect_us(victims: Victims) -> tuple[float, float]:
    """Return the times of a `find` after all other proxies died, and without deaths."""
    name = unused_name("recovery")
    with service().offer(name) as skeleton:
        victims.start(name, skeleton)
        victims.kill()
        times = []
        for _ in range(2):
            elapsed, proxy = timed_us(lambda: service().find(name, 0))
            proxy.close()  # type: ignore[attr-defined]
            times.append(elapsed)
        if skeleton.reap():
            raise BenchError("the connect did not clear the dead proxies")
    return times[0], times[1]


def reap_us(victims: Victims) -> tuple[float, float]:
    """Return the times of a `reap` after all proxies died, and without deaths."""
    name = unused_name("recovery")
    with service().offer(name) as skeleton:
        victims.start(name, skeleton)
        victims.kill()
        elapsed, dead = timed_us(skeleton.reap)
        if dead != victims.logs:
            raise BenchError(f"{dead} of {victims.logs} dead proxies were cleared")
        return elapsed, timed_us(skeleton.reap)[0]


def measure_recovery(context: SpawnContext, rounds: int, logs: int = LOGS) -> list[Recovered]:
    """Measure offer, connect and reap in random order in each round."""
    works = {OFFER: offer_us, CONNECT: connect_us, REAP: reap_us}
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    victims = Victims(context, logs)
    try:
        for _ in range(rounds):
            for name in random.sample(list(works), len(works)):
                samples[name].append(works[name](victims))
    finally:
        victims.helper.close()
    return [
        Recovered(
            name,
            logs,
            Spread.of([dead for dead, _ in pairs]),
            Spread.of([none for _, none in pairs]),
            pairs,
        )
        for name, pairs in samples.items()
    ]
