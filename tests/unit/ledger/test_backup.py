"""Backup and restore, of closed and of running stores: complete, or refused."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from holdfast.errors import Corrupt, Exists, Locked, NotFound
from holdfast.ledger.files.backup import LIST, backup, backup_disk, backup_running, restore
from holdfast.ledger.files.doctor import examine
from holdfast.ledger.layout import LEDGERS, SNAPSHOTS
from holdfast.system import SystemDisk
from tests.kit.ledger.store_world import SMALL, Life, SystemWorld

JOURNAL_BYTES = SMALL.journal_bytes


async def work(life: Life) -> None:
    for n in range(20):
        life.mixture(n)
    await life.store.snapshot()
    for n in range(20):
        await life.until(life.mixture(n))


def restored(world: SystemWorld, path: Path) -> SystemWorld:
    """Return a world with the same oracle in another directory."""
    other = SystemWorld(path, native=True)
    other.oracle = world.oracle
    return other


@pytest.mark.parametrize("close", [True, False], ids=["closed", "killed"])
def test_a_directory_at_rest(world: SystemWorld, tmp_path: Path, close: bool) -> None:
    world.live(work, close=close)
    copied = backup(world.path, tmp_path / "backup")
    assert copied.last_d == 80
    assert copied.ledgers == 3
    assert copied.files >= 8
    again = restore(tmp_path / "backup", tmp_path / "new")
    assert (again.last_d, again.bytes) == (copied.last_d, copied.bytes)
    other = restored(world, tmp_path / "new")
    assert other.live(close=False).recovered.last_d == 80
    other.live(work)
    assert examine(other.path).sound


def test_a_directory_in_which_nothing_happened(world: SystemWorld, tmp_path: Path) -> None:
    world.live(close=False)
    backup(world.path, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")
    restored(world, tmp_path / "new").live()


def test_a_store_at_work(world: SystemWorld, tmp_path: Path) -> None:
    """The store works and trims during the copy, which has all that was confirmed before."""
    target = tmp_path / "backup"
    target.mkdir()

    async def use(life: Life) -> int:
        await work(life)
        before = life.durable_d
        copying = asyncio.ensure_future(backup_running(life.store, world.disk(), SystemDisk(target)))
        for n in range(40):
            life.mixture(n)
            if n % 5 == 0:
                life.seal(1)
                life.trim(1)
                await life.store.snapshot()
            await life.store.flush()
        copied = await copying
        assert copied.last_d >= before
        await life.check_entries()
        await life.store.snapshot()
        return copied.last_d

    last_d = world.live(use)
    restore(target, tmp_path / "new", JOURNAL_BYTES)
    other = restored(world, tmp_path / "new")
    other.oracle.told = 0
    assert other.live().recovered.last_d == last_d
    other.live(work)


def test_every_byte_of_a_backup_is_checked(world: SystemWorld, tmp_path: Path) -> None:
    world.live(work)
    target = tmp_path / "backup"
    backup(world.path, target)
    paths = [path for path in sorted(target.rglob("*")) if path.is_file()]
    for number, path in enumerate(paths):
        content = path.read_bytes()
        for at in {0, len(content) // 2, len(content) - 1}:
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            with pytest.raises(Corrupt, match=path.name):
                restore(target, tmp_path / f"new{number}-{at}")
        path.write_bytes(content[:-1])
        with pytest.raises(Corrupt, match=path.name):
            restore(target, tmp_path / f"new{number}-short")
        path.unlink()
        with pytest.raises((Corrupt, NotFound)):
            restore(target, tmp_path / f"new{number}-gone")
        path.write_bytes(content)
    restore(target, tmp_path / "new")


def test_a_restore_that_was_not_finished_is_no_directory(world: SystemWorld, tmp_path: Path) -> None:
    world.live(work)
    target = tmp_path / "backup"
    backup(world.path, target)
    broken = next(iter((target / LEDGERS).iterdir()))
    broken.write_bytes(b"")
    with pytest.raises(Corrupt):
        restore(target, tmp_path / "new")
    with pytest.raises(Corrupt, match="holdfast is missing"):
        restored(world, tmp_path / "new").live()


def test_what_is_refused(world: SystemWorld, tmp_path: Path) -> None:
    world.live(work)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letters").write_bytes(b"")
    with pytest.raises(Exists, match="letters"):
        backup(world.path, tmp_path / "full")
    with pytest.raises(NotFound):
        backup(tmp_path / "full", tmp_path / "backup")
    with pytest.raises(NotFound, match="not a backup"):
        restore(world.path, tmp_path / "new")
    backup(world.path, tmp_path / "backup")
    with pytest.raises(Exists):
        restore(tmp_path / "backup", world.path)

    async def use(life: Life) -> None:
        with pytest.raises(Locked):
            await backup_disk(world.disk(), SystemDisk(tmp_path / "held"))

    world.live(use)


def test_a_damaged_directory_is_not_backed_up(world: SystemWorld, tmp_path: Path) -> None:
    world.live(work)
    newest = sorted((world.path / SNAPSHOTS).iterdir())[-1]
    content = newest.read_bytes()
    newest.write_bytes(content[:-4])
    with pytest.raises(Corrupt, match="Start the broker once"):
        backup(world.path, tmp_path / "one")
    newest.write_bytes(content)
    next(iter(sorted((world.path / LEDGERS).glob("*.data")))).write_bytes(b"short")
    with pytest.raises(Corrupt, match="ends at offset 5"):
        backup(world.path, tmp_path / "two")
    assert not (tmp_path / "two" / LIST).exists()


def test_a_list_may_not_lead_outside(world: SystemWorld, tmp_path: Path) -> None:
    from holdfast.ledger.files import backup as module

    for path in ("../evil", "/etc/passwd", "journal/../x", "other/x", "journal/.x", "journal"):
        with pytest.raises(Corrupt, match="do not use this backup"):
            module._require_inside(path)
    shutil.rmtree(world.path)
