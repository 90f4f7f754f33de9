"""Threads that share the roles of one channel."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import Channel, Closed, Misuse, Timeout
from holdfast.memory import waiter
from tests.kit.channel.threads import LARGE, main
from tests.kit.channel.words import Words
from tests.kit.overwrites import HEADER
from tests.kit.processes import until
from tests.kit.waiting import Waiting

SLOTS = 2
CONTROLS_END = 4608


@pytest.fixture
def channel(runtime_directory: object) -> Iterator[Channel]:
    with Channel.create("c", slots=SLOTS, slot_size=64, overflow=False, loans=8) as made:
        yield made


def waits(call: Callable[[], Any]) -> Waiting:
    """Start a call in a thread; return when its bell shows that it waits."""

    def controls() -> bytes:
        return Words("c").image()[HEADER:CONTROLS_END]

    before = controls()
    waiting = Waiting(call)
    until(lambda: controls() != before)
    return waiting


def fill(channel: Channel) -> Any:
    producer = channel.producer()
    for n in range(SLOTS):
        producer.push(b"%d" % n)
    return producer


def test_every_call_at_once() -> None:
    """It also runs under the sanitizers (tests/process/core/test_bindings_sanitised.py)."""
    main(4)


def test_close_is_refused_while_a_pop_waits(channel: Channel) -> None:
    producer, consumer = channel.producer(), channel.consumer()
    waiting = waits(lambda: bytes(consumer.pop(20)))
    for close in (consumer.close, channel.close):
        with pytest.raises(Misuse, match="the consumer of channel c is in use by 1 other threads"):
            close()
    assert not producer.attached  # `channel.close()` closes the others
    channel.producer().push(b"late")
    assert waiting.end() == b"late"
    consumer.close()


def test_close_is_refused_while_a_push_waits(channel: Channel) -> None:
    producer, consumer = fill(channel), channel.consumer()
    waiting = waits(lambda: producer.push(b"late", timeout=20))
    with pytest.raises(Misuse, match="the producer of channel c is in use by 1 other threads"):
        producer.close()
    for expected in (b"0", b"1", b"late"):
        with consumer.pop(20) as item:
            assert bytes(item) == expected
    assert waiting.end().position
    producer.close()


def test_a_role_closed_while_a_task_waits(channel: Channel) -> None:
    """A task waits without a call under way: it learns of the close at once."""
    consumer = channel.consumer()

    async def wait_and_close() -> None:
        task = asyncio.create_task(consumer.apop(timeout=20))
        await asyncio.sleep(0)
        threading.Thread(target=consumer.close).start()
        with pytest.raises(Closed):
            await task

    asyncio.run(wait_and_close())


@pytest.mark.parametrize("how", ["release", "push", "data", "with"])
def test_a_loan_that_another_thread_is_pushing(channel: Channel, how: str) -> None:
    """The push waits: until its end the loan is not the program's."""
    producer, consumer = fill(channel), channel.consumer()
    loan = producer.loan(4)
    with loan as buffer:
        buffer[:] = b"mine"
        buffer.release()
        waiting = waits(lambda: producer.push(loan, timeout=20))
        calls: dict[str, Callable[[], object]] = {
            "release": loan.release,
            "push": lambda: producer.push(loan, timeout=0),
            "data": lambda: loan.data,
            "with": lambda: loan.__exit__(None, None, None),
        }
        with pytest.raises(Misuse, match="this loan of channel c is being pushed by another thread"):
            calls[how]()
        other = producer.loan(4)
        other.data[:] = b"else"
        other.release()
        for expected in (b"0", b"1", b"mine"):
            with consumer.pop(20) as item:
                assert bytes(item) == expected
        assert waiting.end() is loan.pushed
    stats = channel.stats()
    assert (stats.free, stats.held, producer.loans) == (stats.buffers, 0, 0)
    assert channel.check() == []


