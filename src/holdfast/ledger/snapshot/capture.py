"""Taking a snapshot of a running store, and dropping what nobody needs after it.

```
 capture ─► its last event is durable (and stable) ─► ledgers synced ─► written, synced, named
         ─► older snapshots go ─► journal files behind both kept ones go ─► ledgers that were trimmed go
```

A snapshot says "up to here the ledgers are synced": so they are, before it is named (I37). What it makes
superfluous goes only after its name is durable, and never what the older of the two kept ones needs, except
ledgers that the events in between removed (I39).
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
from holdfast.system import Disk, File
from holdfast.system.files import remove


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
    """What the store has to know of a snapshot."""
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
    """Of these ledger files, those that nobody needs: not the state, and not a kept snapshot.

    A ledger that the newest snapshot does not know was removed before it, unless its number is newer. Another
    generation of a ledger that it knows is needed as long as a kept snapshot speaks of it.
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
    """All of them at once: file systems join what they are asked together, and the loop turns once, not each
    time. The first error, when all have ended."""
    for outcome in await asyncio.gather(*syncs, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def sync_ledgers(
    writer: RoundWriter,
    disk: Disk,
    sync: Callable[[int, Callable[[], Awaitable[None]], File], Awaitable[None]],
    next_ledger: int,
) -> None:
    """Everything that was written to ledgers below `next_ledger` before this call is durable after it.

    Newer ledgers are not waited for: their events are behind the snapshot, and under load there is always one
    more. `sync(ledger, by, data)` syncs one by calling `by`, or makes it durable in another file.
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
    """Write it and name it, durably. Its size in bytes."""
    size = await snapshot_format.write(disk, meta, parts, incarnation)
    at("snapshot_written")
    await snapshot_format.name(disk, meta.d)
    at("snapshot_renamed")
    await disk.sync_directory(SNAPSHOTS)
    at("snapshot_done")
    return size


async def drop_snapshots(disk: Disk, kept: list[Meta]) -> None:
    """All but the kept ones."""
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
    """By looking at every name in the directory: nothing is overlooked, and it takes its time."""
    names = await disk.list(LEDGERS)
    parsed = (LedgerFile.parse(name) for name in names)
    return garbage(sorted({each[0] for each in parsed if each is not None}), kept, current)


def gone_since(before: Meta, now: Meta, current: dict[int, int]) -> list[LedgerFile]:
    """Ledgers that the snapshot before knew and this one does not: the usual case, without looking."""
    return [LedgerFile(ledger, current.get(ledger, 0)) for ledger in sorted(before.numbers() - now.numbers())]


async def drop_ledgers(
    disk: Disk, going: Iterable[LedgerFile], alive: set[int], writer: RoundWriter, reader: LedgerReader
) -> None:
    """Remove files that nobody needs. `alive`: ledgers that live on, in other files."""
    for file in going:
        if file.ledger not in alive:
            writer.forget(file.ledger)
            await reader.forget(file.ledger)
        for path in (file.data_path, file.index_path):
            at("trim_unlink")
            await remove(disk, path)
