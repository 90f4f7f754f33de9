"""Faults in Python's calls on real files: the nth call fails, or writes a part."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.ledger.directory import OpenDirectory
from holdfast.ledger.files.rebuild import Rewriter
from holdfast.ledger.writer import Unsynced
from holdfast.system.disk import SystemDisk, SystemFile

FILE_CALLS = ("read", "write", "sync", "preallocate", "truncate")
DISK_CALLS = ("open", "rename", "unlink", "list", "sizes", "make_directory", "sync_directory", "lock")


class Faults:
    """Counts calls; the nth of those that match fails."""

    def __init__(self, nth: int, error: int | None, call: str | None = None) -> None:
        self.nth = nth
        self.error = error
        """None: a write is short."""
        self.call = call
        self.calls = 0

    @property
    def struck(self) -> bool:
        return self.calls >= self.nth

    def due(self, call: str) -> bool:
        if self.call not in (None, call) or (self.error is None and call != "write"):
            return False
        self.calls += 1
        return self.calls == self.nth


@contextmanager
def injected(faults: Faults) -> Iterator[Faults]:
    """Apply the faults to every `SystemDisk` and `SystemFile`."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, calls in ((SystemFile, FILE_CALLS), (SystemDisk, DISK_CALLS)):
            for call in calls:
                patch.setattr(kind, call, _faulty(getattr(kind, call), call, faults))
        yield faults


def _faulty(
    function: Callable[..., Awaitable[Any]], call: str, faults: Faults
) -> Callable[..., Awaitable[Any]]:
    async def faulty(self: Any, *args: Any, **kwargs: Any) -> Any:
        if faults.due(call):
            if faults.error is not None:
                raise OSError(faults.error, os.strerror(faults.error))
            offset, data = args
            return await function(self, offset, data[: max(1, len(data) // 2)])
        return await function(self, *args, **kwargs)

    return faulty


@contextmanager
def ledger_sync_fails(error: int = errno.EIO, rewritten_too: bool = False) -> Iterator[list[int]]:
    """Fail the next sync of a ledger; with `rewritten_too`, also that of its rewritten file."""
    struck: list[int] = []

    def failing(function: Callable[..., Awaitable[None]], turn: int) -> Callable[..., Awaitable[None]]:
        async def sync(self: Any, *args: Any) -> None:
            if len(struck) == turn:
                struck.append(error)
                raise OSError(error, os.strerror(error))
            await function(self, *args)

        return sync

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Unsynced, "sync", failing(Unsynced.sync, 0))
        patch.setattr(OpenDirectory, "sync_ledger", failing(OpenDirectory.sync_ledger, 0))
        if rewritten_too:
            patch.setattr(Rewriter, "sync", failing(Rewriter.sync, 1))
        yield struck
