"""Snapshots: the state after one event, in a file that is either whole or not believed.

```
 | file header (64) | part 0: what the store must know (`Meta`) | part 1 … n: the machine's | end: n + 1 |
```

Each part is a block of kind 6 whose tag is its number; the end is a block of kind 7 whose tag is how many
there are. A snapshot is written under another name, synced, and then named: a name without `.new` was whole
once. The newest two are kept, with the journal behind the older one, so that a damaged snapshot costs time
and not data (I33).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast._core import open_block, seal_block
from holdfast.errors import Corrupt, LayoutMismatch
from holdfast.group import BEGINNING, Position
from holdfast.ledger.layout import (
    BLOCK_HEADER,
    FILE_HEADER,
    NEW,
    PAGE,
    SNAPSHOTS,
    BlockKind,
    Extent,
    FileKind,
    LedgerFile,
    Place,
    file_header,
    number_of,
    padded,
    require_header,
    snapshot_path,
)
from holdfast.system import Disk
from holdfast.system.files import opened, write_file

CHUNK = 1 << 20

_ROW = struct.Struct("<4Q")


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What the store has to know of a snapshot."""

    d: int
    """The last event in it."""
    position: tuple[int, int]
    """Of that event's frame in the group's order."""
    clean: bool
    """Nothing was under way: the broker was closed."""
    cut: bool = False
    """Events after it were cut: nothing older may be used any more."""
    proven: bool = True
    """The journal was synced up to `d` when this was named; not so with `sync = os`."""
    time_ns: int
    """Log time."""
    next_ledger: int
    journal: int
    """Where the journal behind it begins: the file, the offset, and the last D before that."""
    journal_offset: int
    journal_d: int
    ledgers: bytes
    """Every ledger: its number, generation, data size, entries, as four u64; sorted."""

    @property
    def start(self) -> Place:
        return Place(self.journal, self.journal_offset)

    @property
    def at(self) -> Position:
        return Position(*self.position)

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """(ledger, generation, data size, entries) of every ledger."""
        return _ROW.iter_unpack(self.ledgers)

    def numbers(self) -> set[int]:
        """Of every ledger."""
        return {row[0] for row in self.rows()}

    def extents(self) -> dict[LedgerFile, Extent]:
        """How far each ledger file reached, and was synced."""
        return {
            LedgerFile(ledger, generation): Extent(size, entries)
            for ledger, generation, size, entries in self.rows()
        }


NOTHING = Meta(
    d=0,
    position=(BEGINNING.view, BEGINNING.index),
    clean=True,
    time_ns=0,
    next_ledger=1,
    journal=1,
    journal_offset=PAGE,
    journal_d=0,
    ledgers=b"",
)
"""The state of a directory in which nothing has happened: what a first snapshot would say."""


@dataclass
class Snapshot:
    """A snapshot that was found whole."""

    meta: Meta
    parts: list[bytes] = field(repr=False)
    """The machine's."""


def pack_ledgers(ledgers: Mapping[int, tuple[int, int]], generations: Mapping[int, int]) -> bytes:
    """`Meta.ledgers` from each ledger's (data size, entries)."""
    pack_row = _ROW.pack
    return b"".join(
        pack_row(ledger, generations.get(ledger, 0), size, entries)
        for ledger, (size, entries) in sorted(ledgers.items())
    )


def pack(meta: Meta, parts: Sequence[bytes], incarnation: bytes) -> list[bytes]:
    """The file, in pieces of about a mebibyte."""
    chunks: list[bytes] = []
    waiting = [file_header(FileKind.SNAPSHOT, meta.d, incarnation)]
    size = 0
    every = [msgspec.msgpack.encode(meta), *parts]
    for number, part in enumerate(every):
        block = seal_block(BlockKind.PART, number, meta.time_ns, part)
        waiting += [block, bytes(padded(len(block)) - len(block))]
        size += len(block)
        if size >= CHUNK:
            chunks.append(b"".join(waiting))
            waiting, size = [], 0
    waiting.append(seal_block(BlockKind.END, len(every), meta.time_ns, b""))
    return [*chunks, b"".join(waiting)]


