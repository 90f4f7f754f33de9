"""Check a data directory: read everything, change nothing. No process may have it open.

```python
found = examine("data/")
found.sound                # it can be opened, and has everything that was confirmed
for each in found.findings:
    each.grave, each.file, each.offset, each.what, each.advice
```
"""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.errors import Corrupt, LayoutMismatch, NotFound
from holdfast.formatting import plural
from holdfast.ledger import recovery
from holdfast.ledger.files.rebuild import BlockFault, runs
from holdfast.ledger.journal import files as journal
from holdfast.ledger.journal.scan import End, JournalScan
from holdfast.ledger.layout import (
    DIRECTORIES,
    FILE_HEADER,
    FORMAT,
    INCOMPLETE,
    INDEX_ENTRY,
    JOURNAL,
    LEDGERS,
    LOCK,
    NEW,
    SNAPSHOTS,
    SPARE,
    Extent,
    FileKind,
    LedgerFile,
    header_fault,
    journal_path,
    number_of,
    read_file_header,
    snapshot_path,
)
from holdfast.ledger.snapshot import format as snapshot_format
from holdfast.system import Disk, File, SystemDisk, read_file

RESTORE = "restore a backup"
DAMAGED = "restore a backup, or let consumers leave it out: skip the entry, or open with skip_damaged"


@dataclass(frozen=True)
class Finding:
    """One result of the check."""

    what: str
    file: str
    offset: int | None
    advice: str
    grave: bool
    """Whether confirmed data is damaged or missing. If not, the next start repairs it."""

    def __str__(self) -> str:
        where = self.file if self.offset is None else f"{self.file} at offset {self.offset}"
        return f"{where}: {self.what}; {self.advice}"


AHEAD_S = 120.0
"""Log time that is this far ahead of the clock came from a wrong clock."""


