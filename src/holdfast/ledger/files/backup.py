"""Backup and restore: copy a directory completely, or not at all.

A backup holds a snapshot, and every ledger up to the size that the snapshot lists. Of a directory that no
process has open, it also holds the journal behind the snapshot. The list of its files, with their checksums,
is written last: a backup without it is incomplete. A restore compares every byte with the list. The restored
directory gets the file `holdfast`, which makes it a store, last.

Of a running broker the copy is taken from a snapshot, and files that it needs are kept until the end.
Everything that was confirmed before the call is in it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast._core import at, crc32c, open_block, seal_block
from holdfast.errors import Corrupt, Exists, NotFound
from holdfast.ledger import recovery
from holdfast.ledger.files.doctor import examine_disk
from holdfast.ledger.journal.files import JournalFiles
from holdfast.ledger.journal.scan import End, JournalScan
from holdfast.ledger.layout import (
    BLOCK_HEADER,
    DIRECTORIES,
    FILE_HEADER,
    FORMAT,
    INCOMPLETE,
    LOCK,
    NEW,
    PAGE,
    BlockKind,
    FileKind,
    file_header,
    journal_path,
    read_file_header,
    require_header,
    snapshot_path,
)
from holdfast.ledger.snapshot import format as snapshot_format
from holdfast.ledger.snapshot.format import Meta
from holdfast.ledger.store_options import StoreOptions
from holdfast.system import Disk, File, SystemDisk, opened, read_file, write_all, write_file, write_named_last

LIST = "backup"
"""The list of a backup's files, in the backup's directory."""
CHUNK = 1 << 20


class Item(msgspec.Struct, frozen=True, array_like=True):
    """A file of a backup."""

    path: str
    size: int
    crc: int


class Contents(msgspec.Struct, frozen=True):
    """The contents of a backup."""

    d: int
    incarnation: bytes
    has_journal: bool
    files: list[Item]


@dataclass(frozen=True)
class Copied:
    """The result of a backup or a restore."""

    last_d: int
    """The last event in the copy."""
    files: int
    bytes: int
    ledgers: int


class Source(Protocol):
    """A running store."""

    async def snapshot(self) -> None: ...
    def pin(self) -> contextlib.AbstractContextManager[Meta]: ...
    @property
    def incarnation(self) -> bytes: ...


# -- for the command line ------------------------------------------------------------------------------


def backup(path: str | Path, target: str | Path) -> Copied:
    """Copy a directory that no process has open.

    Raises:
        Locked: a process has it open. Stop that process first.
        Corrupt: the directory is damaged: see `doctor`.
        Exists: the target is not empty.
        NotFound: the path is not a broker's directory.
    """
    if not (Path(path) / FORMAT).exists():
        raise NotFound(f"{path} is not a data directory: it has no file named {FORMAT}")
    _make_new(Path(target))
    return asyncio.run(backup_disk(SystemDisk(path), SystemDisk(target)))


def restore(source: str | Path, path: str | Path, journal_bytes: int | None = None) -> Copied:
    """Create a directory from a backup, and check it.

    Raises:
        NotFound: the source is not a backup, or an incomplete one.
        Corrupt: a file of the backup is damaged.
        Exists: the directory is not empty.
    """
    if not (Path(source) / LIST).exists():
        raise NotFound(f"{source} is not a backup, or is incomplete: it has no file named {LIST}")
    _make_new(Path(path))
    return asyncio.run(restore_disk(SystemDisk(source), SystemDisk(path), journal_bytes))


def _make_new(path: Path) -> None:
    """Create a directory, or accept an empty one."""
    if path.exists() and not path.is_dir():
        raise Exists(f"{path} is not a directory; use a new directory")
    path.mkdir(parents=True, exist_ok=True)
    if names := sorted(each.name for each in path.iterdir()):
        raise Exists(f"{path} is not empty ({', '.join(names[:3])}); use a new directory")


# -- backup -------------------------------------------------------------------------------------------


async def backup_disk(source: Disk, target: Disk) -> Copied:
    """Like `backup`, on any disks."""
    lock = await source.lock(LOCK)
    try:
        if INCOMPLETE in await source.list(""):
            raise Corrupt(f"{INCOMPLETE}: a copy from another member did not end; back up another member")
        incarnation = await recovery.read_format(source)
        base = await recovery.find_base(source, incarnation)
        if base.fell_back:
            raise Corrupt(f"{base.notes[0]}. Start the broker once, which repairs this; then back up")
        meta = base.meta
        scan = JournalScan(source, incarnation, base.files, meta.start, meta.journal_d, base.known_d)
        async for _ in scan.rounds():
            pass
        ending = await scan.ending()
        if ending.outcome is End.DAMAGED:
            raise Corrupt(ending.complaint())
        copier = await _Copier.begin(source, target)
        await copier.ledgers(meta)
        if base.snapshot is not None:
            await copier.copy(snapshot_path(meta.d))
        for number in base.files:
            if meta.journal <= number <= ending.stopped.journal:
                last = number == ending.stopped.journal
                await copier.copy(journal_path(number), ending.stopped.offset if last else None)
        return await copier.finish(Contents(max(meta.d, ending.last_d), incarnation, True, copier.files))
    finally:
        await lock.release()


async def backup_running(store: Source, source: Disk, target: Disk) -> Copied:
    """Like `backup`, for a running store: from a snapshot that is taken now.

    Raises:
        Exists: the target is not empty.
    """
    copier = await _Copier.begin(source, target)
    await store.snapshot()
    with store.pin() as meta:
        await copier.ledgers(meta)
        whole = await snapshot_format.load(source, meta.d, store.incarnation)
    alone = msgspec.structs.replace(
        whole.meta, journal=1, journal_offset=PAGE, journal_d=meta.d, cut=True, proven=True
    )
    data = b"".join(snapshot_format.pack(alone, whole.parts, store.incarnation))
    await copier.put(snapshot_path(meta.d), data)
    return await copier.finish(Contents(meta.d, store.incarnation, False, copier.files))


class _Copier:
    """Copies files one by one, and records their checksums."""

    def __init__(self, source: Disk, target: Disk) -> None:
        self._source = source
        self._target = target
        self.files: list[Item] = []
        self.ledger_count = 0

    @classmethod
    async def begin(cls, source: Disk, target: Disk) -> _Copier:
        await _make_directories(target)
        return cls(source, target)

    async def ledgers(self, meta: Meta) -> None:
        for file, extent in meta.extents().items():
            await self.copy(file.data_path, extent.size)
            await self.copy(file.index_path, extent.index_size)
            self.ledger_count += 1

    async def copy(self, path: str, size: int | None = None) -> None:
        """Copy the first `size` bytes, or all."""
        async with opened(self._source, path) as file:
            whole = await file.size() if size is None else size
            self.files.append(await _copy(file, path, whole, self._target))
        at("backup_copied")

    async def put(self, path: str, data: bytes) -> None:
        self.files.append(Item(path, len(data), crc32c(data)))
        await write_file(self._target, path, data)

    async def finish(self, contents: Contents) -> Copied:
        for directory in (*DIRECTORIES, ""):
            await self._target.sync_directory(directory)
        header = file_header(FileKind.BACKUP, contents.d, contents.incarnation)
        block = seal_block(BlockKind.PART, 0, 0, msgspec.msgpack.encode(contents))
        await write_named_last(self._target, LIST, LIST + NEW, header + block)
        return _report(contents, self.ledger_count)


def _report(contents: Contents, ledgers: int) -> Copied:
    size = sum(item.size for item in contents.files)
    return Copied(contents.d, len(contents.files), size, ledgers)


# -- restore ------------------------------------------------------------------------------------------


async def restore_disk(source: Disk, target: Disk, journal_bytes: int | None = None) -> Copied:
    """Like `restore`, on any disks."""
    contents = await read_list(source)
    await _make_directories(target)
    ledgers = 0
    for item in contents.files:
        _require_inside(item.path)
        try:
            async with opened(source, item.path) as file:
                copied = await _copy(file, item.path, item.size, target)
        except FileNotFoundError:
            raise Corrupt(f"{item.path} is missing in the backup; use another copy") from None
        if copied.crc != item.crc:
            raise Corrupt(
                f"{item.path} at offset 0: its {item.size} bytes do not match the checksum; "
                "use another copy of the backup"
            )
        ledgers += item.path.endswith(".data")
        at("restore_copied")
    if not contents.has_journal:
        files = JournalFiles(target, contents.incarnation, journal_bytes or StoreOptions().journal_bytes)
        await (await files.create(1)).close()
    for directory in DIRECTORIES:
        await target.sync_directory(directory)
    await recovery.write_format(target, contents.incarnation)
    examination = await examine_disk(target)
    if not examination.sound:
        raise Corrupt(f"the backup was damaged before it was taken: {examination.faults[0]}")
    return _report(contents, ledgers)


async def read_list(source: Disk) -> Contents:
    """Return the contents of a backup.

    Raises:
        Corrupt: the list is damaged.
    """
    data = await read_file(source, LIST)
    header = read_file_header(data[:FILE_HEADER])
    block = open_block(data, FILE_HEADER)
    if header is None or isinstance(block, str):
        raise Corrupt(f"{LIST} at offset {FILE_HEADER}: the list of files is damaged; use another copy")
    require_header(LIST, data[:FILE_HEADER], FileKind.BACKUP, header[2], header[3])
    start = FILE_HEADER + BLOCK_HEADER
    try:
        return msgspec.msgpack.decode(data[start : start + block[3]], type=Contents)
    except msgspec.DecodeError as error:
        what = f"{LIST} at offset {start}: the list of files is damaged ({error}); use another copy"
        raise Corrupt(what) from None


def _require_inside(path: str) -> None:
    """Refuse paths outside the directory: a list may come from anywhere."""
    directory, _, name = path.partition("/")
    if directory not in DIRECTORIES or not name or "/" in name or name.startswith("."):
        raise Corrupt(f"{LIST}: {path!r} is not a file of a data directory; do not use this backup")


async def _make_directories(target: Disk) -> None:
    """Create the directories of a store in an empty target."""
    names = await target.list("")
    if names:
        raise Exists(f"the target is not empty ({', '.join(names[:3])}); use a new directory")
    for directory in DIRECTORIES:
        await target.make_directory(directory)


# -- bytes --------------------------------------------------------------------------------------------


async def _copy(file: File, path: str, size: int, target: Disk) -> Item:
    """Copy the first `size` bytes, and sync them.

    Raises:
        Corrupt: the file is shorter.
    """
    done, crc = 0, 0
    async with opened(target, path, create=True) as out:
        while done < size:
            data = await file.read(done, min(CHUNK, size - done))
            if not data:
                raise Corrupt(f"{path} ends at offset {done}, but {size} bytes were expected")
            await write_all(out, done, data)
            crc = crc32c(data, crc)
            done += len(data)
        await out.sync()
    return Item(path, size, crc)
