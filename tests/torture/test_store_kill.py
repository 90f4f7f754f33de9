"""SIGKILL at every named step of journal, ledger, snapshot, trim, rewrite, room, recovery, backup, restore.

A victim in a process of its own dies at the step. Then the directory is opened here. Every event that was
reported durable is there, the doctor finds the directory sound, and the store continues.
"""

from __future__ import annotations

import copy
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast import _core
from holdfast.errors import Locked, NotFound
from holdfast.ledger.files.backup import backup, restore
from holdfast.ledger.files.doctor import examine
from holdfast.ledger.layout import JOURNAL, PAGE
from tests.kit.ledger.store_kill import scenario
from tests.kit.ledger.store_world import Life, Oracle, SystemWorld
from tests.kit.processes import Child, hear, tell

Start = Callable[..., Child]
KILLED = -signal.SIGKILL

WRITER = [
    "journal_write",
    "journal_half",
    "journal_written",
    "journal_synced",
    "ledger_open",
    "ledger_write",
    "ledger_half",
    "ledger_written",
    "round_done",
]
STORE = [
    "journal_used",
    "journal_dropped",
    "journal_recycled",
    "snapshot_begin",
    "snapshot_synced",
    "snapshot_written",
    "snapshot_renamed",
    "snapshot_done",
    "snapshot_dropped",
    "trim_unlink",
    "ledger_switched",
    "ledger_rewritten",
    "reserve_released",
    "reserve_restored",
]
RECOVER = [
    "recover_locked",
    "recover_loaded",
    "recover_cut",
    "recover_redo",
    "recover_ledger",
    "recover_truncated",
    "recover_done",
]
FRESH = ["format_made", "journal_made"]
COPY = ["backup_copied", "restore_copied"]


def test_every_point_is_covered() -> None:
    assert sorted([*WRITER, *STORE, *RECOVER, *FRESH, *COPY]) == sorted(_core.log_points())


@dataclass
class Prepared:
    """Create a directory with a torn end, and run every operation on it."""

    path: Path
    oracle: Oracle

    def copy(self, to: Path) -> SystemWorld:
        shutil.copytree(self.path, to)
        world = SystemWorld(to, native=True)
        world.oracle = copy.deepcopy(self.oracle)
        return world


def prepare(path: Path, used: bool) -> Prepared:
    async def work(life: Life) -> None:
        for n in range(10):
            life.mixture(n, size=300)
        life.seal(2)
        await life.store.snapshot()
        for n in range(25):
            await life.until(life.mixture(n, size=300))

    records: list[int] = []
    while not records:  # what is written together depends on the clock: a journal may just have begun
        first = SystemWorld(path / "first", native=True)
        shutil.rmtree(first.path, ignore_errors=True)
        first.path.mkdir()
        if not used:
            break
        first.live(work, close=False)
        journal = max(each for each in (first.path / JOURNAL).iterdir() if each.name.startswith("0"))
        content = journal.read_bytes()
        records = [at for at in range(PAGE, len(content), PAGE) if content[at : at + 4] == b"HF\3\1"]
    if records:
        end, torn = records[-1] + PAGE, b"HF\3\1" + b"?" * 3000
        journal.write_bytes(content[:end] + torn + content[end + len(torn) :])
    whole = Prepared(first.path, first.oracle).copy(path / "whole")
    whole.live(scenario)
    whole.oracle.told = first.oracle.told
    return Prepared(first.path, whole.oracle)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("used"), used=True)


@pytest.fixture(scope="module")
def unused(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("unused"), used=False)


def victim(path: str, point: str, countdown: int) -> None:
    from holdfast import _core
    from tests.kit.ledger import store_kill

    _core.arm(point, "kill", countdown)
    store_kill.run(path, tell)
    tell("survived")


def die(start: Start, path: Path, point: str, countdown: int) -> int:
    """Return the highest D that the victim was told before its death there."""
    child = start(victim, str(path), point, countdown)
    child._process.wait(60)
    told = 0
    while True:
        try:
            value = child.hear()
        except AssertionError:  # the end of the pipe
            break
        assert value != "survived", f"{point} was not passed {countdown} times"
        told = value
    child.wait(KILLED)
    return told


def account(world: SystemWorld) -> None:
    """I33, I36: every reported event is there, and the store continues; twice."""
    assert examine(world.path).faults == []

    async def use(life: Life) -> None:
        await life.check_entries()
        await life.until(life.mixture(7))

    world.live(use, close=False)
    world.live(use)
    assert examine(world.path).faults == []


