"""One order of writing: both writers execute the plan, also when a step fails.

Every step is made to fail, on real files, under the core's writer and under the simulated one. The files that
are written by then, and the progress that the writer reports, must be the same for both (I33).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import _core
from holdfast._core import Log
from holdfast.ledger.writer import NativeWriter, RoundWriter
from holdfast.system import SystemClock, SystemDisk
from tests.kit.ledger.sim_store import SimWriter

INCARNATION = bytes(range(16))
JOURNAL, OFFSET = "journal", 4096
STEPS = ("journal_write", "ledger_write", "journal_sync")


class Left(NamedTuple):
    """Contents of the files, and progress of the writer, after a step has failed."""

    journal_written: bool
    ledger_written: bool
    journal_d: int
    durable_d: int
    failure: str | None


class FaultyDisk(SystemDisk):
    """Real files, of which one operation fails; records the order of operations."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fails = ""
        self.done: list[str] = []

    async def open(self, path: str, *arguments: Any, **options: Any) -> Any:
        return FaultyFile(self, path, await super().open(path, *arguments, **options))


class FaultyFile:
    def __init__(self, disk: FaultyDisk, path: str, file: Any) -> None:
        self._disk, self._path, self._file = disk, path, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def _at(self, step: str) -> None:
        if self._disk.fails == step:
            raise OSError(errno.EIO, "a failure of the test")
        if not self._disk.done or self._disk.done[-1] != step:
            self._disk.done.append(step)

    async def write(self, offset: int, data: bytes) -> Any:
        if self._path == JOURNAL:
            self._at("journal_write")
        elif offset > 0:  # at 0 it is the header of a new file, which belongs to its opening
            self._at("ledger_write")
        return await self._file.write(offset, data)

    async def sync(self) -> None:
        self._at("journal_sync")
        await self._file.sync()


@contextmanager
def failing(kind: str, disk: FaultyDisk, step: str) -> Iterator[None]:
    if kind == "native":
        if step:
            _core.arm_fault(step, 1, errno.EIO, 0)
    else:
        disk.fails = step
    try:
        yield
    finally:
        _core.disarm_fault()


async def outcome(path: Path, kind: str, step: str) -> tuple[Left, list[str]]:
    """Write a round with one entry, in which a step fails; with "", none fails."""
    (path / "ledgers").mkdir(parents=True)
    (path / JOURNAL).write_bytes(bytes(OFFSET))
    log, disk = Log(), FaultyDisk(path)
    log.add_topic(1)
    log.open_session(1, 1, "p", 0)
    writer: RoundWriter
    if kind == "native":
        writer = NativeWriter(log, str(path), "group", INCARNATION)
        file: Any = await SystemDisk(path).open(JOURNAL)
    else:
        writer = SimWriter(log, disk, "group", INCARNATION, SystemClock())
        file = await disk.open(JOURNAL)
    writer.use_journal(file, OFFSET)
    told = asyncio.Event()
    with failing(kind, disk, step):
        frame = _core.Frame()
        frame.publish(1, 1, 0, "p", [(0, 1, b"an entry")])
        log.begin(frame.take(7), 1, 1)
        assert log.step() is None
        log.finish(True)
        writer.start(told.set)
        writer.wake()
        async with asyncio.timeout(20):
            while (progress := writer.poll()).failure is None and progress.durable_d < 1:
                await told.wait()
                told.clear()
        await writer.stop(flush=False)
    ledger = path / "ledgers" / "0000000000000001.data"
    data = ledger.read_bytes() if ledger.exists() else b""
    left = Left(
        b"an entry" in (path / JOURNAL).read_bytes(),
        b"an entry" in data,
        progress.journal_d,
        progress.durable_d,
        None if progress.failure is None else progress.failure[0],
    )
    return left, disk.done


def by_the_plan(step: str, plan: tuple[str, ...]) -> Left:
    """Return the result of a writer that executes this plan.

    Only a ledger's failure does not end the plan.
    """
    done: set[str] = set()
    for each in plan:
        if each == step and each != "ledger_write":
            break
        if each != step:
            done.add(each)
    synced = int("journal_sync" in done)
    durable = int(not step)
    return Left("journal_write" in done, "ledger_write" in done, synced, durable, step or None)


@pytest.mark.parametrize("step", ["", *STEPS])
@pytest.mark.parametrize("kind", ["native", "sim"])
def test_what_a_failure_leaves_is_what_the_plan_says(tmp_path: Path, kind: str, step: str) -> None:
    left, _ = asyncio.run(outcome(tmp_path, kind, step))
    assert left == by_the_plan(step, _core.ROUND_PLAN)


@pytest.mark.parametrize("step", ["", *STEPS])
def test_both_writers_leave_the_same(tmp_path: Path, step: str) -> None:
    native, _ = asyncio.run(outcome(tmp_path / "native", "native", step))
    sim, _ = asyncio.run(outcome(tmp_path / "sim", "sim", step))
    assert native == sim


def test_the_simulated_writer_executes_the_plan(tmp_path: Path) -> None:
    _, done = asyncio.run(outcome(tmp_path, "sim", ""))
    assert tuple(done) == _core.ROUND_PLAN


def test_the_plan_has_every_step_once_and_is_safe() -> None:
    assert sorted(_core.ROUND_PLAN) == sorted(STEPS)
    assert _core.ROUND_PLAN.index("journal_write") < _core.ROUND_PLAN.index("journal_sync")


def test_a_writer_of_another_order_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated writer that syncs the journal before the ledgers is caught."""
    native, _ = asyncio.run(outcome(tmp_path / "native", "native", "journal_sync"))
    other = ("journal_write", "journal_sync", "ledger_write")
    monkeypatch.setattr(_core, "ROUND_PLAN", other)
    sim, done = asyncio.run(outcome(tmp_path / "sim", "sim", "journal_sync"))
    assert sim != native, "the test cannot tell the orders apart"
    assert sim == by_the_plan("journal_sync", other)
    assert "ledger_write" not in done
