"""Rows that were cut anywhere go on as if they had not been; and who gets it wrong is found."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from holdfast import Broker
from holdfast._core import Columns
from holdfast.pipeline import decoding
from holdfast.pipeline.columns import COLUMNS
from holdfast.pipeline.remote import RemoteDecoding, RemotePlace, _Away
from holdfast.wire.flight import service
from holdfast.wire.flight.asking import Mark, Read
from holdfast.wire.flight.link import Setup, Told
from topic_bytes import Maker, MemoryTopic


class Everybody:
    """Instead of the link to a server: all may."""

    def ask(self, header: str | None, topics: list[str]) -> Told:
        return Told(1, "anybody", [True] * len(topics))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("marks")
    with Broker.open(str(path)):
        return path


def reads(
    directory: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> service.Reads:
    """As in the Flight process, over a topic of bytes, in small batches."""
    monkeypatch.setattr(service, "FileTopic", lambda *_: topic)
    monkeypatch.setattr(decoding, "Columns", functools.partial(Columns, rows_max=rows_max))
    setup = Setup(str(directory), "127.0.0.1", None, None, "", "", "", 4, 60.0, 1 << 30, "info", "text")
    return service.Reads(directory, Everybody(), service.Service(setup, Everybody()))  # type: ignore[arg-type]


class Breaking(RemotePlace):
    """A way that breaks after some batches, at random."""

    def __init__(self, there: service.Reads, seed: int) -> None:
        super().__init__("http://nowhere", timeout_s=60.0)
        self._there = there
        self._random = random.Random(seed)
        self.breaks = 0

    def rows(self, ticket: Read) -> Iterator[tuple[pa.RecordBatch, Mark]]:
        _, found = self._there.rows(None, msgspec.json.encode(ticket))
        with contextlib.closing(found):  # type: ignore[type-var]
            for batch, mark in found:
                if self._random.random() < 0.3:
                    self.breaks += 1
                    raise _Away("broken for the test")
                yield batch, msgspec.msgpack.decode(mark, type=Mark)
        if self._random.random() < 0.3:
            self.breaks += 1
            raise _Away("broken at the end")


def differs(directory: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> bool:
    """Whether rows that were cut are others than those that were not."""
    monkeypatch.setattr("holdfast.pipeline.remote.PAUSE_S", 0.0)
    made = Maker(seed)
    made.any(60)
    topic = MemoryTopic(made.entries, made.random.choice([1, 7, 1 << 20]))
    columns = made.random.sample([*COLUMNS, "encryption"], made.random.randrange(1, 12))
    expected = [{name: row[name] for name in columns} for row in made.rows]
    place = Breaking(reads(directory, topic, monkeypatch, made.random.choice([1, 2, 3, 5, 40])), seed)
    there: Any = type("There", (), {"place": place, "name": topic.name, "incarnation": topic.incarnation})()
    rows = RemoteDecoding(there, *topic.plan(), decoding.Wish(columns))
    found = [row for batch in rows.batches() for row in batch.to_pylist()]
    assert place.breaks or len(made.rows) < 50
    assert rows.at == topic.plan()[1]
    return found != expected


@pytest.mark.parametrize("seed", range(12))
def test_rows_go_on_where_they_were_cut(directory: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """I164: within a client's batch, too, and between the parts of a chunked message."""
    assert not differs(directory, monkeypatch, seed)


def no_skip(before: Mark, positions: Any) -> Mark:
    """Forgets the rows of an entry that are there already."""
    return Mark(positions[-1].as_py(), 0)


def next_entry(before: Mark, positions: Any) -> Mark:
    """Takes every entry for whole."""
    return Mark(positions[-1].as_py() + 1, 0)


def no_carry(before: Mark, positions: Any) -> Mark:
    """Forgets that an entry's rows may have begun in the batch before."""
    found = positions.to_pylist()
    return Mark(found[-1], found.count(found[-1]))


@pytest.mark.parametrize("mutant", [no_skip, next_entry, no_carry])
def test_marks_with_mistakes_are_noticed(
    directory: Path, monkeypatch: pytest.MonkeyPatch, mutant: Any
) -> None:
    monkeypatch.setattr(service, "_mark", mutant)
    assert any(differs(directory, monkeypatch, seed) for seed in range(12))
