"""The queue in one process: put, get, settle, batches, creation, stats."""

from __future__ import annotations

import array
import contextlib
import gc
import itertools
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from holdfast import Empty, Full, Message, Misuse, Queue, Timeout
from tests.kit.queue.queues import drain, fill
from tests.kit.waiting import waits_out

# -- in ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"memoryview"),
        memoryview(b"part of a view")[3:9],
        array.array("d", [1.5, 2.5]),
        np.arange(12, dtype=np.int32).reshape(3, 4),
        np.float64(2.5),
        b"",
        bytearray(),
        np.empty(0),
    ],
    ids=lambda data: f"{type(data).__name__}-{len(bytes(data))}",
)
def test_anything_bytes_like_goes_in(q: Queue, data: Any) -> None:
    q.put(data)
    q.put_many([data, data])
    assert drain(q) == [bytes(data)] * 3


@pytest.mark.parametrize(
    "data",
    [memoryview(b"abcdef")[::2], np.arange(12).reshape(3, 4).T],
    ids=["strided view", "transposed array"],
)
@pytest.mark.parametrize(
    "put", [Queue.put, lambda q, data: q.put_many([b"first", data])], ids=["put", "put_many"]
)
def test_what_is_not_contiguous_is_refused(q: Queue, data: Any, put: Callable[[Queue, Any], None]) -> None:
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        put(q, data)
    assert q.stats().put == 0
    assert drain(q) == []


@pytest.mark.parametrize("data", ["text", 7, None, object()], ids=lambda data: type(data).__name__)
def test_what_has_no_bytes_is_refused(q: Queue, data: Any) -> None:
    with pytest.raises(TypeError):
        q.put(data)
    with pytest.raises(TypeError):
        q.put_many([b"good", data])
    assert q.stats().put == 0


def test_a_refused_argument_keeps_no_hold_on_its_buffer(q: Queue) -> None:
    data = bytearray(b"mine")
    with pytest.raises(TypeError):
        q.put_many([data, 7])  # type: ignore[list-item]
    data += b"!"  # BufferError if an export were left


@pytest.mark.parametrize("capacity", [256, 1024, 1 << 16, 1 << 20])
def test_the_largest_message_and_one_byte_more(capacity: int) -> None:
    with Queue.create("sized", capacity=capacity) as q:
        limit = q.message_size_max
        assert limit == capacity // 2 - 32
        data = os.urandom(limit)
        for _ in range(5):  # at every offset of the ring
            q.put(data, timeout=0)
            assert q.get_bytes(timeout=0) == data
        with pytest.raises(Misuse, match=rf"{limit + 1} bytes .* at most {limit}\b"):
            q.put(data + b"x", timeout=0)
        with pytest.raises(Misuse, match=rf"{limit + 1} bytes .* at most {limit}\b"):
            q.put_many([b"small", data + b"x"], timeout=0)
        assert q.stats().ready == 0


# -- out --------------------------------------------------------------------------------------------------


def test_a_view_is_read_only_and_in_place(q: Queue) -> None:
    q.put(b"payload")
    with q.get() as message:
        view = message.data
        assert isinstance(view, memoryview)
        assert view.readonly
        assert (view.format, view.nbytes, len(message)) == ("B", 7, 7)
        with pytest.raises(TypeError):
            view[0] = 0
        assert bytes(message) == view.tobytes() == b"payload"
        assert np.frombuffer(message.data, dtype=np.uint8).flags.writeable is False
        with pytest.raises(ValueError, match="WRITEABLE"):
            np.frombuffer(message.data, dtype=np.uint8).flags.writeable = True
        view.release()


def test_a_message_tells_its_time_position_and_history(q: Queue) -> None:
    before = time.time_ns()
    q.put(b"a")
    q.put(b"b" * 100)
    q.put(b"c")
    after = time.time_ns()
    got = q.get_many(3)
    assert [message.redelivered for message in got] == [0, 0, 0]
    assert all(before <= message.time <= after for message in got)
    first = got[0].position
    assert [message.position - first for message in got] == [
        0,
        1,
        4,
    ]  # 132 bytes with its header: three granules
    assert "position=" in repr(got[0])
    assert "held" in repr(got[0])
    got.settle()
    assert "settled" in repr(got[0])


def test_get_bytes_settles_at_once(q: Queue) -> None:
    q.put(b"x" * 992)
    assert q.get_bytes() == b"x" * 992
    assert (q.stats().settled, q.stats().taken) == (1, 0)


