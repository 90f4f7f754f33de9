"""Waiting in tests: for conditions, calls in threads, the clock and timeouts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tests.kit.processes import PATIENCE_S

T = TypeVar("T")


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


async def eventually(condition: Callable[[], T], timeout: float = PATIENCE_S) -> T:
    """Wait within a loop until the condition is true, and return its value."""
    async with asyncio.timeout(timeout):
        while not (value := condition()):
            await asyncio.sleep(0.001)
    return value


def next_millisecond() -> int:
    """Wait for the wall clock's next millisecond, and return it."""
    before = time.time_ns() // 1_000_000
    while (now := time.time_ns() // 1_000_000) <= before:
        time.sleep(0.0001)
    return now


@contextlib.contextmanager
def waits_out(timeout: float) -> Iterator[None]:
    """Fail if the block ends sooner than the timeout it was given.

    Tests assert no other durations: a busy machine makes a wait longer, never shorter.
    """
    began = time.monotonic()
    yield
    waited = (time.monotonic() - began) / timeout
    assert waited >= 1, f"the wait ended after {waited:.1%} of its timeout"
