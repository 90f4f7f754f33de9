"""A topic of keyed messages that is compacted, beside a model of its rows."""

from __future__ import annotations

import os
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd  # noqa: F401  # Arrow imports it with the first time that it shows: not within a test

from holdfast.broker.api.blocking import BlockingBroker
from holdfast.broker.events import CompactionSettle, SinkCommit, StageAppend, StageOpen
from holdfast.columns import NEWEST, Wish
from holdfast.columns.files import FilePlace, TopicReader
from tests.kit.ledger.entry_bytes import METADATA, SINGLE, Fields, batch_payload, entry
from tests.kit.ledger.topic_bytes import EPOCH, compress
from tests.kit.processes import until

PRICES = "persistent://public/default/prices"
COLUMNS = ("key", "value", "messageId", "position", "producer", "sequenceId", "properties", "publishTime")
"""All that is the same in the view and in the topic: not `storedTime`."""
SMALL: dict[str, Any] = {"reserve_bytes": 1 << 20, "journal_bytes": 1 << 20, "sync": "os"}
"""Options of a broker that is opened quickly."""
SENT_MS = 1_700_000_000_000
"""The publish time of message 0; of each next one it is 1 ms later."""
Row = dict[str, Any]
Pair = tuple[str | None, bytes | None]
"""Key and value; without a value it is a tombstone."""


def _fields(numbers: dict[str, int], key: str | None, value: bytes | None) -> Fields:
    fields: Fields = [] if key is None else [(numbers["partition_key"], key.encode())]
    return fields if value is not None else [*fields, (numbers["null_value"], 1)]


def _head(number: int) -> Fields:
    return [(1, b"p"), (2, number), (3, SENT_MS + number)]


def single(number: int, key: str | None, value: bytes | None) -> bytes:
    return entry([*_head(number), *_fields(METADATA, key, value)], value or b"")


def batch(number: int, pairs: list[Pair], compression: int = 0) -> bytes:
    payload = batch_payload((_fields(SINGLE, *pair), pair[1] or b"") for pair in pairs)
    fields = [*_head(number), (METADATA["num_messages_in_batch"], len(pairs))]
    if compression:
        fields += [(METADATA["compression"], compression), (METADATA["uncompressed_size"], len(payload))]
        payload = compress(compression, payload)
    return entry(fields, payload)


