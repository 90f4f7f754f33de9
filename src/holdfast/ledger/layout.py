"""Names and bytes of a data directory: the name of every file, and its header.

```
 holdfast                          format version and incarnation; named last: without it there is no store
 lock                              held by the one process that has the store open; names that process
 life                              the number of this node's life in its cluster, and the next one is higher
 incomplete                        the directory is being replaced by a copy of another member's; never served
 survivor                          an administrator's request: go on from this directory alone
 reserve                           deleted when the disk is full, so that acks and deletes still work
 journal/0000000000000001          rounds, each at a multiple of 4096 bytes
 journal/spare0 …                  the next journal files, ready to be renamed
 ledgers/000000000000002a.data     the entries of one ledger
 ledgers/000000000000002a.index    the offset of each entry
 ledgers/000000000000002a.1.data   the same ledger, rewritten after its file failed (generation 1);
 ledgers/000000000000002a.1.index  its index
 snapshots/00000000000186a0        the state after event D = 100000; the newest two are kept
 topics/0000000000000007.view      a topic's visible range, for processes that read these files
 topics/<digest of name>.table     a topic's ledgers, for the same processes
 topics/<digest of name>.schemas   a topic's schemas by version, for the same processes
 topics/<digest of name>.1a.compacted  the entries of a topic's compacted view 26, for the same processes
```

The name of a file that is not yet complete ends with `.new`. `holdfast`, journal, ledger, snapshot and view
files start with a header of 64 bytes, a block: `u32 file kind · u32 format version · u64 id · 16 bytes
incarnation`. The incarnation is drawn when the directory is created, so a file from another directory is
recognised.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import NamedTuple

from holdfast._core import open_block, seal_block
from holdfast.errors import Corrupt, LayoutMismatch
from holdfast.ids import require_left

FORMAT = "holdfast"
LOCK = "lock"
RESERVE = "reserve"
LIFE = "life"
INCOMPLETE = "incomplete"
SURVIVOR = "survivor"
LOCAL = "local"
"""Directory of a member's unreplicated topics: a data directory of its own."""
JOURNAL = "journal"
LEDGERS = "ledgers"
SNAPSHOTS = "snapshots"
TOPICS = "topics"
SPARE = "spare"
DIRECTORIES = (JOURNAL, LEDGERS, SNAPSHOTS, TOPICS)
NEW = ".new"
"""Ends the name of a file that is not yet complete."""

FORMAT_VERSION = 1
BLOCK_HEADER = 32
FILE_HEADER = 64
PAGE = 4096
"""Rounds of the journal start at multiples of this size."""
INDEX_ENTRY = 8

_FILE = struct.Struct("<IIQ16s")


class BlockKind(enum.IntEnum):
    """Kinds of blocks in files."""

    ENTRY = 2
    ROUND = 3
    FRAME = 4
    FILE = 5
    PART = 6
    END = 7


class FileKind(enum.IntEnum):
    """Kinds of files, as their headers name them."""

    JOURNAL = 1
    LEDGER_DATA = 2
    LEDGER_INDEX = 3
    SNAPSHOT = 4
    TOPIC_VIEW = 5
    DIRECTORY = 6
    BACKUP = 7


GENERATION_MAX = (1 << 32) - 1
"""The last generation of a ledger's file: the core keeps 32 bits of it."""


class Place(NamedTuple):
    """A position in the journal."""

    journal: int
    """The number of the file."""
    offset: int

    def __str__(self) -> str:
        return f"{journal_path(self.journal)} at offset {self.offset}"


