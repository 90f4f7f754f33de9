"""Get and set fields, call methods; handlers that fail, are missing or slow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from holdfast import (
    Empty,
    Field,
    Method,
    Misuse,
    PeerDied,
    Proxy,
    Refused,
    Service,
    Skeleton,
    Timeout,
    Unsupported,
)


class Amplifier(Service):
    gain = Field("f8", initial=1.0)
    label = Field(16)
    offset = Field(("i4", (3,)), settable=False)
    double = Method("i8", "i8")
    echo = Method(32, 32)
    reset = Method()


Pair = tuple[Skeleton, Proxy]


@pytest.fixture
def pair(runtime_directory: object) -> Iterator[Pair]:
    handlers: dict[str, Callable[..., Any]] = {
        "double": lambda n: 2 * n,
        "echo": lambda data: data,
        "reset": lambda: None,
    }
    with Amplifier.offer("a", handlers=handlers) as skeleton, Amplifier.find("a", timeout=0) as proxy:
        yield skeleton, proxy


def test_fields_have_a_newest_value(pair: Pair) -> None:
    skeleton, proxy = pair
    assert proxy.gain.get() == skeleton.gain.value == 1.0
    assert skeleton.label.value is None
    with pytest.raises(Empty, match="no value"):
        proxy.label.get()
    with pytest.raises(Timeout):
        proxy.label.get(timeout=0.01)
    skeleton.gain.value = 2.5
    skeleton.label.update(b"left")
    skeleton.offset.update([1, 2, 3])
    assert proxy.gain.get() == 2.5
    assert proxy.label.get() == b"left"
    assert proxy.offset.get().tolist() == [1, 2, 3]


def test_a_set_returns_the_value_that_is_stored(pair: Pair) -> None:
    skeleton, proxy = pair
    assert proxy.gain.set(3.0) == 3.0
    assert skeleton.gain.value == proxy.gain.get() == 3.0

    def at_most_ten(value: float) -> float:
        if value < 0:
            raise ValueError("a gain is at least 0")
        return min(value, 10.0)

    skeleton.gain.validate(at_most_ten)
    assert proxy.gain.set(99) == 10.0
    assert proxy.gain.get() == 10.0
    with pytest.raises(Refused, match="ValueError: a gain is at least 0"):
        proxy.gain.set(-1.0)
    assert proxy.gain.get() == 10.0
    with pytest.raises(Unsupported, match="not settable"):
        proxy.offset.set([1, 2, 3])
    with pytest.raises(Misuse):
        proxy.gain.set("loud")


def test_a_field_notifies_its_subscribers(pair: Pair) -> None:
    skeleton, proxy = pair
    with proxy.gain.subscribe(max_samples=2) as gains:
        with gains.take(0) as sample:
            assert gains.value(sample) == 1.0
        proxy.gain.set(4.0)
        with gains.take(1) as sample:
            assert gains.value(sample) == 4.0
            assert sample.missed == 0
        assert proxy.gain.get() == 4.0  # while it holds the same sample
        skeleton.gain.update(5.0)
        kept = gains.take(0)
        assert proxy.gain.get() == 5.0
        assert gains.value(kept) == 5.0
        del kept, sample


def test_a_tracer_has_not_missed_what_was_there_before(pair: Pair) -> None:
    skeleton, _ = pair
    with Amplifier.trace("a", timeout=0) as tracer:
        gains = tracer.gain.subscribe(max_samples=2)  # with the newest value, which a tracer is not handed
        with pytest.raises(Empty):
            gains.take(0)
        skeleton.gain.update(2.0)
        with gains.take(timeout=10) as sample:
            assert (gains.value(sample), sample.missed) == (2.0, 0)


def test_methods(pair: Pair) -> None:
    _, proxy = pair
    assert proxy.double(21) == 42
    assert proxy.echo(b"abc") == b"abc"
    assert proxy.echo(b"") == b""
    assert proxy.reset() is None
    assert proxy.double(numpy.int64(4), timeout=20) == 8
    with pytest.raises(Misuse, match="at most 32 bytes"):
        proxy.echo(bytes(33))
    with pytest.raises(Misuse, match="takes no value"):
        proxy.reset(5)
    with pytest.raises(Misuse):
        proxy.double("x")
    assert asyncio.run(proxy.double.acall(5)) == 10


def test_a_handler_that_raises_refuses_the_call(pair: Pair) -> None:
    skeleton, proxy = pair

    def fail(n: int) -> int:
        raise RuntimeError("no" * 5000)

    skeleton.double.handle(fail)
    with pytest.raises(Refused, match="RuntimeError: nono"):
        proxy.double(1)
    skeleton.double.handle(lambda n: "text")
    with pytest.raises(Refused, match="Misuse"):
        proxy.double(1)
    skeleton.double.handle(lambda n: n)
    assert proxy.double(1) == 1
    with pytest.raises(Misuse, match="handler"):
        skeleton.double.handle(None)


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raises(error: BaseException) -> Callable[[bytes], bytes]:
    def handler(_: bytes) -> bytes:
        raise error

    return handler


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (_raises(ValueError("caf\udce9")), r"ValueError: caf\\udce9"),
        (_raises(MuteError()), "MuteError"),
        (_raises(SystemExit(3)), "SystemExit: 3"),
        (_raises(asyncio.CancelledError()), "CancelledError"),
        (lambda _: memoryview(b"abcdef")[::2], "Error"),
    ],
    ids=["surrogate", "mute", "exit", "cancelled", "stride"],
)
def test_calls_are_answered_after_any_failure(pair: Pair, handler: Callable[..., Any], words: str) -> None:
    skeleton, proxy = pair
    skeleton.echo.handle(handler)
    with pytest.raises(Refused, match=words):
        proxy.echo(b"x", timeout=20)
    skeleton.echo.handle(lambda data: data)
    assert proxy.echo(b"y", timeout=20) == b"y"


def test_a_method_without_a_handler(runtime_directory: object) -> None:
    with Amplifier.offer("a") as skeleton, Amplifier.find("a") as proxy:
        skeleton._grace_end = 0.0
        with pytest.raises(Unsupported, match="no handler"):
            proxy.reset()


def test_handlers_for_unknown_elements_are_refused(runtime_directory: object) -> None:
    with pytest.raises(Misuse, match="gain, label, double"):
        Amplifier.offer("a", handlers={"missing": print})
    Amplifier.offer("a").close()


def test_a_slow_handler_times_out_and_may_still_run(pair: Pair) -> None:
    skeleton, proxy = pair
    release, ran = threading.Event(), threading.Event()

    def slow() -> None:
        release.wait(20)
        ran.set()

    skeleton.reset.handle(slow)
    untaken = True
    while untaken:  # a provider that had no processor did not take the call
        with pytest.raises(Timeout) as caught:
            proxy.reset(timeout=0.05)
        untaken = "did not take" in str(caught.value)
    assert "did not return" in str(caught.value)
    assert caught.value.executed is None
    with pytest.raises(Timeout, match="did not take") as caught:
        proxy.double(1, timeout=0.05)  # the one thread of the provider is busy
    assert caught.value.executed is False
    release.set()
    assert ran.wait(20)
    assert proxy.double(2) == 4
    assert proxy.stats().elements[3].calls_under_way == 0


def test_calls_without_a_provider(pair: Pair) -> None:
    skeleton, proxy = pair
    proxy.gain.set(7.0)
    skeleton.close()
    assert not proxy.offered
    assert proxy.gain.get() == 7.0
    with pytest.raises(PeerDied, match="is not there") as caught:
        proxy.reset()
    assert caught.value.executed is False
    handlers: dict[str, Any] = {"reset": lambda: None}
    with Amplifier.offer("a", handlers=handlers) as again:
        assert again.reused
        assert again.gain.value == proxy.gain.get() == 7.0
        proxy.reset()
        assert proxy.epoch == 2


def test_all_calls_are_under_way(runtime_directory: object) -> None:
    class Narrow(Service):
        run = Method(calls=1)

    entered, release = threading.Event(), threading.Event()

    def run() -> None:
        entered.set()
        release.wait(20)

    with Narrow.offer("n", handlers={"run": run}), Narrow.find("n") as one, Narrow.find("n") as two:
        thread = threading.Thread(target=one.run)
        thread.start()
        assert entered.wait(20)
        with pytest.raises(Timeout, match="under way") as caught:
            two.run(timeout=0.05)
        assert caught.value.executed is False
        release.set()
        thread.join()
        two.run()


def test_none_is_not_a_number(pair: Pair) -> None:
    """A validator or handler that forgets its `return` must not store nan."""
    skeleton, proxy = pair
    with pytest.raises(Misuse, match="not None"):
        proxy.gain.set(None)
    skeleton.gain.validate(lambda value: None)
    with pytest.raises(Refused, match="not None"):
        proxy.gain.set(2.0)
    skeleton.double.handle(lambda n: None)
    with pytest.raises(Refused, match="not None"):
        proxy.double(2)
    assert proxy.gain.get() == 1.0


def test_wrong_use_of_elements_is_told(pair: Pair) -> None:
    skeleton, proxy = pair
    with pytest.raises(Misuse, match=r"\.set\(value\)"):
        proxy.gain = 3.0
    with pytest.raises(Misuse, match=r"\.update\(value\)"):
        skeleton.gain = 3.0
    with pytest.raises(Misuse, match="offer"):
        Amplifier()

    async def later(n: int) -> int:
        return n

    with pytest.raises(Misuse, match="coroutine"):
        skeleton.double.handle(later)
