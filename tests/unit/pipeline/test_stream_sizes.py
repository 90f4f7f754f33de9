"""Test limits in bytes and task sizes with entries that differ in size."""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import Broker
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.columns import files as column_files
from holdfast.columns.files import FilePlace, FileTopic
from holdfast.ledger.files.table import TableEntry
from holdfast.ledger.layout import FILE_HEADER
from holdfast.pipeline.source.batch import Planned, cut
from holdfast.pipeline.source.stream import reach
from tests.kit.pipeline.streams import ORDERS, Stream
from tests.kit.slices import seeds

LARGE, SMALL = 100 << 10, 100
COUNTS = (20, 2000)
"""Large ones, and then small ones, in the same ledger."""


@pytest.fixture(scope="module")
def data(shared_path: Path) -> Iterator[str]:
    path = str(shared_path / "data")
    with Broker.open(path) as broker:
        fill(broker)
        yield path


def fill(broker: BlockingBroker) -> None:
    with broker.producer("orders", batch=1) as producer:
        producer.send_many([b"x" * LARGE] * COUNTS[0])
        producer.send_many([b"x" * SMALL] * COUNTS[1])


@pytest.fixture
def topic(data: str) -> FileTopic:
    found = FilePlace(data).open(ORDERS)
    assert found.plan() == (0, sum(COUNTS))
    assert len(found.weights(0, sum(COUNTS))) == 2, "all of it stands in one ledger"
    return found


def bytes_in(topic: FileTopic, start: int, stop: int) -> int:
    return topic.weights(start, stop)[-1][1]


def test_a_limit_in_bytes_is_kept(data: str, topic: FileTopic) -> None:
    """Not so many entries as if all were as large as their mean."""
    limit = 5 * LARGE
    stream = Stream(data, maxBytesPerTrigger=limit)
    sizes = []
    while found := stream.batch():
        sizes.append(bytes_in(topic, found[0], found[-1] + 1))
    assert stream.position() == sum(COUNTS)
    assert all(size <= limit * 17 // 16 for size in sizes), sizes
    assert len(sizes) <= 7, "and it is used"
    for size, count in ((1, 1), (LARGE // 2, 1), (3 * LARGE, 2), (1 << 40, sum(COUNTS))):
        assert reach(topic, 0, sum(COUNTS), size) == count
    assert COUNTS[0] + 100 < reach(topic, COUNTS[0], sum(COUNTS), LARGE) < COUNTS[0] + LARGE // SMALL


def test_tasks_are_of_a_size_whatever_the_entries(topic: FileTopic) -> None:
    """I154."""
    whole = bytes_in(topic, 0, sum(COUNTS))
    for tasks in (2, 4, 8):
        splits = cut([Planned(topic, 0, sum(COUNTS), 0)], tasks)
        assert [splits[0].start, splits[-1].stop] == [0, sum(COUNTS)]
        assert all(left.stop == right.start for left, right in pairwise(splits))
        most = max(bytes_in(topic, each.start, each.stop) for each in splits)
        assert most <= whole // tasks * 17 // 16 + 2 * LARGE, [(each.start, each.stop) for each in splits]


def test_one_task_is_not_weighed_twice(topic: FileTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range that is too small to divide needs no index."""
    monkeypatch.setattr(FileTopic, "_finer", None)
    assert len(cut([Planned(topic, 0, sum(COUNTS), 0)], 1)) == 1
    assert reach(topic, 0, sum(COUNTS), 1 << 30) == sum(COUNTS)


class Counted:
    """How often an index is read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        self._real = os.pread
        patch.setattr(os, "pread", self._read)

    def _read(self, *told: Any) -> bytes:
        self.reads += 1
        return self._real(*told)


def made(directory: Path, sizes: list[int]) -> tuple[FileTopic, TableEntry, list[int]]:
    """A ledger of such entries, as far as its index tells of it."""
    offsets = [FILE_HEADER]
    for size in sizes:
        offsets.append(offsets[-1] + size)
    topic = object.__new__(FileTopic)
    topic._directory = directory
    (directory / "ledgers").mkdir(exist_ok=True)
    entry = TableEntry(1, 7, 0, 0, 0)
    index = bytes(FILE_HEADER) + array("Q", offsets[:-1]).tobytes()
    Path(topic._stem(entry) + ".index").write_bytes(index)
    return topic, entry, offsets


@pytest.mark.parametrize("seed", seeds("points", test=12))
def test_points_within_a_ledger(tmp_path: Path, seed: int) -> None:
    """As many as are needed, none that is not, and each is right."""
    choose = random.Random(seed)
    sizes = [choose.choice([64, 200, 5000, 100_000]) for _ in range(choose.randrange(2, 3000))]
    topic, entry, offsets = made(tmp_path, sizes)
    step = choose.choice([100, 4096, 50_000, 1 << 20])
    found = topic._inside(entry, (0, offsets[0]), (len(sizes), offsets[-1]), step)
    ends = [(0, offsets[0]), *found, (len(sizes), offsets[-1])]
    for (low, at), (high, end) in pairwise(ends):
        assert (at, end) == (offsets[low], offsets[high])
        assert low < high
        assert end - at <= step or high - low == 1
    for (_, at), (_, end) in zip(ends, ends[2:], strict=False):
        assert end - at > step


def test_a_large_index_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan over a million entries needs few reads of eight bytes."""
    topic, entry, offsets = made(tmp_path, [1 << 20] * 1000 + [1024] * 999_000)
    counted = Counted(monkeypatch)
    found = topic._inside(entry, (0, offsets[0]), (1_000_000, offsets[-1]), 64 << 20)
    assert len(found) < 2 * (2 << 30) // (64 << 20)
    assert counted.reads < 400


@pytest.mark.parametrize("wrong", [0, 1 << 62, "cut", "gone"])
def test_an_index_that_is_wrong_is_not_believed(tmp_path: Path, wrong: Any) -> None:
    topic, entry, offsets = made(tmp_path, [1000] * 100)
    path = Path(topic._stem(entry) + ".index")
    content = path.read_bytes()
    if wrong == "gone":
        path.unlink()
    elif wrong == "cut":
        path.write_bytes(content[: FILE_HEADER + 8 * 30 + 3])
    else:
        path.write_bytes(content[:FILE_HEADER] + array("Q", [wrong] * 100).tobytes())
    found = topic._inside(entry, (0, offsets[0]), (100, offsets[-1]), 5000)
    assert all(offsets[at] == offset for at, offset in found)
    assert len(found) < 30


def test_points_are_bounded(topic: FileTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for a point per byte returns some thousand; the caller asks again."""
    monkeypatch.setattr(column_files, "POINTS_MAX", 50)
    found = topic.weights(0, sum(COUNTS), 1)
    assert 20 < len(found) < 2 * 50 + 4
    assert reach(topic, 0, sum(COUNTS), 19 * LARGE + 60 * SMALL) > 18
    wanted = bytes_in(topic, 0, 1000)
    assert abs(reach(topic, 0, sum(COUNTS), wanted) - 1000) < 1000
