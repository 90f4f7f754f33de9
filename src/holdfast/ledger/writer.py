"""The writer makes rounds durable: an interface, and the core's thread.

```
 journal written ──► ledgers written ──► journal synced ──► reported durable
```

`native/holdfast/log/round_plan.hpp` defines these steps (`_core.ROUND_PLAN`), and every writer executes them.

A round is reported after its journal is synced and its ledgers are written (I33). A round that fails stays in
memory: the writer reports the failure and stops until `resume`. A failed sync is never repeated on the same
file. The round goes into the next journal, which `use_journal` must have named (I34).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from holdfast import _core
from holdfast._core import Log
from holdfast.group import Position
from holdfast.ledger.store_options import SyncMode
from holdfast.system import File, SystemFile, in_thread

SYNC_AT_ONCE = 32
"""How many ledgers' descriptors are duplicated at a time."""


class Progress(NamedTuple):
    """Progress of a writer."""

    durable_d: int
    """The journal is synced up to here, and the ledgers are written."""
    journal_d: int
    """The last event before `journal_offset`."""
    journal_offset: int
    """Where the next round goes in the current journal."""
    journals: int
    """The number of the `use_journal` call that is in effect, from 1; 0: not yet any."""
    rounds: int
    journal_bytes: int
    """Bytes that this writer has written to all journals."""
    failure: tuple[str, int, str] | None
    """Operation, errno and path of a failure. The writer has stopped."""


@dataclass(frozen=True)
class Unsynced:
    """A ledger that was written after its last sync."""

    ledger: int
    data: File
    index: File
    size: int
    """Bytes of the data file at the time of the call."""
    owned: bool = True
    """Whether the caller has to close the files."""

    async def sync(self) -> None:
        await self.data.sync()
        await self.index.sync()

    async def close(self) -> None:
        if self.owned:
            await self.data.close()
            await self.index.close()


class RoundWriter(Protocol):
    """The interface of a writer. It writes rounds of a `Log`."""

    def start(self, told: Callable[[], None]) -> None:
        """Start. `told` is called on the event loop when `poll` has news."""

    async def stop(self, flush: bool) -> None:
        """Stop; with `flush`, first write all that waits, unless a failure has stopped the writer."""

    def wake(self) -> None:
        """Look for events to write."""

    def poll(self) -> Progress:
        """Return the progress."""

    def use_journal(self, file: File, offset: int) -> None:
        """Write to this journal file from the next round on."""

    def resume(self) -> None:
        """Repeat the operation that failed."""

    def set_stable(self, position: Position) -> None:
        """Set the stable position for the headers of later rounds."""

    def unsynced(self) -> list[Unsynced]:
        """Return some ledgers to sync, the longest waiting first."""

    def synced(self, ledger: int, size: int) -> None:
        """Record that a ledger is synced up to this size."""

    def forget(self, ledger: int) -> None:
        """Close a ledger whose files are going to be deleted."""

    def rescued(self, ledger: int) -> File | None:
        """Return the open data file of a ledger without a name. The caller closes it."""

    async def use_generation(self, ledger: int, generation: int) -> int:
        """Write a ledger to these files from now on.

        Returns:
            The bytes written to the earlier data file; 0 if this writer did not write it.
        """


class NativeWriter:
    """The core's writer: a thread that never takes the GIL."""

    def __init__(self, log: Log, directory: str, sync: SyncMode, incarnation: bytes) -> None:
        self._writer = _core.Writer(log, directory, sync, incarnation)
        self._told: Callable[[], None] | None = None
        self._last: Progress | None = None
        """Progress when the writer stopped."""

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
        del self._writer  # closes its files now: in a cycle they would stay open until a collection

    def wake(self) -> None:
        """Do nothing: the core's thread looks for events by itself."""

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