def test_get_into(q: Queue) -> None:
    q.put(b"12345")
    q.put(b"")
    buffer = bytearray(b"........")
    assert q.get_into(buffer) == 5
    assert buffer == b"12345..."
    assert q.get_into(buffer, timeout=0) == 0
    assert buffer == b"12345..."
    numbers = array.array("I", [0, 0])
    q.put(array.array("I", [7, 8]))
    assert q.get_into(numbers) == 8
    assert numbers.tolist() == [7, 8]
    assert (q.stats().settled, q.stats().ready) == (3, 0)


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_get_into_a_buffer_too_small_leaves_the_message(delivery: Any) -> None:
    with Queue.create("into", capacity=1 << 12, delivery=delivery) as q:
        q.put_many([b"12345", b"next"])
        with pytest.raises(Misuse, match=r"5 bytes and the buffer 4\b.*stays"):
            q.get_into(bytearray(4))
        assert (q.stats().settled, q.stats().delivered) == (0, 0), "it was no delivery"
        with q.get(timeout=0) as message:
            assert bytes(message) == b"12345"
            assert message.redelivered == 0
        assert drain(q) == [b"next"]


def test_get_into_needs_a_writable_buffer(q: Queue) -> None:
    q.put(b"12345")
    with pytest.raises(BufferError):
        q.get_into(b"        ")
    with pytest.raises(BufferError):
        q.get_into(memoryview(bytearray(20))[::2])
    assert q.stats().delivered == 0
    assert drain(q) == [b"12345"]


# -- views that live on -----------------------------------------------------------------------------------


def test_a_view_that_outlives_its_with_defers_the_settling(q: Queue) -> None:
    data = os.urandom(2000)
    q.put(data)
    with q.get() as message:
        view = message.data
    assert (q.stats().taken, q.stats().settled) == (1, 0)
    with pytest.raises(Misuse, match="settled or given back"):
        memoryview(message)  # no further one: the decision is made
    count = fill(q, b"\0" * 2000)
    assert 0 < count < 32, "a full lap, but for what the view holds"
    with pytest.raises(Full) as caught:
        q.put(b"\0" * 2000, timeout=0)
    assert caught.value.pid == os.getpid()
    assert f"pid {os.getpid()} (this process) has not settled" in str(caught.value)
    assert view == data, "the space was not used again"
    assert len(drain(q)) == count
    assert fill(q, b"\0" * 2000) == 0, "the oldest block is in the way still"
    view.release()
    assert (q.stats().taken, q.stats().settled) == (0, count + 1)
    drain(q)
    assert fill(q, b"\0" * 2000) >= count
    assert q.check() == []


def test_the_last_of_several_views_settles(q: Queue) -> None:
    q.put(b"x" * 100)
    with q.get() as message:
        views = [message.data, memoryview(message)[10:20], np.frombuffer(message.data, dtype=np.uint8)]
    while views:
        assert q.stats().settled == 0
        views.pop()  # the last reference: no collection is needed
    assert q.stats().settled == 1


@pytest.mark.parametrize("first", ["settle", "give_back"])
@pytest.mark.parametrize("viewed", [False, True], ids=["no view", "a live view"])
def test_the_first_decision_stands(q: Queue, first: str, viewed: bool) -> None:
    q.put(b"x")
    with q.get() as message:  # leaving it would settle
        view = message.data if viewed else None
        getattr(message, first)()
        getattr(message, first)()
        getattr(message, "settle" if first == "give_back" else "give_back")()
    del view
    stats = q.stats()
    assert (stats.settled, stats.given_back) == ((1, 0) if first == "settle" else (0, 1))
    assert drain(q) == ([] if first == "settle" else [b"x"])


def test_a_view_alive_forbids_to_detach(q: Queue) -> None:
    q.put(b"x")
    message = q.get()
    view = message.data
    with pytest.raises(Misuse, match="1 views of message data are alive"):
        q.detach()
    assert q.attached
    assert bytes(view) == b"x"
    view.release()
    q.detach()
    assert not q.attached
    with Queue.open("q") as again, again.get(timeout=0) as back:
        assert (bytes(back), back.redelivered) == (b"x", 1)


def test_the_mapping_lives_until_its_last_export() -> None:
    q = Queue.create("short", capacity=1 << 16)
    q.put(b"still here" * 100)
    view = q.get().data
    Queue.unlink("short")
    del q
    gc.collect()
    assert bytes(view) == b"still here" * 100
    with pytest.warns(ResourceWarning, match="neither settled nor given back"):
        view.release()


# -- settling ---------------------------------------------------------------------------------------------


def test_leaving_the_with_settles(q: Queue) -> None:
    q.put(b"x")
    with q.get() as message:
        assert q.stats().taken == 1
        held = q.stats().holders[0]
        assert (held.pid, held.taken, held.alive) == (os.getpid(), 1, True)
    assert (q.stats().taken, q.stats().settled) == (0, 1)
    with pytest.raises(Misuse, match="settled or given back"):
        _ = message.data
    message.settle()  # a second call does no harm
    message.give_back()
    assert (q.stats().settled, q.stats().given_back) == (1, 0)


