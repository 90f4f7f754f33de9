"""One suite for the store: the core's writer, and the simulated one on both disks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Closed, Corrupt, Locked, Misuse
from holdfast.group import Position
from holdfast.ledger.journal.files import JournalFiles
from holdfast.ledger.journal.rotation import JournalRotation
from holdfast.ledger.layout import JOURNAL, LEDGERS, SNAPSHOTS
from holdfast.ledger.store import Store
from holdfast.system import Clock, Disk, File, Randomness
from tests.kit.ledger import checks
from tests.kit.ledger.store_world import SMALL, Life, SystemWorld, World, simulated
from tests.kit.waiting import eventually


@pytest.fixture(params=["native", "system", "sim"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "sim":
        with simulated(1) as made:
            yield made
    else:
        yield SystemWorld(tmp_path, native=request.param == "native")


async def work(life: Life, frames: int = 30, size: int = 100) -> None:
    """Do some work of every kind, and make it durable."""
    d = 0
    for n in range(frames):
        d = life.mixture(n, size)
    await life.until(d)
    assert life.failed is None


# -- lives --------------------------------------------------------------------------------------------


def test_a_new_directory(world: World) -> None:
    async def use(life: Life) -> None:
        assert life.recovered.fresh
        assert life.recovered.clean
        assert life.recovered.last_d == 0
        stats = life.store.stats()
        assert (stats.durable_d, stats.snapshot_d, stats.failed) == (0, 0, "")

    world.live(use)
    assert not world.live().recovered.fresh


def test_what_was_durable_is_there_after_a_clean_stop(world: World) -> None:
    """I33."""
    world.live(work)

    async def use(life: Life) -> None:
        assert life.recovered.clean
        assert life.recovered.events == 0, "the snapshot has it all"
        assert life.recovered.cut_bytes == 0
        assert life.recovered.notes == ()
        assert await life.check_entries() == 30
        await work(life)

    world.live(use)
    assert world.live().recovered.last_d == 120


def test_what_was_durable_is_there_after_no_stop_at_all(world: World) -> None:
    """I33: recovery from the journal alone, several times."""
    for again in range(4):
        world.live(work, close=False)
        world.crash()

        async def use(life: Life, again: int = again) -> None:
            assert not life.recovered.clean
            assert life.recovered.last_d == 60 * (again + 1)
            assert await life.check_entries() == 30 * (again + 1)

        world.live(use, close=False)


def test_snapshots_carry_what_came_before_them(world: World) -> None:
    async def use(life: Life) -> None:
        await work(life)
        await life.store.snapshot()
        assert life.store.stats().snapshot_d == 60
        await work(life)

    world.live(use, close=False)
    world.crash()
    found = world.live(close=False).recovered
    assert (found.snapshot_d, found.last_d, found.events) == (60, 120, 60)


def test_a_second_recovery_finds_the_same(world: World) -> None:
    """I36: recovery may be repeated without a close in between."""
    world.live(work, close=False)
    world.crash()
    first = world.live(close=False).recovered
    second = world.live(close=False).recovered
    assert (first.last_d, first.position) == (second.last_d, second.position)


def test_the_journal_goes_on_through_many_files(world: World) -> None:
    """Files are left before they are full, dropped behind two snapshots, and reused."""

    async def use(life: Life) -> None:
        for _ in range(6):
            await work(life, 30, size=4000)
            await life.store.snapshot()

    world.live(use, close=False)
    world.crash()

    async def look(disk: Disk, clock: Clock, randomness: Randomness) -> tuple[list[str], list[str]]:
        return await disk.list(JOURNAL), await disk.list(SNAPSHOTS)

    files, snapshots = world.run(look)
    assert "0000000000000001" not in files
    assert len(files) < 8
    assert len(snapshots) == 2
    assert world.live(close=False).recovered.last_d == 360


def test_trimmed_ledgers_go_after_a_snapshot(world: World) -> None:
    """I39: not before, because recovery from the older snapshot would need them."""

    async def names(disk: Disk, clock: Clock, randomness: Randomness) -> list[str]:
        return await disk.list(LEDGERS)

    async def use(life: Life) -> None:
        for n in range(4):
            life.publish(1, b"%d" % n * 50)
            life.seal(1)
        await life.store.snapshot()
        life.trim(1)
        await life.store.flush()

    async def snapshot(life: Life) -> None:
        await life.store.snapshot()

    world.live(use, close=False)
    assert len(world.run(names)) == 8
    world.crash()
    world.live(snapshot, close=False)
    assert len(world.run(names)) == 2
    world.live()


def test_reads_by_count_and_size(world: World) -> None:
    async def use(life: Life) -> None:
        await life.until(life.publish(1, *(bytes([n]) * 1000 for n in range(50))))
        store = life.store
        assert len(await store.read(1, 0, 0, 7, 1 << 20)) == 7
        assert 1 <= len(await store.read(1, 0, 0, 50, 10_000)) <= 10
        assert len(await store.read(1, 0, 49, 50, 1)) == 1, "one at least"
        run = await store.read(1, 1000, 10, 5, 1 << 20, label=77)
        assert (run.ledger, run.first_ordinal, run.first_entry) == (77, 1010, 10)
        assert run.entry(4) == bytes([14]) * 1000

    world.live(use)


def test_flush_snapshot_and_close_twice(world: World) -> None:
    async def use(life: Life) -> None:
        life.add()
        await life.store.flush()
        assert life.durable_d == 1
        await asyncio.gather(life.store.snapshot(), life.store.snapshot())
        await life.store.close()
        await life.store.close()
        for call in (life.store.flush(), life.store.snapshot()):
            with pytest.raises(Closed):
                await call
        with pytest.raises(Closed):
            life.store.admit(1)

    world.live(use)
    assert world.live().recovered.clean


@pytest.mark.parametrize("sync", ["always", "os"])
def test_other_modes_of_sync(world: World, sync: str) -> None:
    world.options = replace(SMALL, sync=sync)  # type: ignore[arg-type]
    world.live(work, close=False)
    assert world.live(close=False).recovered.last_d == 60, "a killed process loses nothing"
    world.live(work)
    world.crash(0.0)
    assert world.live().recovered.last_d == 120, "neither does a closed one"


def test_closed_before_its_first_journal_file_is_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal ends in a full file until the next one exists."""
    world.live(work, close=False)

    async def use(life: Life) -> None:
        await asked.wait()

    async def create(files: JournalFiles, number: int, size: int | None = None) -> File:
        asked.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    asked = asyncio.Event()
    with monkeypatch.context() as patch:
        patch.setattr(JournalRotation, "_full", lambda *_: 0)
        patch.setattr(JournalFiles, "create", create)
        world.live(use)
    world.crash(0.0)
    assert world.live().recovered.last_d == 60


