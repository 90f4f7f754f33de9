"""Topics made without the core: entries of all kinds, expected rows, and a reader."""

from __future__ import annotations

import base64
import random
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from holdfast._core import Entries, parse_run
from holdfast.errors import Corrupt
from tests.kit.ledger.entry_bytes import METADATA, SINGLE, Fields, Value, batch_payload, entry, ledger, pair

LEDGER = 7
FIRST = 1000
"""The ordinal of the first entry."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STORED_NS, STEP_NS = 1_794_700_000_123_456_789, 1_234_567
"""Stored time of the first entry, and the step to each next one."""
Row = dict[str, Any]


class MemoryTopic:
    """A topic like `holdfast.columns.files.FileTopic`, from bytes."""

    name = "persistent://public/default/orders-partition-3"
    incarnation = bytes(16)

    def __init__(self, entries: list[bytes], run_entries: int = 1 << 20, first: int = FIRST) -> None:
        self._first = first
        self.data, self.offsets = ledger(entries, STORED_NS, STEP_NS)
        self._run_entries = run_entries
        self.damaged: set[int] = set()

    def plan(self) -> tuple[int, int]:
        return self._first, self._first + len(self.offsets)

    def next(self, ordinal: int, stop: int) -> int:
        return ordinal

    def locate(self, ordinal: int) -> tuple[int, int]:
        return LEDGER, ordinal - self._first

    def run(self, start: int, stop: int) -> Entries:
        if start in self.damaged:
            raise Corrupt(f"position {start} is damaged")
        number = start - self._first
        stop = min([stop, start + self._run_entries, *(each for each in self.damaged if each > start)])
        offsets = [*self.offsets, 64 + len(self.data)]
        data = self.data[offsets[number] - 64 : offsets[stop - self._first] - 64]
        return parse_run(LEDGER, self._first, number, b"", data)


def compress(compression: int, data: bytes) -> bytes:
    if compression == 2:
        return zlib.compress(data)
    codec = {1: "lz4_raw", 3: "zstd", 4: "snappy"}[compression]
    return bytes(pa.Codec(codec).compress(data, asbytes=True)) if data or compression != 1 else b"\0"


def moment(ms: int) -> datetime | None:
    return EPOCH + timedelta(milliseconds=ms) if 0 < ms < 253_402_300_800_000 else None


def stored(entry: int) -> datetime:
    """Return when an entry of a MemoryTopic was stored."""
    return EPOCH + timedelta(microseconds=(STORED_NS + entry * STEP_NS) // 1000)


class Maker:
    """Makes entries, and records the rows that a reader should return."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.entries: list[bytes] = []
        self.rows: list[Row] = []
        self._chunks: list[list[bytes]] = []
        self._sent: list[bytes] = []
        self._places: dict[int, list[int]] = {}
        self._last: set[int] = set()
        self.chunked: dict[int, list[int]] = {}
        """Ordinals of the parts of chunked messages, by the ordinal of the last part."""

    def row(self, index: int, payload: bytes | None, metadata: dict[str, Any], own: dict[str, Any]) -> Row:
        return {
            "key": own.get("key"),
            "value": payload,
            "topic": "persistent://public/default/orders",
            "partition": 3,
            "messageId": {"ledger": LEDGER, "entry": len(self.entries), "batchIndex": index},
            "publishTime": EPOCH + timedelta(milliseconds=metadata["publish_time"]),
            "eventTime": moment(own.get("event_time", 0)),
            "producer": metadata["producer_name"].decode(),
            "sequenceId": own["sequence_id"],
            "properties": list(own.get("properties", {}).items()),
            "position": FIRST + len(self.entries),
            "storedTime": stored(len(self.entries)),
            "encryption": None,
        }

    def own(self, numbers: dict[str, int]) -> tuple[dict[str, Any], Fields]:
        """Draw key, event time and properties of a message, with their fields."""
        choose, out, fields = self.random, dict[str, Any](), list[tuple[int, Value]]()
        if choose.random() < 0.5:
            key = choose.randbytes(choose.randrange(9)) if choose.random() < 0.5 else b"\xc3\xa4key"
            out["key"] = key
            as_bytes = choose.random() < 0.5
            fields.append((numbers["partition_key"], base64.b64encode(key) if as_bytes else key))
            fields += [(numbers["partition_key_b64_encoded"], 1)] if as_bytes else []
        if choose.random() < 0.4:
            out["event_time"] = choose.randrange(1, 1 << 42)
            fields.append((numbers["event_time"], out["event_time"]))
        out["properties"] = {f"p{i}": "v" * choose.randrange(5) for i in range(choose.randrange(3))}
        fields += [(numbers["properties"], pair(*each)) for each in out["properties"].items()]
        return out, fields

    def metadata(self) -> tuple[dict[str, Any], Fields]:
        out: dict[str, Any] = {
            "producer_name": self.random.choice([b"shop", b"\xc3\xb6fen", b"p" * 40]),
            "sequence_id": self.random.randrange(1 << 50),
            "publish_time": self.random.randrange(1, 1 << 42),
        }
        return out, [(METADATA[name], value) for name, value in out.items()]

    def payload(self) -> bytes:
        return self.random.choice([b"", b"x", self.random.randbytes(self.random.randrange(300)), b"y" * 2000])

    def single(self) -> None:
        (metadata, fields), (own, more) = self.metadata(), self.own(METADATA)
        own["sequence_id"] = metadata["sequence_id"]
        value: bytes | None = self.payload()
        compression, sent = self.random.choice([0, 0, 1, 2, 3, 4]), value or b""
        fields += more
        if compression:
            fields += [(METADATA["compression"], compression), (METADATA["uncompressed_size"], len(sent))]
            sent = compress(compression, sent)
        elif self.random.random() < 0.1:
            fields.append((METADATA["null_value"], 1))
            value, sent = None, b""
        self.rows.append(self.row(-1, value, metadata, own))
        self.entries.append(entry(fields, sent))

    def batch(self) -> None:
        metadata, fields = self.metadata()
        parts: list[tuple[Fields, bytes]] = []
        for index in range(self.random.randrange(1, 12)):
            own, more = self.own(SINGLE)
            own["sequence_id"] = metadata["sequence_id"] + index
            if self.random.random() < 0.5:
                own["sequence_id"] = self.random.randrange(1 << 40)
                more.append((SINGLE["sequence_id"], own["sequence_id"]))
            value = self.payload()
            gone = self.random.random() < 0.1
            parts.append(([*more, (SINGLE["compacted_out"], 1)] if gone else more, value))
            if not gone:
                self.rows.append(self.row(index, value, metadata, own))
        sent = batch_payload(parts)
        fields.append((METADATA["num_messages_in_batch"], len(parts)))
        if compression := self.random.choice([0, 0, 1, 2, 3, 4]):
            fields += [(METADATA["compression"], compression), (METADATA["uncompressed_size"], len(sent))]
            sent = compress(compression, sent)
        self.entries.append(entry(fields, sent))

    def encrypted(self) -> None:
        metadata, fields = self.metadata()
        own = {"sequence_id": metadata["sequence_id"]}
        fields += [(METADATA["encryption_keys"], b"\x0a\x01k\x12\x01v"), (METADATA["compression"], 1)]
        fields += [(METADATA["num_messages_in_batch"], 3)]
        row = self.row(-1, b"secret", metadata, own)
        self.entries.append(entry(fields, b"secret"))
        size = int.from_bytes(self.entries[-1][6:10], "big")
        self.rows.append({**row, "encryption": self.entries[-1][10 : 10 + size]})

    def begin_chunked(self) -> None:
        """Start a chunked message; its parts come between other entries (`part`)."""
        (metadata, fields), (own, more) = self.metadata(), self.own(METADATA)
        own["sequence_id"] = metadata["sequence_id"]
        value = self.random.randbytes(2000)
        sent, uuid = value, self.random.randbytes(8).hex().encode()
        if compression := self.random.choice([0, 1, 2, 3, 4]):
            fields += [(METADATA["compression"], compression), (METADATA["uncompressed_size"], len(value))]
            sent = compress(compression, value)
        count = self.random.randrange(2, 5)
        size = -(-len(sent) // count)
        pieces = [sent[i * size : (i + 1) * size] for i in range(count)]
        fields += [*more, (METADATA["uuid"], uuid), (METADATA["num_chunks_from_msg"], count)]
        fields += [(METADATA["total_chunk_msg_size"], len(sent))]
        made = [entry([*fields, (METADATA["chunk_id"], i)], piece) for i, piece in enumerate(pieces)]
        self._chunks.append(made)
        self._pending = getattr(self, "_pending", {})
        self._pending[id(made)] = (value, metadata, own)

    def part(self) -> None:
        """Add the next part of an open chunked message."""
        if not self._chunks:
            return self.begin_chunked()
        chosen = self.random.choice(self._chunks)
        if len(chosen) == 1:
            value, metadata, own = self._pending[id(chosen)]
            self.rows.append(self.row(-1, value, metadata, own))
            self._chunks.remove(chosen)
            self._last.add(id(chosen[0]))
            self.chunked[FIRST + len(self.entries)] = self._places.pop(id(chosen), [])
        else:
            self._places.setdefault(id(chosen), []).append(FIRST + len(self.entries))
        self._sent.append(chosen.pop(0))
        self.entries.append(self._sent[-1])
        return None

    def again(self) -> None:
        """Send last parts of chunked messages again: they add no rows."""
        self._sent = [each for each in self._sent if id(each) in self._last]
        if self._sent:
            self.entries.append(self.random.choice(self._sent))

    def any(self, count: int) -> None:
        """Make `count` random steps; then end all chunked messages."""
        kinds = [
            self.single,
            self.single,
            self.batch,
            self.encrypted,
            self.part,
            self.part,
            self.begin_chunked,
            self.again,
        ]
        for _ in range(count):
            self.random.choice(kinds)()
        while self._chunks:
            self.part()
