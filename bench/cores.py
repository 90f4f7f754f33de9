"""Choose the cores of measured processes: one for each of the two sides."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def two_cores() -> tuple[int | None, int | None]:
    """Return the cores of the two sides; None if there is only one core."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[1]) if len(cores) >= 2 else (None, None)


def pin(core: int | None) -> None:
    """Run this process on one core from now on."""
    if core is not None:
        os.sched_setaffinity(0, {core})


@contextlib.contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Run this process on one core, and on all that it had afterwards."""
    before = os.sched_getaffinity(0)
    pin(core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
