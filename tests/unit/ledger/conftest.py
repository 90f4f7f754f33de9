"""Fixtures of the store's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.ledger.store_world import SystemWorld


@pytest.fixture
def world(tmp_path: Path) -> SystemWorld:
    made = SystemWorld(tmp_path / "data", native=True)
    made.path.mkdir()
    return made
