"""A queue with a limit of deliveries, and its dead-letter queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Queue


@pytest.fixture
def work() -> Iterator[Queue]:
    with Queue.create("work", capacity=1 << 14, max_deliveries=2, dead_letter="dead") as q:
        yield q


@pytest.fixture
def dead(work: Queue) -> Iterator[Queue]:
    with Queue.open("dead") as q:
        yield q
