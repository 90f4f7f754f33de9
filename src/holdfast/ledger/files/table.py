"""Publish topics to processes that read a broker's files, and read what was published.

Each topic has two small files in `topics/`. The *view* is mapped into memory: incarnation, first, visible,
the table's version. The *table* says which ledger is in which file. It is replaced as a whole, before the
view names its version. Only the first table comes after its view, because readers find the view by the table.
Both are written only after `visible` has advanced, so nothing in them is ever taken back.

A topic with schemas has a third file, the *schemas*. It is replaced before the view, so a reader that sees a
message finds its schema.

Each compacted view of a topic has a file, too (`compacted`). It is written before a table names it, and
removed when no table does.

A reader plans once from both, reads nothing beyond the plan, and compares `first` again after it has opened
its files. Damage below visible is damage, never a torn tail.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from pyroaring import BitMap64

from holdfast._core import TopicView, TopicViewReader
from holdfast.errors import Corrupt, HoldfastError, NotFound
from holdfast.ledger.files.compacted import (
    ENDING,
    View,
    ViewEntry,
    ViewFile,
    compacted_path,
    read_view,
    stem_and_number,
    write_view,
)
from holdfast.ledger.files.parts import WRITTEN_ANEW, read_part, write_part
from holdfast.ledger.layout import FORMAT, NEW, TOPICS, read_file_header
from holdfast.ledger.ledgers import LedgerTable

SCHEME = b"persistent://"
NAME_BYTES_MAX = 4096
"""Longer than any full name."""
RUN_ENTRIES = 4096
VERSION_MAX = (1 << 64) - 1
"""The last version of a table; the next one is 1 again."""
MADE_HERE = (".view", *(each + end for each in (".table", ".schemas", ENDING) for end in ("", NEW)))


class TableEntry(msgspec.Struct, array_like=True, frozen=True):
    """A ledger in a topic's table."""

    id: int
    file: int
    generation: int
    first: int
    """The ordinal of its entry 0. It ends where the next ledger begins, the last one at `visible`."""
    opened_time: int


class TopicTable(msgspec.Struct, array_like=True, frozen=True):
    """The ledgers of a topic, oldest first."""

    topic: int
    name: str
    incarnation: bytes
    version: int
    ledgers: tuple[TableEntry, ...]
    views: tuple[ViewEntry, ...] = ()
    """The compacted views that are kept, the newest first."""


class TopicSchemas(msgspec.Struct, array_like=True, frozen=True):
    """The schemas of a topic, by version. An empty one stands for a deletion."""

    name: str
    incarnation: bytes
    schemas: tuple[bytes, ...]


def read_table_view(directory: Path, table: TopicTable, entry: ViewEntry) -> tuple[ViewFile, BitMap64]:
    """Read the file of a view that a table names. Raises like `read_view`."""
    path = directory / compacted_path(_stem(table.name), entry.number)
    return read_view(path, table.name, table.incarnation, entry)


def table_path(name: str) -> str:
    """Return the path of a topic's table; it is computed from the full name."""
    return f"{_stem(name)}.table"


def schemas_path(name: str) -> str:
    """Return the path of a topic's schemas, beside its table."""
    return f"{_stem(name)}.schemas"


def _stem(name: str) -> str:
    return f"{TOPICS}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def name_in(path: Path) -> str | None:
    """Find the topic of a damaged table: a name that matches the file's digest.

    Raises:
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    at = data.find(SCHEME)
    while at >= 0:
        digest = hashlib.sha256()
        for end in range(at, min(len(data), at + NAME_BYTES_MAX)):
            digest.update(data[end : end + 1])
            if digest.hexdigest()[:32] == path.stem:
                return data[at : end + 1].decode()
        at = data.find(SCHEME, at + 1)
    return None


def view_path(topic: int) -> str:
    return f"{TOPICS}/{topic:016x}.view"


class _Shown:
    """A topic that is published."""

    __slots__ = ("extent", "schemas", "table", "view", "views")

    def __init__(self, view: TopicView, table: TopicTable) -> None:
        self.view = view
        self.table = table
        self.extent: tuple[object, ...] | None = None
        """A summary of the table's contents: it is compared for every frame that publishes."""
        self.schemas = 0
        """How many versions of schemas are published."""
        self.views: set[int] = set()
        """Numbers of the compacted views whose files are written."""


