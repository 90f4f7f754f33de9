"""The frames of the rig: a number, the moment of its acquisition, and samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SAMPLES = 16_384
FRAME = np.dtype([("number", "<u8"), ("acquired_ns", "<u8"), ("samples", "<i2", (SAMPLES,))])
SLOTS = 8
NUMBER = np.dtype("<u8")

PHASES = 997
_signal = (8000 * np.sin(np.arange(SAMPLES + PHASES) / 50)).astype("<i2")


def samples_of(number: int) -> Any:
    """Return the samples that the frame of this number must have; each has another phase."""
    phase = number % PHASES
    return _signal[phase : phase + SAMPLES]


def read_numbers(path: Path) -> list[int]:
    """Read the numbers of a record, without a last one that a kill cut off."""
    data = path.read_bytes() if path.exists() else b""
    whole = data[: len(data) // NUMBER.itemsize * NUMBER.itemsize]
    return [int(each) for each in np.frombuffer(whole, NUMBER)]
