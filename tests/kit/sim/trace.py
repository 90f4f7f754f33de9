"""The trace of a run, line by line: it proves that a seed repeats."""

from __future__ import annotations

import zlib
from collections.abc import Callable


class Trace:
    """Lines of time, step, member and event.

    Two runs of a seed give the same bytes.


    Example:
        >>> trace = Trace(lambda: (1_500_000, 7))
        >>> trace.add("2.1", "deliver", "4:1")
        >>> print(trace.text())
           0.001500 7 2.1 deliver 4:1
    """

    def __init__(self, stamp: Callable[[], tuple[int, int]]) -> None:
        self._stamp = stamp
        self._lines: list[str] = []

    def add(self, who: object, *what: object) -> None:
        now_ns, step = self._stamp()
        words = " ".join(str(word) for word in (step, who, *what))
        self._lines.append(f"{now_ns / 1e9:11.6f} {words}")

    def text(self, last: int | None = None) -> str:
        """Return all lines, or the last ones."""
        return "\n".join(self._lines if last is None else self._lines[-last:])

    def __bytes__(self) -> bytes:
        return self.text().encode()

    def __len__(self) -> int:
        return len(self._lines)


def digest(event: bytes) -> str:
    """Return size and checksum of an event, for a trace."""
    return f"{len(event)}B/{zlib.crc32(event):08x}"
