"""Measure the cost of a publication against size, subscribers, and what the subscribers do.

Eight processes subscribe, on one core. An instance with `n` subscribers has the first `n` of them. The
provider is this process, on another core.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from ctypes import c_bool
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from typing import Any, Protocol

from bench.cores import pin, pinned, two_cores
from bench.figures import OURS, Spread
from bench.helper import Helper
from bench.ours import SPIN_S
from bench.peers import Iceoryx2, IceoryxReceiver, IceoryxSender
from bench.rounds import SLEEP_BEFORE_PING_S
from bench.service_ends import FIND_S, event_service, unused_name
from bench.service_figures import ASLEEP, ELSEWHERE, SPINNING, STATES, Published
from bench.trips import PEER
from bench.worker import READY
from holdfast import Timeout

SUBSCRIBERS = (1, 2, 4, 8)
SIZES = (64, 4 << 20)
TOGETHER = 50  # publications between two looks at the clock
ASLEEP_PART = 500  # of so many publications, one is measured with sleeping subscribers: it has to wait
LOOK_S = 0.02  # how often a subscriber looks whether it shall stop
DEPTH = 2


class Publisher(Protocol):
    def publish(self) -> object:
        """Publish a sample; no process fills it."""

    def rouse(self) -> object:
        """Publish to subscribers that may be asleep."""

    def close(self) -> None: ...


class Taker(Protocol):
    def take(self, stop: Any, asleep: bool) -> None:
        """Take samples until `stop` is set."""

    def close(self) -> None: ...


class Instance(Protocol):
    """Created in the parent, sent to the subscribers by pickle, opened there."""

    def publisher(self) -> Publisher: ...

    def taker(self) -> Taker: ...


@dataclass(frozen=True)
class OurInstance:
    name: str
    size: int
    subscribers: int

    @property
    def service(self) -> Any:
        # One loan, the newest, and two for each subscriber.
        samples = 2 + 2 * self.subscribers
        return event_service(self.size, samples, self.subscribers)

    def publisher(self) -> Publisher:
        return OurPublisher(self)

    def taker(self) -> Taker:
        return OurTaker(self)


class OurPublisher:
    def __init__(self, instance: OurInstance) -> None:
        self.skeleton = instance.service.offer(instance.name)
        self.event = self.skeleton.data
        self.size = instance.size

    def publish(self) -> None:
        self.event.loan(self.size).publish()

    rouse = publish

    def close(self) -> None:
        self.skeleton.close()


class OurTaker:
    def __init__(self, instance: OurInstance) -> None:
        self.proxy = instance.service.find(instance.name, FIND_S)
        self.subscription = self.proxy.data.subscribe()

    def take(self, stop: Any, asleep: bool) -> None:
        self.proxy._core.spin = 0.0 if asleep else SPIN_S
        take = self.subscription.take
        while not stop.value:
            try:
                with take(LOOK_S):
                    pass
            except Timeout:
                pass

    def close(self) -> None:
        self.proxy.close()


@dataclass(frozen=True)
class PeerInstance(Iceoryx2):
    def publisher(self) -> Publisher:
        return PeerPublisher(self)

    def taker(self) -> Taker:
        return PeerTaker(self)


class PeerPublisher(IceoryxSender):
    def publish(self) -> None:
        self.publisher.loan_slice_uninit(self.size).assume_init().send()

    def rouse(self, data: bytes = b"") -> None:
        self.publish()
        self.notifier.notify()


class PeerTaker(IceoryxReceiver):
    def take(self, stop: Any, asleep: bool) -> None:
        receive = self.subscriber.receive
        pause = self.iox2.Duration.from_millis(round(LOOK_S * 1e3))
        while not stop.value:
            if receive() is None and asleep:
                self.listener.timed_wait(pause)


def subscribe(control: Connection, core: int | None, instances: list[Instance], stop: Any) -> None:
    """Subscribe to the instances; take from one by each order, until `stop` is set."""
    pin(core)
    takers = [instance.taker() for instance in instances]
    control.send(READY)
    try:
        while True:
            number, asleep = control.recv()
            control.send(READY)
            takers[number].take(stop, asleep)
            control.send(READY)
    finally:
        for taker in takers:
            taker.close()


def grouped_ns(publish: Callable[[], object], count: int) -> float:
    """Return the median time of a publication, from groups of them."""
    clock = time.perf_counter_ns
    times: list[int] = []
    for _ in range(max(1, count // TOGETHER)):
        start = clock()
        for _ in range(TOGETHER):
            publish()
        times.append(clock() - start)
    return statistics.median(times) / TOGETHER


def single_ns(rouse: Callable[[], object], count: int) -> float:
    """Return the median time of a publication to subscribers that fell asleep before."""
    clock = time.perf_counter_ns
    times: list[int] = []
    for _ in range(max(3, count // ASLEEP_PART)):
        time.sleep(SLEEP_BEFORE_PING_S)
        start = clock()
        rouse()
        times.append(clock() - start)
    return statistics.median(times)


class Bench:
    """All instances of one transport, with their publishers and their subscribers' processes."""

    def __init__(self, context: SpawnContext, name: str, counts: tuple[int, ...], core: int | None) -> None:
        self.name, self.stop = name, context.RawValue(c_bool, False)
        self.cells = [(size, count) for size in SIZES for count in counts]
        instances = [self._instance(size, count) for size, count in self.cells]
        self.publishers = [instance.publisher() for instance in instances]
        self.helpers: list[tuple[Helper, dict[int, int]]] = []
        for number in range(max(counts)):
            mine = [i for i, (_, count) in enumerate(self.cells) if number < count]
            helper = Helper(context, subscribe, core, [instances[i] for i in mine], self.stop)
            self.helpers.append((helper, {i: place for place, i in enumerate(mine)}))
        for helper, _ in self.helpers:
            helper.ready()

    def _instance(self, size: int, count: int) -> Instance:
        name = unused_name("publish")
        if self.name == OURS:
            return OurInstance(name, size, count)
        return PeerInstance(name, size, DEPTH, count, overflow=True)

    def sample_ns(self, cell: int, state: str, count: int) -> float:
        publisher = self.publishers[cell]
        takers = [(helper, places[cell]) for helper, places in self.helpers if cell in places]
        if state == ELSEWHERE:
            return grouped_ns(publisher.publish, count)
        self.stop.value = False
        for helper, place in takers:
            helper.order((place, state == ASLEEP))
        try:
            if state == SPINNING:
                return grouped_ns(publisher.publish, count)
            return single_ns(publisher.rouse, count)
        finally:
            self.stop.value = True
            for helper, _ in takers:
                helper.ready()

    def close(self) -> None:
        self.stop.value = True
        for helper, _ in self.helpers:
            helper.close()
        for publisher in self.publishers:
            publisher.close()


def measure_publish(
    context: SpawnContext,
    rounds: int,
    count: int,
    peer: bool,
    counts: tuple[int, ...] = SUBSCRIBERS,
) -> list[Published]:
    """Measure all cells in random order in each round.

    The transports of a cell are measured one after the other.
    """
    first, second = two_cores()
    benches: list[Bench] = []
    samples: dict[tuple[str, int, int, str], list[float]] = {}
    try:
        with pinned(first):
            for name in (OURS, PEER) if peer else (OURS,):
                benches.append(Bench(context, name, counts, second))
            cells = [(i, state) for i in range(len(benches[0].cells)) for state in STATES]
            for _ in range(rounds + 1):
                for i, state in random.sample(cells, len(cells)):
                    for bench in random.sample(benches, len(benches)):
                        key = bench.name, *bench.cells[i], state
                        samples.setdefault(key, []).append(bench.sample_ns(i, state, count))
    finally:
        for bench in benches:
            bench.close()
    # The first round warmed up.
    return [Published(*key, Spread.of(values[1:]), values[1:]) for key, values in sorted(samples.items())]
