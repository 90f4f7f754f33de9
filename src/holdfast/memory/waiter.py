"""Wait for several structures in shared memory: one thread for event loops and file descriptors.

The thread only notifies that it is worth to look again. The consumer itself takes the message, so that a
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
from typing import TYPE_CHECKING, TypeVar

from holdfast import _core
from holdfast.arguments import checked_timeout
from holdfast.errors import Empty, Full, Misuse, Timeout

if TYPE_CHECKING:
    from holdfast._core import Waitable

T = TypeVar("T")

IDLE_S = 0.05
"""The bound of every wait: the caller looks again this often even if no bell rings."""
URGENT_S = 0.0005
"""The bound behind a named owner: how soon its death is noticed."""


class Signal:
    """A pipe that may be closed while another thread is about to write to it.

    A pipe, because it has an inode of its own. Other code may close a descriptor that it does not know. Its
    number is then used for another file, which is neither written to nor closed here.
    """

    def __init__(self, name: str, remedy: str) -> None:
        """Open the pipe. An error about it has its `name` and the `remedy`."""
        self._name, self._remedy = name, remedy
        self._lock = threading.RLock()  # a collection or a signal's handler may close it under the lock
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
                f"other code in this process closed the descriptor of {self._name} (a daemoniser, "
                f"os.closerange?); {self._remedy}"
            )
        return self._read

    def set(self) -> None:
        """Make the descriptor readable."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it is readable
            if self._is_ours(self._read) and self._is_ours(self._write):
                os.write(self._write, b"!")

    def clear(self) -> None:
        """Make the descriptor not readable."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass

    def close(self) -> None:
        """Close the descriptors."""
        # In a child of fork() the lock may be held for ever, by a thread that stayed in the parent.
        with self._lock if os.getpid() == self._pid else contextlib.nullcontext():
            numbers = self._read, self._write
            self._read = self._write = -1  # first: a second close in the same thread finds nothing to do
            for fd in numbers:
                if self._is_ours(fd):
                    os.close(fd)

    def _is_ours(self, fd: int) -> bool:
        return fd >= 0 and _identity(fd) == self._identity


def _identity(fd: int) -> tuple[int, int] | None:
    """Return device and inode of an open file, None if there is no such descriptor."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def own_signal(owner: object, name: str, remedy: str) -> Signal:
    """Return the one signal of an object, also where several threads ask at once."""
    found: Signal | None = vars(owner).get("_signal")
    if found is None:
        made = Signal(name, remedy)
        found = vars(owner).setdefault("_signal", made)  # one step: the first thread decides
        if found is not made:
            made.close()
    return found


def close_signal(owner: object) -> None:
    """Close the signal of an object, if it has one."""
    signal: Signal | None = vars(owner).pop("_signal", None)
    if signal is not None:
        signal.close()


@dataclass(frozen=True)
class Watch:
    """A call to make, once, when a bell rings or its time is over."""

    target: Waitable
    putting: bool
    heard: int
    deadline: float
    call: Callable[[], None]


class Waiter:
    """Make each call once, when its bell rang or its time is over."""

    def __init__(self) -> None:
        self._alarm = _core.Alarm()
        self._lock = threading.RLock()  # a collection may end a task that waits: it calls forget()
        self._watches: dict[int, Watch] = {}
        self._next = 0
        self._thread: threading.Thread | None = None

    def watch(
        self, target: Waitable, putting: bool, heard: int, urgent: bool, call: Callable[[], None]
    ) -> int:
        """Make `call` at the next ring after `heard`; return a ticket.

        `heard` is from `target._listen(putting)`.
        """
        deadline = time.monotonic() + (URGENT_S if urgent else IDLE_S)
        with self._lock:
            self._next += 1
            ticket = self._next
            self._watches[ticket] = Watch(target, putting, heard, deadline, call)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="holdfast-waiter", daemon=True)
                thread.start()
                self._thread = thread
        self._alarm.ring()
        return ticket

    def forget(self, ticket: int) -> None:
        """Drop a watch: the caller does not wait any more."""
        with self._lock:
            self._watches.pop(ticket, None)

    def _run(self) -> None:
        while True:
            _make(self._sleep())

    def _sleep(self) -> list[Callable[[], None]]:
        """Sleep once; return the calls to make. No structure is kept alive afterwards."""
        alarm_heard = self._alarm.hear()
        with self._lock:
            watches = dict(self._watches)
        now = time.monotonic()
        seconds = max(0.0, min((watch.deadline for watch in watches.values()), default=now + 3600.0) - now)
        heard = [(watch.target, watch.putting, watch.heard) for watch in watches.values()]
        _core.wait_any(self._alarm, alarm_heard, heard, seconds)
        if self._alarm.hear() != alarm_heard:  # the set of watches changed: only those whose time is over
            now = time.monotonic()
            watches = {ticket: watch for ticket, watch in watches.items() if watch.deadline <= now}
        with self._lock:
            for ticket in watches:
                self._watches.pop(ticket, None)
        return [watch.call for watch in watches.values()]


def _make(calls: list[Callable[[], None]]) -> None:
    """Make the calls. They end with this function, and keep nothing alive afterwards."""
    for call in calls:
        try:
            call()
        except Exception:  # the thread serves all callers: one bad caller must not end it
            traceback.print_exc()


_waiter = Waiter()


def waiter() -> Waiter:
    """Return the waiter of this process."""
    return _waiter


def _after_fork() -> None:
    global _waiter
    _waiter = Waiter()  # the thread stayed in the parent


os.register_at_fork(after_in_child=_after_fork)


def wait_for_ring(target: Waitable, heard: int, seconds: float) -> None:
    """Block until the bell of `target` rings after `heard`, at most so many seconds."""
    alarm = _core.Alarm()
    _core.wait_any(alarm, alarm.hear(), [(target, False, heard)], seconds)


async def ring(target: Waitable, putting: bool, heard: int, urgent: bool, timeout: float | None) -> None:
    """Wait until it is worth to look again, at most `timeout` seconds."""
    import asyncio  # here, so that programs without a loop do not pay for it

    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def call() -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: no task waits there any more
            loop.call_soon_threadsafe(wake)

    ticket = waiter().watch(target, putting, heard, urgent, call)
    try:
        await asyncio.wait([future], timeout=timeout)
    finally:
        waiter().forget(ticket)


async def wait_until(
    target: Waitable, putting: bool, timeout: float | None, attempt: Callable[[], T], urgent: bool = True
) -> T:
    """Repeat `attempt` until it does not raise `Full` or `Empty`; return its result.

    Args:
        target: has the bell to wait for.
        putting: wait for room, not for data.
        timeout: None waits without end.
        attempt: the call; it must not wait.
        urgent: behind a named process, look often whether it died.

    Raises:
        Full, Empty: `timeout` is 0.
        Timeout: the time ran out.
    """
    timeout = checked_timeout(timeout)
    try:
        return attempt()
    except (Full, Empty):
        if timeout == 0:
            raise
    start = time.monotonic()
    while True:
        heard = target._listen(putting)
        try:
            return attempt()
        except (Full, Empty) as error:
            blocked = error
        left = None if timeout is None else start + timeout - time.monotonic()
        if left is not None and left <= 0:
            late = Timeout(f"{blocked} (waited {timeout} s)")
            late.pid = blocked.pid
            raise late from None
        await ring(target, putting, heard, urgent and blocked.pid is not None, left)
