"""Format of snapshots: the state after one event, in one verified file.

```
 | file header (64) | part 0: the store's `Meta` | part 1 … n: the machine's state | end: n + 1 |
```

Each part is a block of kind 6, with its number as tag. The end is a block of kind 7, with the number of parts
as tag. A snapshot is written under another name, synced, and then named: a name without `.new` was whole
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
from holdfast.system import Disk, opened, write_file

CHUNK = 1 << 20

_ROW = struct.Struct("<4Q")


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a snapshot, for the store."""

    d: int
    """The D of its last event."""
    position: tuple[int, int]
    """Position of that event's frame, in the group's order."""
    clean: bool
    """Whether the broker was closed with it."""
    cut: bool = False
    """Whether events after it were cut: older snapshots must not be used."""
    proven: bool = True
    """Whether the journal was synced up to `d` when this was named; not so with `sync = os`."""
    time_ns: int
    """Log time."""
    next_ledger: int
    journal: int
    """Where the journal behind it starts: the file, the offset, and the last D before that."""
    journal_offset: int
    journal_d: int
    ledgers: bytes
    """Number, generation, data size and entries of every ledger, as four u64; sorted."""

    @property
    def start(self) -> Place:
        return Place(self.journal, self.journal_offset)

    @property
    def at(self) -> Position:
        return Position(*self.position)

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Return (ledger, generation, data size, entries) of every ledger."""
        return _ROW.iter_unpack(self.ledgers)

    def numbers(self) -> set[int]:
        """Return the numbers of all ledgers."""
        return {row[0] for row in self.rows()}

    def extents(self) -> dict[LedgerFile, Extent]:
        """Return size and entries of each ledger file, up to which it was synced."""
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
"""The metadata of an empty directory, as a first snapshot would have it."""


@dataclass
class Snapshot:
    """A snapshot that is whole."""

    meta: Meta
    parts: list[bytes] = field(repr=False)
    """The machine's state."""


def pack_ledgers(ledgers: Mapping[int, tuple[int, int]], generations: Mapping[int, int]) -> bytes:
    """Encode `Meta.ledgers` from each ledger's data size and entries."""
    pack_row = _ROW.pack
    return b"".join(
        pack_row(ledger, generations.get(ledger, 0), size, entries)
        for ledger, (size, entries) in sorted(ledgers.items())
    )


def pack(meta: Meta, parts: Sequence[bytes], incarnation: bytes) -> list[bytes]:
    """Encode a snapshot as pieces of about 1 MiB."""
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
    """Decode a snapshot, and verify all of it.

    Raises:
        Corrupt: it is not whole; the text names the offset.
        LayoutMismatch: it is of another format version.
    """
    require_header(path, data[:FILE_HEADER], FileKind.SNAPSHOT, d, incarnation)
    parts: list[bytes] = []
    at = FILE_HEADER
    while True:
        block = open_block(data, at)
        if isinstance(block, str):
            raise Corrupt(f"{path} at offset {at}: this part is damaged ({block}); run `holdfast doctor`")
        kind, tag, _, size = block
        if tag != len(parts) or kind not in (BlockKind.PART, BlockKind.END):
            raise Corrupt(f"{path} at offset {at}: another part is expected here; run `holdfast doctor`")
        if kind == BlockKind.END:
            break
        parts.append(data[at + BLOCK_HEADER : at + BLOCK_HEADER + size])
        at = padded(at + BLOCK_HEADER + size)
    try:
        meta = msgspec.msgpack.decode(parts[0], type=Meta)
    except (IndexError, msgspec.DecodeError) as error:
        what = f"{path} at offset {FILE_HEADER}: metadata does not decode ({error}); run `holdfast doctor`"
        raise Corrupt(what) from None
    if len(meta.ledgers) % _ROW.size:
        raise Corrupt(f"{path} at offset {FILE_HEADER}: the last ledger is incomplete; run `holdfast doctor`")
    if meta.d != d:
        raise Corrupt(f"{path} at offset {FILE_HEADER}: D is {meta.d}, not {d}; run `holdfast doctor`")
    return Snapshot(meta, parts[1:])


async def names(disk: Disk) -> list[int]:
    """Return the D of every named snapshot, rising."""
    found = (number_of(name) for name in await disk.list(SNAPSHOTS))
    return sorted(number for number in found if number is not None)


async def load(disk: Disk, d: int, incarnation: bytes) -> Snapshot:
    """Read one snapshot.

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
    """Read only the metadata of a snapshot; `None` if it is damaged."""
    path = snapshot_path(d)
    async with opened(disk, path) as file:
        data = await file.read(0, CHUNK)
        block = open_block(data, FILE_HEADER)
        if block == "size":  # longer than the first read, or damaged
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
    """Return the newest whole snapshot, and the errors of later ones.

    Raises:
        LayoutMismatch: one has another format version. A newer format is not skipped.
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
    """Write a snapshot under its preliminary name and sync it; return its size."""
    path = snapshot_path(meta.d) + NEW
    chunks = await asyncio.to_thread(pack, meta, parts, incarnation)
    return await write_file(disk, path, *chunks)


async def name(disk: Disk, d: int) -> None:
    """Give a snapshot its name; durable after the directory's sync."""
    await disk.rename(snapshot_path(d) + NEW, snapshot_path(d))
