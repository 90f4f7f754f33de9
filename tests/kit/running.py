"""Record the seed that a process of the night has reached: it may crash.

Each process has a file, `build/running/<pid>`, and holds a lock on it while it lives. A note without a living
owner is of a process that ended in the middle of a storm (`tests/kit/keeping.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kit import ROOT

TORTURE = "make torture"
"""The test of a note that `make torture` writes."""


def folder() -> Path:
    """Return the folder of the notes: beside $HOLDFAST_KEPT, if that is set."""
    chosen = os.environ.get("HOLDFAST_KEPT")
    return Path(chosen).with_name("running") if chosen else ROOT / "build" / "running"


@dataclass(frozen=True)
class Note:
    test: str
    storm: str
    seed: int


class Writer:
    """The note of this process. Locks of this kind are not inherited by forked processes."""

    def __init__(self) -> None:
        folder().mkdir(parents=True, exist_ok=True)
        self._path = folder() / str(os.getpid())
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        self.clear()

    def write(self, test: str, storm: str, seed: int) -> None:
        data = json.dumps([test, storm, seed]).encode()
        os.pwrite(self._file, data, 0)
        os.ftruncate(self._file, len(data))

    def clear(self) -> None:
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def left(wanted: Callable[[Note], bool]) -> list[Note]:
    """Return and remove the wanted notes of processes that ended during a storm."""
    found = []
    for path in sorted(folder().glob("*")):
        with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                note = Note(*json.loads(file.read()))
            except (OSError, ValueError, TypeError):
                continue  # its process lives, or ended between two storms
            if wanted(note):
                path.unlink()
                found.append(note)
    return found


def forget() -> None:
    """Remove the notes that an earlier night left."""
    left(lambda note: True)
    for path in folder().glob("*"):
        with contextlib.suppress(OSError), path.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()  # of a process that ended between two storms
