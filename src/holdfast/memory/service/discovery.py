"""Which instances of a service are offered: look, wait, watch."""

from __future__ import annotations

import math
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from holdfast import _core
from holdfast.arguments import checked_patience
from holdfast.errors import HoldfastError, NotFound, Timeout

T = TypeVar("T")

LOOK_S = 0.05
"""The bound of every wait: a provider that was killed leaves no event of the file system."""
SLOW_LOOK_S = 0.001
"""The first pause between looks. Each pause is twice the one before, up to `LOOK_S`."""


def default_application() -> str:
    """Return the name of this program and its user, which notices about its death have."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return f"{program}:{os.getuid()}"


def offered(directory: str, service: str | None = None) -> list[str]:
    """Return the full names of the instances that living providers offer."""
    found = (name for name, alive, _ in _core.list_services(directory) if alive)
    return sorted(name for name in found if service is None or name.partition(".")[0] == service)


def wait_for(directory: str, name: str, timeout: float | None, connect: Callable[[], T | None]) -> T:
    """Call `connect` until it returns a result; return that.

    Raises:
        NotFound: `timeout` is 0, and the instance is not offered.
        Timeout: the time is over.
    """
    end = time.monotonic() + checked_patience(timeout)
    made = connect()
    if made is not None:
        return made
    if timeout == 0:
        raise not_offered(directory, name, timeout)
    watch = _core.DirectoryWatch(directory)
    try:
        pause = SLOW_LOOK_S
        while True:
            made = connect()
            if made is not None:
                return made
            left = end - time.monotonic()
            if left <= 0:
                raise not_offered(directory, name, timeout)
            _wait_for_change(watch, min(left, pause))
            pause = min(2 * pause, LOOK_S)
    finally:
        watch.close()


def _wait_for_change(watch: _core.DirectoryWatch, seconds: float) -> None:
    """Wait until files come or go, at most so many seconds."""
    poll = select.poll()  # not select(), which refuses descriptors from 1024 on
    poll.register(watch, select.POLLIN)
    poll.poll(math.ceil(seconds * 1000))
    watch.read()


def not_offered(directory: str, name: str, timeout: float | None) -> HoldfastError:
    """Return the error of a wait that is over."""
    if timeout == 0:
        return NotFound(f"service {name} is not offered in {directory}; start its provider, or wait longer")
    return Timeout(f"no provider offered service {name} in {directory} (waited {timeout} s)")


def changes(directory: str, service: str | None, timeout: float | None) -> Iterator[tuple[str, bool]]:
    """Yield `(name, offered)`: first the instances of now, then each change, until the time is over."""
    end = time.monotonic() + checked_patience(timeout)
    watch = _core.DirectoryWatch(directory)
    try:
        known: set[str] = set()
        while True:
            now = set(offered(directory, service))
            for name in sorted(known - now):
                yield name, False
            for name in sorted(now - known):
                yield name, True
            known = now
            left = end - time.monotonic()
            if left <= 0:
                return
            _wait_for_change(watch, min(left, LOOK_S))
    finally:
        watch.close()
