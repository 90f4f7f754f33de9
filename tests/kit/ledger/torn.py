"""Systematic damage to files, as crashes, bad disks and bad copies leave it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import Corrupt, LayoutMismatch
from holdfast.ledger.journal.scan import parse_round
from holdfast.ledger.layout import DIRECTORIES, PAGE, journal_path, salt_of
from holdfast.ledger.store import Store
from holdfast.system import File, SystemClock
from tests.kit.ledger.sim_store import SimFiles
from tests.kit.ledger.store_world import SMALL, Life, SystemWorld, Toy
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.slices import pick

BITS = pick(test=1, nightly=8)
"""How many bits of each byte `flips` tries."""
ROUND_HEADER = 96


@dataclass(frozen=True)
class Damage:
    """A change to a file."""

    name: str
    offset: int
    data: bytes | None
    """Bytes written there; `None`: the file ends there."""

    def to(self, content: bytes) -> bytes:
        """Return the file with this damage."""
        if self.data is None:
            return content[: self.offset]
        return content[: self.offset] + self.data + content[self.offset + len(self.data) :]


def cuts(offset: int, size: int, step: int = 1) -> Iterator[Damage]:
    """End the file at every byte of a range."""
    for at in range(offset, offset + size, step):
        yield Damage(f"cut at {at}", at, None)


def zeros(offset: int, size: int, step: int = 1) -> Iterator[Damage]:
    """Write zeros from every byte of a range to its end, like an incomplete write."""
    for at in range(offset, offset + size, step):
        yield Damage(f"zeros from {at}", at, bytes(offset + size - at))


def leading_zeros(offset: int, size: int, step: int = 1) -> Iterator[Damage]:
    """Write zeros up to every byte of a range, as if written backwards."""
    for at in range(1, size + 1, step):
        yield Damage(f"zeros up to {offset + at}", offset, bytes(at))


def flips(content: bytes, offset: int, size: int) -> Iterator[Damage]:
    """Flip bits of each byte of a range: all, or one that differs by byte."""
    for at in range(offset, offset + size):
        for bit in range(8) if BITS == 8 else [at * 3 % 8]:
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
    """A `Disk` in memory, copied from a directory, for thousands of damages."""

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

    async def is_named(self, path: str, file: File) -> bool:
        return True

    async def lock(self, path: str) -> MemoryLock:
        return MemoryLock()


class MemoryLock:
    async def is_held(self) -> bool:
        return True

    async def release(self) -> None:
        pass


class Rounds:
    """A directory with six rounds in its first journal file, and their places."""

    def __init__(self, path: Path, snapshot_after: int = 0) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.world = SystemWorld(path, native=True)
        self.states: dict[int, str] = {}

        async def use(life: Life) -> None:
            for n in range(6):
                await life.until(life.mixture(n, size=150))
                if snapshot_after and n + 1 == snapshot_after:
                    await life.store.snapshot()
            self.states.update(life.oracle.states)

        self.world.live(use, close=False)
        self.journal = path / journal_path(1)
        self.content = self.journal.read_bytes()
        self.salt = salt_of((path / "holdfast").read_bytes()[48:64])
        self.places: list[tuple[int, int]] = []
        """(offset, bytes in use) of each round."""
        at = PAGE
        while (header := parse_round(self.content[at : at + ROUND_HEADER], self.salt)) is not None:
            self.places.append((at, ROUND_HEADER + header.size))
            at += header.space

    def open(self, damage: Damage | None = None, path: str = journal_path(1)) -> tuple[int, str] | str:
        """Open a damaged copy; return last D and state, or the error."""
        files = MemoryDisk.contents(self.path)
        if damage is not None:
            files[path] = damage.to(files[path])
        return self.open_files(files)

    def open_files(self, files: dict[str, bytes]) -> tuple[int, str] | str:
        disk = MemoryDisk(files, DIRECTORIES)
        loop = asyncio.new_event_loop()
        try:
            outcomes = [loop.run_until_complete(self._open(disk)) for _ in range(2)]
        finally:
            loop.close()
        assert outcomes[0] == outcomes[1], "the second attempt finds the same (I36)"
        return outcomes[0]

    async def _open(self, disk: MemoryDisk) -> tuple[int, str] | str:
        clock, randomness = SystemClock(), SeededRandomness(1)
        try:
            files = SimFiles(disk, clock)
            store = await Store.open(disk, clock=clock, randomness=randomness, options=SMALL, files=files)
        except (Corrupt, LayoutMismatch) as error:
            return str(error)
        try:
            machine = Toy()
            found = await store.recover(machine)
            assert machine.log.next_d == found.last_d + 1
            return found.last_d, machine.state()
        except (Corrupt, LayoutMismatch) as error:
            return str(error)
        finally:
            await store.close(clean=False)

    def try_all(self, damages: Iterable[Damage], path: str = journal_path(1)) -> dict[str, int]:
        """Try each damage; no state may appear that never existed."""
        files = MemoryDisk.contents(self.path)
        seen: dict[str, int] = {}
        for damage in damages:
            outcome = self.open_files({**files, path: damage.to(files[path])})
            if isinstance(outcome, str):
                kind = "told"
                assert path in outcome, f"{damage.name}: no file in {outcome!r}"
                assert "offset" in outcome or "missing" in outcome, f"{damage.name}: no place in {outcome!r}"
            else:
                last_d, state = outcome
                assert state == self.states[last_d], f"{damage.name}: a state that never was"
                kind = f"up to {last_d}"
            seen[kind] = seen.get(kind, 0) + 1
        return seen
