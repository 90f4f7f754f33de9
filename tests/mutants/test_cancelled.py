"""Brokers that leave something when cancelled or closed: the test of cancellation notices."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.broker import Broker
from holdfast.errors import Closed
from holdfast.ledger import writer
from holdfast.ledger.files import entries
from holdfast.ledger.files.entries import NativeReader
from holdfast.ledger.writer import NativeWriter
from holdfast.system import disk
from tests.kit.broker.cancelling import cancel_everywhere, closed, crashed, leaves_nothing, new
from tests.kit.ledger.cancelled_calls import CALLS, Slow, a_cancelled_call_ends_with_its_thread

NEVER = 1 << 40
Patch = Callable[[pytest.MonkeyPatch], None]


def answers_that_are_lost(patch: pytest.MonkeyPatch) -> None:
    """A file that a thread has opened stays open if its caller has gone."""
    real = disk.in_thread

    async def in_thread(function: Callable[..., Any], *arguments: Any, undo: Any = None) -> Any:
        return await real(function, *arguments)

    patch.setattr(disk, "in_thread", in_thread)


def files_of_the_cancelled(patch: pytest.MonkeyPatch) -> None:
    """Files are closed after an error, and not where a task is cancelled."""
    real = disk.SystemFile.close

    async def close(self: disk.SystemFile) -> None:
        if not isinstance(sys.exception(), asyncio.CancelledError):
            await real(self)

    patch.setattr(disk.SystemFile, "close", close)


def a_close_that_ends_with_its_loop(patch: pytest.MonkeyPatch) -> None:
    async def close(self: Broker, within_s: float) -> None:
        await self.housekeeping.stop()
        await asyncio.sleep(0.01)  # the loop ends here
        self.engine.end(Closed("the broker was closed"))
        await self.store.close()

    patch.setattr(Broker, "_close", close)


def a_writer_for_the_collector(patch: pytest.MonkeyPatch) -> None:
    async def stop(self: NativeWriter, flush: bool) -> None:
        if self._told is not None:
            await asyncio.to_thread(self._writer.stop, flush)
            asyncio.get_running_loop().remove_reader(self._writer.fileno())
            self._told = None

    patch.setattr(NativeWriter, "stop", stop)


def a_reader_for_the_collector(patch: pytest.MonkeyPatch) -> None:
    async def close(self: NativeReader) -> None:
        pass

    patch.setattr(NativeReader, "close", close)


@pytest.mark.parametrize("call", CALLS)
def test_a_thread_that_outlives_its_caller_is_noticed(
    call: Callable[[Slow], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: a cancelled call of the core returned, and its thread went on."""
    for module in (writer, entries):
        monkeypatch.setattr(module, "in_thread", asyncio.to_thread)
    with pytest.raises(AssertionError, match="the thread was in the core"):
        a_cancelled_call_ends_with_its_thread(call)


@pytest.mark.parametrize(
    ("fault", "before", "way"),
    [
        (answers_that_are_lost, new, "waits"),
        (files_of_the_cancelled, new, "answered"),
        (files_of_the_cancelled, crashed, "again"),
        (a_close_that_ends_with_its_loop, closed, "loop"),
    ],
)
def test_what_the_cancelled_leave_is_noticed(
    fault: Patch, before: Callable[[Path], None], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError, match=f"cancelled at its place .*{way}.* has left"):
        cancel_everywhere(tmp_path, before, [way])


@pytest.mark.parametrize("fault", [a_writer_for_the_collector, a_reader_for_the_collector])
def test_what_the_closed_leave_is_noticed(
    fault: Patch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves_nothing(tmp_path / "sound", NEVER, "waits")
    fault(monkeypatch)
    with pytest.raises(AssertionError, match="that was closed has left"):
        leaves_nothing(tmp_path / "broken", NEVER, "waits")
