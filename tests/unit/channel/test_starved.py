"""Overtake a pop more often than `laps` allows: it takes nothing, and is counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Channel, Empty, HoldfastError, Timeout, _core
from tests.kit.processes import until

LAPS = 3
POINT = "pop_inspected"
"""Here a pop has looked at a datum, and not taken it."""


@pytest.fixture
def channel(runtime_directory: object) -> Iterator[Channel]:
    with Channel.create("c", slots=2, slot_size=8, laps=LAPS) as made:
        yield made
    _core.disarm()


class Overtaken:
    """A pop in a thread, which the producer overtakes as often as a test wants."""

    def __init__(self, channel: Channel, timeout: float) -> None:
        self.producer, self.consumer = channel.producer(), channel.consumer()
        self.pushed = 0
        self.result: Any = None
        self.push(2)
        _core.arm(POINT, "stand")
        self.thread = threading.Thread(target=self.pop, args=(timeout,))
        self.thread.start()

    def pop(self, timeout: float) -> None:
        try:
            self.result = self.consumer.pop(timeout)
        except HoldfastError as error:
            self.result = error

    def push(self, count: int) -> None:
        for _ in range(count):
            self.producer.push(b"%d" % self.pushed)
            self.pushed += 1

    def overtake(self, times: int) -> None:
        for turn in range(times):
            until(lambda: _core.is_standing(POINT))
            self.push(6)  # two laps: the datum that it looks at is gone
            if turn < times - 1:
                _core.arm(POINT, "stand")
            _core.go_on(POINT)

    def end(self) -> Any:
        self.thread.join()
        return self.result


def lost_and_last(consumer: Any) -> tuple[int, list[bytes]]:
    lost, found = 0, []
    while not consumer.empty:
        with consumer.pop(0) as item:
            lost += item.lost
            found.append(bytes(item))
    return lost, found


def test_as_often_as_laps_allows(channel: Channel) -> None:
    pop = Overtaken(channel, 0)
    pop.overtake(1)
    with pop.end() as item:
        assert bytes(item) == b"%d" % (pop.pushed - 2)
        assert item.lost == pop.pushed - 2
    assert channel.stats().starved == 0


@pytest.mark.parametrize(("timeout", "error"), [(0, Empty), (0.02, Timeout)])
def test_more_often(channel: Channel, timeout: float, error: type[Exception]) -> None:
    pop = Overtaken(channel, timeout)
    turns = 0
    while pop.thread.is_alive():
        until(lambda: _core.is_standing(POINT) or not pop.thread.is_alive())
        if not pop.thread.is_alive():
            break
        pop.push(6)
        _core.arm(POINT, "stand")
        _core.go_on(POINT)
        turns += 1
    _core.disarm()
    result = pop.end()
    assert isinstance(result, error), result
    assert f"overtook this pop {LAPS} times in a row" in str(result)
    assert "nothing was taken. Pop more often, or create the channel with more slots" in str(result)
    assert turns > LAPS / 2
    assert channel.stats().starved >= 1
    assert pop.consumer.held == 0

    lost, found = lost_and_last(pop.consumer)
    assert found == [b"%d" % (pop.pushed - 2), b"%d" % (pop.pushed - 1)], "the newest are still there"
    assert lost == pop.pushed - 2, "what was lost meanwhile is counted"
    assert channel.check() == []


def test_a_pop_with_time_left_starts_anew(channel: Channel) -> None:
    pop = Overtaken(channel, 20.0)
    while channel.stats().starved == 0:
        until(lambda: _core.is_standing(POINT))
        pop.push(6)
        _core.arm(POINT, "stand")
        _core.go_on(POINT)
    _core.disarm()
    until(lambda: _core.is_standing(POINT) or not pop.thread.is_alive())
    _core.go_on(POINT)
    with pop.end() as item:
        assert bytes(item) in (b"%d" % (pop.pushed - 2), b"%d" % (pop.pushed - 1))
