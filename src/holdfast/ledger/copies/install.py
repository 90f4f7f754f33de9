"""Replace a directory by a copy of another member's, under a durable mark.

```
 mark `incomplete` synced ─► files that the copy does not have are removed ─► files written, each synced
        ─► names synced ─► (served, while the rest of the ledgers is written) ─► mark removed, synced
```

A crash at any step leaves the mark: the directory is not elected, does not count for stability, and the next
start copies again. Ledgers that are equal stay, and are not sent again (**I234**).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from holdfast._core import crc32c
from holdfast.errors import Corrupt
from holdfast.ledger import recovery
from holdfast.ledger.layout import (
    DIRECTORIES,
    FORMAT,
    INCOMPLETE,
    JOURNAL,
    LEDGERS,
    NEW,
    SNAPSHOTS,
    SURVIVOR,
    TOPICS,
    LedgerFile,
    number_of,
)
from holdfast.ledger.snapshot import format as snapshot_format
from holdfast.ledger.snapshot.format import Snapshot
from holdfast.system import Disk, File, opened, remove, write_all, write_named_last

CHUNK = 1 << 20
"""Bytes that are in memory at a time."""


def require_file(path: str) -> None:
    """Refuse a path that is not one of a copy: ledgers, a snapshot, the journal."""
    directory, _, name = path.partition("/")
    known = number_of(name) is not None if directory in (JOURNAL, SNAPSHOTS) else False
    if not known and not (directory == LEDGERS and LedgerFile.parse(name)):
        raise Corrupt(f"another member sent the path {path!r}, which is not a file of a store; update it")


async def prefix_crc(disk: Disk, path: str, size: int) -> int:
    """Return the checksum of a file's first bytes.

    Raises:
        Corrupt: the file is shorter.
    """
    async with opened(disk, path) as file:
        return await file_crc(file, path, size)


async def file_crc(file: File, path: str, size: int) -> int:
    """Return the checksum of an open file's first bytes.

    Raises:
        Corrupt: the file is shorter.
    """
    crc = done = 0
    while done < size:
        data = await file.read(done, min(CHUNK, size - done))
        if not data:
            raise Corrupt(f"{path} ends at offset {done}, but {size} bytes were expected")
        crc = crc32c(data, crc)
        done += len(data)
    return crc


class Install:
    """One replacement of a directory. `begin`, then `put` each file, then `finish`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sizes: dict[str, int] = {}

    async def begin(self, mark: bytes, incarnation: bytes, keep: Iterable[str]) -> None:
        """Write the mark, then remove all files that the copy does not have."""
        disk, names = self._disk, set(await self._disk.list(""))
        await write_named_last(disk, INCOMPLETE, INCOMPLETE + NEW, mark)
        await remove(disk, SURVIVOR)  # it was about the old contents; `finish` makes it durable
        for directory in DIRECTORIES:
            if directory not in names:
                await disk.make_directory(directory)
        same = FORMAT in names and await self._incarnation() == incarnation
        kept = set(keep) if same else set()
        for directory in (SNAPSHOTS, JOURNAL, LEDGERS, *(() if same else (TOPICS,))):
            for name, size in (await disk.sizes(directory)).items():
                path = f"{directory}/{name}"
                if directory == LEDGERS and path in kept:
                    self._sizes[path] = size
                else:
                    await disk.unlink(path)
        if not same:
            await recovery.write_format(disk, incarnation)

    async def _incarnation(self) -> bytes:
        try:
            return await recovery.read_format(self._disk)
        except Corrupt:
            return b""

    async def snapshot(self, path: str) -> Snapshot:
        """Read a snapshot that was put here.

        Raises:
            Corrupt: it is not whole.
        """
        number = number_of(path.rpartition("/")[2])
        assert number is not None
        return await snapshot_format.load(self._disk, number, await self._incarnation())

    async def have(self, path: str, size: int) -> tuple[int, int]:
        """Return how much of a file is here already, at most `size`, and its checksum.

        Raises:
            Corrupt: no file of a copy has this path, or this size.
        """
        require_file(path)
        if size < 0:
            raise Corrupt(f"another member says that {path} has {size} bytes; update it")
        here = min(self._sizes.get(path, 0), size)
        return (here, await prefix_crc(self._disk, path, here)) if here else (0, 0)

    async def put(self, path: str, size: int, start: int, receive: Callable[[], Awaitable[bytes]]) -> int:
        """Write a file from `start` on, and sync it; return the checksum of new bytes."""
        require_file(path)
        crc, done = 0, start
        async with await self._open(path, start) as file:
            try:
                while done < size:
                    data = await receive()
                    if not data or done + len(data) > size:
                        raise Corrupt(
                            f"another member sent {len(data)} bytes at offset {done} of {path}; update it"
                        )
                    await write_all(file, done, data)
                    crc = crc32c(data, crc)
                    done += len(data)
            finally:
                self._sizes[path] = done
            try:
                await file.sync()
            except OSError:  # a later sync would not cover these bytes
                await self.discard(path)
                raise
        return crc

    async def discard(self, path: str) -> None:
        """Remove a file that is not what it should be, or that is not needed."""
        self._sizes.pop(path, None)
        await remove(self._disk, path)

    async def _open(self, path: str, start: int) -> _Opened:
        if path in self._sizes and start:
            file = await self._disk.open(path)
            if self._sizes[path] > start:
                await file.truncate(start)
        else:
            await remove(self._disk, path)
            file = await self._disk.open(path, create=True)
        return _Opened(file)

    async def finish(self) -> None:
        """Make all names durable, then remove the mark."""
        await self.settle()
        await self._disk.unlink(INCOMPLETE)
        await self._disk.sync_directory("")

    async def keep_ledgers(self) -> None:
        """Make the names of ledgers durable: after a power cut they are not sent again."""
        await self._disk.sync_directory(LEDGERS)

    async def settle(self) -> None:
        """Make all names durable."""
        for directory in (*DIRECTORIES, ""):
            await self._disk.sync_directory(directory)


class _Opened:
    """A file that closes at the end of a block."""

    def __init__(self, file: File) -> None:
        self._file = file

    async def __aenter__(self) -> File:
        return self._file

    async def __aexit__(self, *_: object) -> None:
        await self._file.close()