def unpack(path: str, data: bytes, d: int, incarnation: bytes) -> Snapshot:
    """Verify all of it.

    Raises:
        Corrupt: it is not whole; the text has the offset.
        LayoutMismatch: it is of another format version.
    """
    require_header(path, data[:FILE_HEADER], FileKind.SNAPSHOT, d, incarnation)
    parts: list[bytes] = []
    at = FILE_HEADER
    while True:
        block = open_block(data, at)
        if isinstance(block, str):
            raise Corrupt(f"{path} at offset {at}: a damaged part ({block}); run `holdfast doctor`")
        kind, tag, _, size = block
        if tag != len(parts) or kind not in (BlockKind.PART, BlockKind.END):
            raise Corrupt(f"{path} at offset {at}: a part where another should be; run `holdfast doctor`")
        if kind == BlockKind.END:
            break
        parts.append(data[at + BLOCK_HEADER : at + BLOCK_HEADER + size])
        at = padded(at + BLOCK_HEADER + size)
    try:
        meta = msgspec.msgpack.decode(parts[0], type=Meta)
    except (IndexError, msgspec.DecodeError) as error:
        what = f"{path} at offset {FILE_HEADER}: no summary ({error}); run `holdfast doctor`"
        raise Corrupt(what) from None
    if len(meta.ledgers) % _ROW.size:
        raise Corrupt(f"{path} at offset {FILE_HEADER}: half a ledger; run `holdfast doctor`")
    if meta.d != d:
        raise Corrupt(f"{path} at offset {FILE_HEADER}: it says D {meta.d}; run `holdfast doctor`")
    return Snapshot(meta, parts[1:])


async def names(disk: Disk) -> list[int]:
    """The D of every snapshot that was named, rising."""
    found = (number_of(name) for name in await disk.list(SNAPSHOTS))
    return sorted(number for number in found if number is not None)


async def load(disk: Disk, d: int, incarnation: bytes) -> Snapshot:
    """Read one.

    Raises:
        Corrupt, LayoutMismatch: as `unpack`.
    """
    path = snapshot_path(d)
    async with opened(disk, path) as file:
        size = await file.size()
        pieces = [await file.read(at, CHUNK) for at in range(0, size, CHUNK)]
    data = b"".join(pieces)
    return await asyncio.to_thread(unpack, path, data, d, incarnation)


async def load_summary(disk: Disk, d: int, incarnation: bytes) -> Meta | None:
    """Only what the store has to know of it; None: not even that is sound."""
    path = snapshot_path(d)
    async with opened(disk, path) as file:
        data = await file.read(0, CHUNK)
        block = open_block(data, FILE_HEADER)
        if block == "size":  # longer than what was read, or damaged: then it is read in vain
            block = open_block(data := await file.read(0, await file.size()), FILE_HEADER)
    if isinstance(block, str) or block[0] != BlockKind.PART:
        return None
    start = FILE_HEADER + BLOCK_HEADER
    try:
        require_header(path, data[:FILE_HEADER], FileKind.SNAPSHOT, d, incarnation)
        return msgspec.msgpack.decode(data[start : start + block[3]], type=Meta)
    except (Corrupt, msgspec.DecodeError):
        return None


async def load_newest(
    disk: Disk, incarnation: bytes, found: Iterable[int]
) -> tuple[Snapshot | None, list[str]]:
    """The newest of these that is whole, and what was wrong with those after it. None: none is whole.

    Raises:
        LayoutMismatch: one is of another format version: what is newer than this program is not skipped.
    """
    complaints: list[str] = []
    for d in sorted(found, reverse=True):
        try:
            return await load(disk, d, incarnation), complaints
        except LayoutMismatch:
            raise
        except Corrupt as error:
            complaints.append(str(error))
    return None, complaints


async def write(disk: Disk, meta: Meta, parts: Sequence[bytes], incarnation: bytes) -> int:
    """Write it under its preliminary name and sync it; its size. `name` makes it count."""
    path = snapshot_path(meta.d) + NEW
    chunks = await asyncio.to_thread(pack, meta, parts, incarnation)
    return await write_file(disk, path, *chunks)


async def name(disk: Disk, d: int) -> None:
    """From here on it is the newest; durable after the directory's sync."""
    await disk.rename(snapshot_path(d) + NEW, snapshot_path(d))
