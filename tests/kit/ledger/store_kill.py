"""The work of the victims in torture/test_store_kill.py, always in the same order."""

from __future__ import annotations

import errno
from pathlib import Path

from holdfast import _core
from tests.kit.faults import ledger_sync_fails
from tests.kit.ledger.store_world import Life, SystemWorld


async def scenario(life: Life) -> None:
    """Work, snapshots, trims, several journal files, a full disk, a ledger whose sync fails."""
    for n in range(8):
        await life.until(life.mixture(n, size=1500))
    await life.store.snapshot()
    for _ in range(4):
        life.seal(1)
        for n in range(12):
            life.mixture(n, size=2000)
        await life.store.flush()
        life.trim(1)
        await life.store.snapshot()
    _core.arm_fault("ledger_write", 1, errno.ENOSPC)
    life.mixture(4, size=100)
    await life.store.flush()
    _core.disarm_fault()
    with ledger_sync_fails():
        await life.store.snapshot()
    for n in range(6):
        await life.until(life.mixture(n, size=500))


def run(path: str, told: object = None) -> None:
    """Run one life in the victim; report durable events as they happen."""
    world = SystemWorld(Path(path), native=True)

    async def use(life: Life) -> None:
        before = life._on_durable

        def on_durable(d: int) -> None:
            before(d)
            if callable(told):
                told(d)

        life.store._running._on_durable = on_durable  # type: ignore[union-attr]
        await scenario(life)

    world.live(use, check=False)
