"""Keep the directory of an archive: its files, and the atomic commit of a run.

```
DIR/topic=…/date=2026-11-15/part-….parquet   for any reader of Parquet
DIR/_schemas/topic=…/1-5f1c0e6a2b3c4d5e.json the schemas of a topic (archive_schemas.py)
DIR/_holdfast/runs/00000001.json             a run: its positions, partitions, counts, digests and files
DIR/_holdfast/staging/RUN/topic=…/date=…/…   files of a run that is not committed
DIR/_holdfast/lock                           held by the one process that changes the archive
```

The file of a run is its commit. It is linked into place when all files that it names are on disk and were
read back. Then the files move to their places. Recovery after a kill:

| the run's file | its staging       | killed                | recovery                  |
|----------------|-------------------|-----------------------|---------------------------|
| missing        | whole or partial  | before the commit     | deletes the staging       |
| exists         | whole or partial  | while files moved     | moves the other files     |
| exists         | missing           | later, or not at all  | does nothing              |
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import Corrupt, Exists, Locked, Misuse, NotFound

INSIDE = "_holdfast"
"""Readers of Parquet skip names that begin with an underscore."""
VERSION = 3
VERSIONS = (1, 2, VERSION)
"""Versions of runs that can be read. Rows and digests of version 1 lack `storedTime`, and those of version 2
`schemaVersion`.
"""
Kind = Literal["archive", "compacted"]


class Range(msgspec.Struct, frozen=True):
    """The positions of a topic in a run: from `start` up to `stop`, excluded."""

    incarnation: str
    start: int
    stop: int
    lost: int = 0
    """Positions before `start` that were trimmed and not archived; the caller accepted that."""


class Part(msgspec.Struct, frozen=True):
    """One partition of a run: a topic on a day."""

    topic: str
    date: str
    rows: int
    first: int
    last: int
    digest: str
    files: list[str]
    """Paths relative to the archive's directory."""
    sizes: list[int] = []
    """Sizes of these files in bytes; empty in runs of former versions."""


class Run(msgspec.Struct, frozen=True):
    """One committed run. A run of kind `compacted` replaces all earlier ones."""

    version: int
    kind: Kind
    number: int
    id: str
    made: str
    topics: dict[str, Range]
    parts: list[Part]
    schemas: dict[str, dict[int, str]] = {}
    """Files with the schemas of topics, by version; of a partitioned topic once."""

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def files(self) -> list[str]:
        """The Parquet files."""
        return [file for part in self.parts for file in part.files]

    @property
    def schema_files(self) -> list[str]:
        """The files with schemas; other runs may have them, too."""
        return [file for found in self.schemas.values() for file in found.values()]


@dataclass(frozen=True)
class Recovered:
    """The result of a recovery."""

    moved: int
    """Files of committed runs that recovery moved to their places."""
    removed: int
    """Runs without a commit that recovery deleted."""


