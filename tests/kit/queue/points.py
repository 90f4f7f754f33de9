"""A queue with one participant in the middle of an operation, while the others continue.

The participant stands at a named point; it is a thread, or a stopped process. `OPERATIONS` says which
operation passes which point. Tests compare it with the points of the source, so that a new point without an
operation fails.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import Closed, Empty, Exists, Full, Message, Misuse, Queue, Timeout, _core
from tests.kit.processes import until
from tests.kit.queue.queues import drain, fill

GRANULES = 16
WAIT_S = 10.0
NAME, NEW = "q", "new"
SENT = [b"a", b"b", b"c"]
LARGE = b"x" * 150
"""Three granules; the ring has fewer before its end."""

OPERATIONS: dict[str, list[str]] = {
    "put": [
        *(each for each in _core.points() if each.startswith("put_")),
        *("many_inner", "pad_claimed", "reclaimed"),
    ],
    "get": ["take_claimed", "take_moved", "settle_begin", "settled"],
    "give back": ["back_begin", "back_returned", "back_announced"],
    "recover": [
        each for each in _core.points() if each.startswith("recover_") and each != "recover_blocking"
    ],
    "put behind the dead": ["recover_blocking"],
    "fence": ["fence_done"],
    "close": ["close_marked"],
    "attach": ["attach_locked", "attach_recovered", "attach_active"],
    "detach": ["detach_begin", "detach_inactive"],
    "create": [each for each in _core.points() if each.startswith("create_")],
}
CASES = [(operation, point) for operation, points in OPERATIONS.items() for point in points]
OF_AN_OBJECT = {"put", "get", "give back", "recover", "put behind the dead", "fence", "close"}
"""Operations of an object that other threads may use meanwhile: it is attached, and stays so."""


def uncovered() -> set[str]:
    """Return the points of the source that no operation passes."""
    return {*_core.points()} - {point for points in OPERATIONS.values() for point in points}


@dataclass
class Book:
    """The messages that a participant put, and those that it settled."""

    put: list[bytes] = field(default_factory=list)
    settled: list[bytes] = field(default_factory=list)


def operate(q: Queue, operation: str) -> Book:
    """Do the operation, as the participant that is stopped in the middle of it."""
    book = Book()
    if operation == "put":
        q.put_many([b"one", b"two"], timeout=WAIT_S)
        q.put(LARGE, timeout=WAIT_S)
        book.put = [b"one", b"two", LARGE]
    elif operation in ("get", "fence"):
        book.settled = [q.get_bytes(timeout=WAIT_S)]
    elif operation == "give back":
        q.get(timeout=WAIT_S).give_back()
    elif operation == "recover":
        q.recover()
    elif operation == "put behind the dead":
        with contextlib.suppress(Full):  # the dead one's messages are in the queue again, and need its room
            q.put(b"late", timeout=0)
            book.put = [b"late"]
    elif operation == "close":
        q.close()
    elif operation == "attach":
        Queue.open(NAME).detach()
    elif operation == "detach":
        message = q.get(timeout=WAIT_S)
        q.detach()
        del message
    else:
        with contextlib.suppress(Exists):  # another participant has created it meanwhile
            Queue.create(NEW, capacity=64 * GRANULES).detach()
    return book


def descriptors() -> set[int]:
    return {int(each.name) for each in Path("/proc/self/fd").iterdir()}


def open_and_lose(name: str) -> tuple[Queue, Message]:
    """Return a participant that is dead for the others: it holds a message, without descriptors."""
    before = descriptors()
    q = Queue.open(name)
    opened = descriptors() - before
    message = q.get(timeout=0)
    for number in opened:
        with contextlib.suppress(OSError):  # the descriptor that listed them
            os.close(number)
    with contextlib.suppress(Misuse):  # it notices, and does nothing more under this participant's name
        q.recover()
    return q, message


class World:
    """A queue on which the operation passes all of its points, and its account."""

    def __init__(self, operation: str, attach: Callable[[], None] = lambda: None) -> None:
        """Prepare the queue; `attach` lets the process attach that is to do the operation."""
        self.operation = operation
        stall = 0.001 if operation == "fence" else None
        self.q = Queue.create(NAME, capacity=64 * GRANULES, participants=8, stall_limit=stall)
        # Before the death: a later process would get the dead one's slot, and recover it.
        self.other = Queue.open(NAME)
        attach()
        self._kept: list[object] = []
        self.sent: list[bytes] = []
        self._slow: threading.Thread | None = None
        if operation == "put":
            for _ in range(13):  # until two granules and one are left before the end of the ring
                self.q.put(b"")
                self.q.get_bytes(timeout=0)
            return
        if operation == "fence":
            self._slow = self._stalled()
        self.sent += SENT
        self.q.put_many(SENT)
        if operation == "put behind the dead":
            self.sent += [b"fill"] * fill(self.q, b"fill")
        if operation in ("recover", "attach", "put behind the dead"):
            self._kept.append(open_and_lose(NAME))

    def _stalled(self) -> threading.Thread:
        """Let another participant stand in the middle of a put, where it is fenced."""
        q = Queue.open(NAME)
        self._kept.append(q)
        self.sent.append(b"slow")
        _core.arm("put_claimed", "stand")
        thread = threading.Thread(target=q.put, args=[b"slow"])
        thread.start()
        until(lambda: _core.is_standing("put_claimed"))
        return thread

    def meanwhile(self, q: Queue) -> Book:
        """Use the queue while another participant stands at a point: this one must not block."""
        book = Book()
        with contextlib.suppress(Full, Closed):
            for number in range(2):
                q.put(b"meanwhile %d" % number, timeout=0)
                book.put.append(b"meanwhile %d" % number)
        with contextlib.suppress(Empty, Closed, Timeout), q.get_many(2, timeout=0) as messages:
            book.settled = messages.tobytes()
        q.recover()
        assert q.check() == []
        q.stats()
        if self.operation not in ("close", "put behind the dead"):  # no room, or the end, for all
            assert len(book.put) == 2, "the others put"
        if self.operation != "put":  # what is put behind an unfinished block waits for it
            assert book.settled, "the others get"
        return book

    def meanwhile_creating(self) -> None:
        """Create, or open, a queue that another participant is in the middle of creating."""
        try:
            other = Queue.create(NEW, capacity=64 * GRANULES)
        except Exists:
            other = Queue.open(NEW)
        with other:
            other.put(b"new")
            assert other.get_bytes(timeout=0) == b"new"

    def settle(self, *books: Book) -> None:
        """Let all finish; each message was settled once, and all of the ring is usable."""
        if self._slow is not None:
            _core.go_on("put_claimed")
            self._slow.join(WAIT_S)
            assert not self._slow.is_alive()
        with Queue.open(NAME) as newcomer:  # the object that was in the middle may be gone
            newcomer.recover()
            settled = [*(each for book in books for each in book.settled), *drain(newcomer)]
            put = [*self.sent, *(each for book in books for each in book.put)]
            assert sorted(settled) == sorted(put), "each message once"
            assert newcomer.check() == []
            stats = newcomer.stats()
            assert (stats.taken, stats.writing, stats.fenced_blocks, stats.returned) == (0, 0, 0, 0)
            if self.operation != "close":
                assert fill(newcomer, b"") == GRANULES - 1, "a part of the ring is not free"
                assert drain(newcomer) == [b""] * (GRANULES - 1)
            assert newcomer.check() == []
        if self.operation == "create":
            with Queue.open(NEW) as created:
                assert fill(created, b"") == GRANULES - 1
                assert created.check() == []


@contextlib.contextmanager
def standing(q: Queue, operation: str, point: str) -> Iterator[Callable[[], Book]]:
    """Let a thread stand at the point; call the result for its end and book."""
    books: list[Book] = []
    faults: list[BaseException] = []

    def body() -> None:
        try:
            books.append(operate(q, operation))
        except BaseException as fault:
            faults.append(fault)

    def end() -> Book:
        _core.disarm()
        _core.go_on(point)
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the thread hangs"
        if faults:
            raise faults[0]
        return books[0]

    _core.arm(point, "stand")
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    try:
        until(lambda: _core.is_standing(point) or not thread.is_alive())
        assert _core.is_standing(point), f"{operation} does not pass {point}: {faults}"
        yield end
    finally:
        _core.disarm()
        _core.go_on(point)
