"""Encode and decode Pulsar's entries and their frames without the core, to check the core.

Two programs that agree are worth more than one that agrees with itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Value = int | bytes
Fields = list[tuple[int, Value]]

METADATA = {
    "producer_name": 1, "sequence_id": 2, "publish_time": 3, "properties": 4, "replicated_from": 5,
    "partition_key": 6, "replicate_to": 7, "compression": 8, "uncompressed_size": 9,
    "num_messages_in_batch": 11, "event_time": 12, "encryption_keys": 13, "encryption_algo": 14,
    "encryption_param": 15, "schema_version": 16, "partition_key_b64_encoded": 17, "ordering_key": 18,
    "deliver_at_time": 19, "marker_type": 20, "txnid_least_bits": 22, "txnid_most_bits": 23,
    "highest_sequence_id": 24, "null_value": 25, "uuid": 26, "num_chunks_from_msg": 27,
    "total_chunk_msg_size": 28, "chunk_id": 29, "null_partition_key": 30,
}  # fmt: skip
SINGLE = {
    "properties": 1, "partition_key": 2, "payload_size": 3, "compacted_out": 4, "event_time": 5,
    "partition_key_b64_encoded": 6, "ordering_key": 7, "sequence_id": 8, "null_value": 9,
    "null_partition_key": 10,
}  # fmt: skip


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """Compute the checksum one byte at a time, from the polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(fields: Iterable[tuple[int, Value]]) -> bytes:
    """Encode fields as a protocol buffer, in order: ints as varints, bytes with their size."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def decode(data: bytes) -> Fields:
    """Decode a protocol buffer that has only varints and bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    out: Fields = []
    while at < len(data):
        tag = number()
        assert tag & 7 in (0, 2), f"wire type {tag & 7}"
        value = number()
        if tag & 7 == 0:
            out.append((tag >> 3, value))
        else:
            assert at + value <= len(data)
            out.append((tag >> 3, data[at : at + value]))
            at += value
    return out


def pair(key: str, value: str) -> bytes:
    return encode([(1, key.encode()), (2, value.encode())])


def entry(metadata: Iterable[tuple[int, Value]], payload: bytes) -> bytes:
    """Encode an entry: magic, checksum, metadata, payload."""
    encoded = encode(metadata)
    summed = struct.pack(">I", len(encoded)) + encoded + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(summed)) + summed


def batch_payload(parts: Iterable[tuple[Fields, bytes]]) -> bytes:
    """Encode the messages of a batch from their fields and payloads."""
    out = b""
    for fields, payload in parts:
        encoded = encode([*fields, (SINGLE["payload_size"], len(payload))])
        out += struct.pack(">I", len(encoded)) + encoded + payload
    return out


@dataclass
class Message:
    """A message of an entry, by the names of its fields."""

    payload: bytes
    fields: dict[str, Value] = field(default_factory=dict)
    properties: list[tuple[str, str]] = field(default_factory=list)


def _message(fields: Fields, names: dict[str, int], payload: bytes) -> Message:
    by_number = {number: name for name, number in names.items()}
    out = Message(payload)
    for number, value in fields:
        name = by_number[number]
        if name == "properties":
            assert isinstance(value, bytes)
            (one, key), (two, text) = decode(value)
            assert (one, two) == (1, 2)
            assert isinstance(key, bytes)
            assert isinstance(text, bytes)
            out.properties.append((key.decode(), text.decode()))
        else:
            assert name not in out.fields, f"{name} occurs twice"
            out.fields[name] = value
    return out


@dataclass
class Decoded:
    """A decoded entry."""

    whole: Message
    parts: list[Message]  # of a batch


def decode_entry(data: bytes) -> Decoded:
    magic, crc, size = struct.unpack_from(">HII", data)
    assert magic == 0x0E01
    assert crc == crc32c(data[6:])
    whole = _message(decode(data[10 : 10 + size]), METADATA, data[10 + size :])
    parts = []
    if "num_messages_in_batch" in whole.fields:
        rest = whole.payload
        while rest:
            (size,) = struct.unpack_from(">I", rest)
            fields = decode(rest[4 : 4 + size])
            length = dict(fields)[SINGLE["payload_size"]]
            assert isinstance(length, int)
            parts.append(_message(fields, SINGLE, rest[4 + size : 4 + size + length]))
            rest = rest[4 + size + length :]
        assert len(parts) == whole.fields["num_messages_in_batch"]
    return Decoded(whole, parts)


@dataclass(frozen=True)
class Publish:
    topic: int
    session: int
    epoch: int
    producer: str
    entries: list[tuple[int, int, bytes]]


def decode_frame(frame: bytes) -> tuple[int, list[tuple[int, int, bytes]]]:
    """Decode a frame to its time and a list of (kind, version, body)."""
    magic, version, zero, count, time_ns = struct.unpack_from("<HBBIQ", frame)
    assert (magic, version, zero) == (0x5246, 1, 0)
    events = list(_events(frame[16:]))
    assert len(events) == count
    return time_ns, events


def _events(rest: bytes) -> Iterator[tuple[int, int, bytes]]:
    while rest:
        size, kind, version, zero = struct.unpack_from("<IBBH", rest)
        assert zero == 0
        assert 8 + size <= len(rest)
        yield kind, version, rest[8 : 8 + size]
        rest = rest[8 + size :]


def decode_publish(body: bytes) -> Publish:
    topic, session, epoch, count, name, zero = struct.unpack_from("<QQQIHH", body)
    assert zero == 0
    producer, rest = body[32 : 32 + name].decode(), body[32 + name :]
    rows = [struct.unpack_from("<qII", rest, 16 * i) for i in range(count)]
    rest = rest[16 * count :]
    entries = []
    for sequence, span, size in rows:
        entries.append((sequence, span, rest[:size]))
        rest = rest[size:]
    assert not rest
    return Publish(topic, session, epoch, producer, entries)


def block(kind: int, tag: int, payload: bytes, time_ns: int = 0) -> bytes:
    """Encode a block of native/holdfast/base/block.hpp with the full checksum."""
    head = struct.pack("<HBBIQQII", 0x4648, kind, 1, len(payload), tag, time_ns, 0, 0)
    crc = crc32c(head + payload)
    return head[:24] + struct.pack("<I", crc) + head[28:] + payload


def file_header(kind: int, number: int, incarnation: bytes) -> bytes:
    return block(5, number, struct.pack("<IIQ", kind, 1, number) + incarnation)


def ledger(entries: Iterable[bytes], time_ns: int = 1000, step_ns: int = 1) -> tuple[bytes, list[int]]:
    """Encode a ledger's data file without header; return it with the entries' offsets."""
    data, offsets = bytearray(), []
    for number, each in enumerate(entries):
        offsets.append(64 + len(data))
        data += block(2, number, each, time_ns + number * step_ns)
        data += bytes(-len(data) % 8)
    return bytes(data), offsets
