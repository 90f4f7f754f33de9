"""Take a snapshot of a running store, and drop files that it replaces.

```
 capture ─► its last event is durable (and stable) ─► ledgers synced ─► written, synced, named
          ─► older snapshots deleted ─► journal files behind both kept ones dropped ─► trimmed ledgers deleted
```

A snapshot claims that the ledgers are synced up to its event, so they are synced before it is named (I37).
Files are dropped only after its name is durable. Files that the older kept snapshot needs are not dropped,
except ledgers that the events in between removed (I39).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from holdfast._core import at
from holdfast.ledger.files.entries import LedgerReader
from holdfast.ledger.layout import LEDGERS, SNAPSHOTS, LedgerFile, Place, snapshot_path
from holdfast.ledger.recovery import Captured
from holdfast.ledger.snapshot import format as snapshot_format
from holdfast.ledger.snapshot.format import Meta
from holdfast.ledger.writer import RoundWriter, Unsynced
from holdfast.system import Disk, File, remove


def summary(
    captured: Captured,
    start: Place,
    start_d: int,
    generations: dict[int, int],
    *,
    next_ledger: int,
    time_ns: int,
    clean: bool = False,
    cut: bool = False,
    proven: bool = True,
) -> Meta:
    """Return the metadata of a snapshot."""
    return Meta(
        d=captured.d,
        position=(captured.position.view, captured.position.index),
        clean=clean,
        cut=cut,
        proven=proven,
        time_ns=time_ns,
        next_ledger=next_ledger,
        journal=start.journal,
        journal_offset=start.offset,
        journal_d=start_d,
        ledgers=snapshot_format.pack_ledgers(captured.ledgers, generations),
    )


def garbage(files: Iterable[LedgerFile], kept: list[Meta], current: dict[int, int]) -> list[LedgerFile]:
    """Return those of these ledger files that neither the state nor a kept snapshot needs.

    A ledger that the newest snapshot does not list was removed before it, unless its number is newer. Another
    generation of a listed ledger is needed while a kept snapshot lists it.
    """
    newest = kept[-1]
    alive = newest.numbers()
    needed = {file for meta in kept for file in meta.extents()}
    return [
        file
        for file in files
        if file.ledger < newest.next_ledger
        and (
            file.ledger not in alive
            or (file not in needed and file.generation != current.get(file.ledger, 0))
        )
    ]


async def abreast(syncs: Iterable[Awaitable[None]]) -> None:
    """Await all together, then raise the first error.

    File systems merge syncs that run at the same time.
    """
    for outcome in await asyncio.gather(*syncs, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def sync_ledgers(
    writer: RoundWriter,
    disk: Disk,
    sync: Callable[[int, Callable[[], Awaitable[None]], File], Awaitable[None]],
    next_ledger: int,
) -> None:
    """Make durable all that was written to ledgers below `next_ledger` before this call.

    Newer ledgers are left out: their events are after the snapshot, and under load there is always one more.
    `sync(ledger, by, data)` syncs one ledger by calling `by`, or makes it durable in another file.
    """
    seen: set[int] = set()

    async def one(each: Unsynced) -> None:
        await sync(each.ledger, each.sync, each.data)
        writer.synced(each.ledger, each.size)

    while batch := writer.unsynced():
        fresh = [each for each in batch if each.ledger < next_ledger and each.ledger not in seen]
        seen.update(each.ledger for each in fresh)
        try:
            await abreast(one(each) for each in fresh)
        finally:
            for each in batch:
                await each.close()
        if not fresh:
            break
    await disk.sync_directory(LEDGERS)


async def publish(disk: Disk, meta: Meta, parts: list[bytes], incarnation: bytes) -> int:
    """Write and name a snapshot durably; return its size in bytes."""
    size = await snapshot_format.write(disk, meta, parts, incarnation)
    at("snapshot_written")
    await snapshot_format.name(disk, meta.d)
    at("snapshot_renamed")
    await disk.sync_directory(SNAPSHOTS)
    at("snapshot_done")
    return size


async def drop_snapshots(disk: Disk, kept: list[Meta]) -> None:
    """Delete all snapshots except the kept ones."""
    needed = {meta.d for meta in kept}
    dropped = False
    for d in await snapshot_format.names(disk):
        if d not in needed:
            at("snapshot_dropped")
            await disk.unlink(snapshot_path(d))
            dropped = True
    if dropped:
        await disk.sync_directory(SNAPSHOTS)


async def find_garbage(disk: Disk, kept: list[Meta], current: dict[int, int]) -> list[LedgerFile]:
    """Find files that are not needed by reading every name: slow, and complete."""
    names = await disk.list(LEDGERS)
    parsed = (LedgerFile.parse(name) for name in names)
    return garbage(sorted({each[0] for each in parsed if each is not None}), kept, current)


def gone_since(before: Meta, now: Meta, current: dict[int, int]) -> list[LedgerFile]:
    """Return the ledgers that only the earlier snapshot lists: the usual case, without reading names."""
    return [LedgerFile(ledger, current.get(ledger, 0)) for ledger in sorted(before.numbers() - now.numbers())]


async def drop_ledgers(
    disk: Disk, going: Iterable[LedgerFile], alive: set[int], writer: RoundWriter, reader: LedgerReader
) -> None:
    """Delete these files. `alive` are ledgers that continue in other files."""
    for file in going:
        if file.ledger not in alive:
            writer.forget(file.ledger)
            await reader.forget(file.ledger)
        for path in (file.data_path, file.index_path):
            at("trim_unlink")
            await remove(disk, path)
