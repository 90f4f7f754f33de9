"""Handlers, callbacks, conversions and signals that use a service in the middle of its call."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Closed,
    Event,
    Field,
    Method,
    PeerDied,
    Proxy,
    Refused,
    Service,
    Skeleton,
    Timeout,
)
from tests.kit.processes import until
from tests.kit.waiting import Waiting


class Rig(Service):
    frame = Event(size=16, samples=8)
    gain = Field("f8", initial=1.0)
    echo = Method(8, 8)
    other = Method(8, 8)


Pair = tuple[Skeleton, Proxy]


@pytest.fixture
def pair(runtime_directory: Path) -> Iterator[Pair]:
    handlers: dict[str, Callable[..., Any]] = {"echo": lambda data: data, "other": lambda data: data}
    with Rig.offer("i", handlers=handlers) as skeleton, Rig.find("i") as proxy:
        yield skeleton, proxy


# -- handlers of calls --------------------------------------------------------------------------------


def test_a_handler_that_closes_the_skeleton(pair: Pair) -> None:
    skeleton, proxy = pair
    closed = threading.Event()

    def close(data: bytes) -> bytes:
        skeleton.close()
        closed.set()
        return data

    skeleton.echo.handle(close)
    with pytest.raises(PeerDied) as caught:
        proxy.echo(b"x", 20)
    assert closed.wait(20)
    assert caught.value.executed is None
    assert not skeleton.attached
    with Rig.offer("i", handlers={"echo": lambda data: b"again"}):
        assert proxy.echo(b"x", 20) == b"again"


def test_a_handler_that_closes_the_callers_proxy(pair: Pair) -> None:
    skeleton, proxy = pair

    def close(data: bytes) -> bytes:
        proxy.close()
        return data

    skeleton.echo.handle(close)
    with pytest.raises(Closed):
        proxy.echo(b"x", 20)
    assert skeleton.stats().elements[2].calls_under_way == 0
    with Rig.find("i") as other:
        assert other.other(b"y", 20) == b"y"


def test_a_handler_that_uses_the_service(pair: Pair) -> None:
    skeleton, proxy = pair

    def use(data: bytes) -> bytes:
        skeleton.frame.send(data)
        skeleton.gain.update(9.0)
        assert proxy.gain.get() == 9.0
        skeleton.reap()
        skeleton.stats()
        return data

    skeleton.echo.handle(use)
    assert proxy.echo(b"x", 20) == b"x"


def test_a_handler_that_calls_its_own_provider(pair: Pair) -> None:
    """The provider has one thread: such a call ends by its timeout, and never ran."""
    skeleton, proxy = pair
    skeleton.echo.handle(lambda data: proxy.other(data, 0.02))
    with pytest.raises(Refused, match="did not take the call of other"):
        proxy.echo(b"x", 20)
    assert proxy.other(b"y", 20) == b"y"


def exits(data: bytes) -> bytes:
    sys.exit(3)


def interrupts(data: bytes) -> bytes:
    raise KeyboardInterrupt


def has_no_words(data: bytes) -> bytes:
    raise ValueError("\ud800")


@pytest.mark.parametrize("handler", [exits, interrupts, has_no_words])
def test_a_handler_that_wants_to_end_the_thread(pair: Pair, handler: Callable[[bytes], bytes]) -> None:
    """The call is refused, and the provider answers the next one."""
    skeleton, proxy = pair
    skeleton.echo.handle(handler)
    for _ in range(2):
        with pytest.raises(Refused, match=r"SystemExit: 3|KeyboardInterrupt|ValueError"):
            proxy.echo(b"x", 20)
    assert proxy.other(b"y", 20) == b"y"


def test_a_response_that_changes_while_it_is_answered(pair: Pair) -> None:
    skeleton, proxy = pair

    class Growing(bytearray):
        """Its second buffer is larger than its first."""

    response = Growing(8)
    pack = Rig._elements["echo"].response.pack

    def grow(value: Any, owner: str) -> Any:
        packed = pack(value, owner)
        response.extend(bytes(10_000))
        return packed

    Rig._elements["echo"].response.pack = grow  # type: ignore[method-assign]
    try:
        skeleton.echo.handle(lambda data: response)
        with pytest.raises(Refused, match="Misuse: a response of"):
            proxy.echo(b"x", 20)
    finally:
        Rig._elements["echo"].response.pack = pack  # type: ignore[method-assign]
    assert proxy.other(b"y", 20) == b"y"


# -- handlers of subscriptions ------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["subscription", "proxy", "skeleton"])
def test_a_handler_of_samples_that_closes(pair: Pair, what: str) -> None:
    skeleton, proxy = pair
    done = threading.Event()

    def close(sample: Any) -> None:
        {"subscription": frames, "proxy": proxy, "skeleton": skeleton}[what].close()
        assert bytes(sample.data) == b"1"
        done.set()

    frames = proxy.frame.subscribe(handler=close)
    skeleton.frame.send(b"1")
    assert done.wait(20)
    if what == "skeleton":
        with Rig.offer("i") as again:
            assert again.reused
        return
    until(lambda: skeleton.stats().elements[0].held == 0)
    assert skeleton.stats().elements[0].subscribers == 0
    assert len(skeleton.stats().users) == (1 if what == "proxy" else 2)


def test_a_handler_of_samples_that_sends_and_calls(pair: Pair) -> None:
    skeleton, proxy = pair
    got: list[bytes] = []

    def answer(sample: Any) -> None:
        data = bytes(sample.data)
        got.append(proxy.echo(data, 20))
        if len(data) < 5:
            skeleton.frame.send(data + b"x")

    frames = proxy.frame.subscribe(handler=answer)
    skeleton.frame.send(b"")
    until(lambda: len(got) == 6)
    assert got == [b"x" * n for n in range(6)]
    frames.close()


# -- conversions --------------------------------------------------------------------------------------


class Index:
    """Runs a function when it is asked for its number."""

    def __init__(self, act: Callable[[], object], number: int = 0) -> None:
        self.act, self.number = act, number

    def __index__(self) -> int:
        self.act()
        return self.number


PROVIDER_CALLS: dict[str, Callable[[Any, Any], object]] = {
    "send": lambda core, number: core.send(number, b"x"),
    "loan": lambda core, number: core.loan(number),
    "size of a loan": lambda core, number: core.loan(0, number),
    "newest": lambda core, number: core.newest(number),
    "sequence": lambda core, number: core.sequence(number),
    "notice": lambda core, number: core.notice_taken(number),
}
PROXY_CALLS: dict[str, Callable[[Any, Any], object]] = {
    "subscribe": lambda core, number: core.subscribe(number, 1),
    "take": lambda core, number: core.take(number, 1, 0),
    "read": lambda core, number: core.read(number),
    "newest": lambda core, number: core.newest(number),
    "held": lambda core, number: core.held(number),
    "bell": lambda core, number: core.bell(number),
    "unsubscribe": lambda core, number: core.unsubscribe(number),
    "subscribed": lambda core, number: core.subscribed(number),
}


@pytest.mark.parametrize("call", PROVIDER_CALLS)
def test_a_number_that_closes_the_provider(pair: Pair, call: str) -> None:
    skeleton, proxy = pair
    skeleton.frame.send(b"x")
    with pytest.raises(Closed):
        PROVIDER_CALLS[call](skeleton._core, Index(skeleton.close))
    assert proxy.check() == []


@pytest.mark.parametrize("call", PROXY_CALLS)
def test_a_number_that_closes_the_proxy(pair: Pair, call: str) -> None:
    skeleton, proxy = pair
    core = proxy._core
    if call != "subscribe":
        core.subscribe(0, 1)
    skeleton.frame.send(b"x")
    with pytest.raises(Closed):
        PROXY_CALLS[call](core, Index(core.close))
    assert len(skeleton.stats().users) == 1
    assert skeleton.check() == []


@pytest.mark.parametrize("argument", ["samples", "history", "count"])
def test_a_count_that_closes_the_proxy(pair: Pair, argument: str) -> None:
    skeleton, proxy = pair
    core = proxy._core
    closing: Any = Index(core.close, 1)
    calls: dict[str, Callable[[], object]] = {
        "samples": lambda: core.subscribe(0, closing),
        "history": lambda: core.subscribe(0, 1, closing),
        "count": lambda: core.take(0, closing, 0),
    }
    if argument == "count":
        core.subscribe(0, 1)
    with pytest.raises(Closed):
        calls[argument]()
    assert len(skeleton.stats().users) == 1
    assert skeleton.check() == []


def test_a_count_that_ends_the_subscription(pair: Pair) -> None:
    skeleton, proxy = pair
    core = proxy._core
    core.subscribe(0, 2)
    skeleton.frame.send(b"x")
    with pytest.raises(Exception, match="has not subscribed"):
        core.take(0, Index(lambda: core.unsubscribe(0), 2), 0)  # type: ignore[arg-type]
    assert skeleton.stats().elements[0].subscribers == 0


if sys.version_info >= (3, 12):  # classes with `__buffer__`

    def test_a_buffer_that_closes(pair: Pair) -> None:
        skeleton, proxy = pair

        class Closing:
            def __init__(self, act: Callable[[], object]) -> None:
                self.act = act

            def __buffer__(self, flags: int) -> memoryview:
                self.act()
                return memoryview(b"x")

        with pytest.raises(Closed):
            proxy._core.call(2, Closing(proxy._core.close), 5)
        with pytest.raises(Closed):
            skeleton._core.send(0, Closing(skeleton._core.close))


def test_an_array_that_closes_the_skeleton(pair: Pair) -> None:
    skeleton, proxy = pair

    class Closing:
        def __array__(self, *_: Any, **__: Any) -> Any:
            import numpy

            skeleton.close()
            return numpy.asarray(2.0)

    with pytest.raises(Closed):
        skeleton.gain.update(Closing())
    assert proxy.gain.get() == 1.0


# -- signals ------------------------------------------------------------------------------------------


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], None]]:
    before = signal.getsignal(signal.SIGUSR1)

    def set_handler(act: Callable[[], object]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: act())

    yield set_handler
    signal.signal(signal.SIGUSR1, before)


def soon() -> None:
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()


class StopError(Exception):
    """Raised by a signal's handler."""