class Publications:
    """Publishes the topics of a broker to readers of its files."""

    def __init__(
        self,
        directory: str,
        incarnation: bytes,
        generation: Callable[[int], int],
        rewritten: Callable[[], int],
    ) -> None:
        self._directory = Path(directory)
        self._incarnation = incarnation
        self._generation = generation
        """Returns the generation of a ledger's file."""
        self._rewritten = rewritten
        """Changes when a ledger is rewritten into a file of another generation."""
        self._shown: dict[int, _Shown] = {}

    def show(
        self,
        topic: int,
        name: str,
        incarnation: bytes,
        ledgers: LedgerTable,
        visible: int,
        state: str = "live",
        schemas: Sequence[bytes] = (),
        views: Sequence[View] = (),
    ) -> None:
        """Publish the current state of a topic; `views` begins with the newest."""
        shown = self._shown.get(topic)
        if shown is None:
            version = self._last_version(topic, name)  # before the view is opened for writing
            shown = self._shown[topic] = _Shown(
                TopicView(str(self._directory / view_path(topic)), topic, self._incarnation),
                TopicTable(topic, name, incarnation, version, ()),
            )
            if version == 0:  # readers that find the new table must not find an empty view
                shown.view.publish(incarnation, min(ledgers.first, visible), visible, 1, state)
        if shown.schemas != len(schemas):  # they are only ever added
            content = TopicSchemas(name, incarnation, tuple(schemas))
            write_part(self._directory / schemas_path(name), len(schemas), content)
            shown.schemas = len(schemas)
        last = ledgers.last
        numbers = tuple(each.number for each in views)
        extent = (ledgers.first, len(ledgers), 0 if last is None else last.id, self._rewritten(), numbers)
        if shown.extent != extent:
            for each in views:
                if each.number not in shown.views:
                    write_view(self._path_of(name, each.number), name, incarnation, each)
                    shown.views.add(each.number)
            self._renew(shown, ledgers, views)
            shown.extent = extent
        shown.view.publish(incarnation, min(ledgers.first, visible), visible, shown.table.version, state)
        if len(shown.views) > len(views):  # after the table that does not name them
            self._remove_views(shown, numbers)

    def _path_of(self, name: str, view: int) -> Path:
        return self._directory / compacted_path(_stem(name), view)

    def _remove_views(self, shown: _Shown, kept: Sequence[int] = ()) -> None:
        for number in shown.views.difference(kept):
            self._path_of(shown.table.name, number).unlink(missing_ok=True)
            shown.views.discard(number)

    def _renew(self, shown: _Shown, ledgers: LedgerTable, views: Sequence[View]) -> None:
        entries = tuple(
            TableEntry(each.id, each.file, self._generation(each.file), each.first, each.opened_time)
            for each in ledgers
        )
        kept = tuple(
            ViewEntry(each.number, each.horizon, each.file, self._generation(each.file) if each.file else 0)
            for each in views
        )
        now = (shown.table.ledgers, shown.table.views)
        if now != (entries, kept) or shown.extent is None:  # the old table may be damaged
            version = next_version(shown.table.version)
            shown.table = msgspec.structs.replace(shown.table, version=version, ledgers=entries, views=kept)
            write_part(self._directory / table_path(shown.table.name), version, shown.table)

    def gone(self, topic: int) -> None:
        """Tell readers that a topic was deleted, and delete its files."""
        shown = self._shown.pop(topic, None)
        if shown is not None:
            shown.view.publish(shown.table.incarnation, 0, 0, shown.table.version, "gone")
            for path in (table_path(shown.table.name), schemas_path(shown.table.name)):
                (self._directory / path).unlink(missing_ok=True)
            self._remove_views(shown)
        (self._directory / view_path(topic)).unlink(missing_ok=True)

    def is_there(self, topic: int) -> bool:
        """Return whether the topic was published before, so that it must be published again."""
        return (self._directory / view_path(topic)).exists()

    def sweep(self, topics: Mapping[int, str]) -> None:
        """Delete files of topics that do not exist.

        They are left when a broker is killed, or has no free descriptors, while it deletes a topic.

        Args:
            topics: the full names of all topics, by their numbers.
        """
        kept = {view_path(each) for each in topics}
        kept |= {path(each) for path in (table_path, schemas_path) for each in topics.values()}
        stems = {_stem(name): self._shown.get(each) for each, name in topics.items()}
        for each in list(os.scandir(self._directory / TOPICS)):
            if each.name.endswith(MADE_HERE) and f"{TOPICS}/{each.name}" not in kept:
                view = stem_and_number(each.name)
                if view is not None and (stem := f"{TOPICS}/{view[0]}") in stems:
                    shown = stems[stem]
                    if shown is None or view[1] in shown.views:  # not published yet, or kept
                        continue
                Path(each.path).unlink(missing_ok=True)

    def _last_version(self, topic: int, name: str) -> int:
        """Return the last version, at least any that a reader has seen."""
        found = 0  # new, or lost in a power cut: readers compare the incarnation, too
        with contextlib.suppress(HoldfastError, OSError):
            found = read_table(self._directory, name).version
        with contextlib.suppress(HoldfastError, OSError):
            view = TopicViewReader(str(self._directory / view_path(topic)), topic, self._incarnation)
            found = later_version(found, view.read()[3])
        return found


