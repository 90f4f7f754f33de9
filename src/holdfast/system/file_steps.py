"""Operations on files of any disk: open and close, read, write, remove."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.system.disk import Disk, File


@asynccontextmanager
async def opened(disk: Disk, path: str, create: bool = False) -> AsyncIterator[File]:
    """Open a file, and close it at the end."""
    file = await disk.open(path, create)
    try:
        yield file
    finally:
        await file.close()


async def read_file(disk: Disk, path: str, offset: int = 0, size: int | None = None) -> bytes:
    """Read `size` bytes, or all of them; fewer at the end of the file."""
    async with opened(disk, path) as file:
        return await file.read(offset, await file.size() if size is None else size)


async def write_all(file: File, offset: int, data: bytes) -> None:
    """Write all bytes; continue after a short write."""
    written = 0
    while written < len(data):
        step = await file.write(offset + written, data[written:] if written else data)
        if step <= 0:
            raise OSError(5, "a write to the disk wrote nothing")
        written += step


async def write_file(disk: Disk, path: str, *pieces: bytes) -> int:
    """Create or replace a file, synced. Return its size."""
    await remove(disk, path)
    at = 0
    async with opened(disk, path, create=True) as file:
        for piece in pieces:
            await write_all(file, at, piece)
            at += len(piece)
        await file.sync()
    return at


async def write_named_last(disk: Disk, path: str, unfinished: str, *pieces: bytes) -> None:
    """Write a file of the top directory durably. It is named when complete."""
    await write_file(disk, unfinished, *pieces)
    await disk.rename(unfinished, path)
    await disk.sync_directory("")


async def remove(disk: Disk, path: str) -> bool:
    """Unlink a file that may not be there. Return whether it was."""
    try:
        await disk.unlink(path)
    except FileNotFoundError:
        return False
    return True
