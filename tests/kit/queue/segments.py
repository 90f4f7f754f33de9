"""The bytes of a queue's file, for tests that read or damage them.

The offsets are those of native/holdfast/shm/segment_header.hpp and queue/layout.hpp.
"""

from __future__ import annotations

import os
from pathlib import Path

VERSION, FINGERPRINT, BOOT_ID, NAME, SUM = 8, 16, 48, 64, 4092
CONTROLS = 4096
BELLS = {"data": CONTROLS + 640, "space": CONTROLS + 768}


def segment(name: str) -> Path:
    return Path(os.environ["HOLDFAST_RUNTIME_DIR"]) / f"holdfast.queue.{name}"


def waiting(name: str, bell: str) -> bool:
    """Return whether a participant has waited on that bell since it was last rung."""
    with segment(name).open("rb") as file:
        file.seek(BELLS[bell])
        return bool(file.read(1)[0] & 1)


def crc32c(data: bytes, crc: int = 0) -> int:
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def patch(name: str, offset: int, value: bytes) -> None:
    with segment(name).open("r+b") as file:
        file.seek(offset)
        file.write(value)


def patch_header(name: str, offset: int, value: bytes) -> None:
    """Write a header field with a valid checksum, as another version would."""
    patch(name, offset, value)
    header = segment(name).read_bytes()[:4096]
    patch(name, SUM, crc32c(header[NAME:SUM], crc32c(header[:BOOT_ID])).to_bytes(4, "little"))


def write_mark(name: str, granules: int, position: int, length: int, deliveries: int) -> None:
    """Write the mark of a block at that position; for at most 24 participants."""
    shift = granules.bit_length() - 1
    mark = (position >> shift) << (12 + shift) | (length - 1) << 13 | 1 << 12 | deliveries
    descriptors = 8192
    sides = descriptors + (granules * 8 + 4095) // 4096 * 4096
    patch(name, sides + 16 * (position % granules), mark.to_bytes(8, "little"))
