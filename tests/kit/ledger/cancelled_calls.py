"""Calls of the core in a thread, whose caller is cancelled before they end."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.ledger.files.entries import NativeReader
from holdfast.ledger.layout import LedgerFile
from holdfast.ledger.writer import NativeWriter


class Slow:
    """Replaces an object of the core; its calls end when a test says so."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.end = threading.Event()

    def use_generation(self, ledger: int, generation: int) -> int:
        return self._work()

    def time(self, ledger: int, entry: int, generation: int) -> int:
        return self._work()

    def read(self, *arguments: Any) -> None:
        """Find nothing in the page cache; the second call comes from the thread."""
        if arguments[5]:
            self._work()

    def _work(self) -> int:
        self.began.set()
        assert self.end.wait(20)
        return 0


def switching(core: Slow) -> Coroutine[Any, Any, Any]:
    """Switch the writer to another file, as a rewrite does."""
    writer = NativeWriter.__new__(NativeWriter)
    writer._writer = core  # type: ignore[assignment]
    return writer.use_generation(1, 2)


def reading(core: Slow) -> Coroutine[Any, Any, Any]:
    return _reader(core).read(LedgerFile(1, 0), 0, 0, 1, 1, 0)


def dating(core: Slow) -> Coroutine[Any, Any, Any]:
    return _reader(core).time(LedgerFile(1, 0), 0)


def _reader(core: Slow) -> NativeReader:
    reader = NativeReader.__new__(NativeReader)
    reader._files = core  # type: ignore[assignment]
    return reader


CALLS: tuple[Callable[[Slow], Coroutine[Any, Any, Any]], ...] = (switching, reading, dating)


def a_cancelled_call_ends_with_its_thread(call: Callable[[Slow], Coroutine[Any, Any, Any]]) -> None:
    """Check that a cancelled caller waits for its thread, and the object is freed."""

    async def work(core: Slow) -> None:
        task = asyncio.create_task(call(core))
        while not core.began.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        early = task.done()
        core.end.set()
        await asyncio.wait([task])
        assert not early, "the caller went on, and the thread was in the core"
        assert task.cancelled()

    gc.disable()
    try:
        core = Slow()
        there = weakref.ref(core)
        asyncio.run(work(core))
        del core
        assert there() is None, "the core's object is left to the collector"
    finally:
        gc.enable()