class LedgerFile(NamedTuple):
    """One generation of one ledger."""

    ledger: int
    generation: int = 0

    @property
    def stem(self) -> str:
        return f"{self.ledger:016x}" + (f".{self.generation}" if self.generation else "")

    @property
    def data_path(self) -> str:
        return f"{LEDGERS}/{self.stem}.data"

    @property
    def index_path(self) -> str:
        return f"{LEDGERS}/{self.stem}.index"

    @classmethod
    def parse(cls, name: str) -> tuple[LedgerFile, str] | None:
        """Return ledger file and part, "data" or "index", of a name; `None` for other names.

        Example:
            >>> LedgerFile.parse("000000000000002a.1.data")
            (LedgerFile(ledger=42, generation=1), 'data')
        """
        stem, _, part = name.rpartition(".")
        number, _, generation = stem.partition(".")
        try:
            file = cls(int(number, 16), int(generation or "0"))
        except ValueError:
            return None
        return (file, part) if part in ("data", "index") and f"{file.stem}.{part}" == name else None


@dataclass(frozen=True)
class Extent:
    """Size and number of entries of a ledger."""

    size: int
    """Bytes of its data file, with the header."""
    entries: int

    @property
    def index_size(self) -> int:
        return FILE_HEADER + INDEX_ENTRY * self.entries


def padded(size: int) -> int:
    """Round up to a multiple of 8: blocks in files start there."""
    return (size + 7) & ~7


def journal_path(number: int) -> str:
    return f"{JOURNAL}/{number:016x}"


def snapshot_path(d: int) -> str:
    return f"{SNAPSHOTS}/{d:016x}"


def number_of(name: str) -> int | None:
    """Return the number in a journal's or a snapshot's name; `None` for other names."""
    try:
        number = int(name, 16)
    except ValueError:
        return None
    return number if f"{number:016x}" == name else None


def file_header(kind: FileKind, number: int, incarnation: bytes) -> bytes:
    """Return the first 64 bytes of a file.

    Raises:
        HoldfastError: the number is too large for a file.
    """
    require_left(number, f"numbers of {kind.name.lower()} files")
    payload = _FILE.pack(kind, FORMAT_VERSION, number, incarnation)
    return seal_block(BlockKind.FILE, number, 0, payload)


class HeaderFault(enum.Enum):
    """Faults of a file's header."""

    DAMAGED = "is damaged"
    OTHER_VERSION = "is of another format version"
    OTHER_KIND = "says that this is another kind of file"
    OTHER_NUMBER = "has another number than the file's name"
    OTHER_DIRECTORY = "belongs to another directory"


def read_file_header(data: bytes) -> tuple[int, int, int, bytes] | None:
    """Return file kind, format version, id and incarnation; `None` if the header is damaged."""
    block = open_block(data[:FILE_HEADER])
    if isinstance(block, str) or block[0] != BlockKind.FILE or block[3] != _FILE.size:
        return None
    kind, version, number, incarnation = _FILE.unpack_from(data, BLOCK_HEADER)
    return (kind, version, number, incarnation) if number == block[1] else None


def header_fault(data: bytes, kind: FileKind, number: int, incarnation: bytes) -> HeaderFault | None:
    """Compare a header with the file that it should belong to; `None` if it matches."""
    found = read_file_header(data)
    if found is None:
        return HeaderFault.DAMAGED
    if found[1] != FORMAT_VERSION:
        return HeaderFault.OTHER_VERSION
    if found[0] != kind:
        return HeaderFault.OTHER_KIND
    if found[2] != number:
        return HeaderFault.OTHER_NUMBER
    return None if found[3] == incarnation else HeaderFault.OTHER_DIRECTORY


def require_header(path: str, data: bytes, kind: FileKind, number: int, incarnation: bytes) -> None:
    """Raise an error for a faulty header.

    Raises:
        LayoutMismatch: it is of another format version.
        Corrupt: anything else.
    """
    fault = header_fault(data, kind, number, incarnation)
    if fault is HeaderFault.OTHER_VERSION:
        raise LayoutMismatch(
            f"{path}: its header, at offset 0, {fault.value} than {FORMAT_VERSION}; "
            "use the version of holdfast that wrote it"
        )
    if fault is not None:
        raise Corrupt(f"{path}: its header, at offset 0, {fault.value}; run `holdfast doctor`")


def salt_of(incarnation: bytes) -> int:
    """Return the salt of this journal's rounds, so that no payload passes for a round."""
    return int.from_bytes(incarnation[:8], "little")
