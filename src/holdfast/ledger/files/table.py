"""What processes that read a broker's files are told, and how they read them.

Per topic two small files in `topics/`. The *view* is mapped: incarnation, first, visible, the version of the
table. The *table* says which ledger is in which file; it is replaced as a whole, before the view names its
version; only the first one comes after the view, which nobody finds without it. Both are written only after
`visible` has advanced, so nothing in them can be taken back.

A reader plans once from them, reads nothing beyond, and looks at `first` again after it has opened its files.
Damage below visible is damage, never a tail.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from holdfast._core import TopicView, TopicViewReader, open_block, seal_block
from holdfast.errors import Corrupt, HoldfastError, NotFound
from holdfast.ledger.layout import BLOCK_HEADER, FORMAT, NEW, TOPICS, BlockKind, read_file_header
from holdfast.ledger.ledgers import LedgerTable

SCHEME = b"persistent://"
NAME_BYTES_MAX = 4096
"""More than a full name can have."""
RUN_ENTRIES = 4096
VERSION_MAX = (1 << 64) - 1
"""Of a table: the next one has number 1 again."""
MADE_HERE = (".view", ".table", ".table" + NEW)
WRITTEN_ANEW = "no message is lost: start the broker, or restart it, which writes it anew"


class TableEntry(msgspec.Struct, array_like=True, frozen=True):
    """A ledger as a reader of the files finds it."""

    id: int
    file: int
    generation: int
    first: int
    """The ordinal of its entry 0. It ends where the next one begins, the last one at `visible`."""
    opened_time: int


class TopicTable(msgspec.Struct, array_like=True, frozen=True):
    """The ledgers of a topic, oldest first."""

    topic: int
    name: str
    incarnation: bytes
    version: int
    ledgers: tuple[TableEntry, ...]


def table_path(name: str) -> str:
    """Of a topic's full name: found without a list of all topics."""
    return f"{TOPICS}/{hashlib.sha256(name.encode()).hexdigest()[:32]}.table"


def name_in(path: Path) -> str | None:
    """Which topic a damaged table is of; None: its bytes do not tell. The file's own name proves the answer.

    Raises:
        OSError: it cannot be read.
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
    """A topic that readers of the files can see."""

    __slots__ = ("extent", "table", "view")

    def __init__(self, view: TopicView, table: TopicTable) -> None:
        self.view = view
        self.table = table
        self.extent: tuple[int, int, int, int] | None = None
        """What the table was made of, in short: it is looked at for every frame that publishes."""


class Publications:
    """The broker's side: shows topics to readers of the files."""

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
        """Of a ledger's file."""
        self._rewritten = rewritten
        """How many ledgers were rewritten into files of another generation."""
        self._shown: dict[int, _Shown] = {}

    def show(
        self,
        topic: int,
        name: str,
        incarnation: bytes,
        ledgers: LedgerTable,
        visible: int,
        state: str = "live",
    ) -> None:
        """Let readers see the topic as it is now."""
        shown = self._shown.get(topic)
        if shown is None:
            version = self._last_version(topic, name)  # before the view is opened to be written
            shown = self._shown[topic] = _Shown(
                TopicView(str(self._directory / view_path(topic)), topic, self._incarnation),
                TopicTable(topic, name, incarnation, version, ()),
            )
            if version == 0:  # nobody has seen it. Who finds its table shall not find a view without a word
                shown.view.publish(incarnation, min(ledgers.first, visible), visible, 1, state)
        last = ledgers.last
        extent = (ledgers.first, len(ledgers), 0 if last is None else last.id, self._rewritten())
        if shown.extent != extent:
            self._renew(shown, ledgers)
            shown.extent = extent
        shown.view.publish(incarnation, min(ledgers.first, visible), visible, shown.table.version, state)

    def _renew(self, shown: _Shown, ledgers: LedgerTable) -> None:
        entries = tuple(
            TableEntry(each.id, each.file, self._generation(each.file), each.first, each.opened_time)
            for each in ledgers
        )
        if shown.table.ledgers != entries or shown.extent is None:  # what is there may be damaged
            version = next_version(shown.table.version)
            shown.table = msgspec.structs.replace(shown.table, version=version, ledgers=entries)
            self._write(shown.table)

    def gone(self, topic: int) -> None:
        """The topic was deleted: who has it open is told, and nobody finds it any more."""
        shown = self._shown.pop(topic, None)
        if shown is not None:
            shown.view.publish(shown.table.incarnation, 0, 0, shown.table.version, "gone")
            (self._directory / table_path(shown.table.name)).unlink(missing_ok=True)
        (self._directory / view_path(topic)).unlink(missing_ok=True)

    def is_there(self, topic: int) -> bool:
        """Whether readers could see it before; then they are to see what it is now, even if it is empty."""
        return (self._directory / view_path(topic)).exists()

    def sweep(self, topics: Mapping[int, str]) -> None:
        """Away with what was left of topics that are not there: a broker that was killed, or had no
        descriptors, may have deleted one and not its files.

        Args:
            topics: the names of all that are there, by their numbers.
        """
        kept = {view_path(each) for each in topics} | {table_path(each) for each in topics.values()}
        for each in list(os.scandir(self._directory / TOPICS)):
            if each.name.endswith(MADE_HERE) and f"{TOPICS}/{each.name}" not in kept:
                Path(each.path).unlink(missing_ok=True)

    def _write(self, table: TopicTable) -> None:
        path = self._directory / table_path(table.name)
        new = path.with_name(path.name + NEW)
        new.write_bytes(seal_block(BlockKind.PART, table.version, 0, msgspec.msgpack.encode(table)))
        new.replace(path)

    def _last_version(self, topic: int, name: str) -> int:
        """Never less than any reader has seen: under one number there is one table."""
        found = 0  # the first, or both lost power: readers look at the incarnation, too
        with contextlib.suppress(HoldfastError, OSError):
            found = read_table(self._directory, name).version
        with contextlib.suppress(HoldfastError, OSError):
            view = TopicViewReader(str(self._directory / view_path(topic)), topic, self._incarnation)
            found = later_version(found, view.read()[3])
        return found


