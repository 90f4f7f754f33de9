"""Fault sweeps: the nth call fails, n rising until a clean pass; durable events stay.

After each fault the machine goes down: a simulated disk then loses what a failed sync should have covered.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from holdfast import _core
from holdfast.errors import Closed
from tests.kit.faults import Faults, injected, ledger_sync_fails
from tests.kit.ledger.checks import (
    NTH_MAX,
    a_power_cut_after_a_failed_sync_of_the_journal,
    attempt,
    everything,
    following,
    sweep_sim,
    the_nth_call_fails,
)
from tests.kit.ledger.store_world import Life, SystemWorld, World
from tests.kit.slices import pick, seeds

OPERATIONS = (
    *("write", "sync", "open", "rename", "preallocate"),
    *("make_directory", "unlink", "sync_directory", "list", "read"),
)
TAKES_ROOM = ("write", "open", "rename", "preallocate")


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        *((operation, errno.EIO) for operation in OPERATIONS),
        *((operation, errno.ENOSPC) for operation in pick(test=TAKES_ROOM, nightly=OPERATIONS)),
    ],
)
def test_the_nth_call_fails(operation: str, error: int) -> None:
    """I33–I36 on a disk that loses all that a failed sync should have covered."""
    the_nth_call_fails(operation, error)


def test_the_nth_write_is_short() -> None:
    def arm(world: World, nth: int) -> None:
        world.platter.cut_short(nth)  # type: ignore[attr-defined]

    seen = sweep_sim(arm, lambda world: not world.platter._faults)  # type: ignore[attr-defined]
    assert set(seen) == {"worked"}, "a short write goes on where it stopped"


@pytest.mark.parametrize("seed", seeds("failed sync", test=4, nightly=40))
def test_a_power_cut_after_a_failed_sync_of_the_journal(seed: int) -> None:
    """I34: the round is in the next file; a later sync does not count."""
    a_power_cut_after_a_failed_sync_of_the_journal(seed)


# -- real files, the core's writer ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("journal_write", errno.EIO),
        ("journal_write", errno.ENOSPC),
        ("journal_write", -100),
        ("journal_sync", errno.EIO),
        ("ledger_open", errno.EIO),
        ("ledger_open", errno.ENOSPC),
        ("ledger_write", errno.EIO),
        ("ledger_write", errno.ENOSPC),
        ("ledger_write", -7),
        ("index_write", errno.EIO),
        ("index_write", -3),
    ],
)
def test_the_nth_call_of_the_core_fails(tmp_path: Path, operation: str, error: int) -> None:
    """I33, I34, I35: one failure of the writer is repaired, without an error."""
    nth = 1
    while nth < NTH_MAX:
        path = tmp_path / str(nth)
        path.mkdir()
        world = SystemWorld(path, native=True)
        _core.arm_fault(operation, nth, error)
        try:
            outcome = attempt(world, turns=1)
            struck = _core.faults_fired() > 0
        finally:
            _core.disarm_fault()
        assert outcome == "worked", f"the fault at {nth}"
        world.live(close=False)
        if not struck:
            assert nth > 1, "the sweep has met nothing"
            return
        nth = following(nth)
    raise AssertionError("no clean pass")


@pytest.mark.parametrize("operation", ["journal_write", "journal_sync"])
def test_a_journal_that_fails_for_good_stops_the_store(tmp_path: Path, operation: str) -> None:
    """I34: the store reports it, and confirmed events are there."""
    world = SystemWorld(tmp_path, native=True)

    async def use(life: Life) -> None:
        await life.until(life.mixture(0))
        _core.arm_fault(operation, 1, errno.EIO, times=0)
        d = life.mixture(1)
        await life.until(d)
        assert isinstance(life.failed, Closed)
        assert "twice" in str(life.failed)
        assert life.durable_d < d
        with pytest.raises(Closed):
            life.store.admit(1)
        with pytest.raises(Closed):
            await life.store.flush()

    try:
        world.live(use)
    finally:
        _core.disarm_fault()
    world.live()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, None], ids=["EIO", "ENOSPC", "short"])
def test_the_nth_call_on_real_files_fails(tmp_path: Path, error: int | None) -> None:
    """Calls of Python fail: for opening, journals, snapshots, ledgers and recovery."""
    seen: dict[str, int] = {}
    nth = 1
    while True:
        path = tmp_path / str(nth)
        path.mkdir()
        world = SystemWorld(path, native=True)
        world.live(everything, close=False)
        with injected(Faults(nth, error)) as faults:
            outcome = attempt(world, turns=1)
        world.live(close=False)
        world.live()
        if not faults.struck:
            assert outcome == "worked"
            break
        seen[outcome] = seen.get(outcome, 0) + 1
        nth = following(nth, dense=1)
    assert seen["worked"] > pick(test=0, nightly=3)
    if error is None:
        assert set(seen) == {"worked"}


def test_a_ledger_whose_sync_fails_is_rewritten(tmp_path: Path) -> None:
    """I35: it is rewritten while it is written and read; also after a restart."""
    world = SystemWorld(tmp_path, native=True)

    async def use(life: Life) -> None:
        for n in range(30):
            life.mixture(n)
        await life.store.flush()
        with ledger_sync_fails():
            snapshot = asyncio.ensure_future(life.store.snapshot())
            for n in range(30, 60):
                await life.until(life.mixture(n))
                await life.check_entries()
            await snapshot
        assert life.store.stats().rewritten == 1
        await life.check_entries()
        assert life.failed is None

    world.live(use, close=False)
    (rewritten,) = (tmp_path / "ledgers").glob("*.1.data")
    world.live(use, close=False)
    world.live(lambda life: life.store.snapshot())
    world.live(lambda life: life.store.snapshot())
    world.live()
    before = rewritten.name.replace(".1.data", ".data")
    assert not (tmp_path / "ledgers" / before).exists(), (
        "the old file goes when no kept snapshot speaks of it"
    )
