"""Threads that share a proxy or a skeleton."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Closed, Event, Field, Full, Method, Misuse, PeerDied, Proxy, Service, Skeleton, Timeout
from tests.kit.processes import until
from tests.kit.waiting import Waiting

LARGE = 70_000
"""A size that is copied without the GIL."""


class Rig(Service):
    frame = Event(size=LARGE, samples=24, loans=4)
    gain = Field("f8", initial=1.0)
    picture = Field(LARGE)
    echo = Method(LARGE, LARGE, calls=4)


Pair = tuple[Skeleton, Proxy]


@pytest.fixture
def pair(runtime_directory: Path) -> Iterator[Pair]:
    with Rig.offer("i", handlers={"echo": lambda data: data}) as skeleton, Rig.find("i") as proxy:
        yield skeleton, proxy


def listening(proxy: Proxy, number: int = 0) -> bool:
    """Return whether a thread sleeps on the bell of an element: its lowest bit."""
    from tests.kit.service.words import Words

    name = [*Rig._elements][number]
    words = Words(Rig, "i")
    return bool(words.read(words.control[name], 4) & 1)


def require_whole(user: Skeleton | Proxy) -> None:
    """Check that every sample and every call is free."""
    for each in user.stats().elements:
        assert (each.held, each.writing, each.calls_under_way) == (0, 0, 0)
    assert user.check() == []


def test_every_call_at_once(pair: Pair) -> None:
    skeleton, proxy = pair
    stop = threading.Event()
    seen: Counter[int] = Counter()
    frames = proxy.frame.subscribe(max_samples=8)

    def send(name: int) -> None:
        for n in range(50):
            data = bytes([name]) * (LARGE if n % 7 == 0 else n)
            if n % 3:
                skeleton.frame.send(data)
            else:
                with skeleton.frame.loan(len(data)) as buffer:
                    buffer[:] = data

    def take() -> None:
        while not stop.is_set():
            try:
                sample = frames.take(0.01)
            except Timeout:
                continue
            data = bytes(sample.data)
            assert data == data[:1] * len(data)
            seen[sample.sequence] += 1
            sample.release()

    def take_all() -> None:
        while not stop.is_set():
            for sample in frames.take_new():
                seen[sample.sequence] += 1
                sample.release()

    def call(name: int) -> None:
        for n in range(12):
            data = bytes([name]) * (LARGE if n % 5 == 0 else n + 1)
            assert proxy.echo(data, 20) == data
            proxy.gain.set(float(n), 20)
            proxy.gain.get()
            skeleton.picture.update(data)
            picture = proxy.picture.get()
            assert picture == picture[:1] * len(picture)

    def look() -> None:
        while not stop.is_set():
            skeleton.stats()
            proxy.reap()

    others = [Waiting(take), Waiting(take), Waiting(take_all), Waiting(look)]
    workers = [Waiting(lambda n=n: send(n)) for n in range(2)]  # type: ignore[misc]
    workers += [Waiting(lambda n=n: call(n)) for n in range(2)]  # type: ignore[misc]
    for worker in workers:
        assert worker.end() is None
    stop.set()
    for other in others:
        assert other.end() is None
    assert max(seen.values()) == 1, "each sample was taken once"
    frames.close()
    assert skeleton.frame.sequence == 100
    require_whole(skeleton)


def test_threads_share_the_samples_of_one_subscription(pair: Pair) -> None:
    """One thread takes all that are there; the others get theirs from it."""
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=2)
    for _ in range(3):
        waiting = [Waiting(lambda: frames.take(20).sequence) for _ in range(2)]
        until(lambda: listening(proxy))
        first = skeleton.frame.send(b"1")
        skeleton.frame.send(b"2")
        got = [each.end() for each in waiting]
        assert sorted(got) == [first, first + 1]


@pytest.mark.parametrize("closer", ["subscription", "proxy"])
def test_close_while_a_thread_waits_for_samples(pair: Pair, closer: str) -> None:
    _, proxy = pair
    frames = proxy.frame.subscribe()
    waiting = [Waiting(frames.take), Waiting(lambda: [*frames]), Waiting(lambda: frames.take(20))]
    until(lambda: listening(proxy))
    frames.close() if closer == "subscription" else proxy.close()
    results = [each.end() for each in waiting]
    assert results[1] == []
    for each in (results[0], results[2]):
        assert isinstance(each, Closed)


def test_close_while_a_call_waits(pair: Pair) -> None:
    skeleton, proxy = pair
    entered, release = threading.Event(), threading.Event()

    def slow(data: bytes) -> bytes:
        entered.set()
        release.wait(20)
        return data

    skeleton.echo.handle(slow)
    waiting = Waiting(lambda: proxy.echo(b"x"))
    assert entered.wait(20)
    proxy.close()
    assert isinstance(waiting.end(), Closed)
    release.set()
    with Rig.find("i") as other:
        assert other.echo(b"y", 20) == b"y"
        require_whole(other)


def test_close_of_the_provider_while_calls_wait(pair: Pair) -> None:
    skeleton, proxy = pair
    entered, release = threading.Event(), threading.Event()

    def slow(data: bytes) -> bytes:
        entered.set()
        release.wait(20)
        return data

    skeleton.echo.handle(slow)
    running = Waiting(lambda: proxy.echo(b"x"))
    assert entered.wait(20)
    behind = Waiting(lambda: proxy.gain.set(2.0))
    until(lambda: proxy.stats().elements[1].calls_under_way == 1)
    closing = Waiting(skeleton.close)
    results = [running.end(), behind.end()]
    release.set()
    closing.end()
    assert [type(each) for each in results] == [PeerDied, PeerDied]
    assert [each.executed for each in results] == [None, False]


def test_close_while_another_thread_sends(pair: Pair) -> None:
    skeleton, proxy = pair

    def send() -> Any:
        while True:
            try:
                skeleton.frame.send(bytes(LARGE))
            except Closed as error:
                return error

    sending = [Waiting(send) for _ in range(3)]
    until(lambda: skeleton._core.attached and skeleton.frame.sequence > 10)
    skeleton.close()
    for each in sending:
        assert isinstance(each.end(), Closed)
    with Rig.offer("i") as again:
        assert again.reused
        assert proxy.check() == []


def test_views_end_in_another_thread(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=2)
    skeleton.frame.send(b"kept")
    sample = frames.take(0)
    views = [sample.data, sample.data[:1]]
    sample.release()
    proxy.close()
    assert skeleton.stats().elements[0].held == 1
    for n, view in enumerate(views):
        Waiting(view.release).end()
        assert skeleton.stats().elements[0].held == 1 - n
    assert len(skeleton.stats().users) == 1


def test_two_threads_close_at_once(pair: Pair) -> None:
    skeleton, proxy = pair
    subscriptions = [proxy.frame.subscribe(handler=repr), proxy.gain.subscribe(handler=repr)]
    both = [Waiting(proxy.close), Waiting(proxy.close), *(Waiting(each.close) for each in subscriptions)]
    both += [Waiting(skeleton.close), Waiting(skeleton.close)]
    assert [each.end() for each in both] == [None] * len(both)


def test_a_cancelled_atake_has_taken_nothing(pair: Pair) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=3)

    async def cancel() -> int:
        for _ in range(20):
            task = asyncio.create_task(frames.atake())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        task = asyncio.create_task(frames.atake())
        await asyncio.sleep(0)
        skeleton.frame.send(b"1")
        task.cancel()  # in the moment in which there is one
        with pytest.raises(asyncio.CancelledError):
            await task
        assert proxy._core.held(0) == 0
        with await frames.atake(20) as sample:
            return int(sample.sequence)

    assert asyncio.run(cancel()) == 1


def test_a_task_learns_of_a_close(pair: Pair) -> None:
    _, proxy = pair
    frames = proxy.frame.subscribe()

    async def wait_and_close() -> None:
        task = asyncio.create_task(frames.atake(timeout=20))
        await asyncio.sleep(0)
        threading.Thread(target=proxy.close).start()
        with pytest.raises(Closed):
            await task

    asyncio.run(wait_and_close())


# -- objects without a close --------------------------------------------------------------------------


def test_a_dropped_proxy_frees_its_slot(pair: Pair) -> None:
    skeleton, _ = pair
    dropped = Rig.find("i")
    kept = dropped.frame.subscribe(max_samples=3), dropped.gain.subscribe()
    skeleton.frame.send(b"x")
    sample = kept[0].take(0)
    assert len(skeleton.stats().users) == 3
    seen = weakref.ref(dropped)
    del dropped, kept
    gc.collect()
    assert seen() is None
    assert len(skeleton.stats().users) == 3, "a sample keeps the slot"
    assert bytes(sample) == b"x"
    del sample
    stats = skeleton.stats()
    assert (len(stats.users), stats.elements[0].subscribers) == (2, 0)
    require_whole(skeleton)


def test_objects_in_cycles_are_collected(pair: Pair) -> None:
    skeleton, _ = pair

    class Node:
        def __init__(self) -> None:
            self.proxy = Rig.find("i")
            self.frames = self.proxy.frame.subscribe(max_samples=2)
            skeleton.frame.send(b"x")
            self.sample = self.frames.take(0)
            self.view = self.sample.data
            self.itself = self
            self.generator = iter(self.frames)

    nodes = [weakref.ref(Node()) for _ in range(5)]
    gc.collect()
    assert [each() for each in nodes] == [None] * 5
    assert len(skeleton.stats().users) == 2
    require_whole(skeleton)


def test_dropped_loans_and_calls(pair: Pair) -> None:
    skeleton, proxy = pair
    loans = [skeleton.frame.loan(4) for _ in range(4)]
    with pytest.raises(Misuse, match="lends its provider at most 4"):
        skeleton.frame.loan(4)
    del loans
    gc.collect()
    assert skeleton.frame.send(b"x") == 1
    require_whole(proxy)


def test_a_subscription_that_cannot_move_leaves_the_others(runtime_directory: Path) -> None:
    """The instance is created anew, another proxy was faster: the rest goes on."""

    class Two(Service):
        one = Event(size=8, samples=6)
        two = Event(size=8, samples=6)

    with Two.offer("t"):
        proxy = Two.find("t")
        first, second = proxy.one.subscribe(max_samples=2), proxy.two.subscribe(max_samples=2)
    (runtime_directory / "holdfast.service.Two.t").unlink()
    with Two.offer("t") as again, Two.find("t") as other:
        other.one.subscribe(max_samples=3)
        with pytest.raises(Full):
            second.take(0)
        again.two.send(b"x")
        with second.take(5) as sample:
            assert bytes(sample) == b"x"
        with pytest.raises(Closed):
            first.take(0)
        proxy.close()
