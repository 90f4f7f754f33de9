"""The end of a stream, purge and iteration, in one process."""

from __future__ import annotations

import contextlib

import pytest

from holdfast import Closed, Queue
from tests.kit.queue.queues import drain, fill

# -- end of stream ----------------------------------------------------------------------------------------


def test_close_ends_the_stream(q: Queue) -> None:
    q.put_many([b"a", b"b"])
    q.close()
    assert q.stats().closed
    with pytest.raises(Closed, match="queue q is closed: nothing more can be put"):
        q.put(b"c")
    with pytest.raises(Closed) as caught:
        q.put_many([b"c", b"d"], timeout=0)
    assert caught.value.done == 0
    assert q.get_bytes() == b"a"
    with q.get() as message:
        assert bytes(message) == b"b"
    for timeout in (0, 0.01, None):
        with pytest.raises(Closed, match="everything was delivered"):
            q.get(timeout=timeout)
    with pytest.raises(Closed):
        q.get_many(3, timeout=0)
    q.close()  # a second call does no harm
    with Queue.open("q") as late, pytest.raises(Closed):
        late.get()
    assert q.check() == []


def test_close_works_on_a_full_queue() -> None:
    for capacity in (256, 1024, 1 << 16):
        for size in (0, 33, 96):
            with Queue.create("full", capacity=capacity) as q:
                count = fill(q, b"x" * size)
                q.close()
                assert len(drain(q)) == count > 0
                with pytest.raises(Closed):
                    q.get(timeout=0)
                assert q.check() == []
            Queue.unlink("full")


# -- purge ------------------------------------------------------------------------------------------------


def test_purge_throws_away_what_waits(q: Queue) -> None:
    q.put_many([b"x"] * 5)
    with Queue.open("q") as other, other.get():  # messages held by others stay theirs
        back = other.get()
        back.give_back()
        assert q.purge() == 4
        assert q.purge() == 0
        assert (q.stats().taken, q.stats().ready, q.stats().returned) == (1, 0, 0)
    assert drain(q) == []
    q.put(b"new")
    assert drain(q) == [b"new"]


def test_purge_makes_room_and_works_after_the_end(q: Queue) -> None:
    count = fill(q, b"")
    assert q.purge() == count == 1023
    q.put(b"x" * q.message_size_max, timeout=0)
    q.close()
    assert q.purge() == 1
    with pytest.raises(Closed):
        q.get(timeout=0)
    assert q.check() == []


# -- iteration --------------------------------------------------------------------------------------------


def test_iteration_settles_each_when_the_next_is_asked_for(q: Queue) -> None:
    q.put_many([b"a", b"b", b"c"])
    q.close()
    seen: list[bytes] = []
    for message in q:
        assert q.stats().settled == len(seen)
        seen.append(bytes(message.data))
    assert seen == [b"a", b"b", b"c"]
    assert q.stats().settled == 3
    assert list(q) == []


def test_a_loop_left_early_gives_its_last_message_back(q: Queue) -> None:
    q.put_many([b"a", b"b", b"c", b"d"])
    for message in q:
        if bytes(message) == b"b":
            break
    assert (q.stats().settled, q.stats().returned) == (1, 1)
    for message in q:
        assert (bytes(message), message.redelivered) == (b"b", 1)
        message.settle()  # settled: detach does not return it
        break
    assert q.stats().settled == 2
    with contextlib.suppress(ZeroDivisionError):
        for message in q:
            assert bytes(message) == b"c"
            raise ZeroDivisionError
    del message
    assert drain(q) == [b"c", b"d"]
