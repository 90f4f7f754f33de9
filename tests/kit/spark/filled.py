"""Fill a broker's directory: a fixture for tests with and without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Broker


def fill(directory: Path, topic: str = "orders") -> None:
    """Send ten messages without keys."""
    with Broker.open(directory) as broker, broker.producer(topic) as producer:
        producer.send_many([b"%d" % i for i in range(10)])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker's directory with ten messages, without keys."""
    made = tmp_path / "data"
    fill(made)
    return made
