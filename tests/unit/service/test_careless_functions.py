"""Functions that a thread cannot call, threads that cannot start, calls whose task is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Event, Method, Misuse, Service
from holdfast.memory.service import Proxy, Skeleton
from tests.kit.processes import PATIENCE_S


class Clock(Service):
    tick = Event(size=8, samples=8)
    wait = Method()


Pair = tuple[Skeleton, Proxy]


@pytest.fixture
def answer() -> threading.Event:
    return threading.Event()


@pytest.fixture
def returned() -> threading.Event:
    return threading.Event()


@pytest.fixture
def pair(runtime_directory: Path, answer: threading.Event, returned: threading.Event) -> Iterator[Pair]:
    def wait() -> None:
        answer.wait(PATIENCE_S)
        returned.set()

    with Clock.offer("a", handlers={"wait": wait}) as skeleton, Clock.find("a") as proxy:
        try:
            yield skeleton, proxy
        finally:
            answer.set()


async def coroutine_function(_: object) -> None: ...


@pytest.mark.parametrize("function", [5, coroutine_function])
def test_a_subscription_refuses_what_its_thread_cannot_call(pair: Pair, function: Any) -> None:
    _, proxy = pair
    with pytest.raises(Misuse, match="function"):
        proxy.tick.subscribe(handler=function)
    proxy.tick.subscribe().close()


@pytest.mark.parametrize("function", [5, coroutine_function])
def test_an_offer_refuses_what_its_thread_cannot_call(runtime_directory: Path, function: Any) -> None:
    with pytest.raises(Misuse, match="on_departed"):
        Clock.offer("b", on_departed=function)
    Clock.offer("b").close()


def test_a_subscription_whose_thread_cannot_start_is_ended(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, proxy = pair

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            proxy.tick.subscribe(handler=print)
    proxy.tick.subscribe().close()


def test_the_end_of_a_loop_does_not_wait_for_a_cancelled_call(pair: Pair, returned: threading.Event) -> None:
    _, proxy = pair

    async def call() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(proxy.wait.acall(), 0.05)

    asyncio.run(call())
    assert not returned.is_set(), "the loop ended only after the call"


def test_acall_hands_over_results_and_errors(pair: Pair, answer: threading.Event) -> None:
    _, proxy = pair
    answer.set()
    assert asyncio.run(proxy.wait.acall(timeout=PATIENCE_S)) is None
    with pytest.raises(Misuse, match="takes no value"):
        asyncio.run(proxy.wait.acall(5))


def test_a_proxy_may_be_closed_while_a_subscription_is_made(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, proxy = pair

    class ClosingList(list[Any]):
        def append(self, value: Any) -> None:
            super().append(value)
            proxy.close()  # as a child of fork() does that was made at this moment

    monkeypatch.setattr(proxy, "_subscriptions", ClosingList())
    proxy.tick.subscribe()
    assert not proxy.attached
