"""What tests of local ingest have in common: a broker in this process, with the door open."""

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
    """Queues that nobody uses are taken away when the test says so."""
    with serving(data, {"idle_s": 1e6}) as it:
        yield it
