"""An archive's directory: which files belong to it, and how a run becomes part of it all at once.

```
DIR/topic=…/date=2026-11-15/part-….parquet   what every reader of Parquet sees
DIR/_holdfast/runs/00000001.json             a run: its positions, partitions, counts, digests and files
DIR/_holdfast/staging/RUN/topic=…/date=…/…   what a run has written so far
DIR/_holdfast/lock                           held by the one process that changes the archive
```

The file of a run is the commit: linked into place when everything that it names is on disk and was read back.
Then the files move to their places. What is found after a kill:

| the run's file | its staging    | so it was killed        | and now                  |
|----------------|----------------|-------------------------|--------------------------|
| no             | there, or half | before the commit       | the staging is removed   |
| there          | there, or half | while its files moved   | the rest of them moves   |
| there          | gone           | behind that, or not     | nothing is to be done    |
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
"""Readers of Parquet pass over names that begin with an underscore."""
VERSION = 2
VERSIONS = (1, VERSION)
"""Of runs that can be read. 1: their rows have no `storedTime`, and their digests are without it."""
Kind = Literal["archive", "compacted"]


class Range(msgspec.Struct, frozen=True):
    """The positions of a topic that a run covers: from `start` up to, without, `stop`."""

    incarnation: str
    start: int
    stop: int
    lost: int = 0
    """Positions before `start` that were trimmed before anybody archived them, as the caller accepted."""


class Part(msgspec.Struct, frozen=True):
    """One partition of a run: a topic on a day."""

    topic: str
    date: str
    rows: int
    first: int
    last: int
    digest: str
    files: list[str]
    """From the archive's directory on."""
    sizes: list[int] = []
    """Of these files, in bytes; empty in runs of former versions."""


class Run(msgspec.Struct, frozen=True):
    """What one run has added. `compacted`: it stands for everything before it."""

    version: int
    kind: Kind
    number: int
    id: str
    made: str
    topics: dict[str, Range]
    parts: list[Part]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def files(self) -> list[str]:
        return [file for part in self.parts for file in part.files]


