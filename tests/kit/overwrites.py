"""Overwrites of every word of a segment, for the fuzzers of channels and services (kit/overwriting.py).

The words are found, not listed: all that are not zero in the file after a few operations. So a word that a
later layout adds is overwritten, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from holdfast import _core

HEADER, BOOT_ID, NAME, SUM = 4096, 48, 64, 4092
PARAMS = 192
"""Offsets of the header (native/holdfast/shm/segment_header.hpp)."""
Writes = tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class Case:
    state: str
    writes: Writes
    """Offsets, and what is written there."""
    how: str
    when: str
    summed: bool = False
    """The header's sum is made anew, as a peer that knows the layout would."""

    def words(self) -> str:
        places = ", ".join(f"{data[:8].hex()} at {offset}" for offset, data in self.writes[:4])
        return f"{self.state}: {self.how} ({places}) {self.when}{', with a new sum' if self.summed else ''}"


@dataclass(frozen=True)
class Choices:
    """The values to write, and the moments."""

    when: tuple[str, ...]
    fills: tuple[int, ...]
    """Bytes with which whole stretches are filled."""
    special: Callable[[int], Mapping[str, int]]
    """Values for words of a width that mean something there."""
    resum: Callable[[bytearray], None]
    """Makes the sums of a changed file anew."""


def header_sum(changed: bytearray) -> None:
    """Make the sum of the header anew."""
    sum_ = _core.crc32c(bytes(changed[NAME:SUM]), _core.crc32c(bytes(changed[:BOOT_ID])))
    changed[SUM:HEADER] = sum_.to_bytes(4, "little")


def targets(used: bytes) -> Iterator[tuple[int, int]]:
    """Find the words to overwrite: offset and width."""
    for offset in range(0, len(used), 8):
        word = used[offset : offset + 8]
        if not any(word):
            continue
        yield offset, 8
        for half in (0, 4):
            if any(word[half : half + 4]):
                yield offset + half, 4
        for byte in range(8):
            if word[byte] and byte < 4:
                yield offset + byte, 1


def values(old: int, width: int, choices: Choices, rng: random.Random) -> Iterator[tuple[str, int]]:
    top = (1 << 8 * width) - 1
    yield from choices.special(width).items()
    news = {
        "0": 0,
        "all ones": top,
        "nearly all": top - 1,
        "random": rng.getrandbits(8 * width),
        **{f"{by:+}": old + by & top for by in (-8, -4, -3, -1, 1, 2, 3, 4, 8)},
    }
    if width > 1:
        news |= {f"2 to the {bits}": 1 << bits for bits in (16, 17, 31, 32, 62, 63) if 1 << bits <= top}
        news["beyond the last"] = (1 << 62) + 3 & top
    yield from news.items()


def targeted(
    state: str, image: bytes, used: bytes, choices: Choices, rng: random.Random, share: float = 1.0
) -> Iterator[Case]:
    """Return one case for each word and value, or a share of them."""
    for offset, width in targets(used):
        old = int.from_bytes(image[offset : offset + width], "little")
        for how, new in values(old, width, choices, rng):
            if new == old or rng.random() >= share:
                continue
            yield Case(
                state,
                ((offset, new.to_bytes(width, "little")),),
                how,
                rng.choice(choices.when),
                summed=offset < HEADER and rng.random() < 0.7,
            )


def scattered(state: str, used: bytes, choices: Choices, rng: random.Random, count: int) -> Iterator[Case]:
    """Return cases of several words at once, or of a stretch of one byte."""
    places = [*targets(used)]
    for _ in range(count):
        if rng.random() < 0.4:
            start = rng.randrange(PARAMS, len(used) - 8)
            start = rng.choice((start, rng.choice(places)[0] & ~7))
            data = bytes([rng.choice(choices.fills)]) * rng.choice((2, 3, 4, 8, 64))
            writes: Writes = ((start, data[: len(used) - start]),)
        else:
            several = [rng.choice(places) for _ in range(rng.randint(2, 6))]
            writes = tuple(
                (offset, rng.choice((rng.randbytes(width), bytes([rng.choice(choices.fills)]) * width)))
                for offset, width in several
            )
        yield Case(state, writes, "several", rng.choice(choices.when), summed=rng.random() < 0.5)


def struck(image: bytes, case: Case, choices: Choices) -> bytes:
    """Return the bytes after the overwriting."""
    changed = bytearray(image)
    for offset, data in case.writes:
        changed[offset : offset + len(data)] = data
    if case.summed:
        choices.resum(changed)
    return bytes(changed)
