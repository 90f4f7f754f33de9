"""The disk as an interface, so that a simulation can break it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import fcntl
import functools
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.errors import Locked

Answer = TypeVar("Answer")

_NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems that do not lock directories."""


class File(Protocol):
    """An open file. Errors are `OSError` with the errno of the system."""

    async def read(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer at the end of the file."""

    async def write(self, offset: int, data: bytes) -> int:
        """Write, and return how many bytes were written: possibly fewer. Not durable before `sync`."""

    async def sync(self) -> None:
        """Make all writes that returned before this call durable, and the file's size.

        After a failure their state is unknown, and a later success does not cover them.
        """

    async def preallocate(self, size: int) -> None:
        """Reserve room up to `size`, filled with zeros; the file is at least that long."""

    async def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""

    async def size(self) -> int:
        """Return the size in bytes."""

    async def close(self) -> None:
        """Close the file. This makes nothing durable."""


class Lock(Protocol):
    """The lock of a directory. It ends with the process."""

    async def release(self) -> None:
        """Release the lock. A second call does nothing."""

    async def is_held(self) -> bool:
        """Return `False` if other code closed its descriptor or moved the directory."""


class Disk(Protocol):
    """A directory of files, and of directories. Paths are relative, with `/`.

    A name that was created, moved or removed is durable after `sync_directory` of its directory.

    Example:
        >>> import asyncio, tempfile
        >>> async def main(disk: Disk) -> None:
        ...     file = await disk.open("journal.new", create=True)
        ...     await file.write(0, b"block")
        ...     await file.sync()
        ...     await file.close()
        ...     await disk.rename("journal.new", "journal")
        ...     await disk.sync_directory("")
        ...     print(await disk.list(""))
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(SystemDisk(path)))
        ['journal']
    """

    async def open(self, path: str, create: bool = False) -> File:
        """Open for reading and writing.

        With `create` the file must not exist yet; without it, it must.
        """

    async def rename(self, source: str, target: str) -> None:
        """Rename atomically; an existing target is replaced."""

    async def unlink(self, path: str) -> None:
        """Remove a name; a process that has the file open keeps it."""

    async def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    async def make_directory(self, path: str) -> None:
        """Create a directory, whose parent must exist."""

    async def sync_directory(self, path: str) -> None:
        """Make the names in this directory durable."""

    async def sizes(self, path: str) -> dict[str, int]:
        """Return the files in a directory and their sizes in bytes, sorted by name."""

    async def free(self) -> int:
        """Return how many more bytes fit on this disk. Other processes may take them first."""

    async def is_named(self, path: str, file: File) -> bool:
        """Return whether a path still names an open file, which was not removed or replaced."""

    async def lock(self, path: str) -> Lock:
        """Lock a file, which is created if missing.

        Raises:
            Locked: another process holds the lock; the error names the process.
        """


async def in_thread(
    function: Callable[..., Answer], *arguments: Any, undo: Callable[[Answer], object] | None = None
) -> Answer:
    """Call a function in a thread.

    A cancelled caller still waits for the end. Otherwise a write could land in another file that has the
    descriptor by then. `undo` gets a result that the cancelled caller does not take.
    """
    # Not a task: a loop that ends cancels all tasks, and the result would be lost.
    work = functools.partial(contextvars.copy_context().run, function, *arguments)
    call = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        while not call.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({call})
        if not call.cancelled() and call.exception() is None and undo is not None:
            undo(call.result())
        raise


class SystemFile:
    """A file of the operating system. Calls run in a thread, beside the event loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._file = _identity(os.fstat(descriptor))

    async def read(self, offset: int, size: int) -> bytes:
        return await in_thread(os.pread, self._descriptor, size, offset)

    async def write(self, offset: int, data: bytes) -> int:
        return await in_thread(os.pwrite, self._descriptor, data, offset)

    async def sync(self) -> None:
        await in_thread(os.fdatasync, self._descriptor)

    async def preallocate(self, size: int) -> None:
        await in_thread(os.posix_fallocate, self._descriptor, 0, size)

    async def truncate(self, size: int) -> None:
        await in_thread(os.ftruncate, self._descriptor, size)

    def fileno(self) -> int:
        """Return the descriptor, for the core's writer."""
        return self._descriptor

    async def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    async def close(self) -> None:
        if _is_open(self._descriptor, self._file):  # otherwise another file may have this number
            os.close(self._descriptor)


def _holder_of(file: os.stat_result) -> str:
    """Return pid and program of the process that locks this file; empty if unknown."""
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()  # 7: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF
            if words[1:2] == ["FLOCK"] and words[5:6] == [place] and words[4].isdigit():
                program = Path(f"/proc/{words[4]}/comm").read_text().strip()
                return f"{words[4]} {program}"
    return ""


