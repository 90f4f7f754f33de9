"""The acquisition process: fill a buffer in place and push it, at a fixed rate.

It has a deadline: each frame is pushed before the next one is due. A late frame has one of two causes, and
they are counted apart. The channel can be slow: its calls compute, or they wait. Or the kernel is: it wakes
the process late, or gives its processor to another one.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from examples.acquisition.frame import NUMBER, samples_of
from holdfast import Loop


@dataclass
class Calls:
    """Time inside the channel's calls for one frame."""

    wall_ns: int = 0
    processor_ns: int = 0
    waits: int = 0
    """How often a call gave up the processor: it waited for something."""
    preempted: int = 0
    """How often the kernel took the processor away."""

    def time(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call, and add its time."""
        before, began = resource.getrusage(resource.RUSAGE_THREAD), time.monotonic_ns()
        worked = time.thread_time_ns()
        result = call(*arguments)
        self.processor_ns += time.thread_time_ns() - worked
        self.wall_ns += time.monotonic_ns() - began
        after = resource.getrusage(resource.RUSAGE_THREAD)
        self.waits += after.ru_nvcsw - before.ru_nvcsw
        self.preempted += after.ru_nivcsw - before.ru_nivcsw
        return result

    def missed(self, period_ns: int) -> int:
        """Return the deadlines that the channel alone missed: periods that its calls used up.

        Time in which the kernel ran another process is not the channel's, unless the channel waited.
        """
        return (self.wall_ns if self.waits else self.processor_ns) // period_ns


@dataclass
class Report:
    """The measurements of the acquisition process."""

    acquired: int = 0
    missed_by_channel: int = 0
    missed_by_kernel: int = 0
    waits: int = 0
    preempted: int = 0
    woken_late_ns: list[int] = field(default_factory=list)
    path_ns: list[int] = field(default_factory=list)
    """loan, fill and push together."""
    calls_ns: list[int] = field(default_factory=list)
    processor_ns: list[int] = field(default_factory=list)

    def add(self, due: int, woken: int, done: int, calls: Calls, period_ns: int) -> None:
        """Add one frame."""
        self.acquired += 1
        missed = calls.missed(period_ns)
        self.missed_by_channel += missed
        self.missed_by_kernel += not missed and done - due > period_ns
        self.waits += calls.waits
        self.preempted += calls.preempted
        self.woken_late_ns.append(woken - due)
        self.path_ns.append(done - woken)
        self.calls_ns.append(calls.wall_ns)
        self.processor_ns.append(calls.processor_ns)


def acquire(name: str, rate: float, frames: int, displaced: list[int]) -> Report:
    """Push frames at a fixed rate; note the numbers of those that had to leave."""
    report, period_ns = Report(), int(1e9 / rate)
    with Loop.open(name) as loop, loop.producer() as producer:
        began = time.monotonic_ns() + period_ns
        for number in range(frames):
            due = began + number * period_ns
            time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
            woken, calls = time.monotonic_ns(), Calls()
            frame = calls.time(producer.loan)
            frame[0] = (number, time.time_ns(), samples_of(number))
            pushed = calls.time(producer.push, frame)
            report.add(due, woken, time.monotonic_ns(), calls, period_ns)
            if pushed.displaced is not None:
                with pushed.displaced as gone:  # the buffer is free again at the end
                    displaced.append(int(gone.array[0]["number"]))
    return report


def main() -> None:
    name, rate, frames, folder = sys.argv[1:]
    displaced: list[int] = []
    report = acquire(name, float(rate), int(frames), displaced)
    np.array(displaced, NUMBER).tofile(Path(folder) / "displaced")
    (Path(folder) / "report.json").write_text(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
