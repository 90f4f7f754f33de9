"""Call methods of a service, and wait for it, with threads of one process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial

import pytest

from holdfast import Closed, Empty, Misuse, Timeout, _core
from holdfast.memory.waiter import waiter
from tests.kit.processes import until
from tests.kit.service.core import (
    ABSENT,
    ANSWERED,
    DIED,
    EVENT,
    FIELD,
    LARGE,
    LATE_RUNNING,
    LATE_UNEXECUTED,
    METHOD,
    NO_PLACE,
    Waiting,
    active,
    connect,
    data,
    element,
    files,
    offer,
)

# -- calls -----------------------------------------------------------------------------------------------


def serve(provider: _core.ServiceProvider, answers: int = 1) -> Waiting:
    def run() -> None:
        for _ in range(answers):
            call = provider.run(10)
            call.answer(7, call.request[::-1])

    return Waiting(run)


@pytest.mark.parametrize("spin", [0.0, 0.01])
def test_a_call_is_answered(provider: _core.ServiceProvider, proxy: _core.ServiceProxy, spin: float) -> None:
    provider.spin = proxy.spin = spin
    assert proxy.spin == spin
    serving = serve(provider, 3)
    assert proxy.call(METHOD, b"abc") == (ANSWERED, 7, b"cba")
    assert proxy.call(METHOD, b"") == (ANSWERED, 7, b"")
    large = b"x" + bytes(LARGE - 1)
    assert proxy.call(FIELD, large, 10) == (ANSWERED, 7, large[::-1])
    assert serving.end() is None


def test_calls_know_their_element(provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    with pytest.raises(Empty, match="no call for service s"):
        provider.run(0)
    with pytest.raises(Timeout, match=r"after 0\.0"):
        provider.run(0.01)
    calling = Waiting(lambda: proxy.call(FIELD, b"q"))
    call = provider.run()
    assert (call.element, call.request) == (FIELD, b"q")
    assert call.answer(0, memoryview(b"r")) is True
    with pytest.raises(Misuse, match="answered before"):
        call.answer(0)
    assert calling.end() == (ANSWERED, 0, b"r")


def test_a_dropped_call_is_answered(provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    calling = Waiting(lambda: proxy.call(METHOD, b""))
    provider.run()
    assert calling.end() == (ANSWERED, 2, b"")


def test_a_call_in_time_or_not_at_all(provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    assert proxy.call(METHOD, b"", 0) == (LATE_UNEXECUTED, 0, None)
    assert proxy.call(METHOD, b"", 0.01) == (LATE_UNEXECUTED, 0, None)
    with pytest.raises(Empty):
        provider.run(0)
    calling = Waiting(lambda: proxy.call(METHOD, b"", 0.02))
    call = provider.run()
    assert calling.end() == (LATE_RUNNING, 0, None)
    assert call.answer(0, b"") is False


def test_all_places_in_use(provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    waiting = [Waiting(lambda: proxy.call(METHOD, b"a")) for _ in range(2)]
    calls = [provider.run() for _ in waiting]
    assert proxy.call(METHOD, b"b", 0) == (NO_PLACE, 0, None)
    assert proxy.call(METHOD, b"b", 0.01) == (NO_PLACE, 0, None)
    late = Waiting(lambda: proxy.call(METHOD, b"c"))
    for call in calls:
        call.answer(1)
    assert provider.run(10).request == b"c"
    assert [each.end()[:2] for each in waiting] == [(ANSWERED, 1)] * 2
    assert late.end() == (ANSWERED, 2, b"")


def test_calls_without_a_provider(place: str) -> None:
    provider = offer(place)
    with connect(place) as proxy:
        calling = Waiting(lambda: proxy.call(METHOD, b""))
        call = provider.run()
        waiting = Waiting(lambda: proxy.call(FIELD, b""))
        until(lambda: element(place, FIELD)["calls"][0]["state"] == "call")
        provider.close()
        assert calling.end() == (DIED, 0, None)
        assert waiting.end() == (ABSENT, 0, None)
        assert proxy.call(METHOD, b"") == (ABSENT, 0, None)
        with pytest.raises(Closed):
            call.answer(0)
        assert [each["state"] for each in element(place, METHOD)["calls"]] == ["idle", "idle"]


def test_messages_are_limited(provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    with pytest.raises(Misuse, match="a request of 17 bytes is too large for method"):
        proxy.call(METHOD, bytes(17))
    calling = Waiting(lambda: proxy.call(METHOD, b""))
    call = provider.run()
    with pytest.raises(Misuse, match="a response of 17 bytes"):
        call.answer(0, bytes(17))
    with pytest.raises(Misuse, match="a status is a number"):
        call.answer(-1)
    call.answer(0xFFFFFFFF)
    assert calling.end() == (ANSWERED, 0xFFFFFFFF, b"")


# -- waiting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spin", [0.0, 0.01])
def test_take_waits(provider: _core.ServiceProvider, proxy: _core.ServiceProxy, spin: float) -> None:
    proxy.spin = spin
    proxy.subscribe(EVENT, 1)
    with pytest.raises(Timeout, match=r"no new sample.*after 0\.0"):
        proxy.take(EVENT, 1, 0.02)
    taking = Waiting(lambda: data(proxy.take(EVENT, 1, 10)))
    provider.send(EVENT, b"a")
    assert taking.end() == [(b"a", 1, 0)]


def test_close_ends_the_waits_of_other_threads(place: str) -> None:
    provider, proxy = offer(place), connect(place)
    proxy.subscribe(EVENT, 1)
    waiting = [
        Waiting(lambda: proxy.take(EVENT, 1)),
        Waiting(lambda: proxy.call(METHOD, b"")),
    ]
    until(lambda: "call" in [each["state"] for each in element(place, METHOD)["calls"]])
    proxy.close()
    assert [type(each.end()) for each in waiting] == [Closed, Closed]
    assert active(place) == ["provider"]
    with pytest.raises(Empty):
        provider.run(0)  # the call was withdrawn
    running = Waiting(lambda: provider.run())
    provider.close()
    assert isinstance(running.end(), Closed)
    assert files(place) == []


def test_a_signal_ends_a_call(provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    def begin(timer: threading.Timer, wait: Callable[[], object]) -> None:
        timer.start()
        wait()  # on a busy machine the signal may come before

    before = signal.signal(signal.SIGUSR1, stop)
    main = threading.get_ident()
    try:
        for wait in (lambda: proxy.call(METHOD, b""), lambda: provider.run()):
            timer = threading.Timer(0.02, signal.pthread_kill, (main, signal.SIGUSR1))
            with pytest.raises(Stop):
                begin(timer, wait)
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(Empty):
        provider.run(0)


def test_bells_wake_the_waiter(provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    rings: list[str] = []
    proxy.subscribe(EVENT, 1)
    for name, bell in (("samples", proxy.bell(EVENT)), ("calls", provider.bell())):
        waiter().watch(bell, False, bell._listen(False), False, partial(rings.append, name))
    provider.send(EVENT, b"a")
    proxy.call(METHOD, b"", 0)
    until(lambda: sorted(rings) == ["calls", "samples"])
    bell = proxy.bell(EVENT)
    proxy.close()
    with pytest.raises(Closed):
        bell._listen(False)


def test_threads_share_both_sides(place: str, provider: _core.ServiceProvider) -> None:
    with connect(place) as proxy:
        proxy.subscribe(FIELD, 1)
        rounds = 15

        def send(byte: bytes) -> None:
            for _ in range(rounds):
                provider.send(FIELD, byte * LARGE)
                assert len(set(provider.newest(FIELD) or b"")) == 1

        def read() -> None:
            for _ in range(rounds):
                assert len(set(proxy.read(FIELD) or b"")) <= 1

        def take() -> None:
            for _ in range(rounds):
                for sample in proxy.take(FIELD, 1, 0.5):
                    assert len(set(bytes(sample))) == 1
                    sample.release()
                provider.send(FIELD, b"z")

        provider.send(FIELD, b"z")
        threads = [Waiting(partial(send, each)) for each in (b"a", b"b")]
        threads += [Waiting(read), Waiting(read), Waiting(take)]
        assert [each.end() for each in threads] == [None] * 5
        assert _core.inspect_service(place, "s")["faults"] == []