class SystemLock:
    """A lock of the kernel on open files, which ends with their last process.

    There are two: the lock file, which names the holder, and the directory itself. If other code removes or
    replaces the file, its lock has no effect any more. A forked process closes both, so that it does not hold
    them for a parent that has ended.
    """

    def __init__(self, descriptors: list[int], path: Path) -> None:
        self._descriptors = descriptors
        self._path = path
        self._files = [_identity(os.fstat(each)) for each in descriptors]
        _held_locks.add(self)

    @classmethod
    def take(cls, path: Path) -> SystemLock:
        descriptors: list[int] = []
        try:
            descriptors.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            fcntl.flock(descriptors[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            descriptors.append(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            cls._lock_directory(descriptors[1])
            os.ftruncate(descriptors[0], 0)
            os.pwrite(descriptors[0], f"{os.getpid()} {Path(sys.argv[0]).name}\n".encode(), 0)
            return cls(descriptors, path)
        except BlockingIOError:
            holder = os.pread(descriptors[0], 200, 0).decode(errors="replace").strip()
            if not holder:  # the holder's lock file was removed, and this one is new
                holder = _holder_of(os.fstat(descriptors[-1]))
            cls._close(descriptors)
            raise cls._held(path, holder) from None
        except BaseException:
            cls._close(descriptors)
            raise

    @staticmethod
    def _lock_directory(descriptor: int) -> None:
        """Lock a directory if the file system can; NFS has the lock file only."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise

    @staticmethod
    def _close(descriptors: list[int]) -> None:
        for each in descriptors:
            os.close(each)

    @staticmethod
    def _held(path: Path, holder: str) -> Locked:
        """Name the holder as it wrote itself into the lock file; the kernel decides."""
        number, _, program = holder.partition(" ")
        who = f"process {number} ({program})" if number.isdigit() else "another process"
        error = Locked(f"{path.parent} is held by {who}; stop it, or use another directory")
        with contextlib.suppress(ValueError):
            error.pid = int(number)
        return error

    async def is_held(self) -> bool:
        """Return whether the lock is held, and its path still leads to the directory."""
        if not self._descriptors or not all(map(_is_open, self._descriptors, self._files)):
            return False
        try:
            return _identity(self._path.parent.stat()) == self._files[1]
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # the system cannot tell at the moment
            return True

    async def release(self) -> None:
        self.drop()

    def drop(self) -> None:
        _held_locks.discard(self)
        descriptors, self._descriptors = self._descriptors, []
        for each, file in zip(descriptors, self._files, strict=True):
            if _is_open(each, file):  # otherwise another file may have this number
                os.close(each)
        self._files = []


_held_locks: weakref.WeakSet[SystemLock] = weakref.WeakSet()


def _drop_in_child() -> None:
    """Close without unlocking: the lock is the parent's."""
    for lock in list(_held_locks):
        lock.drop()


os.register_at_fork(after_in_child=_drop_in_child)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_open(descriptor: int, file: tuple[int, int]) -> bool:
    """Return whether a descriptor is still that file's; other code may have closed it."""
    try:
        return _identity(os.fstat(descriptor)) == file
    except OSError:
        return False


class SystemDisk:
    """A directory of the operating system."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    async def open(self, path: str, create: bool = False) -> SystemFile:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if create else 0)
        return SystemFile(await in_thread(os.open, self._root / path, flags, 0o600, undo=os.close))

    async def rename(self, source: str, target: str) -> None:
        await in_thread((self._root / source).rename, self._root / target)

    async def unlink(self, path: str) -> None:
        await in_thread((self._root / path).unlink)

    async def list(self, path: str) -> list[str]:
        return sorted(await in_thread(os.listdir, self._root / path))

    async def make_directory(self, path: str) -> None:
        await in_thread((self._root / path).mkdir, 0o700)

    async def sync_directory(self, path: str) -> None:
        await in_thread(self._sync_directory, self._root / path)

    async def sizes(self, path: str) -> dict[str, int]:
        return await in_thread(self._sizes, self._root / path)

    async def free(self) -> int:
        found = await in_thread(os.statvfs, self._root)
        return found.f_bavail * found.f_frsize

    async def is_named(self, path: str, file: File) -> bool:
        assert isinstance(file, SystemFile)
        return await in_thread(self._is_named, self._root / path, file.fileno())

    async def lock(self, path: str) -> SystemLock:
        return await in_thread(SystemLock.take, self._root / path, undo=SystemLock.drop)

    @staticmethod
    def _is_named(path: Path, descriptor: int) -> bool:
        try:
            return _is_open(descriptor, _identity(path.lstat()))
        except FileNotFoundError:
            return False

    @staticmethod
    def _sizes(path: Path) -> dict[str, int]:
        with os.scandir(path) as entries:
            found = {
                entry.name: entry.stat(follow_symlinks=False).st_size
                for entry in entries
                if entry.is_file(follow_symlinks=False)
            }
        return dict(sorted(found.items()))

    @staticmethod
    def _sync_directory(path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
