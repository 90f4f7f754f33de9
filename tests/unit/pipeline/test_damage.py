"""Damage a broker's files anywhere: rows are right, or the damage is named or counted."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Broker
from holdfast.broker.events import SinkCommit, StageAppend, StageOpen
from holdfast.columns.decoding import Wish
from holdfast.columns.files import FilePlace
from holdfast.columns.schema import COLUMNS
from holdfast.errors import Corrupt, HoldfastError
from holdfast.pipeline.source.batch import Planned
from holdfast.pipeline.source.batch import cut as plan_tasks
from tests.kit.ledger.topic_bytes import FIRST, Maker
from tests.kit.slices import pick, seeds

ORDERS = "persistent://public/default/orders"
EVERY = [*COLUMNS, "encryption", "corrupt"]
Rows = dict[int, list[dict[str, Any]]]
TRIALS = pick(test=12, nightly=500)


def store(data: Path, entries: list[bytes]) -> None:
    """As the entries are, in ledgers of ten."""
    with Broker.open(str(data), roll_entries=10, housekeeping_s=3600) as broker:

        async def publish(part: list[bytes]) -> None:
            twin, stage = broker._twin, os.urandom(16)
            where = await twin.ensure_topic(ORDERS)
            await twin.engine.submit(StageOpen(stage))
            done = await twin.engine.submit(StageAppend(stage, where.state.id, 0, part))
            await twin.engine.submit(
                SinkCommit(stage.hex(), 1, [(stage, where.state.id, done.count, done.digest)])
            )

        for at in range(0, len(entries), 10):
            broker._run(publish(entries[at : at + 10]))


def read(data: Path, permissive: bool) -> tuple[Rows, int]:
    """The rows by their positions, and how many entries were left out."""
    topic = FilePlace(str(data)).open(ORDERS)
    made = topic.decoding(*topic.plan(), Wish(EVERY, permissive))
    out: Rows = {}
    for batch in made.batches():
        batch.validate(full=True)
        for row in batch.to_pylist():
            out.setdefault(row["position"], []).append(row)
    return out, made.damaged


def check(data: Path, sound: Rows, parts: dict[int, list[int]]) -> int:
    """Reads in both modes. Answers how many entries were left out."""
    found, damaged = read(data, permissive=True)
    corrupt = sorted(place for place, rows in found.items() if rows[0]["corrupt"] is not None)
    assert damaged == len(corrupt)
    for place in sound.keys() | found.keys():
        if place in corrupt:
            assert len(found[place]) == 1, place
        elif place in sound and place in found:
            assert found[place] == sound[place], place
        elif place in found:  # a last part that was sent again, and whose first copy is damaged
            assert any(
                sound[each][0]["value"] == found[place][0]["value"] for each in corrupt if each in sound
            )
        else:
            assert any(part in corrupt for part in parts.get(place, [])), f"{place} is neither here nor there"
    if corrupt:
        with pytest.raises(Corrupt, match=rf"position {corrupt[0]}\b"):
            read(data, permissive=False)
    else:
        assert read(data, permissive=False) == (found, 0)
    return damaged


@pytest.fixture(scope="module")
def made(shared_path: Path) -> tuple[Path, Rows, dict[int, list[int]]]:
    """A directory, its rows, and chunks by the position of the last chunk."""
    maker = Maker(7)
    maker.any(70)
    data = shared_path / "data"
    store(data, maker.entries)
    rows, damaged = read(data, permissive=False)
    assert damaged == 0
    values = [row["value"] for place in sorted(rows) for row in rows[place]]
    assert values == [row["value"] for row in maker.rows]
    parts = {last - FIRST: [place - FIRST for place in places] for last, places in maker.chunked.items()}
    return data, rows, parts


def flip(content: bytearray, choose: random.Random) -> None:
    content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)


def cut(content: bytearray, choose: random.Random) -> None:
    del content[choose.randrange(len(content)) :]


def blank(content: bytearray, choose: random.Random) -> None:
    at = choose.randrange(len(content))
    size = min(choose.choice([1, 8, 64, 4096]), len(content) - at)
    content[at : at + size] = bytes(size)


def move(content: bytearray, choose: random.Random) -> None:
    """Bytes of one offset are copied to another, like blocks that a disk wrote wrongly."""
    size = min(choose.choice([8, 64, 512]), len(content) // 2)
    source, target = (choose.randrange(0, len(content) - size + 1) // 8 * 8 for _ in range(2))
    content[target : target + size] = content[source : source + size]


@pytest.mark.parametrize("damage", [flip, cut, blank, move])
@pytest.mark.parametrize("kind", ["data", "index"])
@pytest.mark.parametrize("seed", seeds("damaged ledgers", test=1, nightly=5))
def test_ledgers_damaged_anywhere(
    made: tuple[Path, Rows, dict[int, list[int]]], damage: Callable[..., None], kind: str, seed: int
) -> None:
    """I152."""
    data, sound, parts = made
    choose = random.Random(f"{damage.__name__} {kind} {seed}")
    files = sorted((data / "ledgers").glob(f"*.{kind}"))
    left_out = 0
    for _ in range(TRIALS):
        file = choose.choice(files)
        content = file.read_bytes()
        changed = bytearray(content)
        damage(changed, choose)
        file.write_bytes(changed)
        try:
            left_out += check(data, sound, parts)
        finally:
            file.write_bytes(content)
    assert (left_out > 0) == (kind == "data"), "an index is a hint"


@pytest.mark.parametrize("pattern", ["topics/*.table", "topics/*.view", "ledgers/*.data"])
@pytest.mark.parametrize("seed", seeds("damaged tables", test=1, nightly=5))
def test_what_leads_to_the_ledgers_is_right_or_an_error(
    made: tuple[Path, Rows, dict[int, list[int]]], pattern: str, seed: int
) -> None:
    """A table, a view or the head of a ledger: rows do not differ."""
    data, sound, _ = made
    choose = random.Random(f"{pattern} {seed}")
    files = sorted(data.glob(pattern))
    assert files
    refused = 0
    for _ in range(2 * TRIALS):
        file = choose.choice(files)
        content = file.read_bytes()
        changed = bytearray(content)
        changed[choose.randrange(min(len(content), 512 if "topics" in pattern else 64))] ^= (
            1 << choose.randrange(8)
        )
        file.write_bytes(changed)
        try:
            found, damaged = read(data, permissive=False)
            assert (found, damaged) == (sound, 0)
        except HoldfastError:
            refused += 1
        finally:
            file.write_bytes(content)
    assert refused > 0


def test_numbers_that_are_too_large_take_no_memory(made: tuple[Path, Rows, dict[int, list[int]]]) -> None:
    """A block or index with a size of gigabytes is refused before memory is allocated."""
    data, sound, parts = made
    for file in sorted((data / "ledgers").glob("*.data"))[:2]:
        content = file.read_bytes()
        for at in range(64, 64 + 32, 4):
            changed = bytearray(content)
            struct.pack_into("<I", changed, at, 0x3FFFFFF0)
            file.write_bytes(changed)
            try:
                check(data, sound, parts)
            finally:
                file.write_bytes(content)


def test_a_plan_does_not_believe_an_index(made: tuple[Path, Rows, dict[int, list[int]]]) -> None:
    """An offset of exabytes would be billions of tasks."""
    data, _, _ = made
    files = {file: file.read_bytes() for file in (data / "ledgers").glob("*.index")}
    total = sum(file.with_suffix(".data").stat().st_size for file in files)
    try:
        for file, content in files.items():
            file.write_bytes(content[:64] + b"\xff" * (len(content) - 64))
        topic = FilePlace(str(data)).open(ORDERS)
        first, visible = topic.plan()
        for start, stop in ((first, visible), (first + 3, visible - 3), (first + 12, first + 13)):
            weights = topic.weights(start, stop)
            assert weights[0] == (start, 0)
            assert weights[-1][0] == stop
            assert weights[-1][1] <= total
            splits = plan_tasks([Planned(topic, start, stop, 0)], None)
            assert [splits[0].start, splits[-1].stop] == [start, stop]
            assert len(splits) <= 2
    finally:
        for file, content in files.items():
            file.write_bytes(content)
