"""Limit the reads and calls of the Flight process, and decide when it stops.

A read holds its place until its rows are sent, or its connection ends. Flight cannot end the stream of a
connected client that does not read. When such clients hold all places for long, and others wait, the process
stops. Readers then retry and continue where they were; they hold a place only while they read.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from holdfast.errors import TooManyConnections

CALLS_MAX = 64
"""Calls in progress; each has files open. Further callers are told to retry."""
WAITING_S = 10.0
"""Time after a refusal in which a reader counts as waiting: readers retry every second."""


class _Read:
    """A read in progress."""

    def __init__(self, progress: Callable[[], int]) -> None:
        self._progress = progress
        self._seen = progress()
        self.since = time.monotonic()
        """The time of its last progress."""

    def look(self) -> None:
        if (now_at := self._progress()) != self._seen:
            self._seen, self.since = now_at, time.monotonic()


class Places:
    """Counts reads and calls, and refuses those above a limit."""

    def __init__(self, reads_max: int, idle_s: float) -> None:
        self._reads_max = reads_max
        self._idle_s = idle_s
        self._counting = threading.Lock()
        self._calls = 0
        self._reads: set[_Read] = set()
        self._refused = -WAITING_S
        self._last = time.monotonic()

    def over(self) -> str:
        """Return why the process should stop, or an empty text; called every second."""
        now = time.monotonic()
        with self._counting:
            if not self._reads and not self._calls and now - self._last > self._idle_s:
                return "no reads for flight.idle_s"
            for each in self._reads:
                each.look()
            waiting = len(self._reads) >= self._reads_max and now - self._refused < WAITING_S
            if waiting and now - max(each.since for each in self._reads) > self._idle_s:
                return "no reader has taken rows for flight.idle_s, and others wait"
        return ""

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Count a call. Raises TooManyConnections."""
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
        """Count a read.

        Args:
            progress: returns a number that changes with each progress of the read.

        Raises:
            TooManyConnections: flight.reads is reached.
        """
        with self._counting:
            if len(self._reads) >= self._reads_max:
                self._refused = time.monotonic()
                raise TooManyConnections(
                    f"{self._reads_max} reads are in progress, the most that flight.reads allows; retry later"
                )
            read = _Read(progress)
            self._reads.add(read)
        try:
            yield
        finally:
            with self._counting:
                self._reads.discard(read)
                self._last = time.monotonic()
