"""A bar for what takes long, on a terminal only."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.formatting import age_words, size_words

FIRST_S = 0.5
"""Shorter work shows no bar."""
EACH_S = 0.1
WIDTH = 30


@contextlib.contextmanager
def progress(words: str, source: str | Path) -> Iterator[None]:
    """Show on standard error how much of the files below `source` was read.

    The kernel counts that (`/proc/self/io`): the code that reads does not know of a bar.
    """
    total = size_below(Path(source)) if sys.stderr is not None and sys.stderr.isatty() else 0
    if not total or read_bytes() is None:
        yield
        return
    done = threading.Event()
    shower = threading.Thread(target=_show, args=(words, total, done), daemon=True)
    shower.start()
    try:
        yield
    finally:
        done.set()
        shower.join()


def _show(words: str, total: int, done: threading.Event) -> None:
    start, begin = read_bytes() or 0, time.monotonic()
    if done.wait(FIRST_S):
        return
    while not done.is_set():
        read = min(total, max(0, (read_bytes() or start) - start))
        line = bar(words, read, total, time.monotonic() - begin)
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        done.wait(EACH_S)
    print("\r\033[K", end="", file=sys.stderr, flush=True)


def bar(words: str, read: int, total: int, seconds: float) -> str:
    """One line.

    Example:
        >>> bar("backing up", 512, 1024, 2.0)
        'backing up  ███████████████░░░░░░░░░░░░░░░  50 %  512 B of 1 KiB, 2.0 s left'
    """
    share = read / total
    full = int(share * WIDTH)
    left = age_words(seconds / share - seconds) if share > 0.01 else "some time"
    cells = "█" * full + "░" * (WIDTH - full)
    return f"{words}  {cells}  {share * 100:.0f} %  {size_words(read)} of {size_words(total)}, {left} left"


def size_below(directory: Path) -> int:
    """Of all files; 0 if it cannot be looked at."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).stat().st_size
    return total


def read_bytes() -> int | None:
    """Return the bytes that this process has read; None: the kernel does not tell."""
    try:
        first = Path("/proc/self/io").read_text().split()
    except OSError:
        return None
    return int(first[1])