@dataclass
class Examination:
    """The results for a directory. Sizes in bytes."""

    directory: str
    incarnation: str = ""
    findings: list[Finding] = field(default_factory=list)
    snapshots: int = 0
    snapshot_d: int = 0
    """Recovery would start behind this event."""
    last_d: int = 0
    """Recovery would end with this event."""
    clean: bool = False
    """Whether the broker was closed."""
    journal_files: int = 0
    journal_rounds: int = 0
    """Rounds behind the snapshot."""
    spares: int = 0
    log_time_ns: int = 0
    """Log time of the last event, in ns since the epoch."""
    ledgers: int = 0
    entries: int = 0
    ledger_bytes: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing confirmed is damaged or missing."""
        return not self.faults

    @property
    def faults(self) -> list[str]:
        return [str(each) for each in self.findings if each.grave]

    @property
    def notes(self) -> list[str]:
        return [str(each) for each in self.findings if not each.grave]

    def record(self) -> dict[str, Any]:
        """Return the results for JSON."""
        return {"sound": self.sound, **asdict(self)}


def examine(path: str | Path) -> Examination:
    """Check everything in a directory.

    Raises:
        Locked: a process has it open.
        NotFound: the path is not a broker's directory.
    """
    if not (Path(path) / FORMAT).exists() and not (Path(path) / JOURNAL).is_dir():
        raise NotFound(f"{path} is not a data directory: it has no file named {FORMAT}")
    return asyncio.run(examine_disk(SystemDisk(path), str(path)))


async def examine_disk(disk: Disk, name: str = "", now_ns: int | None = None) -> Examination:
    """Like `examine`, on any disk and at any time."""
    lock = await disk.lock(LOCK)
    try:
        doctor = _Doctor(disk, Examination(name), time.time_ns() if now_ns is None else now_ns)
        await doctor.look()
        return doctor.found
    finally:
        await lock.release()


class _Doctor:
    def __init__(self, disk: Disk, found: Examination, now_ns: int) -> None:
        self.disk = disk
        self.found = found
        self.now_ns = now_ns
        self.incarnation = bytes(16)

    def tell(self, file: str, offset: int | None, what: str, advice: str, grave: bool = True) -> None:
        self.found.findings.append(Finding(what, file, offset, advice, grave))

    def note(self, file: str, offset: int | None, what: str, advice: str) -> None:
        self.tell(file, offset, what, advice, grave=False)

    async def look(self) -> None:
        if INCOMPLETE in await self.disk.list(""):
            what = "a copy from another member did not end"
            self.tell(INCOMPLETE, None, what, "start it as a member of its cluster, which copies again")
            return
        if not await self._format():
            return
        await self._snapshots()
        try:
            base = await recovery.find_base(self.disk, self.incarnation)
        except (Corrupt, LayoutMismatch) as error:
            self.tell(SNAPSHOTS, None, f"recovery cannot begin: {error}", RESTORE)
            return
        self.found.snapshot_d = base.meta.d
        clean = await self._journal(base)
        self.found.clean = base.meta.clean and clean
        self._time(base)
        await self._ledgers(base)

    # -- the parts -------------------------------------------------------------------------------------

    async def _format(self) -> bool:
        names = await self.disk.list("")
        for missing in sorted({FORMAT, *DIRECTORIES} - set(names)):
            self.tell(missing, None, "it is missing", RESTORE)
        if FORMAT not in names or not set(DIRECTORIES) <= set(names):
            return False
        head = await read_file(self.disk, FORMAT, 0, FILE_HEADER)
        parsed = read_file_header(head)
        self.incarnation = parsed[3] if parsed else bytes(16)
        self.found.incarnation = self.incarnation.hex()
        fault = header_fault(head, FileKind.DIRECTORY, 0, self.incarnation)
        if fault is not None:
            self.tell(FORMAT, 0, f"its header {fault.value}", RESTORE)
        return fault is None

    async def _snapshots(self) -> None:
        for name in await self.disk.list(SNAPSHOTS):
            path = f"{SNAPSHOTS}/{name}"
            d = number_of(name)
            if name.endswith(NEW):
                self.note(path, None, "an incomplete snapshot", "the next start removes it")
            elif d is None:
                self.note(path, None, "not the name of a snapshot", "remove it")
            else:
                self.found.snapshots += 1
                try:
                    await snapshot_format.load(self.disk, d, self.incarnation)
                except (Corrupt, LayoutMismatch) as error:
                    advice = "the one before it and the journal are used instead"
                    self.note(snapshot_path(d), None, str(error), advice)

    async def _journal(self, base: recovery.Base) -> bool:
        """Check the journal like recovery; return whether it ends cleanly at the snapshot."""
        for name in await self.disk.list(JOURNAL):
            number = number_of(name)
            if number is not None:
                self.found.journal_files += 1
            elif name.startswith(SPARE):
                self.found.spares += 1
            else:
                self.note(f"{JOURNAL}/{name}", None, "not the name of a journal file", "remove it")
        meta = base.meta
        files = await journal.numbers(self.disk)
        scan = JournalScan(self.disk, self.incarnation, files, meta.start, meta.journal_d, base.known_d)
        try:
            async for each in scan.rounds():
                self.found.journal_rounds += bool(each.frames)
                if each.frames:
                    self.found.log_time_ns = each.frames[-1].time_ns
            ending = await scan.ending()
        except (Corrupt, LayoutMismatch) as error:
            self.tell(JOURNAL, None, str(error), RESTORE)
            return False
        self.found.last_d = max(ending.last_d, meta.d)
        path, offset = journal_path(ending.wrong.journal), ending.wrong.offset
        if ending.outcome is End.DAMAGED:
            self.tell(path, offset, ending.complaint(), RESTORE)
        elif ending.outcome is End.TORN:
            what = "the last round is incomplete; nothing in it was confirmed"
            self.note(path, offset, what, "the next start wipes it")
        return ending.outcome is End.CLEAN and ending.last_d == meta.d

    def _time(self, base: recovery.Base) -> None:
        """Note log time ahead of the clock: nothing ages until the clock catches up."""
        if self.found.last_d <= base.meta.d:
            self.found.log_time_ns = base.meta.time_ns
        ahead_s = (self.found.log_time_ns - self.now_ns) / 1e9
        if ahead_s > AHEAD_S:
            until = datetime.fromtimestamp(self.found.log_time_ns // 1_000_000_000, UTC).isoformat()
            what = f"log time is {ahead_s:,.0f} s ahead of this machine's clock, at {until}"
            advice = (
                "until then nothing expires, rolls or is trimmed by age; if this clock is right, run "
                "holdfast doctor DIR --repair-time"
            )
            self.note(FORMAT, None, what, advice)

    async def _ledgers(self, base: recovery.Base) -> None:
        extents = base.meta.extents()
        sizes = await self.disk.sizes(LEDGERS)
        present: dict[LedgerFile, set[str]] = {}
        for name in sizes:
            parsed = LedgerFile.parse(name)
            if parsed is None:
                self.note(f"{LEDGERS}/{name}", None, "not the name of a ledger's file", "remove it")
            else:
                present.setdefault(parsed[0], set()).add(parsed[1])
        for file in sorted({*extents, *present}):
            extent = extents.get(file)
            if extent is None:
                if file.ledger < base.meta.next_ledger:
                    what = "no snapshot in use lists this file"
                    self.note(file.data_path, None, what, "the next start or snapshot removes it")
                continue  # files after the snapshot are rebuilt from the journal
            self.found.ledgers += 1
            if "data" not in present.get(file, ()):
                self.tell(file.data_path, None, "it is missing", RESTORE)
                continue
            await self._ledger(file, extent, "index" in present[file])

    async def _ledger(self, file: LedgerFile, extent: Extent, has_index: bool) -> None:
        """Check every block up to the size in the snapshot, and its index."""
        data = await self.disk.open(file.data_path)
        index = await self.disk.open(file.index_path) if has_index else None
        try:
            head = await data.read(0, FILE_HEADER)
            fault = header_fault(head, FileKind.LEDGER_DATA, file.ledger, self.incarnation)
            if fault is not None:
                self.tell(file.data_path, 0, f"its header {fault.value}", RESTORE)
            entries, wrong = 0, index is None
            async for run in runs(data, file.data_path, FILE_HEADER, 0, extent.size):
                if isinstance(run, BlockFault):
                    what = f"entry {run.entry} is damaged ({run.what})"
                    self.tell(file.data_path, run.offset, what, DAMAGED)
                    self.found.entries += entries
                    return
                entries += run.count
                self.found.ledger_bytes += len(run.data)
                if index is not None and not wrong:
                    wrong = await self._compare(file, index, run.first_entry, run.index)
            self.found.entries += entries
            if entries != extent.entries:
                what = f"{plural(entries, 'entry')} instead of {extent.entries}"
                self.tell(file.data_path, extent.size, what, RESTORE)
            if index is None:
                self.note(file.index_path, None, "it is missing", "the next start rebuilds it")
        finally:
            await data.close()
            if index is not None:
                await index.close()

    async def _compare(self, file: LedgerFile, index: File, first: int, expected: bytes) -> bool:
        """Compare an index with the data; return whether it differs, and report that once."""
        offset = FILE_HEADER + INDEX_ENTRY * first
        found = await index.read(offset, len(expected))
        if found == expected:
            return False
        wanted, there = (struct.iter_unpack("<Q", rows[: len(rows) & ~7]) for rows in (expected, found))
        differ = (i for i, (a, b) in enumerate(zip(wanted, there, strict=False)) if a != b)
        good = next(differ, len(found) // INDEX_ENTRY)
        advice = f"remove {file.index_path}: the next start rebuilds it from the data"
        what = f"it has a wrong offset for entry {first + good}"
        self.tell(file.index_path, offset + INDEX_ENTRY * good, what, advice)
        return True


__all__ = ["Examination", "Finding", "examine", "examine_disk"]
