"""The writer makes rounds durable: the core's thread on real files. The tests' kit has one for any disk.

```
 a round:  the steps of `_core.ROUND_PLAN`, in their order ─► reported
```

The plan stands in one place (`native/holdfast/log/round_plan.hpp`), and every writer executes it.

Nothing is reported durable before its journal was synced and its ledgers were written (I33). What fails stays
in memory: the writer says so and stands still until `resume`. A failed sync is never tried again on the same
file: the round goes into the next journal, which `use_journal` must have named (I34).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, cast

from holdfast import _core
from holdfast._core import Log
from holdfast.group import Position
from holdfast.system import File
from holdfast.system.disk import SystemFile, in_thread

Sync = Literal["group", "always", "os"]

SYNC_AT_ONCE = 32
"""How many ledgers' descriptors are duplicated at a time."""


class Progress(NamedTuple):
    """How far a writer is."""

    durable_d: int
    """The journal is synced up to here, and the ledgers are written."""
    journal_d: int
    """The last event before `journal_offset`."""
    journal_offset: int
    """Where the next round goes, in the journal in use."""
    journals: int
    """Which call of `use_journal` is in effect, from 1; 0: none yet."""
    rounds: int
    journal_bytes: int
    """Written by this writer, to all journals."""
    failure: tuple[str, int, str] | None
    """The operation, its errno, and where. The writer stands still."""


@dataclass(frozen=True)
class Unsynced:
    """A ledger that was written since it was last synced."""

    ledger: int
    data: File
    index: File
    size: int
    """Of the data file, when this was asked."""
    owned: bool = True
    """Whoever asked closes the files."""

    async def sync(self) -> None:
        await self.data.sync()
        await self.index.sync()

    async def close(self) -> None:
        if self.owned:
            await self.data.close()
            await self.index.close()


class RoundWriter(Protocol):
    """What a store needs of a writer. Except for the journal's file, all of it is about rounds of a `Log`."""

    def start(self, told: Callable[[], None]) -> None:
        """Begin. `told` is called on the loop when `poll` has something new."""

    async def stop(self, flush: bool) -> None:
        """End; with `flush` after all that waits, unless it stands still."""

    def wake(self) -> None:
        """There may be something to write."""

    def poll(self) -> Progress:
        """How far it is."""

    def use_journal(self, file: File, offset: int) -> None:
        """From the next round on."""

    def resume(self) -> None:
        """Do again what failed."""

    def set_stable(self, position: Position) -> None:
        """For the headers of the rounds to come."""

    def unsynced(self) -> list[Unsynced]:
        """Ledgers to sync, those that wait longest first; not all at once."""

    def synced(self, ledger: int, size: int) -> None:
        """This ledger was synced up to there."""

    def forget(self, ledger: int) -> None:
        """Its files are going to be removed."""

    def rescued(self, ledger: int) -> File | None:
        """Return the data file that it has open, for one whose name is gone. The receiver closes it."""

    async def use_generation(self, ledger: int, generation: int) -> int:
        """Write it to these files from now on. How far the others were written; 0: not by this writer."""


class NativeWriter:
    """The core's writer: a thread that never takes the GIL."""

    def __init__(self, log: Log, directory: str, sync: Sync, incarnation: bytes) -> None:
        self._writer = _core.Writer(log, directory, sync, incarnation)
        self._told: Callable[[], None] | None = None
        self._last: Progress | None = None
        """How far it was when it ended."""

    def start(self, told: Callable[[], None]) -> None:
        asyncio.get_running_loop().add_reader(self._writer.fileno(), told)
        self._told = told
        self._writer.start()

    async def stop(self, flush: bool) -> None:
        if self._last is not None:
            return
        if self._told is not None:
            await in_thread(self._writer.stop, flush)
            asyncio.get_running_loop().remove_reader(self._writer.fileno())
            self._told()
            self._told = None
        self._last = self.poll()
        del self._writer  # its files with it: of an object in a cycle they would stay until it is collected

    def wake(self) -> None:
        """It sees for itself."""

    def poll(self) -> Progress:
        if self._last is not None:
            return self._last
        found = self._writer.poll()
        return Progress(
            found.durable_d,
            found.journal_d,
            found.journal_offset,
            found.journals,
            found.rounds,
            found.journal_bytes,
            found.error,
        )

    def use_journal(self, file: File, offset: int) -> None:
        self._writer.use_journal(cast(SystemFile, file).fileno(), offset)

    def resume(self) -> None:
        self._writer.resume()

    def set_stable(self, position: Position) -> None:
        if self._last is None:
            self._writer.set_stable(position.view, position.index)

    def unsynced(self) -> list[Unsynced]:
        return [
            Unsynced(ledger, SystemFile(data), SystemFile(index), size)
            for ledger, data, index, size in self._writer.ledgers(SYNC_AT_ONCE)
        ]

    def synced(self, ledger: int, size: int) -> None:
        self._writer.synced(ledger, size)

    def forget(self, ledger: int) -> None:
        self._writer.forget(ledger)

    def rescued(self, ledger: int) -> File | None:
        descriptor = self._writer.open_data(ledger)
        return SystemFile(descriptor) if descriptor >= 0 else None

    async def use_generation(self, ledger: int, generation: int) -> int:
        return await in_thread(self._writer.use_generation, ledger, generation)
