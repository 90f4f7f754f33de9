"""Test how many files a reader holds open, and how long."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from holdfast import Broker
from holdfast.columns import files as column_files
from holdfast.columns.decoding import Wish
from holdfast.columns.files import FilePlace, FileTopic, TopicReader
from holdfast.ledger.files.table import directory_incarnation
from tests.kit.processes import until

PREFIX = "persistent://public/default"
TOPICS, LEDGERS = 6, 7


def fill(data: Path, value: bytes = b"x", topics: int = TOPICS) -> None:
    with Broker.open(data, roll_entries=1, housekeeping_s=3600) as broker:
        for number in range(topics):
            with broker.producer(f"t{number}", batch=1) as producer:
                for _ in range(LEDGERS):
                    producer.send_many([value])


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def values(topic: TopicReader) -> list[bytes]:
    batches = topic.decoding(*topic.plan(), Wish(["value"])).batches()
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def test_many_topics_hold_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's driver keeps all topics open, and not all of their files."""
    fill(tmp_path)
    monkeypatch.setattr(column_files, "OPEN_LEDGERS", 5)
    place, before = FilePlace(str(tmp_path)), descriptors()
    held = [place.open(name) for name in place.topics()]
    assert descriptors() == before, "a view and a table take none"
    for topic in held:
        assert values(topic) == [b"x"] * LEDGERS
        assert topic.at_time(0) == 0
        assert topic.open_chunks(*topic.plan(), []) == []
    assert len(held) == TOPICS
    assert 0 < descriptors() - before <= 2 * 5
    held[0].weights(0, LEDGERS, 1)
    assert descriptors() - before <= 2 * 5


def test_one_read_holds_few_files(tmp_path: Path) -> None:
    """As in the Flight process, for each call: a trimmed ledger must free its space."""
    fill(tmp_path, topics=1)
    before = descriptors()
    topic = FileTopic(tmp_path, f"{PREFIX}/t0", directory_incarnation(tmp_path))
    assert values(topic) == [b"x"] * LEDGERS
    assert descriptors() - before <= 2 * column_files.OPEN_ALONE < 2 * LEDGERS
    del topic
    assert descriptors() == before


def test_another_directory_in_the_same_place_has_other_files(tmp_path: Path) -> None:
    """Its ledgers have the same numbers, and are not confused with open ones."""
    fill(tmp_path / "data", b"old")
    fill(tmp_path / "other", b"new")
    place = FilePlace(str(tmp_path / "data"))
    names = place.topics()
    for name in names:
        assert values(place.open(name)) == [b"old"] * LEDGERS
    shutil.rmtree(tmp_path / "data")
    shutil.move(tmp_path / "other", tmp_path / "data")
    for name in names:
        assert values(place.open(name)) == [b"new"] * LEDGERS


def test_topics_that_are_gone_are_let_go(tmp_path: Path) -> None:
    """A stream that runs for months sees many come and go."""
    with Broker.open(tmp_path) as broker:
        place = FilePlace(str(tmp_path))
        for number in range(5):
            with broker.producer(f"t{number}") as producer:
                producer.send_many([b"x"])
            [name] = place.topics()
            assert values(place.open(name)) == [b"x"]
            broker.admin.delete_topic(f"t{number}")
        assert place.topics() == []
        assert (place._open, place._names) == ({}, {})


def test_a_broker_killed_between_table_and_view(tmp_path: Path) -> None:
    """Ledgers absent from the table are trimmed; readers do not retry forever."""
    fill(tmp_path, topics=1)
    [view] = (tmp_path / "topics").glob("*.view")
    with Broker.open(tmp_path, roll_entries=1, housekeeping_s=3600) as broker:
        broker.admin.create_subscription("t0", "s", "latest")
        with broker.producer("t0", batch=1) as producer:
            producer.send_many([b"y"] * 3)
        place = FilePlace(str(tmp_path))
        until(lambda: place.open(f"{PREFIX}/t0").plan() == (0, LEDGERS + 3))
        before = view.read_bytes()
        assert broker.admin.trim("t0") == LEDGERS
    with view.open("r+b") as file:
        file.write(before)
    topic = FilePlace(str(tmp_path)).open(f"{PREFIX}/t0")
    assert topic.plan() == (LEDGERS, LEDGERS + 3), "as the table says"
    assert values(topic) == [b"y"] * 3
    assert topic.at_time(0) == LEDGERS
