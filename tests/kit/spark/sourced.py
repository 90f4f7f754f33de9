"""A broker whose directory the source reads: fixtures for tests with and without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Broker
from holdfast.broker.api.blocking import BlockingBroker


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
def broker(data: str) -> Iterator[BlockingBroker]:
    with Broker.open(data, retention_s=0, roll_entries=10, housekeeping_s=3600) as opened:
        yield opened