@dataclass(frozen=True)
class Recovered:
    """What earlier runs had left undone."""

    moved: int
    """Files of a run that was committed, which are now in their places."""
    removed: int
    """Runs that were never committed, whose files are gone."""


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
                f"{text}: an archive stands in a directory of this machine, because it must be on disk "
                "before the broker may trim; mount it, or copy the archive there afterwards"
            )
        self.path = Path(text.removeprefix("file://")).absolute()
        self.kind: Kind = kind
        self._inside = self.path / INSIDE
        self._runs = self._inside / "runs"
        self._staging = self._inside / "staging"

    @classmethod
    def there(cls, path: str | Path) -> ArchiveDirectory:
        """One that has runs, of whatever kind.

        Raises:
            NotFound: there is none.
        """
        found = cls(path)
        runs = found.runs(any_kind=True)
        if not runs:
            raise NotFound(f"{found.path} is no archive; `holdfast pipeline archive` makes one")
        found.kind = runs[0].kind
        return found

    # -- looking ---------------------------------------------------------------------------------------

    def runs(self, any_kind: bool = False) -> list[Run]:
        """All that are part of it, oldest first.

        Raises:
            Corrupt: a run's file is damaged or missing.
            Misuse: it is a directory of another kind.
        """
        found = [self._read(path) for path in sorted(self._runs.glob("*.json"), key=_place)]
        for before, after in pairwise(found):
            if after.number != before.number + 1:
                raise Corrupt(f"{self._runs} has run {after.number} behind {before.number}: one is missing")
        for run in found:
            if run.kind != self.kind and not any_kind:
                raise Misuse(f"{self.path} holds what is {run.kind}, not {self.kind}; use another directory")
        self._require_whole([run for run in found if run.kind == "archive"])
        return found

    def _require_whole(self, runs: list[Run]) -> None:
        """An archive has all of its runs, and in each a topic goes on where it was. What is compacted has its
        last run alone."""
        if runs and runs[0].number != 1:
            raise Corrupt(
                f"{self._runs} begins with run {runs[0].number}: those before it are missing; restore them "
                "from a copy"
            )
        reached: dict[str, Range] = {}
        for run in runs:
            for topic, reach in run.topics.items():
                before = reached.get(topic)
                same = before is not None and before.incarnation == reach.incarnation
                if before is not None and same and reach.start != before.stop + reach.lost:
                    raise Corrupt(
                        f"{self._runs}: run {run.number} has {topic} from position {reach.start} on, and "
                        f"{before.stop} are archived before it; restore the runs from a copy"
                    )
                reached[topic] = reach

    def _read(self, path: Path) -> Run:
        try:
            run = msgspec.json.decode(path.read_bytes(), type=Run)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"{path} does not decode: {error}; restore it from a copy") from error
        if run.version not in VERSIONS:
            raise Corrupt(f"{path} has version {run.version}; this holdfast knows {VERSION}: use a newer one")
        if path.name != _name(run.number):
            raise Corrupt(f"{path} is of run {run.number}; restore it from a copy")
        return run

    def positions(self) -> dict[str, Range]:
        """How far the archive is, by topic: the range of the last run that had it."""
        return {topic: reach for run in self.runs() for topic, reach in run.topics.items()}

    def files(self, runs: list[Run] | None = None) -> list[str]:
        """The files of these runs, wherever they are now.

        Raises:
            Corrupt: one is missing.
        """
        return [str(self.find(run, file)) for run in runs or self.current() for file in run.files]

    def current(self) -> list[Run]:
        """The runs whose rows count."""
        runs = self.runs(any_kind=True)
        return runs[-1:] if self.kind == "compacted" else runs

    def find(self, run: Run, file: str) -> Path:
        """Where a file of a run is now. Raises Corrupt: it is missing."""
        place, staged = self.path / file, self._staging / run.id / file
        for path in (place, staged, place):  # it may move between two looks, and only that way
            if path.exists():
                return path
        raise Corrupt(f"{place} is missing, which run {run.number} has written; restore it from a copy")

    def reaching(self, held: Mapping[str, tuple[str, int]]) -> list[Run]:
        """The runs that hold something behind these positions, by topic: its incarnation, and where."""
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
        """All files of these runs are there, as long as they were.

        Raises:
            Corrupt: one is missing, or shorter.
        """
        for run in runs:
            for part in run.parts:
                for file, size in zip_longest(part.files, part.sizes):
                    place = self.find(run, file)
                    if size is not None and (found := place.stat().st_size) != size:
                        raise Corrupt(
                            f"{place} has {found} bytes, and run {run.number} has written {size}; restore it "
                            "from a copy"
                        )

    # -- changing --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def changing(self) -> Iterator[Recovered]:
        """Be the only one who changes it; what earlier runs left undone is done first.

        Raises:
            Locked: another process is at it.
        """
        new = [each for each in self._runs.parents if not each.exists()]
        for folder in (self._runs, self._staging):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in {self._inside, self.path, self.path.parent, *(each.parent for each in new)}:
            _sync(folder)
        with (self._inside / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Locked(f"another process is changing {self.path}; wait for it, or end it") from None
            yield self._recover()

    def _recover(self) -> Recovered:
        """See the table above."""
        runs = self.runs()
        moved = sum(self.place(run) for run in runs)
        if self.kind == "compacted":
            self.superseded()
        for half in self._runs.glob(".*"):
            half.unlink()
        left = list(self._staging.iterdir())
        for folder in left:
            # Something of it may still be running and write there: what stays, a later run removes.
            shutil.rmtree(folder, ignore_errors=True)
        return Recovered(moved, len(left))

    def staging(self, run: str) -> Path:
        """Where a run writes."""
        return self._staging / run

    def written(self, run: str) -> list[Path]:
        """The Parquet files that a run has staged, from its staging on; all of them safe on disk."""
        staging = self.staging(run)
        files = sorted(staging.rglob("*.parquet"))
        for file in [*files, *staging.rglob(".*.crc")]:
            _sync(file)
        for folder in {staging, self._staging, *(file.parent for file in files)}:
            _sync(folder)
            _sync(folder.parent)
        return [file.relative_to(staging) for file in files]

    def discard(self, run: str) -> None:
        """Remove what a run has staged: it will not be committed."""
        shutil.rmtree(self.staging(run), ignore_errors=True)

    def commit(self, run: Run) -> None:
        """Make a run part of it; all of its files must be `written`.

        Raises:
            Exists: there is a run of that number.
        """
        new = self._runs / f".{run.id}"
        new.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
        _sync(new)
        try:
            (self._runs / _name(run.number)).hardlink_to(new)
        except FileExistsError:
            raise Exists(
                f"{self.path} has a run {run.number} already: another process is writing to the archive"
            ) from None
        finally:
            new.unlink()
        _sync(self._runs)

    def place(self, run: Run) -> int:
        """Move a committed run's files to where readers look for them. How many there were to move."""
        staging, moved, folders = self.staging(run.id), 0, set[Path]()
        for file in run.files if staging.exists() else ():
            source, target = staging / file, self.path / file
            if not source.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            for name in (f".{source.name}.crc", source.name):  # readers want the checksums with the file
                with contextlib.suppress(FileNotFoundError):
                    source.with_name(name).replace(target.with_name(name))
            folders |= {target.parent, target.parent.parent, self.path}
            moved += 1
        for folder in folders:
            _sync(folder)
        shutil.rmtree(staging, ignore_errors=True)
        return moved

    def superseded(self) -> None:
        """Remove what a compacted directory's last run stands for."""
        for run in self.runs()[:-1]:
            self._remove(run)

    def _remove(self, run: Run) -> None:
        for file in run.files:
            target = self.path / file
            target.with_name(f".{target.name}.crc").unlink(missing_ok=True)
            target.unlink(missing_ok=True)
        (self._runs / _name(run.number)).unlink(missing_ok=True)


def _name(number: int) -> str:
    return f"{number:08}.json"


def _place(path: Path) -> tuple[int, str]:
    """Order runs by number: a name has 8 digits, and one more behind 99,999,999."""
    return len(path.name), path.name


def _sync(path: Path) -> None:
    """On disk, not only told to the kernel."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