@pytest.mark.parametrize("countdown", [1, 9])
@pytest.mark.parametrize("point", WRITER)
def test_death_in_the_writer(
    start: Start, used: Prepared, tmp_path: Path, point: str, countdown: int
) -> None:
    if (point, countdown) == ("ledger_open", 9):
        countdown = 3  # there are not so many ledgers
    world = used.copy(tmp_path / "data")
    world.oracle.told = max(world.oracle.told, die(start, world.path, point, countdown))
    account(world)


@pytest.mark.parametrize("point", STORE)
def test_death_in_the_store(start: Start, used: Prepared, tmp_path: Path, point: str) -> None:
    world = used.copy(tmp_path / "data")
    world.oracle.told = max(world.oracle.told, die(start, world.path, point, 1))
    account(world)


@pytest.mark.parametrize(
    "point", ["journal_used", "snapshot_renamed", "snapshot_done", "trim_unlink", "journal_dropped"]
)
def test_death_in_the_store_a_little_later(start: Start, used: Prepared, tmp_path: Path, point: str) -> None:
    world = used.copy(tmp_path / "data")
    world.oracle.told = max(world.oracle.told, die(start, world.path, point, 2))
    account(world)


@pytest.mark.parametrize("point", RECOVER)
def test_death_in_recovery(start: Start, used: Prepared, tmp_path: Path, point: str) -> None:
    """Three times over."""
    world = used.copy(tmp_path / "data")
    for _ in range(3):
        assert die(start, world.path, point, 1) == 0
        if point == "recover_cut":  # it was cut; there is nothing to cut any more
            break
    account(world)


@pytest.mark.parametrize("point", [*FRESH, "journal_used"])
def test_death_in_a_new_directory(start: Start, unused: Prepared, tmp_path: Path, point: str) -> None:
    world = unused.copy(tmp_path / "data")
    assert die(start, world.path, point, 1) == 0
    world.live(close=False)
    account(world)


# -- stopped ------------------------------------------------------------------------------------------


def stopping(path: str, point: str) -> None:
    from holdfast import _core
    from tests.kit.ledger import store_kill

    _core.arm(point, "stop", 1)
    store_kill.run(path)
    tell("survived")


@pytest.mark.nightly  # in `make test`: the lock of a living process (tests/process/group/test_disk.py)
@pytest.mark.parametrize("point", [*WRITER, *STORE, *RECOVER])
def test_a_stopped_owner_keeps_its_directory(
    start: Start, used: Prepared, tmp_path: Path, point: str
) -> None:
    """Stopped is not dead: no other process opens, examines or copies it; then it continues."""
    world = used.copy(tmp_path / "data")
    owner = start(stopping, str(world.path), point)
    owner.wait_stopped()
    for attempt in (
        lambda: examine(world.path),
        lambda: backup(world.path, tmp_path / "copy"),
        lambda: world.live(check=False),
    ):
        with pytest.raises(Locked, match=f"process {owner.pid} "):
            attempt()
    owner.go_on()
    assert owner.hear(timeout=60) == "survived"
    owner.wait()
    account(world)


# -- copies -------------------------------------------------------------------------------------------


def copier(what: str, source: str, target: str, point: str, countdown: int) -> None:
    from holdfast import _core
    from holdfast.ledger.files import backup as module

    _core.arm(point, "kill", countdown)
    getattr(module, what)(source, target)
    tell("survived")
    hear()


@pytest.mark.parametrize("countdown", [1, 4])
def test_death_in_a_backup_and_in_a_restore(
    start: Start, used: Prepared, tmp_path: Path, countdown: int
) -> None:
    """Half a copy is none; the source is as it was."""
    world = used.copy(tmp_path / "data")
    start(copier, "backup", str(world.path), str(tmp_path / "half"), "backup_copied", countdown).wait(KILLED)
    with pytest.raises(NotFound, match="is incomplete"):
        restore(tmp_path / "half", tmp_path / "new")
    backup(world.path, tmp_path / "backup")
    where = str(tmp_path / "half-restored")
    start(copier, "restore", str(tmp_path / "backup"), where, "restore_copied", countdown).wait(KILLED)
    with pytest.raises(NotFound):
        backup(where, tmp_path / "no")
    restore(tmp_path / "backup", tmp_path / "restored")
    other = SystemWorld(tmp_path / "restored", native=True)
    other.oracle = copy.deepcopy(world.oracle)
    account(other)
    account(world)
