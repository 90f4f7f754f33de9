"""Keep the confirmed numbers of a producer in a file, written after each confirmation.

A producer numbers its messages from 0 without gaps, and confirmations come in order: so one number tells all,
the last one that is whole.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

_NUMBER = struct.Struct("<Q")


class Record:
    """A producer's own file, append-only."""

    def __init__(self, directory: Path, producer: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(directory / f"{producer}.sent", flags, 0o600)

    def confirmed(self, number: int) -> None:
        """Everything up to, and with, this number."""
        os.write(self._file, _NUMBER.pack(number))


def confirmed(directory: Path) -> dict[str, int]:
    """How many messages of each producer were confirmed."""
    return dict(_each(directory))


def _each(directory: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(directory.glob("*.sent")):
        data = path.read_bytes()
        whole = len(data) // _NUMBER.size * _NUMBER.size
        last = max((number for (number,) in _NUMBER.iter_unpack(data[:whole])), default=-1)
        yield path.stem, last + 1
