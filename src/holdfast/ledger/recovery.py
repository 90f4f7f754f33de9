"""Recovery: bring a machine to the state of the last confirmed event in its directory.

```
 lock ─► newest whole snapshot ─► survey the journal ─► wipe its torn end ─► redo what follows the snapshot
                                  (damage: stop here)    ─► cut ledgers' torn ends ─► sync ─► serve
```

The survey comes first and changes nothing, so damage is reported before any file is touched. Redo writes the
journal's entries into the ledgers, over the bytes that are there. Confirmed bytes are overwritten by the same
bytes, so readers of the files never see a gap. Only then are the ends cut. Every step may be interrupted and
repeated from the start: it deletes nothing that the next attempt needs (I36).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast._core import Log, at
from holdfast.errors import Corrupt, Misuse
from holdfast.group import Position
from holdfast.ledger.files import rebuild
from holdfast.ledger.journal import files as journal_files
from holdfast.ledger.journal.files import JournalFiles
from holdfast.ledger.journal.scan import End, Ending, JournalScan, wipe, write_again
from holdfast.ledger.layout import (
    DIRECTORIES,
    FILE_HEADER,
    FORMAT,
    INCOMPLETE,
    JOURNAL,
    LEDGERS,
    LIFE,
    LOCAL,
    LOCK,
    NEW,
    PAGE,
    RESERVE,
    SNAPSHOTS,
    SURVIVOR,
    Extent,
    FileKind,
    LedgerFile,
    Place,
    file_header,
    journal_path,
    read_file_header,
    require_header,
)
from holdfast.ledger.snapshot import format as snapshot_format
from holdfast.ledger.snapshot.format import NOTHING, Meta, Snapshot
from holdfast.ledger.space import is_full
from holdfast.system import Disk, File, Randomness, opened, read_file, remove, write_all, write_named_last

REDO_BYTES = 4 << 20
"""Bytes of the ledgers' ends that are collected in memory before they are written."""
FILES_MAX = 64
"""How many ledger files redo keeps open."""


class Captured(Protocol):
    """A machine's state after one event."""

    @property
    def d(self) -> int: ...
    @property
    def position(self) -> Position: ...
    @property
    def parts(self) -> list[bytes]: ...
    @property
    def ledgers(self) -> dict[int, tuple[int, int]]:
        """Data size and number of entries of every ledger file of this state."""


class StateMachine(Protocol):
    """The interface of a machine: a store recovers it, and takes snapshots of it."""

    @property
    def log(self) -> Log:
        """The log that numbers and writes its events. `load` may replace it."""

    def load(self, parts: Iterable[bytes]) -> None:
        """Replace the state by a snapshot's."""

    def redo(self, view: int, index: int, frame: bytes) -> None:
        """Apply events again. Entries that they append to ledgers are written again."""

    def capture(self) -> Captured:
        """Return the current state."""


@dataclass(frozen=True)
class Recovered:
    """The result of a recovery."""

    fresh: bool
    """Whether the directory is new."""
    snapshot_d: int
    """The last event of the snapshot."""
    last_d: int
    events: int
    """How many events were redone from the journal."""
    cut_bytes: int
    """Bytes of torn rounds, and of events after `upto`, that were cut."""
    position: Position
    """Position of the last event, in the group's order."""
    stable: Position
    """The last position that this broker knew to be stable."""
    clean: bool
    """Whether the broker had been closed."""
    notes: tuple[str, ...] = ()
    """Remarks for the operator, although nothing is missing."""


# -- the directory ------------------------------------------------------------------------------------


async def prepare(
    disk: Disk, randomness: Randomness, journal_bytes: int, updating: bool = False
) -> tuple[bytes, bool]:
    """Return the directory's incarnation, and whether this call created it. The caller holds the lock.

    `updating`: the caller knows which files are missing, and fetches them.

    Raises:
        Misuse: the directory holds other files, or is incomplete.
        Corrupt: the directory holds data, and its format file is missing.
        LayoutMismatch: another version created the directory.
    """
    names = set(await disk.list(""))
    if INCOMPLETE in names and not updating:
        raise Misuse(
            f"the file {INCOMPLETE} says that a copy from another member did not end. Start it as a member "
            "of its cluster, which copies again; or use another directory"
        )
    if FORMAT not in names:
        return await _format(disk, randomness, journal_bytes, names), True
    return await read_format(disk), False


