"""A small machine on the real log, and worlds in which stores live.

The machine counts (`add`), publishes to three topics, seals and trims their ledgers. An `Oracle` outside the
worlds keeps every state and every entry by D, so that a test knows what must be there after any life.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast._core import Frame, Log
from holdfast.errors import HoldfastError
from holdfast.group import Position
from holdfast.ledger.store import Files, NativeFiles, Recovered, Store, StoreOptions
from holdfast.system import Clock, Disk, Randomness, SystemClock, SystemDisk, SystemRandomness
from tests.kit.ledger.sim_store import SimFiles
from tests.kit.sim import Sim, SimNode

TOPICS = (1, 2, 3)
ADD, SEAL, TRIM, REFUSED = 100, 101, 102, 103
SMALL = StoreOptions(journal_bytes=64 << 10, reserve_bytes=64 << 10, snapshot_bytes=1 << 30, snapshot_s=1e9)
"""Small files, and snapshots only on request."""


@dataclass(frozen=True)
class Captured:
    d: int
    position: Position
    parts: list[bytes]
    ledgers: dict[int, tuple[int, int]]


class Toy:
    """A machine for a store, in a hundred lines."""

    def __init__(self) -> None:
        self.log = Log()
        self.counters: dict[str, int] = {}
        self.ledgers: dict[int, list[int]] = {}
        """By ledger: topic, first ordinal, entries, size."""
        self.sealed: set[int] = set()
        """Topics whose next publish opens a ledger."""
        self.position = Position(0, 0)
        self._attach({})

    def _attach(self, ends: dict[int, int]) -> None:
        for topic in TOPICS:
            self.log.add_topic(topic, ends.get(topic, 0))
            self.log.open_session(topic, topic, f"p{topic}", 1)

    def state(self) -> str:
        tables = [sorted(self.counters.items()), sorted(self.ledgers.items()), sorted(self.sealed)]
        return json.dumps([*tables, self.log.next_ledger])

    def apply(self, position: Position, frame: bytes, redo: bool = False) -> int:
        """Apply a frame; return the last D."""
        self.log.begin(frame, position.view, position.index, redo)
        while (event := self.log.step()) is not None:
            kind, _, body = event
            if kind == REFUSED:
                continue
            value = json.loads(body)
            self.log.accept()
            if kind == ADD:
                self.counters[value[0]] = self.counters.get(value[0], 0) + value[1]
            elif kind == SEAL:
                self.log.seal_ledger(value)
                self.sealed.add(value)
            elif kind == TRIM:
                of_topic = sorted(each for each, row in self.ledgers.items() if row[0] == value)
                for ledger in of_topic[:-1]:
                    del self.ledgers[ledger]
        applied = self.log.finish()
        for topic, _, ledger, first, entries, size, _ in applied.tails:
            self.ledgers[ledger] = [topic, first, entries, size]
            self.sealed.discard(topic)
        self.position = position
        return applied.last_d

    # -- what a store asks -----------------------------------------------------------------------------

    def load(self, parts: Iterable[bytes]) -> None:
        d, view, index, next_ledger, time, counters, ledgers, sealed = json.loads(next(iter(parts)))
        self.log = Log(d + 1, next_ledger, time)
        self.counters = dict(counters)
        self.ledgers = dict(ledgers)
        self.sealed = set(sealed)
        self.position = Position(view, index)
        ends = {topic: first + entries for topic, first, entries, _ in sorted(self.ledgers.values())}
        self._attach(ends)
        newest = {row[0]: ledger for ledger, row in sorted(self.ledgers.items())}
        for topic, ledger in newest.items():
            if topic not in self.sealed:
                self.log.open_ledger(topic, ledger, *self.ledgers[ledger][1:])

    def redo(self, view: int, index: int, frame: bytes) -> None:
        self.apply(Position(view, index), frame, redo=True)

    def capture(self) -> Captured:
        log = self.log
        row = [log.next_d - 1, *self.position, log.next_ledger, log.time]
        tables = [sorted(self.counters.items()), sorted(self.ledgers.items()), sorted(self.sealed)]
        parts = [
            json.dumps([*row, *tables]).encode(),
            b"x" * 5000,  # a snapshot of more than a page
        ]
        ledgers = {ledger: (row[3], row[2]) for ledger, row in self.ledgers.items()}
        return Captured(log.next_d - 1, self.position, parts, ledgers)


@dataclass
class Oracle:
    """Applied events by D. A life that lost its end cuts it."""

    states: dict[int, str] = field(default_factory=lambda: {0: Toy().state()})
    positions: dict[int, Position] = field(default_factory=lambda: {0: Position(0, 0)})
    entries: dict[int, list[tuple[int, bytes]]] = field(default_factory=lambda: {t: [] for t in TOPICS})
    """By topic: (D, payload)."""
    told: int = 0
    """The highest D that was reported durable."""

    def cut(self, d: int) -> None:
        self.states = {each: state for each, state in self.states.items() if each <= d}
        for topic, rows in self.entries.items():
            self.entries[topic] = [row for row in rows if row[0] <= d]


class Life:
    """A store from open to close, with its machine and all reports of the store."""

    def __init__(self, oracle: Oracle, store: Store, machine: Toy, recovered: Recovered) -> None:
        self.oracle = oracle
        self.store = store
        self.machine = machine
        self.recovered = recovered
        self.failed: HoldfastError | None = None
        self.durable_d = recovered.last_d
        self._changed = asyncio.Event()
        self._index = 0

    def start(self) -> None:
        self.store.start(self.machine, self._on_durable, self._on_failed)

    def _on_durable(self, d: int) -> None:
        assert d >= self.durable_d
        assert d < self.machine.log.next_d, "what was not applied cannot be durable"
        self.durable_d = d
        self.oracle.told = max(self.oracle.told, d)
        self._changed.set()

    def _on_failed(self, error: HoldfastError) -> None:
        assert self.failed is None, "told twice"
        self.failed = error
        self._changed.set()

    # -- events ----------------------------------------------------------------------------------------

    def frame(self, build: Callable[[Frame], None]) -> int:
        frame = Frame()
        build(frame)
        self._index += 1
        position = Position(self.recovered.position.view + 1, self._index)
        d = self.machine.apply(position, frame.take(1_000_000_000 * (1 + self.machine.log.next_d)))
        self.oracle.states[d] = self.machine.state()
        self.oracle.positions[d] = position
        self.store.applied()
        return d

    def add(self, name: str = "a", value: int = 1) -> int:
        return self.frame(lambda frame: frame.event(ADD, 1, json.dumps([name, value]).encode()))

    def publish(self, topic: int, *payloads: bytes) -> int:
        def build(frame: Frame) -> None:
            rows = [(start + i, 1, payload) for i, payload in enumerate(payloads)]
            frame.publish(topic, topic, 1, f"p{topic}", rows)

        start = len(self.oracle.entries[topic])
        d = self.frame(build)
        self.oracle.entries[topic] += [(d, payload) for payload in payloads]
        return d

    def seal(self, topic: int) -> int:
        return self.frame(lambda frame: frame.event(SEAL, 1, str(topic).encode()))

    def trim(self, topic: int) -> int:
        return self.frame(lambda frame: frame.event(TRIM, 1, str(topic).encode()))

    def mixture(self, n: int, size: int = 100) -> int:
        """Apply the nth frame of a life, with events of several kinds."""

        def build(frame: Frame) -> None:
            frame.event(ADD, 1, json.dumps([f"c{n % 5}", n]).encode())
            frame.event(REFUSED, 1, b"")
            frame.publish(topic, topic, 1, f"p{topic}", [(start + n, 1, payload)])

        topic = TOPICS[n % 3]
        start, payload = len(self.oracle.entries[topic]), b"%d/" % n + bytes([n % 251]) * (size + n % 7)
        d = self.frame(build)
        self.oracle.entries[topic].append((d, payload))
        return d

    async def until(self, d: int) -> None:
        """Wait until this event is durable, or the store has failed."""
        while self.durable_d < d and self.failed is None:
            self._changed.clear()
            await self._changed.wait()

    # -- what must hold --------------------------------------------------------------------------------

    def check_state(self) -> None:
        """Check the state of the last D, which covers all that was reported durable (I33)."""
        last_d = self.recovered.last_d
        assert last_d >= self.oracle.told, f"D {self.oracle.told} was durable, and recovery ends at {last_d}"
        assert self.machine.state() == self.oracle.states[last_d]
        assert self.recovered.position == self.oracle.positions[last_d]
        self.oracle.cut(last_d)

    async def check_entries(self) -> int:
        """Check that every entry of every live ledger is as published; return the count."""
        count = 0
        for ledger, (topic, first, entries, _) in sorted(self.machine.ledgers.items()):
            at = 0
            while at < entries:
                run = await self.store.read(ledger, first, at, entries - at, 1 << 16)
                assert run.first_ordinal == first + at
                for i in range(len(run)):
                    expected = self.oracle.entries[topic][first + at + i][1]
                    assert run.entry(i) == expected, f"ledger {ledger}, entry {at + i}"
                at += len(run)
            assert await self.store.time(ledger, entries - 1) > 0
            count += entries
        return count


Use = Callable[[Life], Awaitable[Any]]


class World:
    """A directory that outlives its stores. `live(use)` is one life."""

    def __init__(self, options: StoreOptions = SMALL) -> None:
        self.options = options
        self.oracle = Oracle()

    def run(self, use: Callable[[Disk, Clock, Randomness], Awaitable[Any]]) -> Any:
        raise NotImplementedError

    def files(self, disk: Disk, clock: Clock) -> Files:
        return SimFiles(disk, clock)

    def crash(self, survival: float | None = None) -> None:
        """Cut the power between two lives. Real files are not affected."""

    def live(
        self, use: Use | None = None, close: bool | None = True, check: bool = True, **opening: Any
    ) -> Any:
        """Run one life: open, recover, check, start, use.

        `close`: cleanly, not cleanly, or (None) not at all.
        """

        async def life(disk: Disk, clock: Clock, randomness: Randomness) -> Any:
            options = opening.pop("options", self.options)
            files = self.files(disk, clock)
            store = await Store.open(
                disk, clock=clock, randomness=randomness, options=options, files=files, **opening
            )
            done = False
            try:
                machine = Toy()
                recovered = await store.recover(machine)
                alive = Life(self.oracle, store, machine, recovered)
                if check:
                    alive.check_state()
                alive.start()
                if check:
                    await alive.check_entries()
                result = await use(alive) if use is not None else alive
                done = True
                return result
            finally:
                if close is not None or not done:
                    await store.close(clean=bool(close) and done)

        return self.run(life)


class SystemWorld(World):
    """Real files, with the simulated writer or the core's thread."""

    def __init__(self, path: Path, native: bool, options: StoreOptions = SMALL) -> None:
        super().__init__(options)
        self.path = path
        self._native = native

    def files(self, disk: Disk, clock: Clock) -> Files:
        return NativeFiles(self.path) if self._native else super().files(disk, clock)

    def disk(self) -> Disk:
        return SystemDisk(self.path)

    def run(self, use: Callable[[Disk, Clock, Randomness], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            return await use(self.disk(), SystemClock(), SystemRandomness())

        return asyncio.run(main())


class SimWorld(World):
    """A simulated disk in virtual time."""

    def __init__(self, seed: int, options: StoreOptions = SMALL) -> None:
        super().__init__(options)
        self.sim = Sim(seed, nodes=1)
        self.platter = self.sim.platter(1)

    def run(self, use: Callable[[Disk, Clock, Randomness], Awaitable[Any]]) -> Any:
        results: list[Any] = []

        async def program(node: SimNode) -> None:
            results.append(await use(node.disk, node.clock, node.random))

        self.sim.boot(program, 1)
        try:
            self.sim.run_until(lambda: bool(results), limit_s=3600)
        finally:
            node = self.sim.running.pop(1)
            self.sim.loop.end(node.life)
        return results[0]

    def crash(self, survival: float | None = None) -> None:
        self.platter.crash(survival)

    def die(
        self, use: Use, moment_s: float, survival: float | None = None, kill: bool = False, **opening: Any
    ) -> None:
        """Run a life that ends by a power cut or (`kill`) by SIGKILL."""

        async def life(disk: Disk, clock: Clock, randomness: Randomness) -> None:
            files = self.files(disk, clock)
            store = await Store.open(
                disk, clock=clock, randomness=randomness, options=self.options, files=files, **opening
            )
            machine = Toy()
            recovered = await store.recover(machine)
            alive = Life(self.oracle, store, machine, recovered)
            alive.check_state()
            alive.start()
            await use(alive)

        async def program(node: SimNode) -> None:
            await life(node.disk, node.clock, node.random)

        self.sim.boot(program, 1)
        self.sim.run(moment_s)
        if kill:
            node = self.sim.running.pop(1)
            self.sim.loop.end(node.life)
            self.platter.kill()
        else:
            self.sim.crash(1, survival)

    def close(self) -> None:
        self.sim.loop.close()


@contextmanager
def simulated(seed: int, options: StoreOptions = SMALL) -> Iterator[SimWorld]:
    world = SimWorld(seed, options)
    with world.sim:
        yield world
