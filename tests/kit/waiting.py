"""Waiting in tests: for a condition, for the clock's next step, and for a timeout."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tests.kit.processes import PATIENCE_S

T = TypeVar("T")


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