async def require_no_member(disk: Disk) -> None:
    """Refuse to open the directory of a cluster's node outside of its cluster.

    Events that are written alone look stable: no other node has to hold them. An election would prefer
    them to what the cluster has confirmed meanwhile.

    Raises:
        Misuse: the directory has the number of a life in a cluster.
    """
    if LIFE in await disk.list(""):
        raise Misuse(
            "this directory is that of a node of a cluster; start it as a member, or ask another member. To "
            f"take it out of its cluster for good, remove the file {LIFE}"
        )


async def read_format(disk: Disk) -> bytes:
    """Read the directory's incarnation from its format file. Raises Corrupt, LayoutMismatch."""
    head = await read_file(disk, FORMAT, 0, FILE_HEADER)
    found = read_file_header(head)
    incarnation = found[3] if found else bytes(16)
    require_header(FORMAT, head, FileKind.DIRECTORY, 0, incarnation)
    return incarnation


async def write_format(disk: Disk, incarnation: bytes) -> None:
    """Write the format file, durably: from now on the directory is a store."""
    await write_named_last(disk, FORMAT, FORMAT + NEW, file_header(FileKind.DIRECTORY, 0, incarnation))


def require_no_strangers(names: set[str]) -> None:
    """Refuse to create a store in a directory with other files."""
    members = {name + end for name in (LIFE, INCOMPLETE, SURVIVOR) for end in ("", NEW)}
    strangers = names - {LOCK, LOCAL, FORMAT + NEW, RESERVE, *DIRECTORIES, *members}
    if strangers:
        raise Misuse(
            f"this directory holds other files ({', '.join(sorted(strangers)[:3])}) and no file "
            f"named {FORMAT}; use a new directory"
        )


async def _format(disk: Disk, randomness: Randomness, journal_bytes: int, names: set[str]) -> bytes:
    """Create the directory. Its format file is named last, and makes it a store."""
    require_no_strangers(names)
    for directory in DIRECTORIES:
        if directory not in names:
            await disk.make_directory(directory)
    await _require_nothing(disk)
    at("format_made")
    incarnation = randomness.token(16)
    files = JournalFiles(disk, incarnation, journal_bytes)
    await files.look()
    await (await files.create(1)).close()
    await write_format(disk, incarnation)
    return incarnation


async def _require_nothing(disk: Disk) -> None:
    """Check for data; the first journal file of an interrupted attempt is removed."""
    found = await journal_files.numbers(disk)
    first = await read_file(disk, journal_path(1), PAGE, PAGE) if found == [1] else b""
    if await disk.list(LEDGERS) or await disk.list(SNAPSHOTS) or found not in ([], [1]) or any(first):
        raise Corrupt(
            f"the file {FORMAT} is missing beside data: the directory is damaged, or a copy is incomplete; "
            "restore a backup"
        )
    await remove(disk, journal_path(1))


# -- the base: a snapshot, and the journal behind it ---------------------------------------------------


@dataclass
class Base:
    """The snapshot that recovery starts from, and the journal's files."""

    snapshot: Snapshot | None
    """`None`: recovery starts from the first event."""
    kept: list[Meta]
    """The snapshot in use last; before it the older one, if recovery could fall back to it."""
    known_d: int
    """The journal must reach up to this event: a snapshot says so, if only by its name."""
    files: list[int]
    notes: list[str] = field(default_factory=list)
    fell_back: bool = False
    """Whether a newer snapshot is damaged: ledgers that it removed may be gone already."""

    @property
    def meta(self) -> Meta:
        return self.kept[-1]


