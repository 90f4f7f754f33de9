"""A queue as a stream between processes: whole batches, end of stream, purge, iteration."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import holdfast
from holdfast import Closed, Empty, Full, Queue, Timeout, _core
from tests.kit.processes import Start, hear, tell, until
from tests.kit.queue.queues import drain, fill
from tests.kit.queue.segments import waiting

# -- put_many is seen whole or not at all -----------------------------------------------------------------


def read_batches(name: str, batches: int, size: int) -> None:
    """The first of a batch is waited for; the others must be there by then."""
    with Queue.open(name) as q:
        tell("ready")
        halves = 0
        for batch in range(batches):
            for index in range(size):
                try:
                    data = q.get_bytes(timeout=10 if index == 0 else 0)
                except holdfast.Empty:
                    halves += 1
                    data = q.get_bytes(timeout=10)
                assert data[:7] == b"%04d.%02d" % (batch, index), data[:7]
        tell(halves)


def test_put_many_is_never_seen_by_halves(start: Start) -> None:
    batches, size = 300, 40
    with Queue.create("q", capacity=1 << 15) as q:  # laps every two or three batches
        child = start(read_batches, "q", batches, size)
        child.hear()
        for batch in range(batches):
            q.put_many(
                [b"%04d.%02d" % (batch, index) + b"." * (index * 7) for index in range(size)], timeout=10
            )
        assert child.hear() == 0
        child.wait()
        assert (q.stats().put, q.stats().settled) == (batches * size,) * 2


def die_in_the_middle(name: str) -> None:
    q = Queue.open(name)
    _core.arm("many_inner", "kill", 5)
    q.put_many([b"half"] * 10)


def test_of_a_put_many_whose_writer_dies_nothing_is_seen(q: Queue, start: Start) -> None:
    q.put(b"before")
    start(die_in_the_middle, "q").wait(-signal.SIGKILL)
    q.put(b"after")
    assert drain(q) == [b"before", b"after"]
    assert q.stats().skipped == 1
    assert q.check() == []


def hold_until_told(name: str) -> None:
    with Queue.open(name) as q:
        message = q.get(timeout=10)
        tell(bytes(message))
        getattr(message, hear())()


@pytest.mark.parametrize("fate", ["settle", "give_back"])
def test_the_end_waits_for_what_others_hold(q: Queue, start: Start, fate: str) -> None:
    q.put(b"x")
    child = start(hold_until_told, "q")
    assert child.hear() == b"x"
    q.close()
    with pytest.raises(Empty):  # it may come back: this is not the end yet
        q.get(timeout=0)
    with pytest.raises(Timeout, match=rf"pid {child.pid} has not settled") as caught:
        q.get(timeout=0.05)
    assert caught.value.pid == child.pid
    child.tell(fate)
    if fate == "give_back":
        with q.get(timeout=10) as message:
            assert (bytes(message), message.redelivered) == (b"x", 1)
    with pytest.raises(Closed):
        q.get(timeout=10)
    child.wait()


def test_the_end_waits_for_a_holder_that_dies(q: Queue, start: Start) -> None:
    q.put(b"x")
    child = start(hold_until_told, "q")
    child.hear()
    q.close()

    def kill_when_waiting() -> None:
        until(lambda: waiting("q", "data"))
        child.kill()

    killing = threading.Thread(target=kill_when_waiting)
    killing.start()
    with q.get(timeout=10) as message:
        assert (bytes(message), message.redelivered) == (b"x", 1)
    killing.join()
    with pytest.raises(Closed):
        q.get(timeout=10)


def wait_for_end(name: str, call: str) -> None:
    with Queue.open(name) as q:
        tell("ready")
        try:
            q.put(b"x" * 1000) if call == "put" else q.get()
        except holdfast.Closed:
            tell("closed")


@pytest.mark.parametrize("call", ["get", "put"])
def test_close_wakes_those_who_wait(q: Queue, start: Start, call: str) -> None:
    if call == "put":
        fill(q, b"x" * 1000)
    children = [start(wait_for_end, "q", call) for _ in range(2)]
    for child in children:
        child.hear()
    until(lambda: waiting("q", "data" if call == "get" else "space"))
    q.close()
    for child in children:
        assert child.hear(timeout=5) == "closed"
        child.wait()


def put_one(name: str) -> None:
    with Queue.open(name) as q:
        _core.arm("put_claimed", "stop", 1)
        q.put(b"slow")
        tell("put")


def test_a_put_that_began_before_the_end_is_delivered(q: Queue, start: Start) -> None:
    child = start(put_one, "q")
    child.wait_stopped()
    q.close()
    with pytest.raises(Timeout, match=rf"pid {child.pid} has not finished writing"):
        q.get(timeout=0.02)
    child.go_on()
    assert q.get_bytes(timeout=10) == b"slow"
    with pytest.raises(Closed):
        q.get(timeout=10)
    child.wait()


def produce(name: str, first: int, count: int) -> None:
    with Queue.open(name) as q:
        for i in range(first, first + count):
            q.put(b"%d" % i)


def test_iteration_over_what_others_produce(start: Start) -> None:
    with Queue.create("q", capacity=1 << 10) as q:
        children = [start(produce, "q", first, 500) for first in (0, 1000)]

        def close_after_them() -> None:
            for child in children:
                child.wait()
            q.close()

        closer = threading.Thread(target=close_after_them)
        closer.start()
        seen = [int(bytes(message)) for message in q]
        closer.join()
        assert [i for i in seen if i < 1000] == list(range(500)), "each producer's order is kept"
        assert [i for i in seen if i >= 1000] == list(range(1000, 1500))


# -- waiting between processes ----------------------------------------------------------------------------


def answer(request: str, reply: str) -> None:
    with Queue.open(request) as questions, Queue.open(reply) as answers:
        for message in questions:
            answers.put(bytes(message)[::-1])


@pytest.mark.parametrize("spin", [0.0, 50e-6])
def test_a_waiting_get_wakes_when_another_process_puts(start: Start, spin: float) -> None:
    with Queue.create("there", capacity=4096) as there, Queue.create("back", capacity=4096) as back:
        there.spin = back.spin = spin
        child = start(answer, "there", "back")
        for i in range(200):
            there.put(b"%03d" % i)
            assert back.get_bytes(timeout=10) == (b"%03d" % i)[::-1]
        there.close()
        child.wait()


def take_slowly(name: str) -> None:
    with Queue.open(name) as q:
        tell("ready")
        while True:
            q.get_bytes(timeout=hear())
            tell("taken")


def test_a_waiting_put_wakes_when_another_process_makes_room(q: Queue, start: Start) -> None:
    count = fill(q, b"x" * 992)
    child = start(take_slowly, "q")
    child.hear()

    def make_room() -> None:
        until(lambda: waiting("q", "space"))
        child.tell(0)

    other = threading.Thread(target=make_room)
    other.start()
    q.put(b"y" * 992, timeout=10)
    other.join()
    assert child.hear() == "taken"
    assert q.stats().ready == count


def test_a_timeout_names_who_is_in_the_way(q: Queue, start: Start) -> None:
    q.put(b"x" * 992)
    child = start(hold_until_told, "q")
    child.hear()
    fill(q, b"x" * 992)
    for expected, timeout in ((Full, 0), (Timeout, 0.02)):
        with pytest.raises(
            expected, match=rf"pid {child.pid} has not settled the block .* for \d+\.\d+ s"
        ) as caught:
            q.put(b"x" * 992, timeout=timeout)
        assert caught.value.pid == child.pid != os.getpid()
    child.kill()
    with pytest.raises(Full, match="wait for a consumer") as caught:
        q.put(b"x" * 992, timeout=0)
    assert caught.value.pid is None
    assert q.stats().handed_on == 1, "who is blocked recovers the dead"
