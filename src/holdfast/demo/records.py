"""Keep what processes of a demo did in files, written by each after the fact.

A producer of the rig numbers its messages from 0 without gaps, and confirmations come in order. So the last
number of its file covers all.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

_NUMBER = struct.Struct("<Q")


def open_record(path: Path) -> int:
    """Open a record for appending: a kill can only cut off its end."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def read_record(path: Path, size: int) -> bytes:
    """Read the items of a record, without a last one that was cut off."""
    data = path.read_bytes()
    return data[: len(data) // size * size]


class Record:
    """A producer's own file, append-only."""

    def __init__(self, directory: Path, producer: str) -> None:
        self._file = open_record(directory / f"{producer}.sent")

    def confirmed(self, number: int) -> None:
        """Everything up to, and with, this number."""
        os.write(self._file, _NUMBER.pack(number))


def confirmed(directory: Path) -> dict[str, int]:
    """How many messages of each producer were confirmed."""
    return dict(_each(directory))


def _each(directory: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(directory.glob("*.sent")):
        data = read_record(path, _NUMBER.size)
        last = max((number for (number,) in _NUMBER.iter_unpack(data)), default=-1)
        yield path.stem, last + 1
