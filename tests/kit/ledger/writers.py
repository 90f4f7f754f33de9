"""A writer of the core on real files, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import _core
from tests.kit.ledger.log_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.use_journal("journal")
    world.writer.start()
    yield world
    _core.disarm_fault()
    world.writer.stop()