class ArchiveDirectory:
    """The directory of an archive, or of a compacted topic.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as path:
        ...     directory = ArchiveDirectory(path)
        ...     with directory.changing() as recovered:
        ...         print(recovered, directory.runs())
        Recovered(moved=0, removed=0) []
    """

    def __init__(self, path: str | Path, kind: Kind = "archive") -> None:
        text = os.fspath(path)
        if "://" in text and not text.startswith("file://"):
            raise Misuse(
                f"{text} is not a directory of this machine. An archive must be on disk before the broker "
                "may trim; mount it, or copy the archive there afterwards"
            )
        self.path = Path(text.removeprefix("file://")).absolute()
        self.kind: Kind = kind
        self._inside = self.path / INSIDE
        self._runs = self._inside / "runs"
        self._staging = self._inside / "staging"

    @classmethod
    def there(cls, path: str | Path) -> ArchiveDirectory:
        """Open a directory that has runs of either kind.

        Raises:
            NotFound: it has no runs.
        """
        found = cls(path)
        runs = found.runs(any_kind=True)
        if not runs:
            raise NotFound(f"{found.path} is not an archive; `holdfast pipeline archive` creates one")
        found.kind = runs[0].kind
        return found

    # -- reading ---------------------------------------------------------------------------------------

    def runs(self, any_kind: bool = False) -> list[Run]:
        """Read all committed runs, oldest first.

        Raises:
            Corrupt: a run's file is damaged or missing.
            Misuse: the directory is of the other kind.
        """
        found = [self._read(path) for path in sorted(self._runs.glob("*.json"), key=_place)]
        for before, after in pairwise(found):
            if after.number != before.number + 1:
                raise Corrupt(
                    f"{self._runs} has run {after.number} after run {before.number}: runs are missing; "
                    "restore them from a copy"
                )
        for run in found:
            if run.kind != self.kind and not any_kind:
                raise Misuse(f"{self.path} is of kind {run.kind}, not {self.kind}; use another directory")
        self._require_whole([run for run in found if run.kind == "archive"])
        return found

    def _require_whole(self, runs: list[Run]) -> None:
        """Check that no run of an archive is missing.

        Each run continues where the last one ended. A compacted directory has only its last run.
        """
        if runs and runs[0].number != 1:
            raise Corrupt(
                f"{self._runs} begins with run {runs[0].number}: earlier runs are missing; restore them "
                "from a copy"
            )
        reached: dict[str, Range] = {}
        for run in runs:
            for topic, reach in run.topics.items():
                before = reached.get(topic)
                same = before is not None and before.incarnation == reach.incarnation
                if before is not None and same and reach.start != before.stop + reach.lost:
                    raise Corrupt(
                        f"{self._runs}: run {run.number} has {topic} from position {reach.start} on, and the "
                        f"runs before it end at {before.stop}; restore the runs from a copy"
                    )
                reached[topic] = reach

    def _read(self, path: Path) -> Run:
        try:
            run = msgspec.json.decode(path.read_bytes(), type=Run)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"{path} does not decode: {error}; restore it from a copy") from error
        if run.version not in VERSIONS:
            raise Corrupt(
                f"{path} has version {run.version}; this holdfast reads up to {VERSION}: use a newer holdfast"
            )
        if path.name != _name(run.number):
            raise Corrupt(f"{path} has the content of run {run.number}; restore it from a copy")
        return run

    def positions(self) -> dict[str, Range]:
        """Return the archived range of each topic in the last run that has it."""
        return {topic: reach for run in self.runs() for topic, reach in run.topics.items()}

    def current(self) -> list[Run]:
        """Return the runs whose rows are valid: all, or the last of a compacted directory."""
        runs = self.runs(any_kind=True)
        return runs[-1:] if self.kind == "compacted" else runs

    def find(self, run: Run, file: str) -> Path:
        """Find a file of a run, in place or staged. Raises Corrupt: it is missing."""
        place, staged = self.path / file, self._staging / run.id / file
        for path in (place, staged, place):  # it may move meanwhile, from staging to its place
            if path.exists():
                return path
        raise Corrupt(f"{place} is missing, a file of run {run.number}; restore it from a copy")

    def reaching(self, held: Mapping[str, tuple[str, int]]) -> list[Run]:
        """List the runs with rows at or after these positions (topic → incarnation, position)."""
        nothing = ("", 0)
        return [
            run
            for run in self.runs()
            if any(
                reach.incarnation == incarnation and reach.stop > position
                for topic, reach in run.topics.items()
                for incarnation, position in [held.get(topic, nothing)]
            )
        ]

    def require_files(self, runs: list[Run]) -> None:
        """Check that all files of these runs exist, and Parquet files with their sizes.

        Raises:
            Corrupt: a file is missing, or has another size.
        """
        for run in runs:
            for file in run.schema_files:
                self.find(run, file)
            for part in run.parts:
                for file, size in zip_longest(part.files, part.sizes):
                    place = self.find(run, file)
                    if size is not None and (found := place.stat().st_size) != size:
                        raise Corrupt(
                            f"{place} has {found} bytes, and run {run.number} wrote {size}; restore it from "
                            "a copy"
                        )

    # -- changing --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def changing(self) -> Iterator[Recovered]:
        """Lock the directory for changes, and recover earlier runs first.

        Raises:
            Locked: another process is changing it.
        """
        new = [each for each in self._runs.parents if not each.exists()]
        for folder in (self._runs, self._staging):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in {self._inside, self.path, self.path.parent, *(each.parent for each in new)}:
            sync(folder)
        with locked(self._inside / "lock", f"is changing {self.path}"):
            yield self._recover()

    def _recover(self) -> Recovered:
        """Finish or delete earlier runs, as the table above says."""
        runs = self.runs()
        moved = sum(self.place(run) for run in runs)
        if self.kind == "compacted":
            self.superseded()
        for half in self._runs.glob(".*"):
            half.unlink()
        left = list(self._staging.iterdir())
        for folder in left:
            # A task of a killed run may still write there: a later run deletes the rest.
            shutil.rmtree(folder, ignore_errors=True)
        return Recovered(moved, len(left))

    def staging(self, run: str) -> Path:
        """Return the directory where a run writes."""
        return self._staging / run

    def written(self, run: str) -> list[Path]:
        """Sync the Parquet files that a run staged, and return their paths in its staging."""
        staging = self.staging(run)
        files = sorted(staging.rglob("*.parquet"))
        for file in [*files, *staging.rglob(".*.crc")]:
            sync(file)
        for folder in {staging, self._staging, *(file.parent for file in files)}:
            sync(folder)
            sync(folder.parent)
        return [file.relative_to(staging) for file in files]

    def discard(self, run: str) -> None:
        """Delete the staged files of a run that will not be committed."""
        shutil.rmtree(self.staging(run), ignore_errors=True)

    def commit(self, run: Run) -> None:
        """Commit a run; all of its files must be `written`.

        Raises:
            Exists: a run of that number exists.
        """
        new = self._runs / f".{run.id}"
        new.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
        sync(new)
        try:
            (self._runs / _name(run.number)).hardlink_to(new)
        except FileExistsError:
            raise Exists(
                f"{self.path} has a run {run.number} already: another process is writing to the archive"
            ) from None
        finally:
            new.unlink()
        sync(self._runs)

    def place(self, run: Run) -> int:
        """Move a committed run's files to their places. Return how many were moved."""
        staging, moved, folders = self.staging(run.id), 0, set[Path]()
        for file in [*run.schema_files, *run.files] if staging.exists() else ():
            source, target = staging / file, self.path / file
            if not source.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            for name in (
                f".{source.name}.crc",
                source.name,
            ):  # the checksum first: readers expect it beside the file
                with contextlib.suppress(FileNotFoundError):
                    source.with_name(name).replace(target.with_name(name))
            folders |= {target.parent, target.parent.parent, self.path}
            moved += 1
        for folder in folders:
            sync(folder)
        shutil.rmtree(staging, ignore_errors=True)
        return moved

    def superseded(self) -> None:
        """Delete the runs before the last one of a compacted directory."""
        runs = self.runs()
        for run in runs[:-1]:
            self._remove(run, runs[-1])

    def _remove(self, run: Run, last: Run) -> None:
        """Delete a run, and its files but for those that the last run has, too."""
        for file in {*run.files, *run.schema_files} - {*last.schema_files}:
            target = self.path / file
            target.with_name(f".{target.name}.crc").unlink(missing_ok=True)
            target.unlink(missing_ok=True)
        (self._runs / _name(run.number)).unlink(missing_ok=True)


def _name(number: int) -> str:
    return f"{number:08}.json"


def _place(path: Path) -> tuple[int, str]:
    """Order files by run: a name has 8 digits, and more after run 99,999,999."""
    return len(path.name), path.name


@contextlib.contextmanager
def locked(file: Path, work: str) -> Iterator[None]:
    """Hold the lock of a file. Raises Locked: another process has it."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(f"another process {work}; wait for it, or stop it") from None
        yield


def sync(path: Path) -> None:
    """Sync a file or folder to disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
