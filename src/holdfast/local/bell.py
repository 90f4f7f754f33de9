"""One thread that sleeps for many queues, so that idle ones cost nothing.

`Queue.aget` looks at its queue every 50 ms; with hundreds of ingest queues that would be a processor's work.
Here a queue is looked at when it rings, and every few seconds: a producer may be killed between message and
ring.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass

from holdfast import _core
from holdfast._core import Messages
from holdfast.errors import Empty, Misuse
from holdfast.memory import Queue

QUEUES_MAX = 120
"""The kernel waits for 128 words at most."""
IDLE_S = 4.0
"""So seldom is a silent queue looked at; those whose time is near are looked at together."""
URGENT_S = 0.001
"""Time after which the death of a process that blocks a queue is noticed."""


@dataclass(frozen=True)
class _Watch:
    queue: Queue
    heard: int
    deadline: float
    future: asyncio.Future[None]


class Bell:
    """Waits for messages in up to `QUEUES_MAX` queues, for one event loop.

    Example:
        >>> async def main() -> None:
        ...     bell, q = Bell(), Queue.create("rung", capacity=1 << 16)
        ...     taking = asyncio.create_task(bell.take(q, 10))
        ...     await asyncio.sleep(0)
        ...     q.put(b"x")
        ...     with await taking as messages:
        ...         print(messages.tobytes())
        ...     bell.close(); q.detach(); Queue.unlink("rung")
        >>> asyncio.run(main())
        [b'x']
    """

    def __init__(self) -> None:
        self.users = 0
        """Queues that were given to it, counted by the giver."""
        self._loop = asyncio.get_running_loop()
        self._alarm = _core.Alarm()
        self._lock = threading.Lock()
        self._watches: dict[int, _Watch] = {}
        self._next = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="holdfast-ingest", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, after all waiting has ended."""
        self._closed = True
        self._alarm.ring()
        self._thread.join()

    async def take(self, queue: Queue, count: int) -> Messages:
        """Take at least one message, up to `count`; a cancelled call takes nothing."""
        while True:
            heard = queue._listen(False)
            try:
                return queue.get_many(count, 0)
            except Empty as error:
                urgent = error.pid is not None
            await self._rung(queue, heard, urgent)

    async def _rung(self, queue: Queue, heard: int, urgent: bool) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        deadline = time.monotonic() + (URGENT_S if urgent else IDLE_S)
        with self._lock:
            self._next += 1
            ticket = self._next
            self._watches[ticket] = _Watch(queue, heard, deadline, future)
        self._alarm.ring()
        try:
            await future
        finally:
            with self._lock:
                self._watches.pop(ticket, None)

    def _run(self) -> None:
        while not self._closed:
            futures = self._sleep()
            if futures:
                with contextlib.suppress(RuntimeError):  # the loop was closed: nothing waits there any more
                    self._loop.call_soon_threadsafe(_wake, futures)

    def _sleep(self) -> list[asyncio.Future[None]]:
        """One sleep; whom to wake. Keeps no queue alive afterwards."""
        alarm = self._alarm.hear()
        with self._lock:
            watches = dict(self._watches)
        now = time.monotonic()
        seconds = max(0.0, min((each.deadline for each in watches.values()), default=now + 3600.0) - now)
        heard: list[tuple[_core.Queue, bool, int]] = [
            (each.queue, False, each.heard) for each in watches.values()
        ]
        if not self._closed:
            _core.wait_any(self._alarm, alarm, heard, seconds)
        now = time.monotonic()
        late = any(each.deadline <= now for each in watches.values())
        limit = now + IDLE_S / 2 if late else now
        over = [ticket for ticket, each in watches.items() if each.deadline <= limit or _rings(each)]
        with self._lock:
            for ticket in over:
                self._watches.pop(ticket, None)
        return [watches[ticket].future for ticket in over]


def _rings(watch: _Watch) -> bool:
    try:
        return watch.queue._listen(False) != watch.heard
    except Misuse:  # detached meanwhile
        return True


def _wake(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
