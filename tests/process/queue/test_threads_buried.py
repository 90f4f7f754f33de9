"""Threads get while one of them buries a large message: one thread gets each message."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from holdfast import Empty, Queue
from tests.kit.queue.queues import drain

LARGE = 2 << 20
"""Copying that takes a fraction of a millisecond, in which the GIL is not held."""
POISON = 10
SMALL = 5000
"""More than the others get meanwhile: the one that buries finds some left."""


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def one(q: Queue) -> list[bytes]:
    with q.get(timeout=0) as message:
        return [bytes(message)]


def copied(q: Queue) -> list[bytes]:
    return [q.get_bytes(timeout=0)]


def into(q: Queue) -> list[bytes]:
    buffer = bytearray(64)
    return [bytes(buffer[: q.get_into(buffer, timeout=0)])]


def several(q: Queue) -> list[bytes]:
    with q.get_many(3, timeout=0) as messages:
        return messages.tobytes()


@pytest.mark.parametrize("get", [one, copied, into, several])
def test_each_message_once(get: Callable[[Queue], list[bytes]]) -> None:
    with (
        Queue.create("dead", capacity=32 * LARGE) as dead,
        Queue.create("work", capacity=32 * LARGE, max_deliveries=1, dead_letter="dead") as q,
    ):
        poison = b"poison" * (LARGE // 6)
        for round_ in range(2):
            q.put_many([poison] * POISON)
            q.get_many(POISON, timeout=0).give_back()
            sent = [b"%d.%d" % (round_, n) for n in range(SMALL)]
            q.put_many(sent)
            got: Counter[bytes] = Counter()
            faults: list[Exception] = []
            lock = threading.Lock()
            ready = threading.Barrier(4)

            def consume(
                got: Counter[bytes] = got,
                faults: list[Exception] = faults,
                lock: threading.Lock = lock,
                ready: threading.Barrier = ready,
            ) -> None:
                ready.wait()
                try:
                    with contextlib.suppress(Empty):
                        while True:
                            mine = get(q)
                            with lock:
                                got.update(mine)
                except Exception as fault:
                    faults.append(fault)

            threads = [threading.Thread(target=consume) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
                assert not thread.is_alive()
            assert faults == []
            got.update(drain(q))  # one thread may have seen an empty queue while another buried
            assert got == dict.fromkeys(sent, 1)
            assert drain(dead) == [poison] * POISON
        assert (q.stats().taken, q.check(), dead.check()) == (0, [], [])
