"""Encode and decode frames, rounds and ledgers with `struct`, to check the core."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast import _core

Entry = tuple[int, int, bytes]
"""Sequence, span, bytes."""
Event = tuple[int, int, bytes]
"""Kind, version, body."""

ENTRY, ROUND, FRAME, FILE = 2, 3, 4, 5
PAGE = 4096


def publish(topic: int, session: int, epoch: int, producer: str, entries: Sequence[Entry]) -> Event:
    """Encode the publish event of these entries."""
    name = producer.encode()
    head = struct.pack("<QQQIHH", topic, session, epoch, len(entries), len(name), 0) + name
    rows = b"".join(struct.pack("<qII", sequence, span, len(data)) for sequence, span, data in entries)
    return 1, 1, head + rows + b"".join(data for _, _, data in entries)


def frame(events: Sequence[Event], time: int = 7) -> bytes:
    """Encode a frame of these events."""
    head = struct.pack("<HBBIQ", 0x5246, 1, 0, len(events), time)
    return head + b"".join(
        struct.pack("<IBBH", len(body), kind, version, 0) + body for kind, version, body in events
    )


def entries_of(event: bytes) -> tuple[int, list[bytes]]:
    """Decode topic and entries of a publish event's body."""
    topic, _, _, count, name_size, _ = struct.unpack_from("<QQQIHH", event)
    rows = 32 + name_size
    at = rows + 16 * count
    out = []
    for i in range(count):
        size = struct.unpack_from("<I", event, rows + 16 * i + 12)[0]
        out.append(event[at : at + size])
        at += size
    return topic, out


def events_of(data: bytes) -> list[Event]:
    """Decode the events of a frame."""
    magic, version, _, count, _ = struct.unpack_from("<HBBIQ", data)
    assert (magic, version) == (0x5246, 1)
    out, at = [], 16
    for _ in range(count):
        size, kind, version, _ = struct.unpack_from("<IBBH", data, at)
        out.append((kind, version, data[at + 8 : at + 8 + size]))
        at += 8 + size
    assert at == len(data)
    return out


def block(data: bytes, at: int, kind: int, tag: int) -> tuple[bytes, int, int] | None:
    """Return payload, time and padded end of a block; `None` if it is damaged."""
    if len(data) < at + 32:
        return None
    magic, found, flags, size, found_tag, time, crc, zero = struct.unpack_from("<HBBIQQII", data, at)
    payload = data[at + 32 : at + 32 + size]
    if (magic, found, flags, zero, found_tag) != (0x4648, kind, 1, 0, tag) or len(payload) != size:
        return None
    if _core.crc32c(data[at : at + 24] + bytes(4) + data[at + 28 : at + 32] + payload) != crc:
        return None
    end = (at + 32 + size + 7) // 8 * 8
    assert not any(data[at + 32 + size : end])
    return payload, time, end


@dataclass(frozen=True)
class JournalFrame:
    """A frame block."""

    first_d: int
    view: int
    index: int
    time: int
    frame: bytes


def rounds_of(data: bytes, first_d: int = 1, salt: int = 0) -> list[list[JournalFrame]]:
    """Decode the whole rounds of a journal file; it may end torn."""
    out: list[list[JournalFrame]] = []
    at = PAGE
    while found := block(data, at, ROUND, first_d):
        previous, first, last, _, _, size, synced, salted = struct.unpack("<8Q", found[0])
        assert (previous, first, salted) == (first_d - 1, first_d, salt)
        assert synced < first
        inner, end, d = found[2], found[2] + size, first_d
        frames = []
        while inner < end:
            part = block(data, inner, FRAME, d)
            if part is None:
                return out
            view, index = struct.unpack_from("<QQ", part[0])
            frames.append(JournalFrame(d, view, index, part[1], part[0][16:]))
            d += len(events_of(part[0][16:]))
            inner = part[2]
        if len(data) < (end + PAGE - 1) // PAGE * PAGE:
            return out
        assert (inner, d) == (end, last + 1)
        out.append(frames)
        first_d, at = d, (end + PAGE - 1) // PAGE * PAGE
    return out


def ledger_of(data: bytes, index: bytes, base: int, first: int) -> list[bytes]:
    """Decode a part of a ledger, from file offset `base` and entry `first` on."""
    out: list[bytes] = []
    at = 0
    while at < len(data):
        found = block(data, at, ENTRY, first + len(out))
        assert found is not None
        assert struct.unpack_from("<Q", index, 8 * len(out)) == (base + at,)
        out.append(found[0])
        at = found[2]
    assert len(index) == 8 * len(out)
    return out


def ledger_file(directory: Path, ledger: int) -> list[bytes]:
    """Decode the entries of a ledger, by its index; its tail may be torn."""
    out: list[bytes] = []
    files = [directory / f"ledgers/{ledger:016x}{ending}" for ending in (".data", ".index")]
    if not all(file.exists() for file in files):
        return out
    data, index = (file.read_bytes() for file in files)
    for row in range(64, len(index) - 7, 8):
        found = block(data, struct.unpack_from("<Q", index, row)[0], ENTRY, len(out))
        if found is None:
            break
        out.append(found[0])
    return out
