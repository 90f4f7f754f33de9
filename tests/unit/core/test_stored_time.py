"""The columns `storedTime`, `uniqueId` and `deliverAt`: the block's time, a name, the delivery time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from holdfast._core import Columns, parse_run
from holdfast.columns.decoding import Decoding, Wish
from tests.kit.ledger.entry_bytes import METADATA, Fields, entry, ledger
from tests.kit.ledger.topic_bytes import FIRST, LEDGER, Maker, MemoryTopic, stored
from tests.kit.slices import seeds

FIELDS: Fields = [
    (METADATA["producer_name"], b"p"),
    (METADATA["sequence_id"], 1),
    (METADATA["publish_time"], 1),
]


def rows_of(topic: Any, columns: list[str], permissive: bool = False) -> list[dict[str, Any]]:
    start, stop = topic.plan()
    ranged = Decoding(topic, start, stop, Wish(columns, permissive))
    return [row for batch in ranged.batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", seeds("stored time", test=3))
def test_each_message_has_the_time_of_its_block(seed: int) -> None:
    """Messages of a batch have one time; a chunked message has its last part's."""
    made = Maker(seed)
    made.any(120)
    rows = rows_of(MemoryTopic(made.entries), ["position", "storedTime", "publishTime"])
    assert len(rows) == len(made.rows)
    assert [row["storedTime"] for row in rows] == [stored(row["position"] - FIRST) for row in rows]
    assert all(row["storedTime"] != row["publishTime"] for row in rows)


@pytest.mark.parametrize(
    ("time_ns", "found"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1_999, datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        ((1 << 63) - 1, datetime(2262, 4, 11, 23, 47, 16, 854_775, UTC)),
        ((1 << 64) - 1, datetime(2554, 7, 21, 23, 34, 33, 709_551, UTC)),
    ],
)
def test_the_whole_range_of_a_blocks_time(time_ns: int, found: datetime) -> None:
    """64 bits of nanoseconds end in the year 2554, which Spark can show."""
    data, _ = ledger([entry(FIELDS, b"x")], time_ns)
    decoder = Columns(["storedTime"], "t", 0)
    decoder.take(parse_run(LEDGER, FIRST, 0, b"", data), 0)
    assert pa.record_batch(decoder.finish()).column(0).to_pylist() == [found]


def test_a_unique_id_is_one_message() -> None:
    """A position is one entry, which may hold many messages."""
    made = Maker(9)
    made.any(150)
    rows = rows_of(MemoryTopic(made.entries), ["position", "messageId", "uniqueId"])
    assert len({row["uniqueId"] for row in rows}) == len(rows) > len({row["position"] for row in rows})
    for row in rows:
        place = row["messageId"]
        assert row["uniqueId"] == f"{place['ledger']}:{place['entry']}:{place['batchIndex']}"


def test_the_longest_unique_id() -> None:
    most = (1 << 64) - 1
    data, _ = ledger([entry(FIELDS, b"x")])
    decoder = Columns(["uniqueId"], "t", 0)
    decoder.take(parse_run(most, FIRST, 0, b"", data), 0)
    decoder.corrupt(most, most, FIRST, "broken")
    values = pa.record_batch(decoder.finish()).column(0).to_pylist()
    assert values == [f"{most}:0:-1", f"{most}:{most}:-1"]


def test_delivery_times() -> None:
    """The time that the producer wished for; the message is there before."""
    entries = [
        entry([*FIELDS, (METADATA["deliver_at_time"], at_ms)] if at_ms else FIELDS, b"x")
        for at_ms in (0, 1_700_000_000_123, (1 << 63) - 1, (1 << 64) - 5)
    ]
    data, _ = ledger(entries)
    decoder = Columns(["deliverAt"], "t", 0)
    decoder.take(parse_run(LEDGER, FIRST, 0, b"", data), 0)
    found = pa.record_batch(decoder.finish()).column(0).to_pylist()
    assert found == [None, datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC), None, None]


def test_a_damaged_entry_has_a_name_and_no_time() -> None:
    made = Maker(5)
    made.any(20)
    topic = MemoryTopic(made.entries)
    topic.damaged = {FIRST + 4}
    rows = rows_of(topic, ["position", "storedTime", "uniqueId", "deliverAt", "corrupt"], permissive=True)
    [damaged] = [row for row in rows if row["corrupt"] and row["position"] == FIRST + 4]
    assert (damaged["storedTime"], damaged["uniqueId"]) == (None, f"{LEDGER}:4:-1")