def test_a_loan_whose_push_was_in_vain_is_a_loan_again(channel: Channel) -> None:
    producer = fill(channel)
    loan = producer.loan(4)
    with pytest.raises(Timeout):
        producer.push(loan, timeout=0.01)
    with pytest.raises(Timeout):
        producer.push_batch([loan, b"x"], timeout=0.01)
    loan.data[:] = b"mine"
    assert producer.loans == 1
    loan.release()
    assert producer.loans == 0


def test_a_loan_twice_at_once(channel: Channel) -> None:
    """Two threads push the same loan: one of them has it, the other is refused."""
    producer, consumer = fill(channel), channel.consumer()
    loan = producer.loan(1)
    both = [Waiting(lambda: producer.push(loan, timeout=20)) for _ in range(2)]
    until(lambda: sum(not each.thread.is_alive() for each in both) == 1)
    for _ in range(SLOTS + 1):
        consumer.pop(20).release()
    results = [each.end() for each in both]
    assert sorted(type(each).__name__ for each in results) == ["Misuse", "Pushed"]
    assert channel.check() == []
    assert producer.loans == 0


def test_views_end_in_another_thread(channel: Channel) -> None:
    producer, consumer = fill(channel), channel.consumer()
    item = consumer.pop(0)
    views = [item.data, item.data[:1]]
    item.release()
    consumer.close()
    assert channel.stats().held == 1
    for n, view in enumerate(views):
        Waiting(view.release).end()
        assert channel.stats().held == 1 - n
    with channel.consumer() as heir, heir.pop(0) as rest:
        assert bytes(rest) == b"1"
    producer.close()


def test_a_function_that_closes_the_producer(runtime_directory: object) -> None:
    """`on_displaced` closes the role between the results of a batch."""
    with Channel.create("c", slots=2, slot_size=8, loans=4, holds=4) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        producer.push_batch([b"old 1", b"old 2"])
        views: list[memoryview] = []
        kept: list[Any] = []

        def close(displaced: Any) -> None:
            views.append(displaced.data)
            producer.close()
            heir = channel.producer()
            for n in range(12):  # each free buffer is used, that of the second datum among them
                heir.push(b"new %d" % n)
                if len(kept) < 4:
                    kept.append(consumer.pop(0))
            heir.close()

        producer.push_batch([b"1", b"2"], close)
        assert [bytes(each) for each in views] == [b"old 1"], "the others went with the role"
        assert channel.stats().held == 1 + len(kept), "nothing that the consumer has was given away"
        views.clear()
        for item in kept:
            item.release()
        assert channel.stats().held == 0
        assert channel.check() == []


def test_large_data_of_several_threads(runtime_directory: object) -> None:
    """A copy without the GIL: other threads push meanwhile, and each datum is whole."""
    with Channel.create("c", slots=40, slot_size=LARGE, loans=50) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        pushing = [
            Waiting(lambda n=n: [producer.push(bytes([n]) * LARGE) for _ in range(8)])  # type: ignore[misc]
            for n in range(4)
        ]
        for each in pushing:
            assert len(each.end()) == 8
        seen = []
        while not consumer.empty:
            with consumer.pop(0) as item:
                first = item.data[0]
                assert bytes(item.data) == bytes([first]) * LARGE
                seen.append(first)
        assert sorted(seen) == sorted([0, 1, 2, 3] * 8)
        with contextlib.suppress(Misuse):
            producer.close()


def test_threads_that_ask_at_once_get_one_descriptor(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, together = channel.consumer(), threading.Barrier(2, timeout=20)
    identity = waiter._identity

    def meet(fd: int) -> Any:
        if not together.broken and threading.current_thread() is not threading.main_thread():
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait()
                together.abort()  # both threads are in it: from here on no thread waits
        return identity(fd)

    monkeypatch.setattr(waiter, "_identity", meet)
    asking = [Waiting(consumer.fileno) for _ in range(2)]
    numbers = [each.end() for each in asking]
    assert numbers == [consumer.fileno()] * 2