def test_closed_at_every_step_of_its_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    checks.closed_at_every_step_of_its_start(world, monkeypatch)


# -- opening ------------------------------------------------------------------------------------------


def test_one_process_per_directory(world: World) -> None:
    async def use(disk: Disk, clock: Clock, randomness: Randomness) -> None:
        told: dict[str, Any] = {"clock": clock, "randomness": randomness, "options": SMALL}
        store = await Store.open(disk, files=world.files(disk, clock), **told)
        with pytest.raises(Locked):
            await Store.open(disk, files=world.files(disk, clock), **told)
        await store.close()
        again = await Store.open(disk, files=world.files(disk, clock), **told)
        await again.close()

    world.run(use)


def test_a_directory_with_other_things_in_it(world: World) -> None:
    async def strange(disk: Disk, clock: Clock, randomness: Randomness) -> None:
        await (await disk.open("letters", create=True)).close()

    world.run(strange)
    with pytest.raises(Misuse, match="letters"):
        world.live()


def test_the_file_that_says_what_it_is_has_gone(world: World) -> None:
    world.live(work)

    async def lose(disk: Disk, clock: Clock, randomness: Randomness) -> None:
        await disk.unlink("holdfast")
        await disk.sync_directory("")

    world.run(lose)
    with pytest.raises(Corrupt, match="holdfast is missing"):
        world.live()


def test_start_before_recover(world: World) -> None:
    async def use(disk: Disk, clock: Clock, randomness: Randomness) -> None:
        told: dict[str, Any] = {"clock": clock, "randomness": randomness, "options": SMALL}
        store = await Store.open(disk, files=world.files(disk, clock), **told)
        with pytest.raises(Misuse, match="recover"):
            store.start(None, lambda d: None, lambda error: None)  # type: ignore[arg-type]
        await store.close()

    world.run(use)


# -- cutting after a position --------------------------------------------------------------------------


def test_cut_after_a_position(world: World) -> None:
    """I32: a member cuts events that were not stable, also within a round, for good."""
    world.live(work, close=False)

    async def more(life: Life) -> Position:
        ds = [life.mixture(n) for n in range(10)]  # in one turn: one round, or two
        await life.until(ds[-1])
        return life.oracle.positions[ds[3]]

    limit = world.live(more, close=False)
    world.crash()
    world.oracle.told = 68

    async def use(life: Life) -> None:
        assert (life.recovered.last_d, life.recovered.position) == (68, limit)
        assert life.recovered.cut_bytes >= 0
        await work(life)

    world.live(use, close=False, upto=limit)
    world.crash()
    assert world.live(close=False).recovered.last_d == 128


def test_cut_after_what_was_stable(world: World) -> None:
    async def use(life: Life) -> None:
        d = life.mixture(0)
        await life.until(d)
        life.store.set_stable(life.oracle.positions[d])
        await life.until(life.mixture(1))  # its round has the stable position
        await life.until(life.mixture(2))

    world.live(use, close=False)
    world.crash()
    world.oracle.told = 2
    found = world.live(close=False, upto="stable").recovered
    assert (found.last_d, found.stable) == (2, world.oracle.positions[2])


def test_a_snapshot_waits_until_what_it_captured_is_stable(world: World) -> None:
    async def use(life: Life) -> None:
        d = life.mixture(0)
        life.store.set_stable(Position(0, 0))
        await life.until(d)
        snapshot = asyncio.ensure_future(life.store.snapshot())
        running = life.store._running
        await eventually(lambda: running is not None and running._capture_d == d)
        later = life.mixture(1)
        await life.until(later)
        assert not snapshot.done()
        life.store.set_stable(life.oracle.positions[d])
        await snapshot
        assert life.store.stats().snapshot_d == d
        life.store.set_stable(life.oracle.positions[later])

    world.live(use)


def test_a_snapshot_is_never_cut(world: World) -> None:
    world.live(work)
    with pytest.raises(Misuse, match="snapshot"):
        world.live(upto=Position(0, 3), check=False)