def stop() -> None:
    raise StopError


WAITS: dict[str, Callable[[Skeleton, Proxy, Any], object]] = {
    "take": lambda skeleton, proxy, frames: frames.take(),
    "iterate": lambda skeleton, proxy, frames: [*frames],
    "call": lambda skeleton, proxy, frames: proxy.echo(b"x"),
    "get": lambda skeleton, proxy, frames: proxy.gain.get(None),
}


@pytest.mark.parametrize("wait", ["take", "iterate", "call"])
@pytest.mark.parametrize("how", ["raises", "closes"])
def test_a_signal_ends_a_wait(pair: Pair, on_signal: Any, wait: str, how: str) -> None:
    skeleton, proxy = pair
    release = threading.Event()
    skeleton.echo.handle(lambda data: bytes(release.wait(20)))
    frames = proxy.frame.subscribe()
    on_signal(stop if how == "raises" else proxy.close)

    def begin() -> object:
        soon()
        return WAITS[wait](skeleton, proxy, frames)  # on a busy machine the signal may come before

    if wait == "iterate" and how == "closes":
        assert begin() == []
    else:
        with pytest.raises(StopError if how == "raises" else Closed):
            begin()
    release.set()
    until(lambda: skeleton.stats().elements[2].calls_under_way == 0)
    assert skeleton.check() == []
    if how == "raises":
        skeleton.frame.send(b"1")
        assert bytes(frames.take(20)) == b"1"


def test_a_signal_that_uses_the_service_in_a_wait(pair: Pair, on_signal: Any) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe(max_samples=2)
    on_signal(lambda: (skeleton.frame.send(b"1"), proxy.gain.set(3.0, 20), proxy.stats()))
    soon()
    assert bytes(frames.take()) == b"1"
    assert proxy.gain.get() == 3.0


# -- handlers that come late --------------------------------------------------------------------------


def test_a_handler_that_is_set_late_answers(pair: Pair) -> None:
    """Handlers that are set while a call waits for them answer it."""
    skeleton, proxy = pair
    del skeleton._handlers[2]
    skeleton._grace_end += 20
    waiting = Waiting(lambda: proxy.echo(b"x", 20))
    with pytest.raises(Timeout):
        proxy.other(b"y", 0.02)
    skeleton.echo.handle(lambda data: b"late")
    assert waiting.end() == b"late"
