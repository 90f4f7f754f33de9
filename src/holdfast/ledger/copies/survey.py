"""Look at a directory before its store is opened: which events does it have?

Nothing is changed. Members of a cluster compare the answers, and decide whose directory continues.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast._core import crc32c
from holdfast.errors import Corrupt, LayoutMismatch
from holdfast.group import BEGINNING, Position
from holdfast.ledger import recovery
from holdfast.ledger.journal.scan import End, JournalScan
from holdfast.ledger.layout import FORMAT, INCOMPLETE
from holdfast.system import Disk, read_file

FRAMES_KEPT = 1000
"""How many of the last frames are listed, beside all that are not known to be stable."""


class Frame(NamedTuple):
    """The durable events of one frame, as members compare them."""

    last_d: int
    position: Position
    crc: int


@dataclass
class StoreSurvey:
    """The events of a directory, from outside."""

    fresh: bool = True
    """Whether there is no store."""
    incarnation: bytes = bytes(16)
    mark: bytes | None = None
    """The contents of the mark `incomplete`; None: it is not there."""
    head: bytes | None = None
    """The first part of the snapshot's state; None: there is no snapshot."""
    start_d: int = 0
    """All frames behind this event are in `frames`."""
    frames: list[Frame] = field(default_factory=list)
    views: list[tuple[int, Position, bytes]] = field(default_factory=list)
    """Of the journal's frames that begin a view: their D, position and bytes."""
    stable: Position = BEGINNING
    """The last position that this member knew to be stable."""
    stable_d: int = 0
    position: Position = BEGINNING
    """The position of the last event."""
    last_d: int = 0
    damage: str = ""
    """Why the store cannot be opened; empty: it can."""


async def survey(disk: Disk) -> StoreSurvey:
    """Read how far the events of a directory reach. The caller holds the lock.

    Example:
        >>> import asyncio, tempfile
        >>> from holdfast.system import SystemDisk
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(survey(SystemDisk(path))).fresh
        True
    """
    found = StoreSurvey()
    names = set(await disk.list(""))
    if INCOMPLETE in names:
        found.fresh = False
        found.mark = await read_file(disk, INCOMPLETE)
    if FORMAT not in names:
        return found
    found.fresh = False
    try:
        found.incarnation = await recovery.read_format(disk)
        if found.mark is None:
            await _look(disk, found)
    except (Corrupt, LayoutMismatch) as error:
        found.damage = str(error)
    return found


async def _look(disk: Disk, found: StoreSurvey) -> None:
    base = await recovery.find_base(disk, found.incarnation)
    meta = base.meta
    if base.snapshot is not None:
        found.head = base.snapshot.parts[0] if base.snapshot.parts else None
    scan = JournalScan(disk, found.incarnation, base.files, meta.start, meta.journal_d, base.known_d)
    found.start_d, found.position = meta.journal_d, meta.at
    async for each in scan.rounds():
        for frame in each.frames:
            found.frames.append(Frame(frame.last_d, frame.position, crc32c(frame.frame)))
            found.position = max(found.position, frame.position)
            if frame.position.index == 0 and frame.first_d > meta.d:
                found.views.append((frame.first_d, frame.position, frame.frame))
    ending = await scan.ending()
    if ending.outcome is End.DAMAGED:
        raise Corrupt(ending.complaint())
    found.last_d = max(meta.d, ending.last_d)
    found.stable, found.stable_d = max(ending.stable, meta.at), meta.d
    for each_frame in found.frames:
        if each_frame.position <= found.stable:
            found.stable_d = max(found.stable_d, each_frame.last_d)
    _shorten(found)


def _shorten(found: StoreSurvey) -> None:
    """Keep the frames that others may lack, and some before them to compare."""
    kept = sum(frame.last_d > found.stable_d for frame in found.frames)
    cut = len(found.frames) - max(kept, FRAMES_KEPT)
    if cut > 0:
        found.start_d = found.frames[cut - 1].last_d
        del found.frames[:cut]
