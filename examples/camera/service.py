"""The service of the camera, and the records that its consumers write."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from holdfast import Event, Service

FRAME = np.dtype([("number", "<u8"), ("provider", "<u8"), ("pixels", "u1", (120, 160))])
RECORD = np.dtype([("consumer", "<u8"), ("number", "<u8"), ("missed", "<u8"), ("provider", "<u8")])
"""A frame as a consumer saw it; `consumer` and `provider` are pids."""
INSTANCE = "left"
VIEWER_SAMPLES = 2
TRACER_SAMPLES = 16


class Camera(Service):
    """A camera: one provider sends frames, many consumers look at them in place."""

    frame = Event(dtype=FRAME, shape=1, samples=32)


def pixels_of(number: int) -> int:
    """Return the value that all pixels of a frame have."""
    return number % 251


def is_whole(frame: Any) -> bool:
    """Return whether all pixels of a frame belong to its number."""
    return bool((frame["pixels"] == pixels_of(int(frame["number"]))).all())


def read_records(path: Path) -> Any:
    """Read the records of a consumer, without a last one that a kill cut off."""
    data = path.read_bytes() if path.exists() else b""
    return np.frombuffer(data[: len(data) // RECORD.itemsize * RECORD.itemsize], RECORD)


class Leaving:
    """Whether this process must end: after SIGTERM, or without its parent."""

    def __init__(self) -> None:
        """Take SIGTERM."""
        self._asked, self._parent = False, os.getppid()
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked or os.getppid() != self._parent