def test_an_exception_gives_the_message_back(q: Queue) -> None:
    q.put(b"x")
    for attempt in range(3):
        with contextlib.suppress(ZeroDivisionError), q.get(timeout=0) as message:
            assert message.redelivered == attempt
            raise ZeroDivisionError
    with q.get(timeout=0) as message:
        assert (bytes(message), message.redelivered) == (b"x", 3)
    stats = q.stats()
    assert (stats.given_back, stats.settled, stats.delivered, stats.redelivered) == (3, 1, 4, 3)


def test_at_most_once_gives_nothing_twice() -> None:
    with Queue.create("once", capacity=1 << 12, delivery="at-most-once") as q:
        q.put_many([b"a", b"b", b"c"])
        with contextlib.suppress(ZeroDivisionError), q.get() as message:
            assert bytes(message) == b"a"
            raise ZeroDivisionError
        q.get().give_back()
        assert drain(q) == [b"c"]
        assert q.stats().taken == 0
        assert q.check() == []


def test_a_dropped_message_is_given_back_with_a_warning(q: Queue) -> None:
    q.put_many([b"a", b"b", b"c"])
    with pytest.warns(ResourceWarning, match=r"a message at position \d+ was neither settled nor given back"):
        q.get()
    assert q.stats().returned == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none for a settled message
        with q.get(timeout=0) as message:
            assert (bytes(message), message.redelivered) == (b"a", 1)
        q.get_many(1).settle()
    q.put(b"d")
    with pytest.warns(ResourceWarning, match="a message of a batch") as caught:
        q.get_many(2)
    assert len(caught) == 2
    assert drain(q) == [b"c", b"d"]


# -- batches ----------------------------------------------------------------------------------------------


def test_a_batch_gives_what_is_there(q: Queue) -> None:
    q.put_many([b"%d" % i for i in range(5)])
    with q.get_many(100, timeout=10) as batch:  # five are enough to return at once
        assert len(batch) == 5
        assert batch.tobytes() == [b"0", b"1", b"2", b"3", b"4"]
        assert [bytes(message.data) for message in batch] == batch.tobytes()
        assert bytes(batch[-1]) == b"4"
        with pytest.raises(IndexError):
            batch[5]
        assert q.stats().taken == 5
    assert q.stats().settled == 5
    with pytest.raises(Misuse, match="was settled or given back already"):
        batch.tobytes()
    with pytest.raises(Empty):
        q.get_many(1, timeout=0)


def test_some_of_a_batch_settled_one_given_back(q: Queue) -> None:
    q.put_many([b"%d" % i for i in range(6)])
    with q.get_many(6) as batch:
        batch[0].settle()
        batch[3].give_back()
    assert (q.stats().settled, q.stats().returned) == (5, 1)
    with q.get(timeout=0) as message:
        assert (bytes(message), message.redelivered) == (b"3", 1)
    assert drain(q) == []


def test_an_exception_gives_back_what_of_a_batch_is_not_settled(q: Queue) -> None:
    q.put_many([b"%d" % i for i in range(4)])
    with contextlib.suppress(ZeroDivisionError), q.get_many(4) as batch:
        batch[1].settle()
        raise ZeroDivisionError
    assert drain(q) == [b"0", b"2", b"3"]
    assert q.stats().redelivered == 3


def test_a_batch_outlives_its_messages_and_the_other_way_round(q: Queue) -> None:
    q.put_many([b"a", b"b"])
    message: Message = q.get_many(2)[1]  # the batch itself has no name
    assert bytes(message) == b"b"
    assert q.stats().taken == 2
    with pytest.warns(ResourceWarning) as caught:
        del message
    assert len(caught) == 2
    assert drain(q) == [b"a", b"b"]


def test_a_view_of_one_message_defers_that_one_only(q: Queue) -> None:
    q.put_many([b"a", b"b", b"c"])
    with q.get_many(3) as batch:
        view = batch[1].data
    assert (q.stats().settled, q.stats().taken) == (2, 1)
    assert bytes(view) == b"b"
    view.release()
    assert (q.stats().settled, q.stats().taken) == (3, 0)


@pytest.mark.parametrize("count", [0, -1])
def test_a_batch_of_nothing_is_a_mistake(q: Queue, count: int) -> None:
    with pytest.raises(Misuse, match="at least 1"):
        q.get_many(count)


