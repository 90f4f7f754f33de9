"""How much goes on at once in the Flight process, and when it is better to begin again.

A read holds its place until its rows are handed over, or its connection ends. Flight cannot end the stream of
somebody who is connected and takes nothing. So when all places are held like that for long, and others wait,
the process ends: whoever reads comes again, goes on where it was, and takes a place when it takes rows.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from holdfast.errors import TooManyConnections

CALLS_MAX = 64
"""Questions under way; each has files open. Whoever would be one more is told to come again."""
WAITING_S = 10.0
"""Somebody who was refused a place within this still wants one: readers ask every second."""


class _Read:
    """One that is under way."""

    def __init__(self, progress: Callable[[], int]) -> None:
        self._progress = progress
        self._seen = progress()
        self.since = time.monotonic()
        """When it was last seen to have got on."""

    def look(self) -> None:
        if (now_at := self._progress()) != self._seen:
            self._seen, self.since = now_at, time.monotonic()


class Places:
    """Counts reads and calls."""

    def __init__(self, reads_max: int, idle_s: float) -> None:
        self._reads_max = reads_max
        self._idle_s = idle_s
        self._counting = threading.Lock()
        self._calls = 0
        self._reads: set[_Read] = set()
        self._refused = -WAITING_S
        self._last = time.monotonic()

    def over(self) -> str:
        """Why the process should end now; empty: it should not. To be asked every second or so."""
        now = time.monotonic()
        with self._counting:
            if not self._reads and not self._calls and now - self._last > self._idle_s:
                return "no read for too long"
            for each in self._reads:
                each.look()
            waiting = len(self._reads) >= self._reads_max and now - self._refused < WAITING_S
            if waiting and now - max(each.since for each in self._reads) > self._idle_s:
                return "the reader has taken nothing for too long, and others wait"
        return ""

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Around a question. Raises TooManyConnections."""
        with self._counting:
            if self._calls >= CALLS_MAX:
                raise TooManyConnections(
                    f"{self._calls} requests are in progress, the most allowed; retry later"
                )
            self._calls += 1
        try:
            yield
        finally:
            with self._counting:
                self._calls -= 1
                self._last = time.monotonic()

    @contextlib.contextmanager
    def read(self, progress: Callable[[], int]) -> Iterator[None]:
        """Around a read.

        Args:
            progress: another number whenever it got on.

        Raises:
            TooManyConnections: as many read as may.
        """
        with self._counting:
            if len(self._reads) >= self._reads_max:
                self._refused = time.monotonic()
                raise TooManyConnections(
                    f"{self._reads_max} reads are in progress, the most allowed; retry later"
                )
            read = _Read(progress)
            self._reads.add(read)
        try:
            yield
        finally:
            with self._counting:
                self._reads.discard(read)
                self._last = time.monotonic()
