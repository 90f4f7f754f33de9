"""Kill and fork processes that use a service's bindings."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import _core
from tests.kit.processes import Start, tell, until

ELEMENTS: list[_core.ElementTuple] = [
    ("event", 1, 8, 1, 2, 0, 16, 0, 0, ""),
    ("method", 3, 0, 0, 0, 2, 0, 16, 16, ""),
]
EVENT, METHOD = 0, 1
ABSENT, DIED = 3, 4


def use(place: str) -> None:
    proxy = _core.ServiceProxy(place, "s", "victim")
    proxy.subscribe(0, 2, 1)
    sample = proxy.take(0, 1, 0)
    tell(bytes(sample[0]))
    proxy.call(1, b"x")


def give(place: str, elements: list[_core.ElementTuple], point: str) -> None:
    provider = _core.ServiceProvider(place, "s", "victim", elements, 0o600, -1)
    provider.send(0, b"a")
    tell(None)
    _core.arm(point, "kill")
    call = provider.run()
    call.answer(0)


def test_what_a_dead_proxy_had_comes_back(runtime_directory: Path, start: Start) -> None:
    place = str(runtime_directory)
    with _core.ServiceProvider(place, "s", "giver", ELEMENTS, 0o600, -1) as provider:
        provider.send(EVENT, b"a")
        child = start(use, place)
        assert child.hear() == b"a"
        call = provider.run(10)
        os.kill(child.pid, signal.SIGKILL)
        assert until(provider.reap) == 1
        ((at, pid, since, application),) = provider.notices()
        assert (pid, application, since > 0) == (child.pid, "victim", True)
        provider.notice_taken(at)
        assert provider.notices() == []
        assert call.answer(0) is False
        seen = _core.inspect_service(place, "s")
        assert seen["faults"] == []
        assert seen["elements"][EVENT]["logs"] == []
        assert [each["state"] for each in seen["elements"][METHOD]["calls"]] == ["idle", "idle"]


@pytest.mark.parametrize(("point", "outcome"), [("call_running", DIED), ("call_answered", DIED)])
def test_a_caller_hears_of_a_dead_provider(
    runtime_directory: Path, start: Start, point: str, outcome: int
) -> None:
    place = str(runtime_directory)
    child = start(give, place, ELEMENTS, point)
    child.hear()
    with _core.ServiceProxy(place, "s", "taker") as proxy:
        assert proxy.call(METHOD, b"x", 10) == (outcome, 0, None)
        assert (proxy.offered, proxy.provider_pid) == (False, child.pid)
        assert proxy.call(METHOD, b"x", 10) == (ABSENT, 0, None)
        assert proxy.read(EVENT) == b"a"
        with _core.ServiceProvider(place, "s", "giver", ELEMENTS, 0o600, -1) as second:
            assert second.notices() == []  # of consumers only
            assert (second.reused, second.newest(EVENT)) == (True, b"a")
        assert _core.inspect_service(place, "s")["faults"] == []


def fork(place: str, elements: list[_core.ElementTuple]) -> None:
    import os

    from holdfast import Misuse

    provider = _core.ServiceProvider(place, "s", "giver", elements, 0o600, -1)
    proxy = _core.ServiceProxy(place, "s", "taker")
    proxy.subscribe(0, 1)
    provider.send(0, b"a")
    (sample,) = proxy.take(0, 1)
    watch = _core.DirectoryWatch(place)
    calls: list[Any] = [
        lambda: provider.send(0, b"b"),
        lambda: provider.run(0),
        lambda: proxy.take(0, 1, 0),
        lambda: proxy.call(1, b""),
        lambda: sample.data,
        lambda: watch.read(),
    ]
    if os.fork() == 0:
        told = 0
        for call in calls:
            try:
                call()
            except Misuse as error:
                told += "before fork()" in str(error)
        del sample, calls
        proxy.close()
        provider.close()
        os._exit(told)
    told = os.waitstatus_to_exitcode(os.wait()[1])
    people = _core.inspect_service(place, "s")["people"]
    tell((told, [each["active"] for each in people], proxy.held(0), bytes(sample)))
    provider.close()


def test_a_forked_child_is_told(runtime_directory: Path, start: Start) -> None:
    child = start(fork, str(runtime_directory), ELEMENTS)
    assert child.hear() == (6, [True, True], 1, b"a")
