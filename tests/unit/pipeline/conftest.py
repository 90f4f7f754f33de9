"""Fixtures of streams without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Broker
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.pipeline.source import stream


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A broker's directory."""
    return str(tmp_path / "data")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of this process shows its entries at once."""
    monkeypatch.setattr(stream, "SHOWN_S", 0.1)
    monkeypatch.setattr(stream, "GROW_S", 0.01)


@pytest.fixture
def broker(data: str) -> Iterator[BlockingBroker]:
    with Broker.open(data, roll_entries=1, housekeeping_s=3600) as opened:
        yield opened
