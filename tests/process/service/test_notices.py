"""Notices of deaths: handlers that fail or close; deaths without room for a notice."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Event, Field, PeerDied, Service, Skeleton
from tests.kit.processes import Child, until
from tests.kit.service.words import NOTICES, Words

Start = Callable[..., Child]


class Clock(Service):
    tick = Event(size=8)
    rate = Field("f8")


def die_connected(directory: str) -> None:
    """In a child."""
    import os
    import signal

    from holdfast import _core

    connected = _core.ServiceProxy(directory, "Clock.a", "short")
    os.kill(os.getpid(), signal.SIGKILL)
    connected.close()


def let_one_die(start: Start, directory: Path, skeleton: Skeleton) -> None:
    start(die_connected, str(directory)).wait(-signal.SIGKILL)
    skeleton.reap()


def test_notices_beyond_128_are_counted(start: Start, runtime_directory: Path) -> None:
    """128 deaths wait for a provider. Those beyond are not told; `unheard` counts them."""
    with Clock.offer("a") as skeleton:
        words = Words(Clock, "a")
        for place in range(NOTICES - 2):
            words.write(words.notice(place), 1)
            words.write(words.notice(place) + 8, 1_000_000_000 + place)  # a pid that does not exist
        for n in range(1, 5):
            let_one_die(start, runtime_directory, skeleton)
            stats = skeleton.stats()
            assert (stats.notices, stats.unheard) == (min(NOTICES, NOTICES - 2 + n), max(0, n - 2))
        assert stats.recovered == 4
        told = skeleton._core.notices()
        assert [each[3] for each in told[-2:]] == ["short", "short"]
        for place, *_ in told:
            skeleton._core.notice_taken(place)
        let_one_die(start, runtime_directory, skeleton)
        assert (skeleton.stats().notices, skeleton.stats().unheard) == (1, 2)
        assert skeleton.check() == []


def test_on_departed_that_fails_or_closes(start: Start, runtime_directory: Path) -> None:
    """The thread goes on after SystemExit, and the notice is told again."""
    told: list[str] = []

    def departed(notice: Any) -> None:
        told.append(notice.application)
        if len(told) == 1:
            raise SystemExit(1)
        skeleton.close()

    skeleton = Clock.offer("a", on_departed=departed)
    with Clock.find("a") as proxy:
        start(die_connected, str(runtime_directory)).wait(-signal.SIGKILL)
        proxy.reap()
        until(lambda: not skeleton.attached)
        assert told == ["short", "short"]
        with pytest.raises(PeerDied):
            proxy.rate.set(1.0, 20)
