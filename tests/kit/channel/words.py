"""Find words of a channel's file by their values, in any layout."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast import Channel, _core
from tests.kit.overwrites import BOOT_ID, HEADER, NAME, SUM

DATA, HOLE = 0x08, 0x10


class Words:
    """The file of a channel, read and overwritten by a test."""

    def __init__(self, name: str) -> None:
        self.path = Path(os.environ["HOLDFAST_RUNTIME_DIR"]) / f"holdfast.channel.{name}"

    def image(self) -> bytes:
        return self.path.read_bytes()

    def write(self, offset: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def last(self, value: int, width: int) -> int:
        """Return the offset of the last word that has this value."""
        found = [
            at
            for at in range(HEADER, len(self.image()), width)
            if self.image()[at : at + width] == value.to_bytes(width, "little")
        ]
        return found[-1]

    def changed(self, before: bytes, old: int, new: int, below: int | None = None) -> int:
        """Return the offset of the one byte that went from `old` to `new`."""
        (found,) = [
            at
            for at, (one, other) in enumerate(zip(before[:below], self.image()[:below], strict=True))
            if at >= HEADER and (one, other) == (old, new)
        ]
        return found

    def states(self, channel: Channel, datum: bytes = b"x") -> int:
        """Return where the states begin: a cancelled push shows its state."""
        with channel.producer() as producer:
            pushed = producer.push(datum)
            before = self.image()
            assert producer.cancel(pushed.handle)
        return self.changed(before, DATA, HOLE) - pushed.position % (channel.stats().slots + 1)

    def header(self, offset: int, data: bytes) -> None:
        """Write into the header, with a valid sum."""
        self.write(offset, data)
        header = self.image()[:HEADER]
        sum_ = _core.crc32c(header[NAME:SUM], _core.crc32c(header[:BOOT_ID]))
        self.write(SUM, sum_.to_bytes(4, "little"))
