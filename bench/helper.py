"""A process that a benchmark starts, and that answers its orders."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from typing import Any

from bench.answers import BenchError, Failure, answer
from bench.worker import READY

LIMIT_S = 60.0
END_S = 5.0


def _run(control: Connection, work: Callable[..., None], args: tuple[Any, ...]) -> None:
    try:
        work(control, *args)
    except EOFError:
        pass  # the parent is gone, or has closed the connection
    except BaseException:
        with contextlib.suppress(OSError):
            control.send(Failure(traceback.format_exc()))


class Helper:
    """Runs `work(control, *args)` in another process; it sends `READY` first, and ends with `EOFError`."""

    def __init__(self, context: SpawnContext, work: Callable[..., None], *args: Any) -> None:
        """Start the process, without waiting for it."""
        self.name = work.__name__
        self.control, theirs = context.Pipe()
        self.process = context.Process(target=_run, args=(theirs, work, args), daemon=True)
        self.process.start()
        theirs.close()

    def answer(self) -> Any:
        """Wait for the next answer."""
        return answer(self.control, self.name, LIMIT_S)

    def ready(self) -> None:
        """Wait until it says that it is ready."""
        if (received := self.answer()) != READY:
            raise BenchError(f"{self.name} answered {received!r} instead of being ready")

    def order(self, order: Any) -> None:
        """Send an order, and wait until it is ready for it."""
        self.control.send(order)
        self.ready()

    def close(self) -> None:
        """End the process."""
        self.control.close()
        self.process.join(END_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
