"""Single failures of a running store, each of which went wrong once, or could."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import _core
from holdfast.errors import Corrupt, Locked
from holdfast.ledger import failures
from holdfast.ledger.files.rebuild import Rewriter
from holdfast.ledger.journal.files import SPARES_MAX, JournalFiles
from holdfast.ledger.journal.scan import ROUND_HEADER, parse_round
from holdfast.ledger.layout import FORMAT, JOURNAL, LEDGERS, PAGE, SNAPSHOTS, journal_path, salt_of
from holdfast.ledger.store import Store
from holdfast.ledger.writer import Unsynced
from holdfast.system import Clock, Disk, Randomness
from holdfast.system.disk import SystemFile
from tests.kit.faults import ledger_sync_fails
from tests.kit.ledger.cancelled_calls import CALLS, Slow, a_cancelled_call_ends_with_its_thread
from tests.kit.ledger.checks import (
    a_damaged_snapshot_after_a_trim_costs_nothing,
    a_sync_that_failed_before_a_restart,
    work,
)
from tests.kit.ledger.sim_store import SimFiles
from tests.kit.ledger.store_world import SMALL, Life, SystemWorld, simulated
from tests.kit.slices import seeds


@pytest.fixture
def world(tmp_path: Path) -> SystemWorld:
    return SystemWorld(tmp_path, native=True)


# -- closing ------------------------------------------------------------------------------------------


def test_who_is_cancelled_while_closing_leaves_it_to_its_end() -> None:
    """The lock is released only when no task of this store can write any more."""
    with simulated(1) as world:
        world.live(work, close=False)

        async def use(disk: Disk, clock: Clock, randomness: Randomness) -> None:
            async def opened() -> Store:
                files = SimFiles(disk, clock)
                return await Store.open(disk, clock=clock, randomness=randomness, options=SMALL, files=files)

            async def life(alive: Life) -> None:
                await work(alive)
                world.platter.slow(300)
                closing = asyncio.ensure_future(alive.store.close())
                await clock.sleep(0.05)
                closing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await closing
                with pytest.raises(Locked):
                    await opened()
                await alive.store.close()
                await (await opened()).close()

            from tests.kit.ledger.store_world import Toy

            store, machine = await opened(), Toy()
            alive = Life(world.oracle, store, machine, await store.recover(machine))
            alive.start()
            await life(alive)

        world.run(use)
        world.platter.slow(1 / 300)
        assert world.live().recovered.clean


def test_descriptors_are_given_back(world: SystemWorld) -> None:
    """Descriptors of ledgers are closed, also of ledgers that are written during a sync."""

    def of_ledgers() -> int:
        open_files = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.exists()]
        return sum(path.is_relative_to(world.path / LEDGERS) for path in open_files)

    async def use(life: Life) -> None:
        counts = []
        for _ in range(6):
            writing = asyncio.ensure_future(work(life, 50))
            await life.store.snapshot()
            await writing
            counts.append(of_ledgers())
        assert 0 < counts[-1] == counts[1], counts

    world.live(use)


# -- journals -----------------------------------------------------------------------------------------


def test_the_journal_is_used_again(world: SystemWorld) -> None:
    """After the first few files, files are reused, and none is filled with zeros."""

    async def use(life: Life) -> None:
        for turn in range(12):
            for n in range(20):
                life.mixture(n, size=3000)
            await life.store.flush()
            await life.store.snapshot()
            if turn == 5:
                made.clear()
        assert life.store.stats().journal_files > 10

    made: list[int] = []
    fill = JournalFiles._make_spare

    async def counted(self: JournalFiles, size: int) -> None:
        before = self.spares
        await fill(self, size)
        if self.spares > before:
            made.append(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JournalFiles, "_make_spare", counted)
        world.live(use, close=False)
    assert made == []
    spares = [path.name for path in (world.path / JOURNAL).iterdir() if path.name.startswith("spare")]
    assert 1 <= len(spares) <= SPARES_MAX
    world.live()


def test_every_byte_of_the_journal_is_counted(world: SystemWorld) -> None:
    async def use(life: Life) -> int:
        for n in range(120):
            life.mixture(n, size=2000)
            if n % 7 == 0:
                await life.store.flush()
        await life.store.flush()
        return life.store.stats().journal_bytes

    counted = world.live(use, close=False)
    salt = salt_of((world.path / FORMAT).read_bytes()[48:64])
    written = 0
    for path in (world.path / JOURNAL).iterdir():
        content = path.read_bytes()
        headers = (
            parse_round(content[at : at + ROUND_HEADER], salt) for at in range(PAGE, len(content), PAGE)
        )
        written += sum(header.space for header in headers if header is not None)
    assert counted == written


def test_creating_and_dropping_at_once_do_not_meet(tmp_path: Path) -> None:
    """`create` returns the file that has the name."""
    world = SystemWorld(tmp_path, native=False)
    world.live(work)

    async def use(disk: Disk, clock: Clock, randomness: Randomness) -> None:
        files = JournalFiles(disk, bytes(16), SMALL.journal_bytes)
        await files.look()
        for number in range(10, 30):
            creating = asyncio.ensure_future(files.create(number))
            if number > 11:
                await files.drop(number - 2, reuse=True)
            file = await creating
            assert isinstance(file, SystemFile)
            there = os.stat(tmp_path / journal_path(number))  # noqa: PTH116
            assert os.fstat(file.fileno()).st_ino == there.st_ino
            await file.close()

    world.run(use)


# -- ledgers ------------------------------------------------------------------------------------------


def test_a_snapshot_does_not_chase_the_ledgers_that_come_after_it(world: SystemWorld) -> None:
    """A writer that is faster than the syncs must not keep a snapshot from ending."""
    calls: list[int] = []

    async def use(life: Life) -> None:
        async def sync(self: Unsynced) -> None:
            calls.append(self.ledger)
            assert len(calls) < 100, "it goes on for ever"
            life.seal(1)
            await life.until(life.publish(1, b"one more ledger"))  # while it syncs the others
            await original(self)

        original = Unsynced.sync
        await work(life)
        before = life.machine.log.next_ledger
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Unsynced, "sync", sync)
            await life.store.snapshot()
        assert sorted(calls) == list(range(1, before))
        assert life.machine.log.next_ledger == before + len(calls)

    world.live(use, close=False)
    world.live()


def test_a_ledger_whose_second_file_fails_too(world: SystemWorld) -> None:
    """I35: neither of the first two files is synced again; the third is."""

    async def use(life: Life) -> None:
        await work(life)
        with ledger_sync_fails(rewritten_too=True) as struck:
            with pytest.raises(OSError, match="Input/output"):
                await life.store.snapshot()
            assert len(struck) == 2
        await life.check_entries()
        await life.store.snapshot()
        assert life.store.stats().rewritten >= 1
        await life.check_entries()
        assert life.failed is None

    world.live(use, close=False)
    names = [path.name for path in (world.path / LEDGERS).iterdir()]
    assert any(name.endswith(".2.data") for name in names), names
    world.live()


def test_a_write_to_a_ledger_that_keeps_failing(world: SystemWorld) -> None:
    """It is repeated; then the ledger is rewritten; then the store stops. Nothing is lost."""

    async def use(life: Life) -> None:
        await work(life)
        _core.arm_fault("ledger_write", 1, errno.EIO, times=2)
        await life.until(life.mixture(0))
        assert life.failed is None
        assert life.store.stats().rewritten == 1
        await life.check_entries()
        _core.arm_fault("ledger_write", 1, errno.EIO, times=0)
        await life.until(life.mixture(1))
        assert life.failed is not None
        assert "could not be written" in str(life.failed)

    try:
        world.live(use)
    finally:
        _core.disarm_fault()
    world.live()


# -- snapshots ----------------------------------------------------------------------------------------


def test_a_damaged_snapshot_after_a_trim_costs_nothing(world: SystemWorld) -> None:
    """I33: the older snapshot lists ledgers that are gone; later events remove them."""
    a_damaged_snapshot_after_a_trim_costs_nothing(world)


def test_a_damaged_snapshot_and_a_ledger_that_is_missed(world: SystemWorld) -> None:
    """I31: it is reported, although the ledger might have been trimmed."""

    async def use(life: Life) -> None:
        life.publish(1, b"x")
        await life.store.snapshot()
        life.publish(1, b"y")
        await life.store.snapshot()

    world.live(use, close=False)
    newest = sorted((world.path / SNAPSHOTS).iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    (world.path / LEDGERS / "0000000000000001.data").unlink()
    with pytest.raises(Corrupt, match=r"0000000000000001\.data is missing"):
        world.live()


def test_snapshots_come_by_themselves() -> None:
    with simulated(1, replace(SMALL, snapshot_s=60.0, snapshot_bytes=100_000)) as world:

        async def use(life: Life) -> None:
            clock = life.store._opened.clock
            await life.until(life.mixture(0))
            await clock.sleep(59)
            assert life.store.stats().snapshots == 0
            await clock.sleep(3)
            assert life.store.stats().snapshots == 1, "after a minute"
            await clock.sleep(200)
            assert life.store.stats().snapshots == 1, "nothing has happened since"
            for n in range(30):
                await life.until(life.mixture(n, size=4000))
            await clock.sleep(1)
            assert 2 <= life.store.stats().snapshots <= 4, "after so much journal"

        world.live(use)


def test_a_snapshot_that_cannot_be_written_is_tried_again() -> None:
    with simulated(1, replace(SMALL, snapshot_s=1.0)) as world:

        async def use(life: Life) -> None:
            clock = life.store._opened.clock
            world.platter.fail(1, errno.EIO, "rename")
            await life.until(life.mixture(0))
            await clock.sleep(5)
            assert "could not be written" in life.store.stats().trouble
            assert life.failed is None
            await clock.sleep(20)
            assert life.store.stats().snapshots == 1
            assert life.store.stats().trouble == ""

        world.live(use)
        world.live()


@pytest.mark.parametrize("seed", seeds("sync before restart", test=4, nightly=40))
def test_a_sync_that_failed_before_a_restart(seed: int) -> None:
    """I31, I33: the kernel reports it once, so recovery writes unproven rounds again."""
    a_sync_that_failed_before_a_restart(seed)


def test_no_descriptors_left_is_waited_out(world: SystemWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """EMFILE is temporary: the store neither stops nor rewrites."""
    monkeypatch.setattr(failures, "WAIT_S", 0.02)

    async def use(life: Life) -> None:
        await work(life)
        _core.arm_fault("ledger_open", 1, errno.EMFILE, times=4)
        life.seal(1)
        await life.until(life.publish(1, b"x"))
        assert _core.faults_fired() == 4
        assert life.failed is None
        assert life.store.stats().rewritten == 0
        await life.check_entries()

    try:
        world.live(use)
    finally:
        _core.disarm_fault()
    world.live()


def test_no_room_while_a_ledger_moves() -> None:
    """Once the writer is at the new file, the store waits for room."""
    with simulated(3) as world:

        async def use(life: Life) -> None:
            for n in range(40):
                life.mixture(n, size=2000)
            await life.store.flush()
            clock, failures = life.store._opened.clock, life.store._running._failures  # type: ignore[union-attr]
            await life.store._opened.space.release()

            async def fills_up(self: Rewriter) -> None:
                world.platter.capacity_bytes = world.platter.used_bytes()

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Rewriter, "copy_ahead", fills_up)
                moving = asyncio.ensure_future(failures._rewrite(1))
                await clock.sleep(2)
                assert not moving.done()
                world.platter.capacity_bytes = None
                await moving
            await life.store.flush()
            await life.check_entries()
            assert life.failed is None

        world.live(use)
        world.live()


@pytest.mark.parametrize("call", CALLS)
def test_a_cancelled_call_ends_with_its_thread(call: Callable[[Slow], Any]) -> None:
    """A cancelled rewrite once left the writer to its thread, and files to the collector."""
    a_cancelled_call_ends_with_its_thread(call)
