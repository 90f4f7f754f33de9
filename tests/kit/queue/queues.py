"""What tests do with a queue again and again."""

from __future__ import annotations

import contextlib

from holdfast import Closed, Empty, Full, Queue


def drain(q: Queue) -> list[bytes]:
    """Everything that can be had without waiting, settled."""
    found: list[bytes] = []
    with contextlib.suppress(Empty, Closed):
        while True:
            found.append(q.get_bytes(timeout=0))
    return found


def fill(q: Queue, data: bytes) -> int:
    """Puts until there is no room; tells how often."""
    count = 0
    with contextlib.suppress(Full):
        while True:
            q.put(data, timeout=0)
            count += 1
    return count


def echo(there: Queue, back: Queue) -> None:
    """Everything that comes, backwards; for `multiprocessing`, whose targets must be importable."""
    for message in there:
        back.put(bytes(message)[::-1])
