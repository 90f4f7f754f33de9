"""Look for services in a process with more than 1024 descriptors, which select() refuses."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Event, Service, Timeout

BEYOND_SELECT = 1024


class Clock(Service):
    tick = Event(size=8, samples=8)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * BEYOND_SELECT
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    opened = [os.open("/dev/null", os.O_RDONLY)]
    try:
        while opened[-1] < BEYOND_SELECT:
            opened.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_wait_for_a_service_ends_in_time(runtime_directory: Path, many_descriptors: None) -> None:
    with pytest.raises(Timeout):
        Clock.find("absent", timeout=0.05)


def test_a_watch_sees_an_offer(runtime_directory: Path, many_descriptors: None) -> None:
    with Clock.offer("a"):
        assert list(Clock.watch(0.05)) == [("a", True)]