async def find_base(disk: Disk, incarnation: bytes) -> Base:
    """Find the newest whole snapshot, or the beginning if the journal reaches back to it.

    Raises:
        Corrupt: not one snapshot is whole, and the journal does not reach back to the beginning.
    """
    found = await snapshot_format.names(disk)
    files = await journal_files.numbers(disk)
    newest, notes = await snapshot_format.load_newest(disk, incarnation, found)
    whole_journal = bool(files) and files[0] == 1
    if newest is None and not whole_journal:
        missing = f"{journal_path(1)} is missing, and there is no snapshot"
        raise Corrupt("; ".join(notes) or f"{missing}; restore a backup")
    kept = [NOTHING] if newest is None else [newest.meta]
    older = [d for d in found if d < kept[0].d]
    if newest is not None and not newest.meta.cut:
        second = await snapshot_format.load_summary(disk, older[-1], incarnation) if older else None
        if second is not None:
            kept.insert(0, second)
        elif whole_journal:
            kept.insert(0, NOTHING)
    lost = [d for d in found if d > kept[-1].d]
    known_d = max([*lost, kept[-1].d if kept[-1].proven else 0])
    return Base(newest, kept, known_d, files, notes, fell_back=bool(lost))


# -- redo ---------------------------------------------------------------------------------------------


class LedgerEnds:
    """Writes the entries of redo to ledgers, over the bytes that are there."""

    def __init__(self, disk: Disk, incarnation: bytes, extents: dict[LedgerFile, Extent]) -> None:
        self._disk = disk
        self._incarnation = incarnation
        self._current = {file.ledger: file for file in extents}
        self._open: OrderedDict[LedgerFile, tuple[File, File]] = OrderedDict()
        self.extents = dict(extents)
        self.touched: set[LedgerFile] = set()
        """Files that are written and not synced."""
        self.absent: set[LedgerFile] = set()
        """Ledgers of the snapshot whose files are gone: a later event must have removed them."""

    def generations(self) -> dict[int, int]:
        """Return the generation of each ledger, where it is not 0."""
        return {file.ledger: file.generation for file in self.extents if file.generation}

    async def write(self, ledger: int, offset: int, data: bytes, index_offset: int, index: bytes) -> None:
        target = self._current.setdefault(ledger, LedgerFile(ledger))
        if target in self.absent:
            return
        at("recover_ledger")
        first = offset == FILE_HEADER
        files = await self._files(target, create=first)
        if first:
            kinds = (FileKind.LEDGER_DATA, FileKind.LEDGER_INDEX)
            for file, kind in zip(files, kinds, strict=True):
                await write_all(file, 0, file_header(kind, ledger, self._incarnation))
        await write_all(files[0], offset, data)
        await write_all(files[1], index_offset, index)
        entries = (index_offset + len(index) - FILE_HEADER) // 8
        self.extents[target] = Extent(offset + len(data), entries)
        self.touched.add(target)

    async def _files(self, target: LedgerFile, create: bool) -> tuple[File, File]:
        found = self._open.get(target)
        if found is None:
            data = await self._file(target.data_path, create)
            try:
                found = (data, await self._file(target.index_path, create))
            except BaseException:
                await data.close()
                raise
            self._open[target] = found
            if len(self._open) > FILES_MAX:
                for file in self._open.popitem(last=False)[1]:
                    await file.close()
        self._open.move_to_end(target)
        return found

    async def _file(self, path: str, create: bool) -> File:
        try:
            return await self._disk.open(path)
        except FileNotFoundError:
            if not create:
                raise Corrupt(f"{path} is missing; restore a backup") from None
            return await self._disk.open(path, create=True)

    async def close(self) -> None:
        while self._open:
            for file in self._open.popitem()[1]:
                await file.close()


async def cut_ledgers(disk: Disk, extents: dict[LedgerFile, Extent], needed: set[LedgerFile]) -> int:
    """Cut ledger files to these extents, delete others; return how many were changed.

    `needed` are files of an older kept snapshot, which stay.
    """
    changed = 0
    for name, size in (await disk.sizes(LEDGERS)).items():
        parsed = LedgerFile.parse(name)
        if parsed is None:
            continue
        ledger, part = parsed
        path = f"{LEDGERS}/{name}"
        extent = extents.get(ledger)
        if extent is None:
            if ledger not in needed:
                at("trim_unlink")
                await disk.unlink(path)
                changed += 1
            continue
        limit = extent.size if part == "data" else extent.index_size
        if size > limit:
            async with opened(disk, path) as file:
                await file.truncate(limit)
            changed += 1
    return changed


