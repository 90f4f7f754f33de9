"""Chunked messages of which a part is damaged: refused or counted, wherever the range begins."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from holdfast.columns.decoding import Decoding, Wish
from holdfast.columns.files import FilePlace
from holdfast.errors import Corrupt, DataLoss
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.batch import BatchReader
from tests.kit.ledger.entry_bytes import METADATA, entry
from tests.kit.ledger.topic_bytes import FIRST, MemoryTopic
from tests.kit.slices import seeds
from tests.kit.spark.pipeline_world import append_entries

ORDERS = "persistent://public/default/orders"
WISH = ["position", "value", "corrupt"]


def part(number: int, of: int, name: bytes = b"m") -> bytes:
    chunked = [
        (METADATA["uuid"], b"u-" + name),
        (METADATA["num_chunks_from_msg"], of),
        (METADATA["total_chunk_msg_size"], 2 * of),
        (METADATA["chunk_id"], number),
    ]
    return _entry(b"%s%d" % (name, number), chunked if of > 1 else [])


def _entry(payload: bytes, more: list[tuple[int, Any]]) -> bytes:
    fields: list[tuple[int, Any]] = [
        (METADATA["producer_name"], b"p"),
        (METADATA["sequence_id"], 1),
        (METADATA["publish_time"], 1000),
    ]
    return entry([*fields, *more], payload)


ALONE = part(0, 1, b"x")


def rows(
    topic: MemoryTopic, start: int = 0, permissive: bool = True, **more: Any
) -> list[tuple[int, bytes | None, bool]]:
    """Position, value and whether it is damaged, of what stands from this entry on."""
    decoding = Decoding(topic, FIRST + start, topic.plan()[1], Wish(WISH, permissive, **more))  # type: ignore[arg-type]
    found = [row for batch in decoding.batches() for row in batch.to_pylist()]
    assert decoding.damaged == sum(row["corrupt"] is not None for row in found)
    return [(row["position"] - FIRST, row["value"], row["corrupt"] is not None) for row in found]


def topic_of(entries: list[bytes], *damaged: int) -> MemoryTopic:
    topic = MemoryTopic(entries)
    topic.damaged = {FIRST + each for each in damaged}
    return topic


@pytest.mark.parametrize(("damaged", "where"), [(0, 0), (1, 1), (2, 2)])
def test_a_part_before_the_range_is_damaged(damaged: int, where: int) -> None:
    """I152: its position is named, also if the range begins behind it."""
    entries = [part(0, 4), part(1, 4), part(2, 4), ALONE, part(3, 4), ALONE]
    topic = topic_of(entries, damaged)
    with pytest.raises(Corrupt, match=rf"position {FIRST + 4}\b.*position {FIRST + where}\b.*damaged"):
        rows(topic, 3, permissive=False)
    assert rows(topic, 3) == [(3, b"x0", False), (4, None, True), (5, b"x0", False)]
    assert rows(topic) == [(damaged, None, True), *rows(topic, 3)]


def test_damage_elsewhere_is_not_its_own() -> None:
    """All chunks exist, so the message is whole; so is one that was sent again."""
    entries = [ALONE, part(0, 3), ALONE, part(1, 3), ALONE, part(2, 3), ALONE, part(2, 3), ALONE]
    topic = topic_of(entries, 0, 2, 4, 6)
    assert rows(topic, 5) == [(5, b"m0m1m2", False), (6, None, True), (8, b"x0", False)]
    topic = topic_of(entries, 0, 2, 4)
    assert rows(topic, 5, permissive=False) == [(5, b"m0m1m2", False), (6, b"x0", False), (8, b"x0", False)]


def test_a_part_that_was_never_sent_is_missing_and_nothing_is_damaged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Damage before its beginning, and behind what is there, cannot be the part."""
    topic = topic_of([ALONE, part(0, 3), part(2, 3), ALONE], 0)
    assert rows(topic, 1, permissive=False) == [(3, b"x0", False)]
    topic = topic_of([part(0, 4), part(2, 4), ALONE, part(3, 4), ALONE], 2)
    assert rows(topic, 3, permissive=False) == [(4, b"x0", False)]
    assert caplog.text.count("and it is left out") == 2


def test_what_was_trimmed_is_a_loss_first() -> None:
    """A reader that needs the first chunks gets an error, damaged or not."""
    topic = topic_of([ALONE, part(1, 3), part(2, 3)], 0)
    with pytest.raises(DataLoss, match="trimmed"):
        rows(topic, 1, whole=FIRST - 1)
    assert rows(topic, 1) == [(2, None, True)]


@pytest.mark.parametrize("seed", seeds("damaged chunks", test=20))
def test_rows_do_not_depend_on_where_a_range_begins(seed: int) -> None:
    """I150, I152: with parts that are damaged, missing, sent again, and out of order."""
    choose = random.Random(seed)
    entries = []
    for _ in range(25):
        name = choose.choice([b"a", b"b", b"c"])
        entries += [part(number, 4, name) for number in range(4) if choose.random() < 0.9]
        entries += [ALONE] * choose.randrange(2)
    if seed % 2:
        for _ in range(20):
            at = choose.randrange(len(entries) - 1)
            entries[at : at + 2] = entries[at + 1], entries[at]
    topic = topic_of(entries, *choose.sample(range(len(entries)), choose.randrange(8)))
    whole = rows(topic)
    for start in range(len(entries)):
        assert rows(topic, start) == [row for row in whole if row[0] >= start], start


def test_in_the_files(tmp_path: Path) -> None:
    """The same with a broker's ledgers, by the options of a query."""
    from pyspark.sql.types import BinaryType, LongType, StringType, StructType

    append_entries(tmp_path / "data", "orders", [part(0, 3), part(1, 3), ALONE, part(2, 3), ALONE])
    schema = StructType().add("position", LongType()).add("value", BinaryType()).add("corrupt", StringType())

    def found(mode: str, start: int) -> list[tuple[int, bytes | None]]:
        offsets = json.dumps({"orders": {"0": start}})
        given = {"path": str(tmp_path / "data"), "topic": "orders", "mode": mode, "startingOffsets": offsets}
        reader = BatchReader(parse(given, "source"), schema)
        batches = [batch for split in reader.partitions() for batch in reader.read(split)]
        return [(row["position"], row["value"]) for batch in batches for row in batch.to_pylist()]

    assert found("failfast", 2) == [(2, b"x0"), (3, b"m0m1m2"), (4, b"x0")]
    topic = FilePlace(str(tmp_path / "data")).open(ORDERS)
    ledger, _ = topic._at(1, 2)
    file = Path(topic._stem(ledger) + ".data")
    content = bytearray(file.read_bytes())
    content[topic._offset(ledger, 1, len(content)) + 60] ^= 1
    file.write_bytes(content)
    assert found("permissive", 2) == [(2, b"x0"), (3, None), (4, b"x0")]
    with pytest.raises(Corrupt, match=r"position 3.*may have been at position 1, which is damaged"):
        found("failfast", 2)
