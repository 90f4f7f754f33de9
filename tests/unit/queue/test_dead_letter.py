"""Messages that are returned too often go to the dead-letter queue."""

from __future__ import annotations

import contextlib
import statistics
import time

import pytest

from holdfast import Closed, Empty, Queue, Timeout
from tests.kit.queue.dead_letter import dead as dead
from tests.kit.queue.dead_letter import work as work
from tests.kit.queue.queues import drain, fill


def test_given_back_too_often(work: Queue, dead: Queue) -> None:
    work.put_many([b"poison", b"good"])
    for delivery in range(2):
        with contextlib.suppress(ZeroDivisionError), work.get(timeout=0) as message:
            assert (bytes(message), message.redelivered) == (b"poison", delivery)
            raise ZeroDivisionError
    assert dead.stats().put == 0, "two deliveries are allowed"
    assert drain(work) == [b"good"]
    with dead.get(timeout=0) as message:
        assert (bytes(message), message.redelivered) == (b"poison", 0)
    stats = work.stats()
    assert (stats.dead_lettered, stats.settled, stats.delivered) == (1, 2, 3)
    assert (stats.taken, stats.returned, stats.dead_letter_blocked) == (0, 0, False)
    assert (stats.put, stats.given_back) == (2, 2)
    assert work.check() == dead.check() == []


def test_the_good_ones_of_a_batch_are_delivered(work: Queue, dead: Queue) -> None:
    work.put_many([b"%d" % i for i in range(6)])
    for _ in range(2):
        taken = [work.get(timeout=0) for _ in range(6)]
        for i, message in enumerate(taken):
            if i % 2 == 0 or message.redelivered == 0:
                message.give_back()
            else:
                message.settle()
    assert drain(work) == []
    assert drain(dead) == [b"0", b"2", b"4"]
    assert work.stats().settled == 6


def test_a_dead_letter_queue_that_is_there_is_used() -> None:
    with Queue.create("mine", capacity=1 << 10, checksum="full") as mine:
        mine.put(b"older")
        with Queue.create("work", capacity=1 << 14, max_deliveries=1, dead_letter="mine") as q:
            q.put(b"poison")
            q.get().give_back()
            with pytest.raises(Empty):
                q.get(timeout=0)
        assert drain(mine) == [b"older", b"poison"]


def test_one_delivery_is_one_delivery() -> None:
    with Queue.create("one", capacity=1 << 12, max_deliveries=1, dead_letter="one.dead") as q:
        q.put_many([b"a", b"b"])
        q.get(timeout=0).give_back()
        assert q.get_bytes(timeout=0) == b"b"
        with Queue.open("one.dead") as dead:
            assert dead.get_bytes(timeout=0) == b"a"


def blocked(work: Queue, dead: Queue) -> int:
    """Put a message for which the dead-letter queue has no room; return its capacity."""
    count = fill(dead, b"x" * 992)
    work.put_many([b"poison" * 200, b"good"])
    for _ in range(2):
        work.get(timeout=0).give_back()
    return count


def test_no_room_among_the_dead(work: Queue, dead: Queue) -> None:
    count = blocked(work, dead)
    assert work.get_bytes(timeout=0) == b"good", "it is in nobody's way"
    with pytest.raises(Empty):
        work.get(timeout=0)
    with pytest.raises(Timeout):
        work.get(timeout=0.1)
    time.sleep(0.02)  # the last state is still reported: nothing happens meanwhile
    stats = work.stats()
    assert stats.dead_letter_blocked
    assert (stats.returned, stats.taken, stats.dead_lettered) == (1, 0, 0), "the message stays"
    assert (stats.delivered, stats.given_back) == (3, 2), "attempts to bury it are no deliveries"
    assert len(drain(dead)) == count
    with pytest.raises(Timeout):
        work.get(timeout=0.1)  # now there is room
    assert drain(dead) == [b"poison" * 200]
    stats = work.stats()
    assert (stats.dead_letter_blocked, stats.dead_lettered, stats.returned) == (False, 1, 0)
    assert work.check() == []


def test_blocked_messages_do_not_stop_the_stream(work: Queue, dead: Queue) -> None:
    blocked(work, dead)
    for i in range(100):
        work.put(b"%d" % i, timeout=0)
        if i == 0:
            assert work.get_bytes(timeout=0) == b"good"
        assert work.get_bytes(timeout=0) == b"%d" % i
    assert work.stats().returned == 1


def test_a_dead_letter_queue_that_is_gone_counts_as_full(work: Queue) -> None:
    Queue.unlink("dead")
    work.put(b"poison")
    for _ in range(2):
        work.get(timeout=0).give_back()
    took = []
    for _ in range(20):  # at any time of the clock
        began = time.monotonic()
        with pytest.raises(Empty):
            work.get(timeout=0)
        took.append(time.monotonic() - began)
    began = time.monotonic()
    with pytest.raises(Timeout):
        work.get(timeout=0.05)
    waited = time.monotonic() - began
    assert statistics.median(took) < waited, "not to wait means not to wait"
    assert work.stats().dead_letter_blocked
    with Queue.create("dead", capacity=1 << 12) as dead:
        with pytest.raises(Timeout):
            work.get(timeout=0.1)
        assert drain(dead) == [b"poison"]


def test_a_dead_letter_queue_that_is_replaced(work: Queue) -> None:
    """Dead letters follow the name: a message in the removed queue would be lost."""
    work.put(b"first")
    for _ in range(2):
        work.get(timeout=0).give_back()
    with pytest.raises(Empty):
        work.get(timeout=0)
    Queue.unlink("dead")
    work.put(b"second")
    for _ in range(2):
        work.get(timeout=0).give_back()
    with pytest.raises(Empty):
        work.get(timeout=0)
    stats = work.stats()
    assert (stats.dead_letter_blocked, stats.returned, stats.dead_lettered) == (True, 1, 1), "it stays"
    with Queue.create("dead", capacity=1 << 12) as dead:
        with pytest.raises(Timeout):
            work.get(timeout=0.1)
        assert drain(dead) == [b"second"]
    assert work.stats().dead_lettered == 2


def test_closed_with_poison(work: Queue, dead: Queue) -> None:
    work.put(b"poison")
    for _ in range(2):
        work.get().give_back()
    work.close()
    with pytest.raises(Closed):
        work.get(timeout=10)
    assert drain(dead) == [b"poison"]
