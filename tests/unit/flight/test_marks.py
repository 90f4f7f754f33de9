"""A stream that is cut anywhere continues with the same rows; mutants are found."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd  # noqa: F401  # Arrow imports it with the first time that it shows: not within a test
import pyarrow as pa
import pytest

from holdfast import Broker, Misuse
from holdfast._core import Columns
from holdfast.columns import decoding
from holdfast.columns.remote import RemoteDecoding, RemotePlace, _Away
from holdfast.columns.schema import COLUMNS
from holdfast.columns.tickets import Mark, Read, parsed
from holdfast.ids import NUMBER_MAX
from holdfast.server.flight import service
from tests.kit.ledger.topic_bytes import Maker, MemoryTopic
from tests.kit.server.breaking import Breaking, open_to_all
from tests.kit.slices import seeds


@pytest.fixture(scope="module")
def directory(shared_path: Path) -> Path:
    path = shared_path
    with Broker.open(str(path)):
        return path


def reads(
    directory: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> service.Reads:
    """As in the Flight process, over a topic of bytes, in small batches."""
    monkeypatch.setattr(service, "FileTopic", lambda *_: topic)
    monkeypatch.setattr(decoding, "Columns", functools.partial(Columns, rows_max=rows_max))
    return open_to_all(directory)


def at(place: RemotePlace, topic: MemoryTopic) -> Any:
    """Return the topic as a reader elsewhere has it."""
    of = (topic.name, topic.incarnation.hex(), 0)
    return type("There", (), {"place": place, "name": topic.name, "of": of})()


def differs(directory: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> bool:
    """Return whether a cut stream differs from a whole one in rows or counted damage."""
    monkeypatch.setattr("holdfast.columns.remote.PAUSE_S", 0.0)
    made = Maker(seed)
    made.any(60)
    topic = MemoryTopic(made.entries, made.random.choice([1, 7, 1 << 20]))
    names = [*COLUMNS, "encryption"]
    if seed % 2:
        topic.damaged = set(made.random.sample(range(*topic.plan()), 8))
        names.append("corrupt")
    wish = decoding.Wish(made.random.sample(names, made.random.randrange(1, 12)), permissive=True)
    place = Breaking(reads(directory, topic, monkeypatch, made.random.choice([1, 2, 3, 5, 40])), seed)
    there = at(place, topic)
    near = decoding.Decoding(topic, *topic.plan(), wish)  # type: ignore[arg-type]
    far = RemoteDecoding(there, *topic.plan(), wish)
    expected = [row for batch in near.batches() for row in batch.to_pylist()]
    found = [row for batch in far.batches() for row in batch.to_pylist()]
    assert place.breaks
    assert far.at == topic.plan()[1]
    assert near.damaged >= len(topic.damaged), "and messages whose parts these were"
    return (found, far.damaged) != (expected, near.damaged)


@pytest.mark.parametrize("seed", seeds("flight cuts", test=16))
def test_rows_go_on_where_they_were_cut(directory: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """I164: within a client's batch, too, and between the parts of a chunked message."""
    assert not differs(directory, monkeypatch, seed)


def stream_of_the_last_positions(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the end of a topic that ends where positions end."""
    monkeypatch.setattr("holdfast.columns.remote.PAUSE_S", 0.0)
    made = Maker(3)
    made.any(40)
    topic = MemoryTopic(made.entries, first=NUMBER_MAX - len(made.entries))
    first, visible = topic.plan()
    assert visible == NUMBER_MAX
    place = Breaking(reads(directory, topic, monkeypatch, 5), 3)
    there = at(place, topic)
    far = RemoteDecoding(there, first, visible, decoding.Wish(["position"], permissive=True))
    positions = [row["position"] for batch in far.batches() for row in batch.to_pylist()]
    assert (min(positions), max(positions), far.at) == (first, NUMBER_MAX - 1, NUMBER_MAX)
    assert place.breaks


def test_a_stream_of_the_last_positions(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests, marks and rows reach position 2^63-1; a larger one is refused."""
    stream_of_the_last_positions(directory, monkeypatch)
    beyond = {"topic": "t", "columns": ["key"], "start": 0, "stop": NUMBER_MAX + 1}
    with pytest.raises(Misuse, match=r"the request is malformed: .*stop"):
        parsed(msgspec.json.encode(beyond), Read)


def test_positions_of_62_bits_are_noticed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a topic beyond 2^62 could be read on the broker's machine alone."""

    def narrow(data: bytes, kind: type[Any]) -> Any:
        asked = parsed(data, kind)
        if getattr(asked, "stop", 0) > 1 << 62:
            raise Misuse("the request is malformed: Expected `int` <= 2^62 - at `$.stop`")
        return asked

    monkeypatch.setattr(service, "parsed", narrow)
    with pytest.raises(Misuse, match="stop"):
        stream_of_the_last_positions(directory, monkeypatch)


class Once(Breaking):
    """A way that breaks once, behind so many batches."""

    def __init__(self, there: service.Reads, behind: int) -> None:
        super().__init__(there, 0)
        self._behind = behind

    def rows(self, ticket: Read) -> Iterator[tuple[pa.RecordBatch, Mark]]:
        for number, (batch, mark) in enumerate(self._there.rows(None, msgspec.json.encode(ticket))[1]):
            if number == self._behind and not self.breaks:
                self.breaks += 1
                raise _Away("broken for the test")
            yield batch, msgspec.msgpack.decode(mark, type=Mark)


@pytest.mark.parametrize("behind", range(4))
@pytest.mark.parametrize("rows_max", [2, 5, 40])
def test_damage_behind_the_last_row_is_counted_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch, behind: int, rows_max: int
) -> None:
    """A batch is sent after the next entries were read; these are read again."""
    monkeypatch.setattr("holdfast.columns.remote.PAUSE_S", 0.0)
    made = Maker(1)
    for _ in range(8):
        made.batch()
    topic = MemoryTopic(made.entries)
    first, visible = topic.plan()
    topic.damaged = {first, first + 3, visible - 2, visible - 1}
    place = Once(reads(directory, topic, monkeypatch, rows_max), behind)
    there = at(place, topic)
    far = RemoteDecoding(there, first, visible, decoding.Wish(["value"], permissive=True))
    assert sum(batch.num_rows for batch in far.batches()) > 0
    assert (far.damaged, far.at) == (4, visible)


def positions_of(rows: pa.RecordBatch) -> list[int]:
    found: list[int] = rows.column(rows.schema.get_field_index("position")).to_pylist()
    return found


def no_skip(before: Mark, rows: pa.RecordBatch) -> Mark:
    """Forgets the rows of an entry that are there already."""
    return Mark(positions_of(rows)[-1], 0)


def next_entry(before: Mark, rows: pa.RecordBatch) -> Mark:
    """Takes every entry for whole."""
    return Mark(positions_of(rows)[-1] + 1, 0)


def no_carry(before: Mark, rows: pa.RecordBatch) -> Mark:
    """Forgets that an entry's rows may have begun in the batch before."""
    found = positions_of(rows)
    return Mark(found[-1], found.count(found[-1]))


@pytest.mark.parametrize("mutant", [no_skip, next_entry, no_carry])
def test_marks_with_mistakes_are_noticed(
    directory: Path, monkeypatch: pytest.MonkeyPatch, mutant: Any
) -> None:
    monkeypatch.setattr(service, "_mark", mutant)
    assert any(differs(directory, monkeypatch, seed) for seed in range(16))
