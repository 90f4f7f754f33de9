"""Common steps of tests on a queue."""

from __future__ import annotations

import contextlib
import os

from holdfast import Closed, Empty, Full, Queue, _core


def drain(q: Queue) -> list[bytes]:
    """Get and settle everything that is available without waiting."""
    found: list[bytes] = []
    with contextlib.suppress(Empty, Closed):
        while True:
            found.append(q.get_bytes(timeout=0))
    return found


def fill(q: Queue, data: bytes) -> int:
    """Put until the queue is full; return how often."""
    count = 0
    with contextlib.suppress(Full):
        while True:
            q.put(data, timeout=0)
            count += 1
    return count


def echo(there: Queue, back: Queue) -> None:
    """Return each message reversed; for `multiprocessing`, whose targets must be importable."""
    for message in there:
        back.put(bytes(message)[::-1])


def aged(first_position: int, granules: int, participants: int = 4) -> Queue:
    """Create a queue named "aged" whose positions start at `first_position`."""
    _core.create_queue(
        os.environ["HOLDFAST_RUNTIME_DIR"],
        "aged",
        capacity=64 * granules,
        participants=participants,
        at_most_once=False,
        max_deliveries=0,
        dead_letter="",
        stall_limit_ms=0,
        full_checksum=False,
        mode=0o600,
        group=-1,
        first_position=first_position,
    )
    return Queue.open("aged")
