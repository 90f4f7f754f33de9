"""The analysing process: slower than the acquisition, and killed at any moment.

It writes down the number of each frame that it has analysed. A frame that it had popped when it was killed is
not delivered again; the buffer goes back.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from examples.acquisition.frame import samples_of
from holdfast import Empty, Loop, Timeout


def analyse(name: str, record: Path, seconds: float, last: bool) -> None:
    """Analyse frames, each for some time. The last process empties the ring."""
    file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with Loop.open(name) as loop, loop.consumer() as consumer:
        while True:
            try:
                item = consumer.pop(timeout=0 if last else 1.0)
            except (Empty, Timeout):
                if last:
                    return
                continue
            with item:
                number = int(item.array[0]["number"])
                if not np.array_equal(item.array[0]["samples"], samples_of(number)):
                    raise SystemExit(f"frame {number} does not have its samples")
                time.sleep(seconds)  # as an analysis would
                os.write(file, number.to_bytes(8, "little"))


def main() -> None:
    name, record, seconds, last = sys.argv[1:]
    analyse(name, Path(record), float(seconds), last == "last")


if __name__ == "__main__":
    main()
