"""Damage to files, done systematically: what a crash, a bad disk or a bad copy may leave of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Damage:
    """One way in which a file is not what it was."""

    name: str
    offset: int
    data: bytes | None
    """Written there; None: the file ends there."""

    def to(self, content: bytes) -> bytes:
        """The file with it."""
        if self.data is None:
            return content[: self.offset]
        return content[: self.offset] + self.data + content[self.offset + len(self.data) :]


def cuts(offset: int, size: int, step: int = 1) -> Iterator[Damage]:
    """The file ends at every byte of a stretch."""
    for at in range(offset, offset + size, step):
        yield Damage(f"cut at {at}", at, None)


def zeros(offset: int, size: int, step: int = 1) -> Iterator[Damage]:
    """From every byte of a stretch to its end there are zeros: written in part."""
    for at in range(offset, offset + size, step):
        yield Damage(f"zeros from {at}", at, bytes(offset + size - at))


def leading_zeros(offset: int, size: int, step: int = 1) -> Iterator[Damage]:
    """From its beginning up to every byte there are zeros: written in part, the end first."""
    for at in range(1, size + 1, step):
        yield Damage(f"zeros up to {offset + at}", offset, bytes(at))


def flips(content: bytes, offset: int, size: int) -> Iterator[Damage]:
    """Every bit of a stretch."""
    for at in range(offset, offset + size):
        for bit in range(8):
            yield Damage(f"bit {bit} of {at}", at, bytes([content[at] ^ 1 << bit]))


class MemoryFile:
    """A `File` in memory; everything is durable at once."""

    def __init__(self, content: bytearray) -> None:
        self.content = content

    async def read(self, offset: int, size: int) -> bytes:
        return bytes(self.content[offset : offset + size])

    async def write(self, offset: int, data: bytes) -> int:
        self.content.extend(bytes(max(0, offset - len(self.content))))
        self.content[offset : offset + len(data)] = data
        return len(data)

    async def sync(self) -> None:
        pass

    async def preallocate(self, size: int) -> None:
        self.content.extend(bytes(max(0, size - len(self.content))))

    async def truncate(self, size: int) -> None:
        del self.content[size:]
        await self.preallocate(size)

    async def size(self) -> int:
        return len(self.content)

    async def close(self) -> None:
        pass


class MemoryDisk:
    """A `Disk` in memory, made from a directory: thousands of damages in the time of one."""

    def __init__(self, files: dict[str, bytes], directories: tuple[str, ...]) -> None:
        self.files = {path: bytearray(content) for path, content in files.items()}
        self.directories = {"", *directories}

    @staticmethod
    def contents(root: Path) -> dict[str, bytes]:
        return {
            path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
        }

    async def open(self, path: str, create: bool = False) -> MemoryFile:
        if create and path in self.files:
            raise FileExistsError(path)
        if not create and path not in self.files:
            raise FileNotFoundError(path)
        return MemoryFile(self.files.setdefault(path, bytearray()))

    async def rename(self, source: str, target: str) -> None:
        self.files[target] = self.files.pop(source)

    async def unlink(self, path: str) -> None:
        if path not in self.files:
            raise FileNotFoundError(path)
        del self.files[path]

    async def list(self, path: str) -> list[str]:
        below = f"{path}/" if path else ""
        names = [each for each in (*self.files, *self.directories) if each.startswith(below) and each != path]
        return sorted({name[len(below) :].partition("/")[0] for name in names})

    async def make_directory(self, path: str) -> None:
        self.directories.add(path)

    async def sync_directory(self, path: str) -> None:
        pass

    async def sizes(self, path: str) -> dict[str, int]:
        below = f"{path}/" if path else ""
        return {
            name[len(below) :]: len(content)
            for name, content in sorted(self.files.items())
            if name.startswith(below) and "/" not in name[len(below) :]
        }

    async def free(self) -> int:
        return 1 << 40

    async def lock(self, path: str) -> MemoryLock:
        return MemoryLock()


class MemoryLock:
    async def release(self) -> None:
        pass