def next_version(version: int) -> int:
    """Return the version of the next table: 64 bits, never 0.

    Readers compare versions only for equality.

    Example:
        >>> next_version(0), next_version(VERSION_MAX)
        (1, 1)
    """
    return version % VERSION_MAX + 1


def later_version(one: int, other: int) -> int:
    """Return the later of two versions, also across the wrap; 0 means no version.

    Example:
        >>> later_version(0, 7), later_version(7, 6), later_version(VERSION_MAX, 1)
        (7, 7, 1)
    """
    if 0 in (one, other):
        return max(one, other)
    return one if (one - other) % VERSION_MAX <= VERSION_MAX // 2 else other


def read_table(directory: Path, name: str) -> TopicTable:
    """Read the table of a topic.

    Raises:
        NotFound: the topic does not exist, or nothing was ever published to it.
        Corrupt: the file is damaged.
    """
    path = directory / table_path(name)
    try:
        table = read_table_file(path)
    except Corrupt as error:
        raise Corrupt(f"{name}: {error}") from error
    except NotFound:
        raise NotFound(
            f"{directory} shows no topic {name}; `holdfast topic ls` lists its topics (a topic without "
            "entries cannot be read from files)"
        ) from None
    if table.name != name:
        raise Corrupt(f"{path} is the table of {table.name}, not of {name}; {WRITTEN_ANEW}")
    return table


def read_table_file(path: Path) -> TopicTable:
    """Read the table in a file of `topics/`. Raises NotFound, Corrupt."""
    return read_part(path, TopicTable)


def read_schemas(directory: Path, name: str, incarnation: bytes) -> tuple[bytes, ...]:
    """Return the schemas of a topic, by version; none if it has no schemas.

    Raises:
        Corrupt: the file is damaged.
    """
    path = directory / schemas_path(name)
    try:
        found = read_part(path, TopicSchemas)
    except NotFound:
        return ()
    except Corrupt as error:
        raise Corrupt(f"{name}: {error}") from error
    if found.name != name:
        raise Corrupt(f"{path} has the schemas of {found.name}, not of {name}; {WRITTEN_ANEW}")
    return found.schemas if found.incarnation == incarnation else ()  # else of a topic that was deleted


def directory_incarnation(directory: Path) -> bytes:
    """Return the incarnation in the header of every file of the directory. Raises NotFound, Corrupt."""
    try:
        found = read_file_header((directory / FORMAT).read_bytes())
    except FileNotFoundError:
        raise NotFound(f"{directory} is not a broker's directory") from None
    if found is None:
        raise Corrupt(f"{directory / FORMAT} is damaged; run holdfast doctor")
    return found[3]
