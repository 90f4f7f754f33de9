"""One thread per process that sleeps for everybody who must not: event loops and file descriptors.

It only tells that it is worth looking again. The message itself is taken where it is wanted, so that a
cancelled task loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast import _core

if TYPE_CHECKING:
    from holdfast.memory.queue import Queue

IDLE_S = 0.05
"""Every wait is bounded: a queue is looked at this often even if nobody rings."""
URGENT_S = 0.0005
"""Behind a named owner: how soon its death is noticed."""

_Watch = tuple["Queue", bool, int, bool, Callable[[], None]]


class Waiter:
    """Calls back, once, when a bell rang or its time is over."""

    def __init__(self) -> None:
        self._alarm = _core.Alarm()
        self._lock = threading.Lock()
        self._watches: dict[int, _Watch] = {}
        self._next = 0
        self._thread: threading.Thread | None = None

    def watch(self, queue: Queue, putting: bool, heard: int, urgent: bool, call: Callable[[], None]) -> int:
        """Calls `call` at the next ring after `heard` (from `queue._listen(putting)`); returns a ticket."""
        with self._lock:
            self._next += 1
            ticket = self._next
            self._watches[ticket] = (queue, putting, heard, urgent, call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast-waiter", daemon=True)
                self._thread.start()
        self._alarm.ring()
        return ticket

    def forget(self, ticket: int) -> None:
        """The caller does not wait any more."""
        with self._lock:
            self._watches.pop(ticket, None)

    def _run(self) -> None:
        while True:
            alarm_heard = self._alarm.hear()
            with self._lock:
                watches = dict(self._watches)
            urgent = any(watch[3] for watch in watches.values())
            seconds = 3600.0 if not watches else URGENT_S if urgent else IDLE_S
            heard: list[tuple[_core.Queue, bool, int]] = [watch[:3] for watch in watches.values()]
            rung = _core.wait_any(self._alarm, alarm_heard, heard, seconds)
            if rung and self._alarm.hear() != alarm_heard:
                continue  # only the set of watches changed
            with self._lock:
                for ticket in watches:
                    self._watches.pop(ticket, None)
            for watch in watches.values():
                watch[4]()
            del watches, heard  # keep no queue alive while asleep


_waiter = Waiter()


def waiter() -> Waiter:
    """This process's waiter."""
    return _waiter


def _after_fork() -> None:
    global _waiter
    _waiter = Waiter()  # the thread did not come along


os.register_at_fork(after_in_child=_after_fork)


async def ring(queue: Queue, putting: bool, heard: int, urgent: bool, timeout: float | None) -> None:
    """Returns when it is worth looking again, or after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def call() -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits there any more
            loop.call_soon_threadsafe(wake)

    ticket = waiter().watch(queue, putting, heard, urgent, call)
    try:
        await asyncio.wait([future], timeout=timeout)
    finally:
        waiter().forget(ticket)