def test_put_many_takes_any_iterable_also_an_empty_one(q: Queue) -> None:
    q.put_many([])
    q.put_many(b"%d" % i for i in range(3))
    q.put_many((bytearray(b"x"), memoryview(b"y")))
    assert drain(q) == [b"0", b"1", b"2", b"x", b"y"]
    with pytest.raises(ZeroDivisionError):
        q.put_many(bytes(1 // (2 - i)) for i in range(5))
    assert drain(q) == [], "an iterable that fails puts nothing"


def test_put_many_beyond_half_the_capacity_goes_in_extents() -> None:
    with Queue.create("extents", capacity=1 << 12) as q:  # 64 granules: at most 32 of them in one extent
        messages = [b"%03d" % i for i in range(60)]
        q.put_many(messages, timeout=0)
        assert drain(q) == messages
        with pytest.raises(Full) as full:
            q.put_many([b"%03d" % i for i in range(100)], timeout=0)
        assert full.value.done == 32, "one extent of 32 fits, a second one would leave no granule free"
        with pytest.raises(Timeout) as late:
            q.put_many(messages, timeout=0.05)
        assert late.value.done == 0
        assert drain(q) == [b"%03d" % i for i in range(32)]
        with waits_out(0.05), pytest.raises(Timeout) as late:
            q.put_many(messages * 2, timeout=0.05)
        assert late.value.done == 32
        assert q.check() == []


# -- order and waiting ------------------------------------------------------------------------------------


def test_first_in_first_out_over_many_laps() -> None:
    with Queue.create("laps", capacity=1 << 10) as q:
        put = got = 0
        for size in itertools.islice(itertools.cycle([0, 1, 31, 33, 100, 300, 480]), 2000):
            while True:
                try:
                    q.put(b"%06d" % put + b"." * max(0, size - 6), timeout=0)
                    put += 1
                    break
                except Full:
                    assert q.get_bytes(timeout=0)[:6] == b"%06d" % got
                    got += 1
        assert [data[:6] for data in drain(q)] == [b"%06d" % i for i in range(got, put)]
        assert q.check() == []


def test_what_came_back_goes_first_oldest_first(q: Queue) -> None:
    q.put_many([b"a", b"b", b"c"])
    batch = q.get_many(2)
    batch[1].give_back()
    batch[0].give_back()
    assert drain(q) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "get", [Queue.get, Queue.get_bytes, lambda q, timeout: q.get_into(bytearray(9), timeout),
            lambda q, timeout: q.get_many(3, timeout)], ids=["get", "get_bytes", "get_into", "get_many"],
)  # fmt: skip
def test_nothing_there(q: Queue, get: Callable[..., object]) -> None:
    with pytest.raises(Empty, match="queue q has no message"):
        get(q, timeout=0)
    with waits_out(0.1), pytest.raises(Timeout, match=r"queue q has no message .* after \d+\.\d\d\d s"):
        get(q, timeout=0.1)
    with pytest.raises(Misuse, match="timeout"):
        get(q, timeout=-1)


@pytest.mark.parametrize("put", [Queue.put, lambda q, data, timeout: q.put_many([data], timeout)],
                         ids=["put", "put_many"])  # fmt: skip
def test_no_room(q: Queue, put: Callable[..., object]) -> None:
    fill(q, b"x" * 992)
    with pytest.raises(Full, match=r"queue q has no room for this put.*wait for a consumer") as full:
        put(q, b"x" * 992, timeout=0)
    assert full.value.pid is None, "nobody holds them"
    with waits_out(0.1), pytest.raises(Timeout, match=r"queue q has no room .* after \d+\.\d\d\d s"):
        put(q, b"x" * 992, timeout=0.1)
    with pytest.raises(Misuse, match="timeout"):
        put(q, b"x", timeout=float("nan"))
    q.get_bytes()
    put(q, b"x" * 992, timeout=0)


def test_a_timeout_is_a_python_timeout_and_full_a_python_full(q: Queue) -> None:
    import queue

    with pytest.raises(TimeoutError):
        q.get(timeout=0.001)
    with pytest.raises(queue.Empty):
        q.get(timeout=0)
    fill(q, b"x" * 992)
    with pytest.raises(queue.Full):
        q.put(b"x" * 992, timeout=0)


@pytest.mark.parametrize("spin", [0.0, 0.02])
def test_spinning_changes_no_outcome(q: Queue, spin: float) -> None:
    q.spin = spin
    assert q.spin == pytest.approx(spin)
    for timeout in (0.005, 0.05):
        with waits_out(timeout), pytest.raises(Timeout):
            q.get(timeout=timeout)
    q.put(b"x")
    assert q.get_bytes(timeout=1) == b"x"
    with pytest.raises(Misuse, match="spin"):
        q.spin = -1


@pytest.mark.parametrize(
    "call",
    [
        "put()",
        "put(b'x', 1, 2)",
        "put(b'x', time=1)",
        "put_many(7)",
        "get(1, 2)",
        "get(timeout='x')",
        "get_many()",
        "get_many('x')",
        "get_into()",
    ],
)
def test_wrong_arguments(q: Queue, call: str) -> None:
    with pytest.raises(TypeError):
        eval(f"q.{call}", {"q": q})
    assert q.stats().put == 0
