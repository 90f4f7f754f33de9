"""The provider: send frames at a fixed rate, without waiting for consumers."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from examples.camera.service import INSTANCE, Camera, Leaving, pixels_of
from holdfast import Departed


def provide(rate: float, departed: Path) -> None:
    """Fill frames in place; write down the pid of each consumer that died."""
    leaving = Leaving()

    def note(who: Departed) -> None:
        with departed.open("a") as file:
            file.write(f"{who.pid}\n")

    with Camera.offer(INSTANCE, on_departed=note, application="provider") as skeleton:
        due = time.monotonic()
        while not leaving:
            with skeleton.frame.loan() as frame:
                number = skeleton.frame.sequence + 1
                frame[0] = (number, os.getpid(), pixels_of(number))
            due = max(due + 1 / rate, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    provide(float(sys.argv[1]), Path(sys.argv[2]))