# -- all of it ----------------------------------------------------------------------------------------


@dataclass
class Recovery:
    """One attempt. `run` sets the journal's end, and the ledger files to sync."""

    disk: Disk
    incarnation: bytes
    base: Base
    fresh: bool
    make_room: Callable[[], Awaitable[bool]]
    """Called when the disk is full; `True` if it has freed space."""
    missing: frozenset[int] = frozenset()
    """Ledgers that are fetched later. Events behind the snapshot do not write to them."""
    ends: LedgerEnds = field(init=False)
    ending: Ending = field(init=False)
    cut_at: Position | None = None
    """Events after this position are cut; they may be in the middle of a round."""
    spoiled: bool = False
    """Whether the journal could not be synced."""
    unproven: list[tuple[Place, int, int]] = field(default_factory=list)
    """Place, size and last D of rounds that may not be synced."""

    @property
    def is_cut(self) -> bool:
        """Whether the journal does not continue the state, and a new one must start.

        The reason is `upto`, a failed sync, or with `sync = os` a snapshot with events that the journal lost.
        """
        return self.cut_at is not None or self.spoiled or self.ending.last_d < self.base.meta.d

    def __post_init__(self) -> None:
        self.ends = LedgerEnds(self.disk, self.incarnation, self.base.meta.extents())

    def _scan(self) -> JournalScan:
        meta = self.base.meta
        return JournalScan(
            self.disk, self.incarnation, self.base.files, meta.start, meta.journal_d, self.base.known_d
        )

    async def run(self, machine: StateMachine, upto: Position | Literal["stable"] | None) -> Recovered:
        """Bring the machine to the state of the last confirmed event.

        Raises:
            Corrupt: confirmed data is damaged; the text names file and offset.
            NoSpace: the disk is full, and the reserve was not enough.
        """
        meta = self.base.meta
        await self._check_ledgers()
        await self._survey(upto)
        if self.base.snapshot is not None:
            machine.load(self.base.snapshot.parts)
            self.base.snapshot.parts.clear()
        self._require_d(machine, meta.d, f"the snapshot of D {meta.d}")
        at("recover_loaded")
        if self.ending.outcome is End.TORN:
            await wipe(self.disk, self.ending.newer)
            at("recover_cut")
        position = await self._redo(machine)
        self._require_ledgers(machine)
        needed = {file for kept in self.base.kept for file in kept.extents()}
        await cut_ledgers(self.disk, self.ends.extents, needed)
        at("recover_truncated")
        await self._tidy()
        await self._sync()
        last_d = machine.log.next_d - 1
        return Recovered(
            fresh=self.fresh,
            snapshot_d=meta.d,
            last_d=last_d,
            events=last_d - meta.d,
            cut_bytes=self.ending.cut_bytes,
            position=position,
            stable=max(self.ending.stable, meta.at),
            clean=meta.clean and self.ending.outcome is End.CLEAN and self.ending.last_d == meta.d,
            notes=tuple(self.base.notes),
        )

    async def _check_ledgers(self) -> None:
        """Check the ledgers of the snapshot for their sizes; rebuild an index if needed."""
        sizes = await self.disk.sizes(LEDGERS)
        for file, extent in self.base.meta.extents().items():
            name, index = f"{file.stem}.data", f"{file.stem}.index"
            if file.ledger in self.missing:
                continue
            if name not in sizes:  # a later event may have removed it: see `_require_ledgers`
                self.ends.absent.add(file)
                continue
            if sizes.get(name, -1) < extent.size:
                raise Corrupt(
                    f"{file.data_path} ends at offset {sizes[name]}, but its first {extent.size} bytes were "
                    "confirmed; restore a backup"
                )
            if sizes.get(index, -1) < extent.index_size:
                self.base.notes.append(f"{file.index_path} was incomplete and was rebuilt from the data")
                await rebuild.rebuild_index(self.disk, file, extent, self.incarnation)

    async def _survey(self, upto: Position | Literal["stable"] | None) -> None:
        """Read the whole journal: find how it ends, and whether it has events after `upto`."""
        scan = self._scan()
        last = self.base.meta.at
        async for found in scan.rounds():
            if found.frames:
                last = max(last, found.frames[-1].position)
        self.ending = await scan.ending()
        self.unproven = scan.unproven
        if self.ending.outcome is End.DAMAGED:
            raise Corrupt(self.ending.complaint())
        limit = max(scan.stable, self.base.meta.at) if upto == "stable" else upto
        if limit is not None and limit < self.base.meta.at:
            raise Misuse(
                f"cannot cut events after {limit}: the snapshot includes {self.base.meta.at}, "
                "and events of a snapshot are stable"
            )
        if limit is not None and limit < last:
            self.cut_at = limit

    async def _redo(self, machine: StateMachine) -> Position:
        """Apply every event after the snapshot and write the ledgers' ends; return the last position."""
        meta = self.base.meta
        position = meta.at
        try:
            async for found in self._scan().rounds():
                at("recover_redo")
                for frame in found.frames:
                    if frame.last_d <= meta.d:
                        continue
                    if self.cut_at is not None and frame.position > self.cut_at:
                        break
                    machine.redo(frame.position.view, frame.position.index, frame.frame)
                    self._require_d(machine, frame.last_d, f"the frame of {found.place}")
                    position = max(position, frame.position)
                    if machine.log.pending_bytes >= REDO_BYTES:
                        await self._flush(machine)
            await self._flush(machine)
        finally:
            await self.ends.close()
        return position

    async def _flush(self, machine: StateMachine) -> None:
        while (made := machine.log.take_round()) is not None:
            for write in made.writes:
                try:
                    await self.ends.write(*write)
                except OSError as error:
                    if not is_full(error) or not await self.make_room():
                        raise
                    await self.ends.write(*write)

    @staticmethod
    def _require_d(machine: StateMachine, d: int, after: str) -> None:
        if machine.log.next_d != d + 1:
            raise Corrupt(
                f"after {after} the state is at D {machine.log.next_d - 1}, not {d}; "
                "another version of holdfast wrote it, or this is a defect: report it"
            )

    def _require_ledgers(self, machine: StateMachine) -> None:
        """Check that the state does not need a ledger whose file is gone."""
        if self.ends.absent:
            live = machine.capture().ledgers
            for file in sorted(self.ends.absent):
                if file.ledger in live:
                    raise Corrupt(f"{file.data_path} is missing; restore a backup")
                del self.ends.extents[file]

    async def _sync(self) -> None:
        """Sync journal and directories, so that a power cut takes nothing back later.

        A killed process may have left bytes that it had not synced, or whose sync had failed. The next round
        will say that all before it was synced (I31), so rounds without that proof are written again first.
        """
        try:
            for number in self.base.files:
                if number >= self.base.meta.journal:
                    async with opened(self.disk, journal_path(number)) as file:
                        for place, size, _ in self.unproven:
                            if place.journal == number:
                                await write_again(file, place.offset, size)
                        await file.sync()
        except OSError as error:
            self.spoiled = True
            self.base.notes.append(f"the journal could not be synced ({error}); a new one was started")
        for directory in (JOURNAL, SNAPSHOTS, LEDGERS, ""):
            await self.disk.sync_directory(directory)

    async def _tidy(self) -> None:
        """Delete incomplete snapshots and old journal files of an earlier run."""
        for name in await self.disk.list(SNAPSHOTS):
            if name.endswith(NEW):
                await self.disk.unlink(f"{SNAPSHOTS}/{name}")
        for number in self.base.files:
            if number < self.base.kept[0].journal:
                await remove(self.disk, journal_path(number))
