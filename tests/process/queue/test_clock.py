"""Waits on a queue use the monotonic clock: jumps of the wall clock change nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Queue
from tests.kit.processes import Start, hear, tell
from tests.kit.wall_clock import YEAR, WallClock

WAIT_S = 0.15


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WallClock]:
    """The wall clock of the processes that a test starts."""
    with WallClock(tmp_path) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


def waiter(wait_s: float) -> None:
    """Waits in every way for nothing, and measures the time by the monotonic clock."""
    import asyncio

    empty, full = Queue.open("q"), Queue.open("full")

    async def wait() -> None:
        await empty.aget(timeout=wait_s)

    ways: dict[str, Callable[[], object]] = {
        "get": lambda: empty.get(timeout=wait_s),
        "put": lambda: full.put(b"x" * 400, timeout=wait_s),
        "aget": lambda: asyncio.run(wait()),
    }
    for name, way in ways.items():
        tell((name, time.time()))
        hear()
        began = time.monotonic()
        try:
            way()
        except holdfast.Timeout:
            tell(time.monotonic() - began)


@pytest.mark.parametrize("jump", [YEAR, -YEAR, 0], ids=["ahead", "behind", "still"])
def test_waits_are_monotonic(jump: int, clock: WallClock, q: Queue, start: Start) -> None:
    with Queue.create("full", capacity=1 << 10) as full:
        while full.stats().free_bytes > 256:
            full.put(b"x" * 100)
        child = start(waiter, WAIT_S)
        for way in ("get", "put", "aget"):
            name, seen = child.hear()
            assert name == way
            child.tell("go")
            if jump:
                clock.ahead(jump)
            else:
                clock.stop()
            assert child.hear() >= 0.9 * WAIT_S, f"{way} ended early"
            clock.right()
            assert seen > 0
        child.wait()


def test_a_stopped_clock_stops_no_message(clock: WallClock, q: Queue, start: Start) -> None:
    def echo() -> None:
        queue = Queue.open("q")
        for _ in range(3):
            got = queue.get_bytes(timeout=10)
            tell((got, time.time_ns()))

    child = start(echo)
    times = []
    clocks: tuple[Callable[[], None], ...] = (
        clock.stop,
        lambda: clock.ahead(YEAR),
        lambda: clock.ahead(-YEAR),
    )
    for number, set_clock in enumerate(clocks):
        set_clock()
        q.put(b"%d" % number)
        got, now_ns = child.hear()
        assert got == b"%d" % number
        times.append(now_ns)
    assert times[2] < times[0] < times[1]  # the clocks were wrong indeed
    child.wait()
