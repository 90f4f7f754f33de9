"""Worlds for a broker: real files in real time, or simulated disks in virtual time.

In both, `holds` checks from outside whether bytes would survive a crash.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.broker.broker import Broker
from holdfast.broker.options import BrokerOptions
from holdfast.system import Clock, SystemClock
from tests.kit.ledger.sim_store import SimFiles
from tests.kit.sim import SimDisk, SimLoop
from tests.kit.sim.disk import Platter
from tests.kit.sim.loop import CURRENT, Life
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.world import SimClock

T = TypeVar("T")
OPTIONS: dict[str, Any] = {
    "housekeeping_s": 3600.0,
    "reset_timeout_s": 5.0,
    "reserve_bytes": 4096,
    "journal_bytes": 1 << 18,
}


def copy_if_there(source: str, target: str) -> None:
    """Copy a file unless it is gone: unneeded and spare files come and go meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copyfile(source, target)


def bytes_of(path: Path) -> bytes:
    """Return the content of a file; a spare one may be gone, and is empty."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


class World(Protocol):
    """A place for a broker to run in."""

    clock: Clock
    patience_s: float
    """How long to wait for what must happen."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""

    def begin(self, work: Coroutine[Any, Any, Any], turns: int) -> None:
        """Run for this many turns of the loop; then stand still until the crash."""

    async def open(self) -> Broker:
        """Open a broker on the contents of the disk."""

    def crash(self, broker: Broker, power: bool) -> None:
        """Stop the broker between two instructions; a power loss also loses what was not synced."""

    def holds(self, data: bytes) -> bool:
        """Return whether these bytes would survive any crash."""

    def close(self, broker: Broker | None) -> None:
        """End the world, and the broker in it."""


class RealWorld:
    """Files in memory with the mode `os`: a dying process loses nothing that was written."""

    def __init__(self, patience_s: float = 5.0, **options: Any) -> None:
        self.clock: Clock = SystemClock()
        self.patience_s = patience_s
        self._options = BrokerOptions(**{**OPTIONS, "sync": "os", **options})
        self._root = Path(tempfile.mkdtemp(prefix="holdfast-model.", dir="/dev/shm"))
        self._lives = 0
        self._loop = asyncio.new_event_loop()
        self._begun: list[asyncio.Task[Any]] = []

    @property
    def path(self) -> Path:
        return self._root / str(self._lives)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def begin(self, work: Coroutine[Any, Any, Any], turns: int) -> None:
        self._begun.append(self._loop.create_task(work))

        async def wait() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self._loop.run_until_complete(wait())

    async def open(self) -> Broker:
        return await Broker.start(self.path, self._options)

    def crash(self, broker: Broker, power: bool) -> None:
        before = self.path
        self._lives += 1
        # The journal first: recovery truncates ledgers that are ahead of it.
        later = shutil.ignore_patterns("ledgers", "lock")
        shutil.copytree(before, self.path, ignore=later, copy_function=copy_if_there)
        shutil.copytree(before / "ledgers", self.path / "ledgers", copy_function=copy_if_there)
        (self.path / "lock").touch()
        self._end(broker)
        shutil.rmtree(before)

    def _end(self, broker: Broker) -> None:
        for task in self._begun:
            task.cancel()

        async def end() -> None:
            await asyncio.gather(*self._begun, return_exceptions=True)
            await broker.close()

        self._loop.run_until_complete(end())
        self._begun.clear()

    def holds(self, data: bytes) -> bool:
        return any(data in bytes_of(path) for path in (self.path / "journal").iterdir())

    def close(self, broker: Broker | None) -> None:
        try:
            if broker is not None:
                self._end(broker)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            shutil.rmtree(self._root)


class SimWorld:
    """A single simulated node: what is not synced is lost, or torn."""

    def __init__(self, seed: int = 1, patience_s: float = 60.0, **options: Any) -> None:
        self.patience_s = patience_s
        self._seed = seed
        self._options = BrokerOptions(**{**OPTIONS, **options})
        self._loop = SimLoop(SeededRandomness(seed, "loop"))  # type: ignore[abstract]  # it has no sockets
        self._platter = Platter(SeededRandomness(seed, "disk"))
        self._lives = self._opened = 0
        self._be_born()

    def _be_born(self) -> None:
        self._lives += 1
        self.clock: Clock = SimClock(self._loop, 0)
        self._life = Life(f"life {self._lives}")
        self._context = copy_context()
        self._context.run(CURRENT.set, self._life)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        task = self._loop.create_task(work, context=self._context)
        self._loop.run(task.done)
        return task.result()

    def begin(self, work: Coroutine[Any, Any, Any], turns: int) -> None:
        task = self._loop.create_task(work, context=self._context)
        end = self._loop.steps + turns
        self._loop.run(lambda: task.done() or self._loop.steps >= end)

    async def open(self) -> Broker:
        self._opened += 1
        random = SeededRandomness(self._seed, f"broker {self._opened}")  # so that tokens never repeat
        disk = SimDisk(self._platter)
        return await Broker.start(
            None,
            self._options,
            disk=disk,
            files=SimFiles(disk, self.clock),
            clock=self.clock,
            random=random,
        )

    def crash(self, broker: Broker, power: bool) -> None:
        self._loop.end(self._life)
        if power:
            self._platter.crash()
        else:
            self._platter.generation += 1
            self._platter.locks.clear()
        self._be_born()

    def holds(self, data: bytes) -> bool:
        return any(data in inode.durable for inode in self._platter._inodes(self._platter._root))

    def close(self, broker: Broker | None) -> None:
        self._loop.close()
