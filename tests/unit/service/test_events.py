"""Send, subscribe, take and release samples, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import threading
import time
from collections.abc import Iterator
from queue import Queue
from typing import Any

import numpy
import pytest

from holdfast import Closed, Empty, Event, Full, Misuse, Proxy, Service, Skeleton, Timeout
from tests.kit.processes import until


class Camera(Service):
    frame = Event(size=64, samples=8)
    image = Event(dtype="u2", shape=(2, 3), samples=8, loans=2)


Pair = tuple[Skeleton, Proxy]


@pytest.fixture
def pair(runtime_directory: object) -> Iterator[Pair]:
    with Camera.offer("left") as skeleton, Camera.find("left", timeout=0) as proxy:
        yield skeleton, proxy


def require_whole(proxy: Proxy) -> None:
    """Check that no sample is held and nothing is damaged."""
    gc.collect()
    stats = proxy.stats()
    assert [each.held + each.writing for each in stats.elements] == [0] * len(stats.elements)
    assert proxy.check() == []


def test_samples_arrive_in_order_with_their_length(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=3)
    for data in (b"", b"x", b"y" * 64):
        skeleton.frame.send(data)
    taken = frames.take_new()
    assert [(bytes(each.data), each.sequence, each.missed) for each in taken] == [
        (b"", 1, 0),
        (b"x", 2, 0),
        (b"y" * 64, 3, 0),
    ]
    assert all(each.data.readonly for each in taken)
    del taken
    require_whole(proxy)


def test_the_newest_come_and_the_missed_are_counted(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=2)
    for n in range(20):
        skeleton.frame.send(b"%d" % n)
    assert [(bytes(each.data), each.missed) for each in frames.take_new()] == [(b"18", 18), (b"19", 0)]
    assert frames.take_new() == []
    skeleton.frame.send(b"20")
    with frames.take(0) as sample:
        assert (bytes(sample.data), sample.missed) == (b"20", 0)
    assert proxy.stats().missed == 18
    require_whole(proxy)


def test_a_subscription_begins_now_or_with_history(pair: Pair) -> None:
    skeleton, proxy = pair
    for n in range(5):
        skeleton.frame.send(b"%d" % n)
    with proxy.frame.subscribe() as frames, pytest.raises(Empty):
        frames.take(0)
    with proxy.frame.subscribe(max_samples=2, history=3) as frames:
        assert [(bytes(each.data), each.missed) for each in frames.take_new()] == [(b"3", 1), (b"4", 0)]
    with proxy.frame.subscribe(max_samples=4, history=100) as frames:
        assert [bytes(each.data) for each in frames.take_new()] == [b"1", b"2", b"3", b"4"]
    require_whole(proxy)


def test_a_held_sample_is_not_replaced(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=2)
    skeleton.frame.send(b"kept")
    kept = frames.take(0)
    for n in range(100):
        skeleton.frame.send(b"%d" % n)
    assert bytes(kept.data) == b"kept"
    kept.release()
    with pytest.raises(Misuse):
        _ = kept.data
    require_whole(proxy)


def test_a_view_keeps_the_sample_after_release_and_close(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe()
    skeleton.frame.send(b"kept")
    with frames.take(0) as sample:
        view = sample.data
    for n in range(100):
        skeleton.frame.send(b"%d" % n)
    assert bytes(view) == b"kept"
    frames.close()
    proxy.close()
    for n in range(100):
        skeleton.frame.send(b"%d" % n)
    assert bytes(view) == b"kept"
    held = [each.held for each in skeleton.stats().elements]
    assert held == [1, 0]
    view.release()
    del sample
    assert [each.held for each in skeleton.stats().elements] == [0, 0]
    assert not any(each.role == "proxy" for each in skeleton.stats().users)


def test_a_dropped_sample_is_released(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=1)
    for n in range(10):
        skeleton.frame.send(b"%d" % n)
        assert bytes(frames.take(0).data) == b"%d" % n
    require_whole(proxy)


def test_more_than_max_samples_are_refused(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=2)
    for _ in range(3):
        skeleton.frame.send(b"x")
    kept = frames.take_new()
    skeleton.frame.send(b"y")
    with pytest.raises(Misuse, match="max_samples"):
        frames.take(0)
    del kept
    with frames.take(0) as sample:
        assert bytes(sample.data) == b"y"


def test_an_iteration_keeps_the_newest_samples(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=2)
    kept = []
    for n, sample in zip(range(5), _fed(skeleton, frames), strict=False):
        assert bytes(sample.data) == b"%d" % n
        kept.append(sample)
    assert bytes(kept[-1].data) == b"4"
    assert bytes(kept[-2].data) == b"3"
    with pytest.raises(Misuse):
        _ = kept[0].data
    kept.clear()
    del sample
    require_whole(proxy)


def test_an_iteration_passes_over_samples_that_the_program_released(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=2)
    kept = []
    for sample in _fed(skeleton, frames):
        kept.append(sample)
        if len(kept) == 1:
            sample.release()
        if len(kept) == 4:
            break
    assert [each.sequence for each in kept] == [1, 2, 3, 4]
    assert [bytes(each.data) for each in kept[2:]]
    with pytest.raises(Misuse):
        _ = kept[1].data
    del kept, sample
    require_whole(proxy)


def _fed(skeleton: Skeleton, frames: Any) -> Iterator[Any]:
    """Send a sample before each step of an iteration."""
    iterator = iter(frames)
    for n in itertools.count():
        skeleton.frame.send(b"%d" % n)
        yield next(iterator)


def test_subscribers_beyond_the_samples_are_refused(pair: Pair) -> None:
    skeleton, proxy = pair
    with Camera.find("left", 0) as second, Camera.find("left", 0) as third:
        first = proxy.frame.subscribe(max_samples=2)
        second.frame.subscribe(max_samples=2)
        with pytest.raises(Full, match="samples"):
            third.frame.subscribe(max_samples=1)
        first.close()
        third.frame.subscribe(max_samples=2)
        with pytest.raises(Full):
            proxy.frame.subscribe(max_samples=1)
    proxy.frame.subscribe(max_samples=5)
    for _ in range(20):
        skeleton.frame.send(b"x")


def test_the_number_of_subscribers_is_limited(runtime_directory: object) -> None:
    class Few(Service):
        tick = Event(size=8, samples=32, max_subscribers=2)

    with Few.offer("a") as skeleton, Few.find("a") as one, Few.find("a") as two, Few.find("a") as three:
        one.tick.subscribe()
        kept = two.tick.subscribe()
        with pytest.raises(Full, match="max_subscribers"):
            three.tick.subscribe()
        kept.close()
        three.tick.subscribe()
        assert skeleton.stats().elements[0].subscribers == 2


def test_loans_are_published_or_given_back(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=2)
    with skeleton.frame.loan(5) as buffer:
        buffer[:] = b"hello"
    with contextlib.suppress(ZeroDivisionError), skeleton.frame.loan() as buffer:
        buffer[:1] = b"x"
        _ = 1 / 0
    with frames.take(0) as sample:
        assert (bytes(sample.data), sample.missed) == (b"hello", 0)
    assert frames.take_new() == []
    loan = skeleton.frame.loan(1)
    with pytest.raises((Full, Misuse), match="loan"):
        skeleton.frame.loan()
    loan.release()
    skeleton.frame.send(b"after")
    require_whole(proxy)


def test_a_loan_with_a_live_view_is_not_published(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe()
    with pytest.raises(Misuse), skeleton.frame.loan(4) as buffer:
        view = memoryview(buffer)
    view.release()
    assert frames.take_new() == []
    del buffer
    skeleton.frame.send(b"ok")
    with frames.take(0) as sample:
        assert bytes(sample.data) == b"ok"


def test_arrays(pair: Pair) -> None:
    skeleton, proxy = pair
    images = proxy.image.subscribe(max_samples=2)
    with skeleton.image.loan() as image:
        image[:] = numpy.arange(6).reshape(2, 3)
    skeleton.image.send(numpy.full((2, 3), 9, "u2"))
    first, second = images.take_new()
    assert first.array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert second.array.dtype == numpy.dtype("u2")
    assert not first.array.flags.writeable
    with pytest.raises(Misuse, match="shape"):
        skeleton.image.send(numpy.zeros((3, 2), "u2"))
    skeleton.image.send([[1, 2, 3], [4, 5, 6]])
    for wrong in ([[1, 2], [3, 4]], [[70_000] * 3] * 2, "text"):
        with pytest.raises(Misuse):
            skeleton.image.send(wrong)
    array = first.array
    first.release()
    del second
    for n in range(50):
        skeleton.image.send(numpy.full((2, 3), n, "u2"))
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    del array, first
    require_whole(proxy)


def test_timeouts(pair: Pair) -> None:
    _, proxy = pair
    frames = proxy.frame.subscribe()
    with pytest.raises(Empty):
        frames.take(0)
    with pytest.raises(Timeout, match=r"waited 0\.01 s"):
        frames.take(0.01)


def test_closing_ends_a_subscription(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe()
    frames.close()
    frames.close()
    with pytest.raises(Closed):
        frames.take(0)
    assert list(frames) == []
    proxy.close()
    proxy.close()
    with pytest.raises(Closed):
        proxy.frame.subscribe()
    skeleton.close()
    skeleton.close()
    with pytest.raises(Closed):
        skeleton.frame.send(b"x")


def test_closing_releases_what_its_thread_takes_meanwhile(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=3, handler=lambda sample: None)
    closing = threading.Thread(target=frames.close)
    closing.start()
    while not frames._closed:
        time.sleep(0.001)
    skeleton.frame.send(b"late")
    closing.join()
    require_whole(proxy)
    proxy.frame.subscribe(max_samples=3).close()


@pytest.mark.parametrize("error", [Full("q"), Timeout("q"), Closed("q"), ValueError("q"), SystemExit(1)])
def test_a_handler_that_fails_gets_the_next_sample(
    pair: Pair, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    skeleton, proxy = pair
    got: Queue[int] = Queue()

    def handler(sample: Any) -> None:
        got.put(sample.sequence)
        raise error

    with proxy.frame.subscribe(max_samples=1, handler=handler):
        for number in (1, 2):
            skeleton.frame.send(b"x")
            assert got.get(timeout=10) == number
    assert caplog.text.count("the handler failed for a sample") == 2
    require_whole(proxy)


def test_samples_in_asyncio(pair: Pair) -> None:
    skeleton, proxy = pair

    async def main() -> list[bytes]:
        frames = proxy.frame.subscribe()
        with pytest.raises(Empty):
            await frames.atake(0)
        with pytest.raises(Timeout):
            await frames.atake(0.01)
        waiting = asyncio.ensure_future(frames.atake(20))
        await asyncio.sleep(0)
        skeleton.frame.send(b"0")
        got = []
        with await waiting as sample:
            got.append(bytes(sample.data))
        skeleton.frame.send(b"1")
        async for sample in frames:
            got.append(bytes(sample.data))
            if len(got) == 3:
                break
            skeleton.frame.send(b"2")
        sample.release()
        cancelled = asyncio.ensure_future(frames.atake())
        await asyncio.sleep(0)
        cancelled.cancel()
        skeleton.frame.send(b"3")
        with await frames.atake(20) as sample:
            got.append(bytes(sample.data))
        return got

    assert asyncio.run(main()) == [b"0", b"1", b"2", b"3"]
    require_whole(proxy)


def send_heard(skeleton: Skeleton, got: list[bytes], data: bytes) -> None:
    """Send a sample, and wait until the handler has it."""
    skeleton.frame.send(data)
    until(lambda: got[-1:] == [data])


def test_a_handler_gets_each_sample(pair: Pair) -> None:
    skeleton, proxy = pair
    got: list[bytes] = []
    with proxy.frame.subscribe(handler=lambda sample: got.append(bytes(sample.data))):
        for data in (b"0", b"1", b"2"):
            send_heard(skeleton, got, data)
    assert got == [b"0", b"1", b"2"]
    require_whole(proxy)


def test_the_tracer_gets_every_sample(pair: Pair) -> None:
    skeleton, proxy = pair
    with Camera.trace("left", 0) as tracer:
        traced = tracer.frame.subscribe(max_samples=3)
        frames = proxy.frame.subscribe()
        seen = []
        for n in range(30):
            skeleton.frame.send(b"%d" % n)
            if n % 3 == 2:
                for _ in range(3):
                    with traced.take(0) as sample:
                        seen.append((bytes(sample.data), sample.missed))
        assert seen == [(b"%d" % n, 0) for n in range(30)]
        for n in range(10):
            skeleton.frame.send(b"%d" % n)
        assert [each.missed for each in traced.take_new()] == [0, 0, 0]
        assert traced.take_new() == []
        skeleton.frame.send(b"last")
        with traced.take(0) as sample:
            assert (bytes(sample.data), sample.missed) == (b"last", 7)
        with frames.take(0) as sample:
            assert bytes(sample.data) == b"last"
    require_whole(proxy)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "size or dtype"),
        ({"size": 1, "dtype": "u1"}, "size or dtype"),
        ({"size": 0}, "size"),
        ({"size": "x"}, "whole number"),
        ({"size": 8, "samples": 3}, "samples"),
        ({"size": 8, "samples": 5000}, "samples"),
        ({"size": 8, "max_subscribers": 63}, "max_subscribers"),
        ({"size": 8, "loans": 0}, "loans"),
        ({"dtype": "O"}, "Python objects"),
    ],
)
def test_events_that_cannot_be(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        Event(**wrong)


def test_wrong_subscriptions(pair: Pair) -> None:
    skeleton, proxy = pair
    for max_samples in (0, -1, 9, "2", True):
        with pytest.raises(Misuse, match="max_samples"):
            proxy.frame.subscribe(max_samples=max_samples)
    with pytest.raises(Misuse, match="history"):
        proxy.frame.subscribe(history=-1)
    proxy.frame.subscribe()
    with pytest.raises(Misuse, match="subscri"):
        proxy.frame.subscribe()
    with pytest.raises(Misuse, match="64"):
        skeleton.frame.send(bytes(65))
    with pytest.raises(TypeError):
        skeleton.frame.send("text")
    with pytest.raises(AttributeError, match="no element"):
        _ = skeleton.nothing
    with pytest.raises(AttributeError, match="no element"):
        _ = proxy.nothing
