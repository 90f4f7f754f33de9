"""What happened in a run, line by line: the proof that a seed repeats, and what a failing one is read by."""

from __future__ import annotations

import zlib
from collections.abc import Callable


class Trace:
    """Lines of `time step who what`. Two runs of a seed give the same bytes.

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
        """All lines, or the last ones."""
        return "\n".join(self._lines if last is None else self._lines[-last:])

    def __bytes__(self) -> bytes:
        return self.text().encode()

    def __len__(self) -> int:
        return len(self._lines)


def digest(event: bytes) -> str:
    """An event in a trace: its size and a sum of its bytes."""
    return f"{len(event)}B/{zlib.crc32(event):08x}"