def parts(number: int, key: str, value: bytes, count: int) -> list[bytes]:
    """Return a message in so many parts."""
    size = -(-len(value) // count)
    fields = [*_head(number), *_fields(METADATA, key, value), (METADATA["uuid"], b"u%d" % number)]
    fields += [(METADATA["num_chunks_from_msg"], count), (METADATA["total_chunk_msg_size"], len(value))]
    return [
        entry([*fields, (METADATA["chunk_id"], at)], value[at * size : (at + 1) * size])
        for at in range(count)
    ]


def append(broker: BlockingBroker, entries: list[bytes], topic: str = PRICES) -> None:
    """Append entries as they are."""

    async def work() -> None:
        twin, stage = broker._twin, os.urandom(16)
        where = await twin.ensure_topic(topic)
        await twin.engine.submit(StageOpen(stage))
        done = await twin.engine.submit(StageAppend(stage, where.state.id, 0, entries))
        await twin.engine.submit(
            SinkCommit(stage.hex(), 1, [(stage, where.state.id, done.count, done.digest)])
        )

    if entries:
        broker._run(work())


class Prices:
    """The topic, with every row that it ever had."""

    def __init__(self, broker: BlockingBroker, data: str, seed: int = 1, keys: int = 12) -> None:
        self.broker = broker
        self.data = data
        self.random = random.Random(seed)
        self.keys = keys
        self.rows: list[Row] = []
        self._sent = 0
        self._open: list[tuple[list[bytes], Row]] = []
        """Large messages: the parts that are not sent yet, and the row of the whole."""
        self._whole: dict[int, Row] = {}
        """Rows of large messages, by the place of the last part in what is being sent."""

    def send(self, count: int) -> None:
        """Send entries of all kinds, in some ledgers, and note their rows."""
        self._whole.clear()
        entries = [self._entry(self._sent + 1 + i, i) for i in range(count)]
        self._sent += count
        cut = self.random.randrange(count + 1)
        for some in (entries[:cut], entries[cut:]):
            append(self.broker, some)
            if some and self.random.random() < 0.5:
                self.broker.admin.roll(PRICES)
        end = self.note()
        topic: Any = FilePlace(self.data).open(PRICES)
        there = {row["position"] for row in self.rows}
        for place, row in self._whole.items():  # their first parts may be trimmed
            if (position := end - count + place) not in there:
                ledger, entry = topic.locate(position)
                at = {"position": position, "messageId": {"ledger": ledger, "entry": entry, "batchIndex": -1}}
                self.rows.append({**row, **at})
        self.rows.sort(key=lambda row: (row["position"], row["messageId"]["batchIndex"]))

    def note(self) -> int:
        """Read the rows that came since, and return the end of the topic."""
        topic = FilePlace(self.data).open(PRICES)
        first, visible = topic.plan()
        start = self.rows[-1]["position"] + 1 if self.rows else first
        self.rows += rows_of(topic, max(first, start), visible)
        return visible

    def _pair(self) -> Pair:
        key = None if self.random.random() < 0.1 else f"k{self.random.randrange(self.keys)}"
        value = None if self.random.random() < 0.15 else self.random.randbytes(self.random.randrange(40))
        return key, value

    def _entry(self, number: int, place: int) -> bytes:
        kind = self.random.randrange(5)
        if kind < 2:
            return single(number, *self._pair())
        if kind < 4:
            pairs = [self._pair() for _ in range(self.random.randrange(1, 6))]
            return batch(number, pairs, self.random.choice([0, 0, 1, 2, 3, 4]))
        if len(self._open) < 2:
            key, value = f"k{self.random.randrange(self.keys)}", self.random.randbytes(50)
            row = {"key": key.encode(), "value": value, "producer": "p", "sequenceId": number}
            row |= {
                "properties": [],
                "publishTime": EPOCH + timedelta(milliseconds=SENT_MS + number),
            }
            self._open.append((parts(number, key, value, self.random.randrange(2, 5)), row))
        chosen = self.random.choice(self._open)
        found = chosen[0].pop(0)
        if not chosen[0]:
            self._open.remove(chosen)
            self._whole[place] = chosen[1]
        return found

    def compact(self) -> int:
        """Compact the topic, and return the horizon of its view."""
        self.broker.admin.compact(PRICES, wait=True)
        return through_newest(self.data).horizon

    def settle(self) -> None:
        """Forget the view before the newest one, and trim what no view needs."""
        twin = self.broker._twin
        number = through_newest(self.data).view

        async def work() -> None:
            await twin.engine.submit(CompactionSettle(twin.topic(PRICES).id, number))

        self.broker._run(work())
        self.broker.admin.roll(PRICES)
        self.broker.admin.create_subscription(PRICES, "done", "latest")
        self.broker.admin.trim(PRICES)
        self.broker.admin.delete_subscription(PRICES, "done")

    def remove_files(self) -> None:
        """Take snapshots until the files of trimmed ledgers and removed views are deleted."""
        table = FilePlace(self.data).topic(PRICES).table
        kept = {each.file for each in table.ledgers} | {each.file for each in table.views}

        def removed() -> bool:
            self.broker.admin.create_subscription(PRICES, "some", "latest")  # a snapshot needs an event
            self.broker.admin.delete_subscription(PRICES, "some")
            self.broker._run(self.broker._twin.store.snapshot())
            return kept >= {int(each.stem, 16) for each in (Path(self.data) / "ledgers").glob("*.data")}

        until(removed)

    def expected(self, horizon: int, start: int = 0) -> list[Row]:
        """Return the rows of a compacted batch from a position on."""
        newest = {row["key"]: row for row in self.rows if row["position"] < horizon}
        return [
            row
            for row in self.rows
            if row["position"] >= start
            and (
                row["position"] >= horizon
                or (row["key"] is not None and row["value"] and newest[row["key"]] is row)
            )
        ]


def through_newest(data: str) -> TopicReader:
    return FilePlace(data).open(PRICES, NEWEST)


def rows_of(topic: TopicReader, start: int, stop: int) -> list[Row]:
    found = topic.decoding(start, stop, Wish(list(COLUMNS))).batches()
    return [row for each in found for row in each.to_pylist()]


def view_files(data: str) -> list[Path]:
    """Return the files of compacted views, the newest last."""
    return sorted((Path(data) / "topics").glob("*.compacted"), key=lambda each: int(each.suffixes[0][1:], 16))


__all__ = [
    "COLUMNS",
    "PRICES",
    "SMALL",
    "Pair",
    "Prices",
    "Row",
    "append",
    "batch",
    "parts",
    "rows_of",
    "single",
    "through_newest",
    "view_files",
]
