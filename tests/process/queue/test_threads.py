"""Signals that arrive while a call waits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

import holdfast
from holdfast import Queue
from tests.kit.processes import Child, Start, hear, tell, until
from tests.kit.queue.queues import fill
from tests.kit.queue.segments import waiting

# -- signals ----------------------------------------------------------------------------------------------


def wait_for_ever(name: str, call: str) -> None:
    with Queue.open(name) as q:
        tell("ready")
        try:
            if call == "put":
                q.put(b"x" * 992)
            elif call == "put_many":
                q.put_many([b"x" * 992])
            elif call == "for":
                for _ in q:
                    pass
            else:
                getattr(q, call)(*([4] if call == "get_many" else []))
        except KeyboardInterrupt:
            tell("interrupted")


def started(start: Start, function: Callable[..., None], q: Queue, call: str) -> Child:
    """A child that waits by now."""
    if call.startswith("put"):
        fill(q, b"x" * 992)
    child = start(function, q.name, call)
    assert child.hear() == "ready"
    until(lambda: waiting(q.name, "space" if call.startswith("put") else "data"))
    return child


@pytest.mark.parametrize("call", ["get", "get_bytes", "get_many", "for", "put", "put_many"])
def test_control_c_ends_a_wait(q: Queue, start: Start, call: str) -> None:
    child = started(start, wait_for_ever, q, call)
    child.signal(signal.SIGINT)
    assert child.hear() == "interrupted"
    child.wait()
    stats = q.stats()
    assert (stats.taken, stats.writing) == (0, 0), "nothing was taken, nothing is half written"
    assert len(stats.participants) == 1, "the child left properly"
    assert q.check() == []


def wait_through_signals(name: str, call: str) -> None:
    signals = []

    def note(number: int, frame: object) -> None:
        signals.append(number)
        tell("signal")

    signal.signal(signal.SIGUSR1, note)
    with Queue.open(name) as q:
        tell("ready")
        if call == "put":
            q.put(b"y" * 992, timeout=20)
        else:
            assert q.get_bytes(timeout=20) == b"x"
        tell(len(signals))


@pytest.mark.parametrize("call", ["get", "put"])
def test_a_signal_handler_runs_and_the_wait_goes_on(q: Queue, start: Start, call: str) -> None:
    child = started(start, wait_through_signals, q, call)
    for _ in range(3):
        child.signal(signal.SIGUSR1)
        assert child.hear(timeout=5) == "signal"
    if call == "get":
        q.put(b"x")
    else:
        q.get_bytes()
    assert child.hear() == 3
    child.wait()


def handler_raises(name: str, call: str) -> None:
    def refuse(number: int, frame: object) -> None:
        raise LookupError

    signal.signal(signal.SIGUSR1, refuse)
    with Queue.open(name) as q:
        tell("ready")
        try:
            getattr(q, call)(timeout=20)
        except LookupError:
            tell("raised")
        assert hear() == "go on"
        tell(q.get_bytes(timeout=20))


def test_what_a_handler_raises_comes_out_of_the_wait(q: Queue, start: Start) -> None:
    child = started(start, handler_raises, q, "get")
    child.signal(signal.SIGUSR1)
    assert child.hear(timeout=5) == "raised"
    q.put(b"x")
    child.tell("go on")
    assert child.hear() == b"x"
    child.wait()


def timed_wait(name: str, timeout: float) -> None:
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    with Queue.open(name) as q:
        began = time.monotonic()
        try:
            q.get(timeout=timeout)
        except holdfast.Timeout:
            tell(time.monotonic() - began)
    signal.setitimer(signal.ITIMER_REAL, 0)


def test_signals_do_not_stretch_a_timeout(q: Queue, start: Start) -> None:
    """If each began it anew, it would never end: they come all the time."""
    timeout = 0.1
    child = start(timed_wait, "q", timeout)
    assert child.hear() >= timeout, "and it is not cut short either"
    child.wait()


def stop_in_a_wait(name: str) -> None:
    with Queue.open(name) as q:
        tell("ready")
        tell(q.get_bytes(timeout=20))


def test_a_stopped_consumer_takes_nothing(q: Queue, start: Start) -> None:
    child = start(stop_in_a_wait, "q")
    child.hear()
    until(lambda: waiting("q", "data"))
    child.stop()
    q.put(b"mine")
    assert q.get_bytes(timeout=1) == b"mine"
    child.go_on()
    q.put(b"its")
    assert child.hear() == b"its"
    child.wait()
    assert os.getpid() in [each.pid for each in q.stats().participants]
