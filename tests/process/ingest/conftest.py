"""Share a broker with local ingest, in this process, among tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.server.ingest_world import World, serving


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def world(data: Path) -> Iterator[World]:
    """Idle queues are removed when the test says so."""
    with serving(data, {"idle_s": 1e6}) as it:
        yield it
