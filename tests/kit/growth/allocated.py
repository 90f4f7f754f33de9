"""Bytes allocated by C code: exact, while resident memory changes in large steps."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

LIBC = ctypes.CDLL(None)


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def allocated_bytes() -> int:
    """Return the allocated bytes of all threads."""
    LIBC.mallinfo2.restype = _Mallinfo
    found = LIBC.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def bytes_per_call(work: Callable[[], object], calls: int = 500) -> float:
    """Return how many bytes each call leaves allocated, after a warm-up."""
    for _ in range(calls // 10):
        work()
    gc.collect()
    before = allocated_bytes()
    for _ in range(calls):
        work()
    gc.collect()
    return (allocated_bytes() - before) / calls
