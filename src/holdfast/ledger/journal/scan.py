"""Read the journal's rounds, and decide whether they end cleanly, torn or damaged.

A round is one write at a multiple of 4096: a block of kind 3, then its frame blocks. The first block says
which events follow (`previous last D · first D · last D · stable view · stable index · bytes · synced D ·
salt`). *synced D* was synced when the round was written. With `sync = group` or `always` that is all before
the round; with `os` it may be less. So a sound round header is a witness: events that it calls synced were
confirmed, and must be there.

At the first place that does not continue the rounds (D = e is missing), `judge` decides:

| what stands at that place       | what stands behind it, here and in later files     | the end is |
|---------------------------------|----------------------------------------------------|------------|
| anything                        | a snapshot relies on e                             | DAMAGED    |
| anything                        | a round that says that e was synced                | DAMAGED    |
| zeros, or rounds of lower D     | nothing that is newer                              | CLEAN      |
| a round that is not whole       | nothing that says so                               | TORN       |
| anything else that is not zeros | nothing that says so                               | TORN       |
| zeros                           | newer rounds, none of which says so (`sync = os`)  | TORN       |

Rounds of lower D are left from an earlier use of the file. A file may start with a round that is in the file
before it, too: it was written again after a failed sync (I34).

Invariants:

- **I30** A round is used only if it is whole. Its header, salt and frames are verified, and its events
  continue the round before without a gap.
- **I31** An event that is missing below a synced D is damage. The error names file and offset; nothing behind
  it is used, and nothing is changed.
- **I32** Only unconfirmed bytes are cut. After a cut, no sound round with a later D is left.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast._core import open_block
from holdfast.errors import Corrupt
from holdfast.group import BEGINNING, Position
from holdfast.ledger.layout import (
    BLOCK_HEADER,
    FILE_HEADER,
    PAGE,
    BlockKind,
    FileKind,
    Place,
    journal_path,
    padded,
    require_header,
    salt_of,
)
from holdfast.system import Disk, File, opened, write_all

WINDOW = 1 << 20
"""How many bytes are read at once."""

_ROUND = struct.Struct("<8Q")
_FRAME_POSITION = struct.Struct("<QQ")
_FRAME_HEAD = struct.Struct("<HBBIQ")
_FRAME_MAGIC = 0x5246
_ROUND_START = b"HF" + bytes([BlockKind.ROUND, 1])
"""First bytes of every round: magic, kind, and the flag for the full checksum."""
ROUND_HEADER = BLOCK_HEADER + _ROUND.size


class RoundHeader(NamedTuple):
    """The header of a round."""

    previous_d: int
    first_d: int
    last_d: int
    stable: Position
    size: int
    """Bytes of its frame blocks."""
    synced_d: int

    @property
    def space(self) -> int:
        """Bytes that the round occupies in its file."""
        return (ROUND_HEADER + self.size + PAGE - 1) // PAGE * PAGE


class FrameBlock(NamedTuple):
    """The durable events of one frame."""

    first_d: int
    last_d: int
    position: Position
    time_ns: int
    frame: bytes


@dataclass(frozen=True)
class Round:
    """A round that is whole."""

    place: Place
    header: RoundHeader
    frames: list[FrameBlock]
    """Frames that are not in an earlier file, too."""


class End(enum.Enum):
    """Outcomes at the end of the journal."""

    CLEAN = "clean"
    TORN = "torn"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Ending:
    """Where and how the rounds end, and what must be wiped."""

    outcome: End
    last_d: int
    """Last D of the last whole round."""
    stopped: Place
    """The first place that does not continue the rounds."""
    next: Place
    """Where the next round goes."""
    stable: Position
    newer: tuple[Place, ...] = ()
    """Places of later round headers, and the torn place itself."""
    cut_bytes: int = 0
    witness: Place | None = None
    """The round that says that the missing event was synced; `None` if only a snapshot says so."""
    broken: Place | None = None
    """The torn next round, if it is in the file after `stopped`."""

    @property
    def wrong(self) -> Place:
        """The place of the torn round, or where it should be."""
        return self.broken or self.stopped

    def complaint(self) -> str:
        """Return an error text: the damage, its place, and what to do."""
        who = f"a round in {self.witness}" if self.witness else "the snapshot"
        return (
            f"{self.wrong}: event D {self.last_d + 1} is missing or damaged, but {who} says that it was "
            "synced. Nothing was changed. Check the disk, and restore a backup"
        )


# -- from bytes to what they are ----------------------------------------------------------------------


def parse_round(data: bytes | memoryview, salt: int) -> RoundHeader | None:
    """Return the verified header of a round; `None` if there is no round."""
    block = open_block(data[:ROUND_HEADER])
    if isinstance(block, str) or block[0] != BlockKind.ROUND or block[3] != _ROUND.size:
        return None
    previous_d, first_d, last_d, view, index, size, synced_d, found = _ROUND.unpack_from(data, BLOCK_HEADER)
    if found != salt or first_d != block[1] or not previous_d < first_d <= last_d or synced_d >= first_d:
        return None
    return RoundHeader(previous_d, first_d, last_d, Position(view, index), size, synced_d)


def parse_frames(header: RoundHeader, data: bytes) -> list[FrameBlock] | None:
    """Return the frames behind a round's header; `None` if one is missing or damaged."""
    frames: list[FrameBlock] = []
    at, d = 0, header.first_d
    while at < len(data):
        block = open_block(data, at)
        if isinstance(block, str):
            return None
        kind, tag, time_ns, size = block
        start = at + BLOCK_HEADER
        if kind != BlockKind.FRAME or tag != d or size < _FRAME_POSITION.size + _FRAME_HEAD.size:
            return None
        frame = data[start + _FRAME_POSITION.size : start + size]
        magic, _, _, count, _ = _FRAME_HEAD.unpack_from(frame)
        if magic != _FRAME_MAGIC or count == 0:
            return None
        position = Position(*_FRAME_POSITION.unpack_from(data, start))
        frames.append(FrameBlock(d, d + count - 1, position, time_ns, frame))
        d += count
        at = padded(start + size)
    return frames if at == header.size == len(data) and d == header.last_d + 1 else None


