"""Threads that make every call of queues at once, also under sanitizers (test_bindings_sanitised.py).

Some threads share one object, the others have objects of their own on the same segment. At the end each
message was settled once, or is a dead letter.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable

from holdfast import Closed, Empty, Full, Queue, Timeout
from tests.kit.queue.queues import drain

SHARED, OWN = 3, 2
"""Threads on one object, and threads with an object each."""
EACH = 40
"""Messages of each thread that puts, in a round."""
LARGE = 70_000
"""A size that is copied without the GIL."""
POISON = b"poison"


class Account:
    """The messages that all threads put and settled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.put: Counter[bytes] = Counter()
        self.settled: Counter[bytes] = Counter()

    def note(self, book: Counter[bytes], *messages: bytes) -> None:
        with self._lock:
            book.update(messages)


def message(name: str, number: int) -> bytes:
    head = POISON if number % 9 == 0 else b""
    size = LARGE if number % 7 == 0 else number * 31 % 900
    return head + f"{name}.{number}.".encode() + b"." * size


def produce(q: Queue, name: str, account: Account) -> None:
    number = 0
    while number < EACH:
        several = [message(name, number + more) for more in range(1 + number % 4)]
        number += len(several)
        with contextlib.suppress(Full, Timeout):
            if len(several) == 1:
                q.put(several[0], timeout=0)
                account.note(account.put, *several)
                continue
        done = 0
        while done < len(several):
            try:
                q.put_many(several[done:], timeout=0.01)
                done = len(several)
            except (Full, Timeout) as full:
                done += getattr(full, "done", 0)
        account.note(account.put, *several)


def settle(one: object, account: Account) -> None:
    data = bytes(one)  # type: ignore[call-overload]
    if data.startswith(POISON):
        one.give_back()  # type: ignore[attr-defined]
        return
    account.note(account.settled, data)
    one.settle()  # type: ignore[attr-defined]


def consume(q: Queue, form: int, account: Account) -> None:
    random_ = random.Random(form)
    with contextlib.suppress(Closed):
        while True:
            with contextlib.suppress(Empty, Timeout):
                if random_.random() < 0.5:
                    settle(q.get(timeout=0.005), account)
                else:
                    for each in q.get_many(4, timeout=0.005):
                        settle(each, account)


def look(q: Queue, stop: threading.Event) -> None:
    """Make all calls that only read, and recovery, which finds no dead participant."""
    while not stop.is_set():
        q.stats()
        recovered = q.recover()
        assert (recovered.skipped, recovered.handed_on, recovered.released) == (0, 0, 0), "all are alive"
        with Queue.open(q.name) as other:
            other.stats()


def spin() -> None:
    """Let threads look at a queue without the GIL, while another puts and gets."""
    stop = threading.Event()

    def look_for_messages() -> None:
        while not stop.is_set():
            with contextlib.suppress(Timeout, Empty):
                q.get_bytes(timeout=q.spin)

    with Queue.create("spin", capacity=1 << 16) as q:
        q.spin = 0.02
        threads = [threading.Thread(target=look_for_messages) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(300):
            q.put(b"x")
            with contextlib.suppress(Empty):
                q.get_bytes(timeout=0)
        stop.set()
        for thread in threads:
            thread.join()


def run(number: int) -> None:
    """Make every call of a queue at once, and check the account."""
    account, stop = Account(), threading.Event()
    failures: list[BaseException] = []

    def guarded(body: Callable[..., None], *arguments: object) -> None:
        try:
            body(*arguments)
        except BaseException as failure:
            failures.append(failure)

    with (
        Queue.create(f"dead{number}", capacity=1 << 24) as dead,
        Queue.create(
            f"work{number}", capacity=1 << 19, participants=24, max_deliveries=2, dead_letter=f"dead{number}"
        ) as q,
    ):
        objects = [*[q] * SHARED, *(Queue.open(q.name) for _ in range(OWN))]
        producers = [
            threading.Thread(target=guarded, args=(produce, each, f"{number}.{n}", account))
            for n, each in enumerate(objects)
        ]
        consumers = [
            threading.Thread(target=guarded, args=(consume, each, n, account))
            for n, each in enumerate(objects)
        ]
        looker = threading.Thread(target=guarded, args=(look, objects[-1], stop))
        for thread in (*producers, *consumers, looker):
            thread.start()
        for thread in producers:
            thread.join()
        q.close()
        for thread in consumers:
            thread.join()
        stop.set()
        looker.join()
        if failures:
            raise failures[0]
        buried = Counter(drain(dead))
        assert account.settled + buried == account.put, "each message once"
        assert set(account.put.values()) == {1}
        assert (q.check(), dead.check()) == ([], [])


def main(rounds: int) -> None:
    spin()
    for number in range(rounds):
        run(number)
