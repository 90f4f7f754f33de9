"""A simulated disk: it loses unsynced writes, tears writes, fails, fills up, and is slow.

A `Platter` belongs to a node for good; a `SimDisk` is one life's access to it. After a crash a file has its
synced content, and of every later write any subset of its sectors. Of a directory's names, a prefix of the
changes since its last sync is kept. A failed sync loses the writes that it should have
covered at the next crash, even if a later sync succeeds, as on Linux.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from dataclasses import dataclass, field

from holdfast.errors import Locked
from holdfast.system.disk import File
from tests.kit.sim.randomness import SeededRandomness

SECTOR = 512
FREE_BYTES_MAX = 1 << 50
"""Free bytes of a platter without a limit."""


@dataclass
class _Change:
    """A change of a file: bytes at an offset, or a new size."""

    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
        else:
            content.extend(bytes(max(0, self.offset - len(content))))
            content[self.offset : self.offset + len(self.data)] = self.data

    def sectors(self) -> list[_Change]:
        """Return the pieces that reach the medium one by one."""
        if self.data is None:
            return [self]
        pieces, at = [], 0
        while at < len(self.data):
            size = SECTOR - (self.offset + at) % SECTOR
            pieces.append(_Change(self.offset + at, self.data[at : at + size]))
            at += size
        return pieces


@dataclass
class _Inode:
    content: bytearray = field(default_factory=bytearray)
    """The content that a reader sees."""
    durable: bytearray = field(default_factory=bytearray)
    """The content that a crash leaves for sure."""
    unsynced: list[_Change] = field(default_factory=list)
    settled: int = 0
    """How many changes left `unsynced`: syncs may overlap, and each covers earlier changes."""

    def change(self, change: _Change) -> None:
        change.apply(self.content)
        self.unsynced.append(change)

    def changes(self) -> int:
        return self.settled + len(self.unsynced)

    def take(self, upto: int) -> list[_Change]:
        taken = self.unsynced[: max(0, upto - self.settled)]
        del self.unsynced[: len(taken)]
        self.settled += len(taken)
        return taken


@dataclass
class _Directory:
    names: dict[str, _Inode | _Directory] = field(default_factory=dict)
    durable: dict[str, _Inode | _Directory] = field(default_factory=dict)
    unsynced: list[tuple[tuple[str, _Inode | _Directory | None], ...]] = field(default_factory=list)
    """Atomic changes of names, each as pairs of a name and its new node, or None."""
    settled: int = 0

    def change(self, *names: tuple[str, _Inode | _Directory | None]) -> None:
        self.unsynced.append(names)
        _rename(self.names, names)


def _rename(
    names: dict[str, _Inode | _Directory], changes: tuple[tuple[str, _Inode | _Directory | None], ...]
) -> None:
    for name, node in changes:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


@dataclass
class _Fault:
    countdown: int
    error: int | None
    """None: the write is short."""
    operation: str | None


class Platter:
    """A node's medium. It outlives the node's crashes.

    Example:
        >>> import asyncio
        >>> from tests.kit.sim import SimLoop
        >>> loop, platter = SimLoop(SeededRandomness(1)), Platter(SeededRandomness(1))
        >>> async def careless() -> None:
        ...     file = await SimDisk(platter).open("f", create=True)
        ...     await file.write(0, b"x" * 5000)
        >>> loop.run_until_complete(careless())
        >>> platter.crash(survival=0.0)
        >>> loop.run_until_complete(SimDisk(platter).list(""))
        []
        >>> loop.close()
    """

    def __init__(self, chance: SeededRandomness, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.delay_s = (20e-6, 200e-6)
        self.sync_delay_s = (200e-6, 5e-3)
        self.operations = 0
        """How many operations were started: the range for `fail`."""
        self.generation = 0
        self.locks: dict[str, SimLock] = {}
        self._chance = chance
        self._root = _Directory()
        self._faults: list[_Fault] = []

    def fail(self, nth: int, error: int, operation: str | None = None) -> None:
        """Fail the nth operation from now, of that name or of any."""
        self._faults.append(_Fault(nth, error, operation))

    def cut_short(self, nth: int) -> None:
        """Let the nth write from now write only a part."""
        self._faults.append(_Fault(nth, None, "write"))

    def slow(self, factor: float) -> None:
        """Multiply all delays from now on."""
        self.delay_s = (self.delay_s[0] * factor, self.delay_s[1] * factor)
        self.sync_delay_s = (self.sync_delay_s[0] * factor, self.sync_delay_s[1] * factor)

    def used_bytes(self) -> int:
        return sum(len(inode.content) for inode in self._inodes(self._root))

    def crash(self, survival: float | None = None) -> None:
        """Lose all unsynced changes except for a share; `None` draws the share."""
        self.generation += 1
        self.locks.clear()
        share = self._chance.fraction() if survival is None else survival
        self._crash_directory(self._root, share)

    def kill(self) -> None:
        """End the process, not the machine: its unsynced writes are still there."""
        self.generation += 1
        self.locks.clear()

    def mend(self) -> None:
        """Forget the faults that are to come."""
        self._faults.clear()

    def wipe(self) -> None:
        """Replace the medium by an empty one."""
        self.kill()
        self.mend()
        self._root = _Directory()

    def _crash_directory(self, directory: _Directory, share: float) -> None:
        kept = 0
        while kept < len(directory.unsynced) and self._chance.happens(share):
            _rename(directory.durable, directory.unsynced[kept])
            kept += 1
        directory.unsynced.clear()
        directory.names = dict(directory.durable)
        for node in directory.names.values():
            if isinstance(node, _Directory):
                self._crash_directory(node, share)
            else:
                for change in node.unsynced:
                    for piece in change.sectors():
                        if self._chance.happens(share):
                            piece.apply(node.durable)
                node.take(node.changes())
                node.content = bytearray(node.durable)

    # -- for SimDisk -----------------------------------------------------------------------------------

    async def operate(self, operation: str, generation: int) -> bool:
        """Take the time of an operation, or fail; return whether to cut a write short."""
        self.check(generation)
        self.operations += 1
        low, high = self.sync_delay_s if operation.startswith("sync") else self.delay_s
        fault = self._due_fault(operation)
        if fault is not None and fault.error is not None and operation != "sync":
            raise OSError(fault.error, os.strerror(fault.error))
        await asyncio.sleep(self._chance.between(low, high))
        self.check(generation)
        if fault is not None and fault.error is not None:
            raise OSError(fault.error, os.strerror(fault.error))
        return fault is not None

    def check(self, generation: int) -> None:
        if generation != self.generation:
            raise OSError(errno.ENODEV, "the node that opened this has crashed")

    def _due_fault(self, operation: str) -> _Fault | None:
        due = None
        for fault in self._faults:
            if fault.operation in (None, operation):
                fault.countdown -= 1
                due = fault if fault.countdown == 0 else due
        self._faults = [fault for fault in self._faults if fault.countdown > 0]
        return due

    def room_for(self, grown: int) -> int:
        """Return how many of `grown` further bytes fit."""
        if self.capacity_bytes is None or grown <= 0:
            return grown
        return max(0, min(grown, self.capacity_bytes - self.used_bytes()))

    def keeps_of_failed_sync(self) -> bool:
        return self._chance.happens(0.5)

    def find(self, path: str) -> tuple[_Directory, str]:
        """Return the directory of a path's last name, and that name."""
        *parents, name = path.split("/")
        directory = self._root
        for parent in parents:
            node = directory.names.get(parent)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not isinstance(node, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            directory = node
        return directory, name

    def directory(self, path: str) -> _Directory:
        return self.find(f"{path}/" if path else "")[0]

    def _inodes(self, directory: _Directory) -> list[_Inode]:
        found: deque[_Directory] = deque([directory])
        inodes = []
        while found:
            for node in found.popleft().names.values():
                if isinstance(node, _Directory):
                    found.append(node)
                else:
                    inodes.append(node)
        return inodes


class SimFile:
    """A `File` on a platter."""

    def __init__(self, platter: Platter, inode: _Inode) -> None:
        self._platter = platter
        self._generation = platter.generation
        self._inode = inode
        self._open = True

    async def read(self, offset: int, size: int) -> bytes:
        await self._operate("read")
        return bytes(self._inode.content[offset : offset + size])

    async def write(self, offset: int, data: bytes) -> int:
        short = await self._operate("write")
        size = len(data) // 2 if short else len(data)
        grown = offset + size - len(self._inode.content)
        size -= max(0, grown) - max(0, self._platter.room_for(grown))
        if size <= 0 < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._inode.change(_Change(offset, bytes(data[:size])))
        return size

    async def sync(self) -> None:
        covered = self._inode.changes()
        try:
            await self._operate("sync")
        except OSError:
            if self._generation == self._platter.generation:
                self._doom(covered)
            raise
        for change in self._inode.take(covered):
            change.apply(self._inode.durable)

    async def preallocate(self, size: int) -> None:
        await self._operate("preallocate")
        grown = size - len(self._inode.content)
        if grown > 0:
            if self._platter.room_for(grown) < grown:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._inode.change(_Change(size, None))

    async def truncate(self, size: int) -> None:
        await self._operate("truncate")
        self._inode.change(_Change(size, None))

    async def size(self) -> int:
        self._platter.check(self._generation)
        return len(self._inode.content)

    async def close(self) -> None:
        self._open = False

    async def _operate(self, operation: str) -> bool:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return await self._platter.operate(operation, self._generation)

    def _doom(self, covered: int) -> None:
        """Lose the changes of a failed sync: later syncs do not write them."""
        for change in self._inode.take(covered):
            if self._platter.keeps_of_failed_sync():
                change.apply(self._inode.durable)


class SimLock:
    """A `Lock` on a platter; a crash drops it."""

    def __init__(self, platter: Platter, path: str) -> None:
        self._platter = platter
        self._path = path

    async def is_held(self) -> bool:
        return True

    async def release(self) -> None:
        if self._platter.locks.get(self._path) is self:
            del self._platter.locks[self._path]


class SimDisk:
    """One life's `Disk` on a platter."""

    def __init__(self, platter: Platter) -> None:
        self._platter = platter
        self._generation = platter.generation

    async def open(self, path: str, create: bool = False) -> SimFile:
        await self._platter.operate("open", self._generation)
        directory, name = self._platter.find(path)
        node = directory.names.get(name)
        if create:
            if node is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            node = _Inode()
            directory.change((name, node))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return SimFile(self._platter, node)

    async def rename(self, source: str, target: str) -> None:
        await self._platter.operate("rename", self._generation)
        (here, old), (there, new) = self._platter.find(source), self._platter.find(target)
        node = here.names.get(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if here is there:
            here.change((old, None), (new, node))
        else:  # each directory is synced by itself, as in POSIX
            there.change((new, node))
            here.change((old, None))

    async def unlink(self, path: str) -> None:
        await self._platter.operate("unlink", self._generation)
        directory, name = self._platter.find(path)
        if name not in directory.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        directory.change((name, None))

    async def list(self, path: str) -> list[str]:
        await self._platter.operate("list", self._generation)
        return sorted(self._platter.directory(path).names)

    async def make_directory(self, path: str) -> None:
        await self._platter.operate("make_directory", self._generation)
        directory, name = self._platter.find(path)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        directory.change((name, _Directory()))

    async def sync_directory(self, path: str) -> None:
        directory = self._platter.directory(path)
        covered = directory.settled + len(directory.unsynced)
        await self._platter.operate("sync_directory", self._generation)
        taken = directory.unsynced[: max(0, covered - directory.settled)]
        for changes in taken:
            _rename(directory.durable, changes)
        del directory.unsynced[: len(taken)]
        directory.settled += len(taken)

    async def sizes(self, path: str) -> dict[str, int]:
        await self._platter.operate("list", self._generation)
        names = self._platter.directory(path).names
        return {name: len(node.content) for name, node in sorted(names.items()) if isinstance(node, _Inode)}

    async def free(self) -> int:
        self._platter.check(self._generation)
        return self._platter.room_for(FREE_BYTES_MAX)

    async def is_named(self, path: str, file: File) -> bool:
        """Return `True`: only its node removes files of a simulated disk."""
        return True

    async def lock(self, path: str) -> SimLock:
        await self._platter.operate("lock", self._generation)
        if path in self._platter.locks:
            raise Locked(f"{path} is held by another part of this node; stop it, or use another directory")
        lock = self._platter.locks[path] = SimLock(self._platter, path)
        return lock
