"""The loops of the rig, which hand frames of samples from sensors to analysers.

A sensor writes down the number of a frame before its push, and the numbers that came back to it. An analyser
writes a number down when the reading is published. At the end the records are compared.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from holdfast import Loop
from holdfast.demo.records import open_record, read_record
from holdfast.errors import Empty

SAMPLES = 256
SLOTS = 64
FRAME = [("number", "<u8"), ("samples", "<f4", (SAMPLES,))]
LOST_PER_SENSOR = 2
"""Frames that a killed sensor can take along: the one that it pushes, and the one that this displaces."""
LOST_PER_ANALYSER = 1
"""Frames that a killed analyser can take along: the one that it has popped."""
_NUMBER = struct.Struct("<Q")


class FrameRecord:
    """A file of frame numbers, which each life of a process appends to."""

    def __init__(self, directory: Path, sensor: str, what: str) -> None:
        self._file = open_record(directory / f"{sensor}.{what}")

    def add(self, number: int) -> None:
        os.write(self._file, _NUMBER.pack(number))


def read_frames(directory: Path, sensor: str, what: str) -> list[int]:
    """Read the numbers of a record, in the order in which they were written."""
    path = directory / f"{sensor}.{what}"
    data = read_record(path, _NUMBER.size) if path.exists() else b""
    return [number for (number,) in _NUMBER.iter_unpack(data)]


@dataclass(frozen=True)
class Frames:
    """The frames of one sensor or of several, and the buffers of their loops."""

    acquired: int = 0
    analysed: int = 0
    displaced: int = 0
    """Came back to the sensor, because newer ones took their places."""
    left: int = 0
    """In the ring when all processes had ended."""
    lost: int = 0
    """A sensor or an analyser had them when it was killed."""
    lost_max: int = 0
    """How many that can be, from the number of kills."""
    twice: int = 0
    """Analysed or displaced more than once, or both."""
    out_of_order: int = 0
    strange: int = 0
    """Frames that no sensor acquired."""
    buffers: int = 0
    leaked: int = 0
    """Buffers that are neither free nor in a ring."""

    def __add__(self, other: Self) -> Frames:
        return Frames(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def faults(self) -> list[str]:
        """Return everything that must not be, in words."""
        found = {
            f"{self.lost} frames were lost; the kills explain at most {self.lost_max}": self.lost
            > self.lost_max,
            f"{self.twice} frames were analysed or displaced twice": self.twice > 0,
            f"{self.out_of_order} frames were analysed out of order": self.out_of_order > 0,
            f"{self.strange} frames came from no sensor": self.strange > 0,
            f"{self.leaked} buffers leaked": self.leaked != 0,
        }
        return [words for words, wrong in found.items() if wrong]


def account_of(
    acquired: list[int], analysed: list[int], displaced: list[int], left: list[int], lost_max: int
) -> Frames:
    """Compare the records of one sensor; the buffers are counted elsewhere."""
    ends = [*analysed, *displaced, *left]
    return Frames(
        acquired=len(acquired),
        analysed=len(analysed),
        displaced=len(displaced),
        left=len(left),
        lost=len({*acquired} - {*ends}),
        lost_max=lost_max,
        twice=len(ends) - len({*ends}) + len(acquired) - len({*acquired}),
        out_of_order=sum(after <= before for before, after in pairwise(analysed)),
        strange=len({*ends} - {*acquired}),
    )


class Loops:
    """The loops of a run, by sensor."""

    def __init__(self, runtime: Path, records: Path) -> None:
        self._runtime, self._records = runtime, records
        self._loops: dict[str, Loop] = {}

    def create(self, sensors: list[str]) -> None:
        for name in sensors:
            self._loops[name] = Loop.create(name, slots=SLOTS, dtype=FRAME, shape=1, directory=self._runtime)

    def moved(self) -> tuple[int, int]:
        """Return how many frames were pushed and displaced, by the loops' own counters."""
        stats = [loop.stats() for loop in self._loops.values()]
        return sum(each.pushed for each in stats), sum(each.displaced for each in stats)

    def account(self, kills: dict[str, tuple[int, int]]) -> tuple[Frames, list[str]]:
        """Take the frames that are left; return the sum of all accounts, and faults.

        Call it when all processes have ended. `kills` has those of each sensor and of its analyser.
        """
        total, faults = Frames(), []
        for name, loop in self._loops.items():
            left = _drained(loop)
            of_sensor, of_analyser = kills[name]
            acquired, analysed, displaced = (
                read_frames(self._records, name, what) for what in ("acquired", "analysed", "displaced")
            )
            most = LOST_PER_SENSOR * of_sensor + LOST_PER_ANALYSER * of_analyser
            total += account_of(acquired, analysed, displaced, left, most)
            stats = loop.stats()
            leaked = stats.buffers - stats.free - stats.returning - stats.ready
            total += Frames(buffers=stats.buffers, leaked=leaked)
            faults += [f"loop {name}: {fault}" for fault in loop.check()]
        return total, faults + total.faults()

    def close(self) -> None:
        for loop in self._loops.values():
            loop.close()


def _drained(loop: Loop) -> list[int]:
    """Take both roles and pop all frames. The roles repair operations of dead processes."""
    numbers: list[int] = []
    with loop.producer(), loop.consumer() as consumer:
        while True:
            try:
                with consumer.pop(timeout=0) as item:
                    numbers.append(number_of(item))
            except Empty:
                return numbers


def number_of(datum: Any) -> int:
    """Return the number of a frame that was popped, or that came back."""
    return int(datum.array[0]["number"])