def next_version(version: int) -> int:
    """Return the number of the next table: 64 bits, without 0. Readers compare it for being equal only.

    Example:
        >>> next_version(0), next_version(VERSION_MAX)
        (1, 1)
    """
    return version % VERSION_MAX + 1


def later_version(one: int, other: int) -> int:
    """Return the later of two versions, also across the wrap from the largest to 1; 0 means no version.

    Example:
        >>> later_version(0, 7), later_version(7, 6), later_version(VERSION_MAX, 1)
        (7, 7, 1)
    """
    if 0 in (one, other):
        return max(one, other)
    return one if (one - other) % VERSION_MAX <= VERSION_MAX // 2 else other


def read_table(directory: Path, name: str) -> TopicTable:
    """The table of a topic's full name.

    Raises:
        NotFound: there is no such topic, or nothing was ever published to it.
        Corrupt: the bytes are none.
    """
    path = directory / table_path(name)
    try:
        table = read_table_file(path)
    except Corrupt as error:
        raise Corrupt(f"{name}: {error}") from error
    except NotFound:
        raise NotFound(
            f"{directory} shows no topic {name}; `holdfast topic ls` lists what is there (one that "
            "nothing was published to yet cannot be read from its files)"
        ) from None
    if table.name != name:
        raise Corrupt(f"{path} is of {table.name}, not of {name}; {WRITTEN_ANEW}")
    return table


def read_table_file(path: Path) -> TopicTable:
    """The table in a file of `topics/`. Raises NotFound, Corrupt."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path} is not there") from None
    block = open_block(data)
    try:
        if isinstance(block, str) or block[0] != BlockKind.PART:
            raise msgspec.DecodeError(f"its block is wrong ({block})")
        return msgspec.msgpack.decode(data[BLOCK_HEADER : BLOCK_HEADER + block[3]], type=TopicTable)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Corrupt(f"{path} does not decode: {error}; {WRITTEN_ANEW}") from error


def directory_incarnation(directory: Path) -> bytes:
    """What every file of a broker's directory carries. Raises NotFound, Corrupt."""
    try:
        found = read_file_header((directory / FORMAT).read_bytes())
    except FileNotFoundError:
        raise NotFound(f"{directory} is no broker's directory") from None
    if found is None:
        raise Corrupt(f"{directory / FORMAT} is damaged; run holdfast doctor")
    return found[3]
