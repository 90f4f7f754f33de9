"""A service for tests of its bindings: its elements, both sides, and calls in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import _core

EVENT, FIELD, METHOD = 0, 1, 2
LARGE = 100_000
ELEMENTS: list[_core.ElementTuple] = [
    ("event", 1, 8, 1, 2, 0, 16, 0, 0, "f4[4]"),
    ("field", 2, 8, 2, 3, 1, LARGE, LARGE, LARGE, ""),
    ("method", 3, 0, 0, 0, 2, 0, 16, 16, "é"),
]

ANSWERED, LATE_UNEXECUTED, LATE_RUNNING, ABSENT, DIED, NO_PLACE = range(6)


def offer(place: str, elements: list[_core.ElementTuple] = ELEMENTS) -> _core.ServiceProvider:
    """Offer the service "s"."""
    return _core.ServiceProvider(place, "s", "giver", elements, 0o600, -1)


def connect(place: str, tracer: bool = False) -> _core.ServiceProxy:
    """Connect to the service "s"."""
    return _core.ServiceProxy(place, "s", "taker", tracer)


class Waiting:
    """A call in a thread; `end()` returns its result or its exception."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.thread = threading.Thread(target=self.run, args=(call,), daemon=True)
        self.thread.start()

    def run(self, call: Callable[[], Any]) -> None:
        try:
            self.result = call()
        except Exception as error:
            self.result = error

    def end(self) -> Any:
        self.thread.join(20)
        assert not self.thread.is_alive(), "the call hangs"
        return self.result


def data(samples: list[_core.ServiceSample]) -> list[tuple[bytes, int, int]]:
    """Return bytes, number and missed numbers of each sample."""
    return [(bytes(each.data), each.sequence, each.missed) for each in samples]


def active(place: str) -> list[str]:
    """Return the roles that are taken."""
    return [each["role"] for each in _core.inspect_service(place, "s")["people"] if each["active"]]


def element(place: str, number: int) -> Any:
    """Return what an inspection tells about an element."""
    return _core.inspect_service(place, "s")["elements"][number]


def files(place: str) -> list[str]:
    """Return the names in a directory."""
    return sorted(each.name for each in Path(place).iterdir())
