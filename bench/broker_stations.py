"""Contestants, each in a process of its own that does one thing at a time.

A `Station` is the parent's end of such a process. The process times its work on its own clock and returns a
`Sample`.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.answers import BenchError, Failure, answer

ANSWER_LIMIT_S = 900.0


@dataclass(frozen=True)
class Sample:
    """One measurement."""

    messages: int
    seconds: float
    cpu_s: float
    """Of the whole process, all threads."""
    rounds: int = 0
    """Number of syncs, where known."""
    round_bytes: int = 0
    """Bytes written in these rounds."""
    snapshots: int = 0
    """Number of snapshots that the broker took meanwhile."""

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.messages * 1e6

    @property
    def wall_us(self) -> float:
        return self.seconds / self.messages * 1e6


@dataclass(frozen=True)
class Setting:
    """The settings of a contestant."""

    directory: Path
    size: int
    """Bytes of one payload."""
    batch: int
    """Messages published, or received, with one call."""
    window: int
    """Batches in flight at once, where the contestant can do that."""


class Stopwatch:
    """Measure wall and processor time of a `with` block."""

    def __enter__(self) -> Stopwatch:
        self._cpu = time.process_time()
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = max(1e-9, time.perf_counter() - self._start)
        self.cpu_s = time.process_time() - self._cpu

    def sample(self, messages: int, rounds: int = 0, round_bytes: int = 0) -> Sample:
        return Sample(messages, self.seconds, self.cpu_s, rounds, round_bytes)


def payloads(size: int, count: int) -> list[bytes]:
    """Return distinct payloads, so that a contestant gains nothing from repetition."""
    generator = random.Random(size * 1_000_003 + count)
    return [generator.randbytes(size) for _ in range(count)]


def serve(control: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Create the contestant, then call what the parent names, until it sends None.

    Runs in the process. It ends, too, when the parent is gone.
    """
    try:
        contestant = make(*arguments)
        control.send(None)
        while (order := control.recv()) is not None:
            name, values = order
            control.send(getattr(contestant, name)(*values))
        contestant.close()
        control.send(None)
    except (EOFError, KeyboardInterrupt):
        pass  # the parent is gone
    except BaseException:
        control.send(Failure(traceback.format_exc()))


class Station:
    """A contestant in a process of its own."""

    def __init__(self, context: SpawnContext, name: str, make: Callable[..., Any], *arguments: Any) -> None:
        self.name = name
        self._control, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, make, arguments), daemon=True)
        self.process.start()
        theirs.close()
        try:
            self._answer()
        except BenchError:
            self.kill()
            raise

    def __enter__(self) -> Station:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.is_alive() and error is None:
            self.close()
        else:
            self.kill()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the contestant and return its result."""
        self.send(method, *arguments)
        return self._answer()

    def send(self, method: str, *arguments: Any) -> None:
        """Call a method without waiting, in a process that will be killed."""
        self._control.send((method, arguments))

    def sample(self, method: str, *arguments: Any) -> Sample:
        found = self.call(method, *arguments)
        if not isinstance(found, Sample):
            raise BenchError(f"{self.name}: {method} answered {found!r}")
        return found

    def close(self) -> None:
        """Let the contestant end by itself."""
        self._control.send(None)
        self._answer()
        self.process.join(60)
        self.kill()

    def kill(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self._control.close()

    def _answer(self) -> Any:
        return answer(self._control, self.name, ANSWER_LIMIT_S)
