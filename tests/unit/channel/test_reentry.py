"""Other threads, callbacks and conversions that use a role in the middle of its call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast import Channel, ChannelConsumer, ChannelProducer, Closed, Full, Misuse
from holdfast._core import Displaced, Loan
from tests.kit.processes import until

Pair = tuple[Channel, ChannelProducer, ChannelConsumer]


@pytest.fixture
def pair(runtime_directory: object) -> Iterator[Pair]:
    with Channel.create("c", slots=2, slot_size=16) as channel:
        yield channel, channel.producer(), channel.consumer()


def require_whole(channel: Channel) -> None:
    """Check that all buffers are the producer's."""
    stats = channel.stats()
    assert (stats.free, stats.held, stats.ready) == (stats.buffers, 0, 0)
    assert channel.check() == []


USES: dict[str, Callable[[ChannelProducer, Loan], object]] = {
    "release": lambda _, loan: loan.release(),
    "view": lambda _, loan: memoryview(loan),
    "with": lambda _, loan: loan.__enter__(),
    "push": lambda producer, loan: producer.push(loan, 0),
    "batch": lambda producer, loan: producer.push_batch([loan], timeout=0),
}


@pytest.mark.parametrize("use", USES)
def test_a_loan_is_left_alone_while_its_push_waits(runtime_directory: object, use: str) -> None:
    with Channel.create("c", slots=1, slot_size=16, overflow=False) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        producer.push(b"first")
        loan = producer.loan(4)
        loan.data[:] = b"mine"
        thread = threading.Thread(target=producer.push, args=(loan, 20))
        thread.start()
        until(lambda: "being pushed" in repr(loan))
        with pytest.raises(Misuse, match="another thread"):
            USES[use](producer, loan)
        consumer.pop(0).release()
        thread.join()
        with consumer.pop(0) as item:
            assert bytes(item) == b"mine"
        assert loan.pushed is not None
        assert producer.loans == 0
        require_whole(channel)


def test_a_loan_whose_push_timed_out_is_the_programs_again(runtime_directory: object) -> None:
    with Channel.create("c", slots=1, slot_size=16, overflow=False) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        producer.push(b"first")
        loan = producer.loan(4)
        with pytest.raises(Full):
            producer.push_batch([loan], timeout=0)
        loan.data[:] = b"mine"
        consumer.pop(0).release()
        producer.push(loan)
        assert bytes(consumer.pop(0)) == b"mine"
        require_whole(channel)


def test_a_refused_batch_leaves_its_loans(pair: Pair) -> None:
    channel, producer, _ = pair
    first, second = producer.loan(4), producer.loan(4)
    with memoryview(second), pytest.raises(Misuse, match="views or arrays"):
        producer.push_batch([first, second])
    with pytest.raises(Misuse, match="in this batch twice"):
        producer.push_batch([first, first])
    first.release()
    second.release()
    require_whole(channel)


def test_a_callback_that_closes_the_role_gets_no_buffer_of_the_next_producer(pair: Pair) -> None:
    channel, producer, _ = pair
    producer.push_batch([b"one", b"two"])
    views: list[memoryview] = []

    def look_and_close(displaced: Displaced) -> None:
        views.append(displaced.data)
        producer.close()

    producer.push_batch([b"three", b"four"], look_and_close)
    heir = channel.producer()
    for _ in range(8):
        heir.push(b"x" * 16)
    assert [bytes(view) for view in views] == [b"one"]


def test_a_number_that_closes_the_role_borrows_nothing(pair: Pair) -> None:
    channel, producer, _ = pair

    class Closing:
        def __index__(self) -> int:
            producer.close()
            return 0

    with pytest.raises(Closed):
        producer.loan(4, priority=Closing())  # type: ignore[arg-type]
    require_whole(channel)


def test_a_callback_that_raises_full_does_not_push_again(pair: Pair) -> None:
    channel, producer, _ = pair
    producer.push_batch([b"one", b"two"])

    def archive(_: Displaced) -> None:
        raise Full("the archive is full")

    with pytest.raises(Full, match="the archive"):
        asyncio.run(producer.apush_batch([b"three"], archive, timeout=20))
    assert channel.stats().pushed == 3
