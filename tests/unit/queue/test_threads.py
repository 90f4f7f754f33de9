"""Threads that share one Queue."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable

import pytest

import holdfast
from holdfast import Closed, Misuse, Queue, Timeout
from tests.kit.processes import until
from tests.kit.queue.queues import drain, fill
from tests.kit.queue.segments import waiting
from tests.kit.queue.threads import main


def run_all(*bodies: Callable[[], None]) -> None:
    """Run functions in threads at once; raise the first exception of any."""
    failures: list[BaseException] = []

    def guard(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guard, args=[body], daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("size", [8, 2000, 100_000], ids=["small", "medium", "copied without the GIL"])
def test_threads_share_one_queue(size: int) -> None:
    producers, consumers = 3, 3
    each = 2000 if size < 10_000 else 60
    with Queue.create("q", capacity=1 << 20) as q:
        seen: Counter[bytes] = Counter()
        lock = threading.Lock()
        left = threading.Semaphore(0)

        def produce(first: int) -> None:
            for i in range(first, first + each, 4):
                messages = [(b"%08d" % k) * (size // 8) for k in range(i, min(i + 4, first + each))]
                if i % 8 == 0:
                    q.put_many(messages)
                else:
                    for message in messages:
                        q.put(message)
            left.release()

        def consume(form: int) -> None:
            mine: Counter[bytes] = Counter()
            with contextlib.suppress(Closed):
                while True:
                    if form == 0:
                        got = [q.get_bytes()]
                    elif form == 1:
                        with q.get() as message:
                            got = [bytes(message.data)]
                    else:
                        with q.get_many(5) as batch:
                            got = batch.tobytes()
                    mine.update(got)
            with lock:
                seen.update(mine)

        def close() -> None:
            for _ in range(producers):
                left.acquire()
            q.close()

        run_all(
            *(lambda n=n: produce(n * each) for n in range(producers)),
            *(lambda n=n: consume(n) for n in range(consumers)),
            close,
        )
        assert seen == {(b"%08d" % k) * (size // 8): 1 for k in range(producers * each)}
        stats = q.stats()
        assert stats.put == stats.settled == stats.delivered == producers * each
        assert q.check() == []


def test_every_call_at_once() -> None:
    """It also runs under the thread sanitizer (tests/process/core/test_bindings_sanitised.py)."""
    main(1)


def test_one_thread_waits_while_another_puts(q: Queue) -> None:
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(q.get_bytes(timeout=20)))
    thread.start()
    until(lambda: waiting("q", "data"))
    assert q.stats().ready == 0  # any other call goes through meanwhile
    q.put(b"x")
    thread.join(5)
    assert got == [b"x"]


def test_one_thread_waits_for_room_while_another_gets(q: Queue) -> None:
    count = fill(q, b"x" * 992)
    thread = threading.Thread(target=q.put, args=[b"y" * 992], kwargs={"timeout": 20})
    thread.start()
    until(lambda: waiting("q", "space"))
    q.get_bytes()
    thread.join(5)
    assert not thread.is_alive()
    assert drain(q) == [b"x" * 992] * (count - 1) + [b"y" * 992]


def test_others_run_while_one_waits(q: Queue) -> None:
    q.spin = 0.3  # also while it spins
    ticks = 0

    def wait() -> None:
        with contextlib.suppress(Timeout):
            q.get(timeout=0.3)

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive():
        ticks += 1
    thread.join()
    assert ticks > 1000


@pytest.mark.parametrize("bell", ["data", "space"])
def test_nobody_detaches_under_a_thread_that_waits(q: Queue, bell: str) -> None:
    outcome: list[object] = []

    def wait() -> None:
        if bell == "data":
            outcome.append(q.get_bytes(timeout=20))
        else:
            q.put(b"y" * 992, timeout=20)
            outcome.append(b"y")

    if bell == "space":
        fill(q, b"x" * 992)
    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: waiting("q", bell))
    with pytest.raises(Misuse, match="in use by 1 other threads"):
        q.detach()
    assert q.attached
    if bell == "data":
        q.put(b"x")
    else:
        q.get_bytes()
    thread.join(5)
    assert outcome == [b"x" if bell == "data" else b"y"]
    q.detach()


def test_a_message_may_be_settled_by_another_thread(q: Queue) -> None:
    q.put_many([b"a", b"b"])
    first, second = q.get(), q.get()
    run_all(first.settle, second.give_back)
    assert (q.stats().settled, q.stats().returned) == (1, 1)


def test_threads_bury_large_messages_at_the_same_time() -> None:
    """A thread copies into the dead-letter queue without the GIL while another gets."""
    count, size = 24, 300_000
    with (
        Queue.create("dead", capacity=1 << 24) as dead,
        Queue.create("work", capacity=1 << 24, max_deliveries=1, dead_letter="dead") as q,
    ):
        for round_ in range(3):
            messages = [b"%d.%02d" % (round_, i) + b"." * (size if i % 2 else 10) for i in range(count)]
            q.put_many(messages)
            for i, message in enumerate(q.get_many(count)):
                message.give_back() if i % 2 else message.settle()
            q.put_many(messages[::2])
            got: list[bytes] = []

            def consume(got: list[bytes] = got) -> None:
                with contextlib.suppress(holdfast.Empty):
                    while True:
                        with q.get_many(4, timeout=0) as batch:
                            got.extend(batch.tobytes())

            run_all(*[consume] * 4)
            assert sorted(got) == messages[::2]
            assert sorted(drain(dead)) == messages[1::2]
            stats = q.stats()
            assert (stats.taken, stats.returned, stats.ready) == (0, 0, 0)
        assert q.check() == dead.check() == []
