"""A viewer, which sees the newest frames, or the tracer, which gets every frame."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from examples.camera.service import (
    INSTANCE,
    RECORD,
    TRACER_SAMPLES,
    VIEWER_SAMPLES,
    Camera,
    Leaving,
    is_whole,
)
from holdfast import Timeout


def consume(name: str, record: Path) -> None:
    """Look at each frame in place, and write down its number."""
    leaving = Leaving()
    tracer = name == "tracer"
    connect, samples = (Camera.trace, TRACER_SAMPLES) if tracer else (Camera.find, VIEWER_SAMPLES)
    file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with (
        connect(INSTANCE, timeout=30.0, application=name) as camera,
        camera.frame.subscribe(max_samples=samples) as frames,
    ):
        while not leaving:
            try:
                sample = frames.take(timeout=0.1)
            except Timeout:
                continue
            with sample:
                frame = sample.array[0]
                if not is_whole(frame) or int(frame["number"]) != sample.sequence:
                    raise SystemExit(f"frame {sample.sequence} was altered while it was held")
                seen = (os.getpid(), sample.sequence, sample.missed, int(frame["provider"]))
            os.write(file, np.array([seen], RECORD).tobytes())


if __name__ == "__main__":
    consume(sys.argv[1], Path(sys.argv[2]))