def judge(missing_d: int, stopped_at_zeros: bool, newer: bool, synced_d: int, snapshot_d: int) -> End:
    """Decide by the table above. `synced_d` is the highest of all rounds behind the place."""
    if missing_d <= max(synced_d, snapshot_d):
        return End.DAMAGED
    return End.CLEAN if stopped_at_zeros and not newer else End.TORN


# -- from files to rounds -----------------------------------------------------------------------------


class _Window:
    """A file that is read in large pieces."""

    def __init__(self, file: File, size: int) -> None:
        self.file = file
        self.size = size
        self._base = 0
        self._data = b""

    async def read(self, offset: int, size: int) -> bytes:
        """Read at most `size` bytes, fewer at the end of the file."""
        size = max(0, min(size, self.size - offset))
        start = offset - self._base
        if start < 0 or start + size > len(self._data):
            self._base, self._data = offset, await self.file.read(offset, max(size, WINDOW))
            start = 0
        return self._data[start : start + size]


@dataclass
class _Stop:
    """Where the rounds of a file end."""

    journal: int
    offset: int
    zeros: bool = True
    whole_header: RoundHeader | None = None
    broken: bool = False
    """Whether the header continues the rounds, but not all its frames are there."""


@dataclass
class JournalScan:
    """Reads the rounds of the journal, from the start that a snapshot names.

    After `rounds` is exhausted, `ending` returns how they end. Nothing is changed, and one round is in memory
    at a time.
    """

    disk: Disk
    incarnation: bytes
    files: Sequence[int]
    """The numbers of all journal files, rising."""
    start: Place
    start_d: int
    """The last D before the start."""
    snapshot_d: int
    last_d: int = 0
    stable: Position = BEGINNING
    unproven: list[tuple[Place, int, int]] = field(default_factory=list)
    """Place, size and last D of rounds that no other round calls synced."""
    _synced_d: int = 0
    _stop: _Stop = field(init=False)
    _broken: Place | None = None

    def __post_init__(self) -> None:
        self.last_d = self.start_d
        self._salt = salt_of(self.incarnation)
        self._stop = _Stop(*self.start)

    async def rounds(self) -> AsyncIterator[Round]:
        """Yield each whole round that continues the one before.

        Raises:
            Corrupt: a journal file is missing, or its header is damaged.
        """
        for number in self._numbers():
            first = self.start.offset if number == self.start.journal else PAGE
            window = await self._open(number)
            try:
                stop = _Stop(number, first)
                while (found := await self._round_at(window, number, stop)) is not None:
                    self.last_d = found.header.last_d if found.header.last_d > self.last_d else self.last_d
                    self.stable = max(self.stable, found.header.stable)
                    self._prove(found)
                    stop.offset += found.header.space
                    yield found
                # A file without a valid round was not started: the rounds end in the file before it.
                if stop.offset > first or number == self.start.journal:
                    self._stop = stop
                elif stop.broken:
                    self._broken = Place(number, stop.offset)
            finally:
                await window.file.close()

    def _prove(self, found: Round) -> None:
        header = found.header
        if header.synced_d > self._synced_d:
            self._synced_d = header.synced_d
            self.unproven = [each for each in self.unproven if each[2] > header.synced_d]
        self.unproven.append((found.place, ROUND_HEADER + header.size, header.last_d))

    def _numbers(self) -> list[int]:
        numbers = [number for number in self.files if number >= self.start.journal]
        for expected, number in enumerate([*numbers, None], self.start.journal):
            if number != expected and (number is not None or expected == self.start.journal):
                raise Corrupt(
                    f"{journal_path(expected)} is missing, with events after D {self.last_d}; "
                    "restore a backup"
                )
        return numbers

    async def _open(self, number: int) -> _Window:
        file = await self.disk.open(journal_path(number))
        try:
            head = await file.read(0, FILE_HEADER)
            require_header(journal_path(number), head, FileKind.JOURNAL, number, self.incarnation)
            return _Window(file, await file.size())
        except BaseException:
            await file.close()
            raise

    async def _round_at(self, window: _Window, number: int, stop: _Stop) -> Round | None:
        """Return the round at the stop if it is next; otherwise note what is there."""
        page = await window.read(stop.offset, PAGE)
        header = parse_round(page, self._salt)
        stop.zeros, stop.whole_header = not any(page), header
        if header is None:
            return None
        if header.last_d <= self.last_d and stop.offset != PAGE:
            stop.zeros = True  # left from an earlier use of the file
            return None
        again = stop.offset == PAGE and number != self.start.journal and header.first_d <= self.last_d
        if not again and (header.previous_d, header.first_d) != (self.last_d, self.last_d + 1):
            return None
        data = await window.read(stop.offset + ROUND_HEADER, header.size)
        frames = parse_frames(header, data)
        if frames is None:
            stop.broken = header.last_d > self.last_d
            return None
        fresh = [frame for frame in frames if frame.first_d > self.last_d]
        return Round(Place(number, stop.offset), header, fresh)

    async def ending(self) -> Ending:
        """Return the end of the journal, after the last round. Reads everything behind it."""
        stop = self._stop
        newer: list[Place] = [] if stop.zeros else [Place(stop.journal, stop.offset)]
        cut = 0 if stop.zeros else (stop.whole_header.space if stop.whole_header else PAGE)
        synced_d, witness = 0, None
        numbers = [number for number in self._numbers() if number >= stop.journal]
        for number in numbers:
            window = await self._open(number)
            try:
                first = stop.offset + PAGE if number == stop.journal else PAGE
                async for place, header in self._headers(window, number, first):
                    newer.append(place)
                    cut += header.space
                    if header.synced_d > synced_d:
                        synced_d, witness = header.synced_d, place
            finally:
                await window.file.close()
        behind = any(place != (stop.journal, stop.offset) for place in newer)
        outcome = judge(self.last_d + 1, stop.zeros, behind, synced_d, self.snapshot_d)
        after = Place(stop.journal, stop.offset) if numbers[-1] == stop.journal else Place(numbers[-1], PAGE)
        return Ending(
            outcome=outcome,
            last_d=self.last_d,
            stopped=Place(stop.journal, stop.offset),
            next=after,
            stable=self.stable,
            newer=tuple(newer),
            cut_bytes=cut if outcome is End.TORN else 0,
            witness=witness if synced_d > self.last_d else None,
            broken=self._broken,
        )

    async def _headers(
        self, window: _Window, number: int, offset: int
    ) -> AsyncIterator[tuple[Place, RoundHeader]]:
        """Yield every sound round header with a later D, from `offset` on."""
        while offset < window.size:
            data = await window.file.read(offset, WINDOW)
            at = data.find(_ROUND_START)
            while at >= 0:
                if at % PAGE == 0:
                    header = parse_round(data[at : at + ROUND_HEADER], self._salt)
                    if header is not None and header.last_d > self.last_d:
                        yield Place(number, offset + at), header
                at = data.find(_ROUND_START, at + 1)
            offset += WINDOW


async def wipe(disk: Disk, places: Sequence[Place]) -> None:
    """Overwrite the round headers at these places with zeros, and sync (I32)."""
    by_file: dict[int, list[int]] = {}
    for place in places:
        by_file.setdefault(place.journal, []).append(place.offset)
    for number, offsets in sorted(by_file.items()):
        async with opened(disk, journal_path(number)) as file:
            size = await file.size()
            for offset in offsets:
                await write_all(file, offset, bytes(max(0, min(PAGE, size - offset))))
            await file.sync()


async def write_again(file: File, offset: int, size: int) -> None:
    """Write the same bytes in the same place, so that the next sync covers them.

    The kernel reports a failed sync once and then treats the pages as clean. A process that starts later
    would not hear of the failure.
    """
    for at in range(offset, offset + size, WINDOW):
        await write_all(file, at, await file.read(at, min(WINDOW, offset + size - at)))
