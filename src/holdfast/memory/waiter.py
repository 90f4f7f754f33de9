"""One thread per process that sleeps for everybody who must not: event loops and file descriptors.

It only tells that it is worth looking again. The message itself is taken where it is wanted, so that a
cancelled task loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast import _core
from holdfast.errors import Misuse

if TYPE_CHECKING:
    from holdfast.memory.queue import Queue

IDLE_S = 0.05
"""Every wait is bounded: a queue is looked at this often even if nobody rings."""
URGENT_S = 0.0005
"""Behind a named owner: how soon its death is noticed."""


class Signal:
    """A pipe that may be closed while another thread is about to write to it.

    A pipe, because it has an inode of its own. Other code may close a descriptor that it does not know, and
    its number is then used for another file: that file is neither written to nor closed here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._identity = _identity(self._read)

    @property
    def fd(self) -> int:
        """The descriptor to wait for.

        Raises:
            Misuse: other code closed it.
        """
        if not self._is_ours(self._read) or not self._is_ours(self._write):
            raise Misuse(
                "other code in this process closed the descriptor of Queue.fileno() (a daemoniser, "
                "os.closerange?); detach the queue and open it again with Queue.open()"
            )
        return self._read

    def set(self) -> None:
        """Makes it readable."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it is readable
            if self._is_ours(self._read) and self._is_ours(self._write):
                os.write(self._write, b"!")

    def clear(self) -> None:
        """Makes it not readable."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass

    def close(self) -> None:
        """Gives the descriptors up."""
        # In a child of fork() the lock may be held for ever, by a thread that stayed in the parent.
        with self._lock if os.getpid() == self._pid else contextlib.nullcontext():
            for fd in (self._read, self._write):
                if self._is_ours(fd):
                    os.close(fd)
            self._read = self._write = -1

    def _is_ours(self, fd: int) -> bool:
        return fd >= 0 and _identity(fd) == self._identity


def _identity(fd: int) -> tuple[int, int] | None:
    """Return device and inode of an open file, None if there is no such descriptor."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


@dataclass(frozen=True)
class Watch:
    """Somebody who wants to be called, once, when a bell rings or its time is over."""

    queue: Queue
    putting: bool
    heard: int
    deadline: float
    call: Callable[[], None]


class Waiter:
    """Calls back, once, when a bell rang or its time is over."""

    def __init__(self) -> None:
        self._alarm = _core.Alarm()
        self._lock = threading.Lock()
        self._watches: dict[int, Watch] = {}
        self._next = 0
        self._thread: threading.Thread | None = None

    def watch(self, queue: Queue, putting: bool, heard: int, urgent: bool, call: Callable[[], None]) -> int:
        """Calls `call` at the next ring after `heard` (from `queue._listen(putting)`); returns a ticket."""
        deadline = time.monotonic() + (URGENT_S if urgent else IDLE_S)
        with self._lock:
            self._next += 1
            ticket = self._next
            self._watches[ticket] = Watch(queue, putting, heard, deadline, call)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="holdfast-waiter", daemon=True)
                thread.start()
                self._thread = thread
        self._alarm.ring()
        return ticket

    def forget(self, ticket: int) -> None:
        """The caller does not wait any more."""
        with self._lock:
            self._watches.pop(ticket, None)

    def _run(self) -> None:
        while True:
            for call in self._sleep():
                try:
                    call()
                except Exception:  # the thread serves everybody: one bad caller must not end it
                    traceback.print_exc()

    def _sleep(self) -> list[Callable[[], None]]:
        """One sleep; returns whom to call. Keeps no queue alive afterwards."""
        alarm_heard = self._alarm.hear()
        with self._lock:
            watches = dict(self._watches)
        now = time.monotonic()
        seconds = max(0.0, min((watch.deadline for watch in watches.values()), default=now + 3600.0) - now)
        heard: list[tuple[_core.Queue, bool, int]] = [
            (watch.queue, watch.putting, watch.heard) for watch in watches.values()
        ]
        _core.wait_any(self._alarm, alarm_heard, heard, seconds)
        if self._alarm.hear() != alarm_heard:  # the set of watches changed: only those whose time is over
            now = time.monotonic()
            watches = {ticket: watch for ticket, watch in watches.items() if watch.deadline <= now}
        with self._lock:
            for ticket in watches:
                self._watches.pop(ticket, None)
        return [watch.call for watch in watches.values()]


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
    import asyncio  # here, so that programs without a loop do not pay for it

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
