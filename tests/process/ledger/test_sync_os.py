"""A store with `sync = os`, whose core syncs by the real clock, once a second."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

from holdfast import _core
from tests.kit.ledger.checks import work
from tests.kit.ledger.store_world import SMALL, Life, SystemWorld


def test_with_sync_os_a_failed_sync_brings_a_snapshot_at_once(tmp_path: Path) -> None:
    world = SystemWorld(tmp_path, native=True, options=replace(SMALL, sync="os"))

    async def use(life: Life) -> None:
        _core.arm_fault("journal_sync", 1, errno.EIO)
        try:
            await work(life)
            for _ in range(1000):
                if life.store.stats().snapshots:
                    break
                await asyncio.sleep(0.05)
            assert _core.faults_fired() == 1
        finally:
            _core.disarm_fault()
        assert life.store.stats().snapshots == 1
        assert life.failed is None
        assert life.store.stats().journal_files == 2
        await work(life)

    world.live(use, close=False)
    world.live()
