"""Replace a simulated directory by another one, with a fault at any operation."""

from __future__ import annotations

import errno
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import cache
from typing import Any

from holdfast.broker.broker import Broker
from holdfast.ledger.copies import Install, Item, survey
from holdfast.system import Disk, opened, read_file
from tests.kit.cluster.storm import OPTIONS
from tests.kit.ledger.sim_store import SimFiles
from tests.kit.sim import SimDisk, SimLoop
from tests.kit.sim.disk import Platter
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.world import SimClock

FOLDERS = ("journal", "ledgers", "snapshots")
MARK = b"the mark"


class Two:
    """A closed broker's directory, and one that is replaced by it."""

    def __init__(self, seed: int, older: bool = True) -> None:
        self.loop = SimLoop(SeededRandomness(seed, "loop"))  # type: ignore[abstract]  # it has no sockets
        self.source = Platter(SeededRandomness(seed, "source"))
        self.target = Platter(SeededRandomness(seed, "target"))
        self.run(self._fill(self.source, 30))
        if older:
            self.run(self._fill(self.target, 5))
        self.files: dict[str, bytes] = self.run(self._read(SimDisk(self.source)))
        self.before: dict[str, bytes] = self.run(self._read(SimDisk(self.target))) if older else {}
        self.incarnation: bytes = self.run(survey(SimDisk(self.source))).incarnation

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return copy_context().run(self.loop.run_until_complete, work)

    async def _fill(self, platter: Platter, count: int) -> None:
        disk, clock = SimDisk(platter), SimClock(self.loop, 0)
        random = SeededRandomness(count, "tokens")
        files = SimFiles(disk, clock)
        broker = await Broker.start(None, OPTIONS, disk=disk, files=files, clock=clock, random=random)
        async with broker.producer("kept") as producer:
            for number in range(count):
                await producer.send(b"%d" % number)
        await broker.close()

    @staticmethod
    async def _read(disk: Disk) -> dict[str, bytes]:
        """Return the contents of all files that a copy has."""
        return {
            f"{folder}/{name}": await read_file(disk, f"{folder}/{name}")
            for folder in FOLDERS
            for name in await disk.list(folder)
            if not name.startswith("spare")
        }

    async def install(self) -> int:
        """Replace the target; return how many bytes were sent."""
        disk, source, sent = SimDisk(self.target), SimDisk(self.source), 0
        items = [Item(path, len(data)) for path, data in sorted(self.files.items())]
        install = Install(disk)
        await install.begin(MARK, self.incarnation, [item.path for item in items])
        for item in items:
            have, _ = await install.have(item.path, item.size)
            same = have and self.files[item.path][:have] == (await read_file(disk, item.path))[:have]
            at = start = have if same else 0
            async with opened(source, item.path) as file:

                async def receive() -> bytes:
                    nonlocal at, sent
                    data = await file.read(at, 700)
                    at, sent = at + len(data), sent + len(data)
                    return data

                await install.put(item.path, item.size, start, receive)
        await install.finish()
        return sent

    def crash_at(self, operation: int, survival: float | None) -> None:
        """Install until an operation fails, then lose the power."""
        self.target.fail(operation, errno.EIO)
        with suppress(OSError):
            self.run(self.install())
        self.target.mend()
        self.target.crash(survival)

    def ending(self) -> str:
        """Return what the target is: `marked`, `whole` or as `before`. Nothing else may be (I231)."""
        disk = SimDisk(self.target)
        if "incomplete" in self.run(disk.list("")):
            return "marked"
        found = self.run(self._read(disk))
        if found == self.files and self.run(survey(disk)).incarnation == self.incarnation:
            return "whole"
        same = found == self.before and self.run(survey(disk)).incarnation != self.incarnation
        assert same, "not marked, and neither the copy nor what was there before"
        return "before"

    def close(self) -> None:
        self.loop.close()


@cache
def operations() -> int:
    """Return how many operations an install has."""
    two = Two(1)
    before = two.target.operations
    two.run(two.install())
    count = two.target.operations - before
    two.close()
    return count
