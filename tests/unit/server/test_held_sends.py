"""SENDs that wait for the rate of their topic: producers publish in turn."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker import Bucket
from holdfast.server.pulsar.held_sends import HeldSends

TICK_S = 2e-6
"""Time between two looks at the clock, as of a processor: the first timer that is set is the first to end."""


class Loop:
    """A loop and a clock in virtual time, which run timers alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()

    def time(self) -> float:
        self.now += TICK_S
        return self.now

    def monotonic_ns(self) -> int:
        return int(self.time() * 1e9)

    def create_future(self) -> Any:
        return SimpleNamespace(done=lambda: False, set_result=lambda _: None)

    def call_later(self, delay_s: float, work: Callable[..., None], *arguments: Any) -> Any:
        timer = SimpleNamespace(cancelled=False)

        def run() -> None:
            if not timer.cancelled:
                work(*arguments)

        heapq.heappush(self.timers, (self.time() + delay_s, next(self.numbers), run))
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        return timer

    def run_until(self, end: float) -> None:
        while self.timers and self.timers[0][0] <= end:
            at, _, run = heapq.heappop(self.timers)
            self.now = max(self.now, at)
            run()
        self.now = max(self.now, end)


class World:
    """Connections with one producer each, of one topic with a rate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loop: Loop, messages: float, size: float = 0) -> None:
        self.loop = loop
        self.bucket = Bucket(loop, messages, size)  # type: ignore[arg-type]
        self.published: list[tuple[float, str]] = []
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)

    def producer(self, name: str) -> HeldSends:
        nothing = SimpleNamespace(count=0, size=0)
        on: Any = SimpleNamespace(
            options=SimpleNamespace(frame_bytes=1 << 23),
            loop=self.loop,
            broker=SimpleNamespace(behind=False, frame=nothing),
            reader=SimpleNamespace(set_passing_producer=lambda _: None),
            server=SimpleNamespace(budget=SimpleNamespace(hold=lambda *_: None)),
            producers=SimpleNamespace(set_on=lambda *_: None, resume=lambda _: None),
            pause=lambda _: None,
            go_on=lambda _: None,
        )
        found = HeldSends(on)

        def publish(producer: Any, frame: bytes) -> bool:
            self.published.append((self.loop.now, name))
            return True

        found._publish = publish  # type: ignore[method-assign]
        found.limited(SimpleNamespace(id=1, bucket=self.bucket))  # type: ignore[arg-type]
        return found

    def send(self, held: HeldSends, count: int, size: int = 10) -> None:
        held.add(1, bytes(16) * count, [(1, bytes(size))] * count)

    def count(self, name: str) -> int:
        return sum(of == name for _, of in self.published)


@pytest.mark.parametrize("rate", [10, 100, 1_000])
def test_a_producer_that_holds_much_leaves_turns_to_others(
    monkeypatch: pytest.MonkeyPatch, rate: int
) -> None:
    world = World(monkeypatch, loop := Loop(), rate)
    greedy, quiet = [world.producer("greedy") for _ in range(3)], world.producer("quiet")
    for each in greedy:
        world.send(each, 20 * rate)
    loop.run_until(2.0)
    for at in range(1, 9):
        world.send(quiet, 1)
        loop.run_until(2.0 + at)
        assert world.count("quiet") == at
    total = len(world.published)
    assert total <= rate * 11 + 4
    assert total >= rate * 9


def test_what_is_dropped_before_its_turn_is_not_paid_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends much and leaves would stop its topic for hours."""
    world = World(monkeypatch, loop := Loop(), 0, 1000)
    quiet = world.producer("quiet")
    world.send(quiet, 3, size=1000)  # the rate is used up
    for _ in range(5):
        leaving = world.producer("leaving")
        world.send(leaving, 1, size=1_000_000)
        leaving.drop(1)
    world.send(quiet, 1, size=10)
    loop.run_until(10.0)
    assert world.count("quiet") == 4
    assert world.count("leaving") == 0


def test_a_lifted_rate_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, loop := Loop(), 1)
    held = world.producer("one")
    world.send(held, 50)
    loop.run_until(1.0)
    assert world.count("one") < 10
    producer = held._held[1].producer
    producer.bucket = None
    held.look(producer)
    assert world.count("one") == 50
