"""Stop a writer after its claim, with and without a stall limit."""

from __future__ import annotations

import threading

import pytest

from holdfast import Empty, Queue, Timeout, _core
from tests.kit.processes import Start, hear, tell
from tests.kit.queue.queues import drain, fill
from tests.kit.waiting import waits_out


def put_and_stop(name: str, data: bytes, point: str = "put_claimed") -> None:
    """Stops itself in a put; reports its end after SIGCONT; then puts on command."""
    with Queue.open(name) as q:
        _core.arm(point, "stop", 1)
        q.put(data)
        tell("put")
        while True:
            command = hear()
            if command == "end":
                return
            if command == "stop":
                _core.arm(point, "stop", 1)
            else:
                q.put(command)
                tell("put")


@pytest.mark.parametrize("point", ["put_claimed", "put_moved", "put_payload"])
def test_without_a_limit_consumers_wait(q: Queue, start: Start, point: str) -> None:
    child = start(put_and_stop, "q", b"slow", point)
    child.wait_stopped()
    q.put(b"later")  # producers do not wait for each other
    with pytest.raises(Empty) as empty:
        q.get(timeout=0)
    assert empty.value.pid == child.pid
    waited = 0.3
    with pytest.raises(Timeout, match=rf"pid {child.pid} has not finished writing the block") as late:
        q.get(timeout=waited)
    assert late.value.pid == child.pid
    stats = q.stats()
    assert (stats.writing, stats.ready, stats.fenced_blocks) == (1, 1, 0)
    (holder,) = stats.holders
    assert (holder.pid, holder.writing, holder.alive) == (child.pid, 1, True)
    if point != "put_claimed":  # there its time is not written down yet
        assert holder.oldest_ms >= 1000 * waited
    child.go_on()
    assert child.hear() == "put"
    assert drain(q) == [b"slow", b"later"], "in the order of the claims"
    child.tell("end")
    child.wait()


def test_a_stopped_writer_is_fenced_after_the_limit(start: Start) -> None:
    limit = 0.2
    with Queue.create("q", capacity=1 << 12, stall_limit=limit) as q:
        q.put(b"before")
        child = start(put_and_stop, "q", b"slow")
        child.wait_stopped()
        q.put_many([b"one", b"two"])
        assert q.get_bytes(timeout=0) == b"before"
        with waits_out(limit * 0.9):  # from the first look on, which notes the time
            assert q.get_bytes(timeout=10) == b"one"
        assert q.get_bytes(timeout=0) == b"two"
        stats = q.stats()
        assert (stats.writing, stats.fenced_blocks, stats.ready) == (0, 1, 0)
        child.go_on()
        assert child.hear() == "put", "it noticed and put anew"
        assert drain(q) == [b"slow"], "exactly once"
        stats = q.stats()
        assert (stats.fenced, stats.fenced_blocks, stats.put, stats.settled) == (1, 0, 4, 4)
        child.tell("end")
        child.wait()
        assert fill(q, b"") == 63, "the space of the fenced block is free again"
        assert q.check() == []


def test_the_space_of_a_fenced_writer_waits_for_it(start: Start) -> None:
    with Queue.create("q", capacity=1 << 10, stall_limit=0.05) as q:
        child = start(put_and_stop, "q", b"slow" * 20)
        child.wait_stopped()
        q.put(b"x")
        assert q.get_bytes(timeout=10) == b"x"
        laps = fill(q, b"\xff" * 20)
        assert laps < 16
        with pytest.raises(Timeout) as late:
            q.put(b"\xff" * 20, timeout=0.15)
        assert late.value.pid == child.pid, "a living writer's space is never taken"
        assert drain(q) == [b"\xff" * 20] * laps
        child.kill()
        assert fill(q, b"") == 15
        assert q.check() == []


def test_a_writer_that_was_slow_before_is_not_fenced_early(start: Start) -> None:
    """The limit counts from the first look at an unfinished block, not an earlier one."""
    limit = 0.8
    with Queue.create("q", capacity=1 << 12, stall_limit=limit) as q:
        child = start(put_and_stop, "q", b"one")
        child.wait_stopped()
        with pytest.raises(Timeout):
            q.get(timeout=limit * 0.6)
        child.go_on()
        assert child.hear() == "put"
        assert q.get_bytes(timeout=0) == b"one"
        child.tell("stop")
        child.tell(b"two")
        child.wait_stopped()
        with pytest.raises(Timeout):
            q.get(timeout=limit * 0.6)
        assert (q.stats().writing, q.stats().fenced_blocks) == (1, 0)
        child.go_on()
        assert child.hear() == "put"
        assert drain(q) == [b"two"]
        assert q.stats().fenced == 0


def test_the_order_of_others_is_kept_while_one_stalls(start: Start) -> None:
    with Queue.create("q", capacity=1 << 14, stall_limit=0.1) as q:
        child = start(put_and_stop, "q", b"slow")
        child.wait_stopped()
        seen: list[bytes] = []
        reader = threading.Thread(target=lambda: seen.extend(bytes(message) for message in q))
        reader.start()
        for i in range(100):
            q.put(b"%d" % i)
        child.go_on()
        assert child.hear() == "put"
        child.tell("end")
        child.wait()
        q.close()
        reader.join()
        assert sorted(seen) == sorted([b"slow", *(b"%d" % i for i in range(100))])
        assert [data for data in seen if data != b"slow"] == [b"%d" % i for i in range(100)]


def test_a_slow_reader_is_never_fenced(start: Start) -> None:
    with Queue.create("q", capacity=1 << 12, stall_limit=0.05) as q:
        q.put(b"x")
        with Queue.open("q") as slow, slow.get() as message:
            with pytest.raises(Timeout):
                q.get(timeout=0.2)
            assert bytes(message) == b"x"
            assert q.stats().holders[0].taken == 1
        assert q.stats().settled == 1
