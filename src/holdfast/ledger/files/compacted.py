"""Files of compacted views, for processes that read a broker's files: write and read them.

Each view has a file of its own beside the table of its topic. It says which entries of the topic survive, and
never changes. The table names the views that are kept. A file is written before a table names it, and removed
when no table names it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from pyroaring import BitMap64

from holdfast.errors import Corrupt
from holdfast.ledger.files.parts import WRITTEN_ANEW, read_part, write_part

ENDING = ".compacted"


class SurvivorsOf(Protocol):
    """A ledger of the topic, of which a view has entries."""

    @property
    def ledger(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def last_time(self) -> int: ...


class View(Protocol):
    """A compacted view in the state of a broker."""

    @property
    def number(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    @property
    def file(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def survivors(self) -> bytes: ...
    @property
    def places(self) -> Sequence[SurvivorsOf]: ...


class ViewEntry(msgspec.Struct, array_like=True, frozen=True):
    """A compacted view in a topic's table."""

    number: int
    horizon: int
    """The ordinal below which the view stands for the topic."""
    file: int
    """The ledger file with the surviving entries; 0: there are none."""
    generation: int


class ViewPlace(msgspec.Struct, array_like=True, frozen=True):
    """A ledger with entries of a view. The topic may have trimmed it since."""

    ledger: int
    first: int
    """The ordinal of its entry 0."""
    end: int
    """The ordinal behind its last entry below the horizon."""
    last_time: int = 0
    """Log time of that entry, or of a later one."""


class ViewFile(msgspec.Struct, array_like=True, frozen=True):
    """The content of the file of a view."""

    name: str
    incarnation: bytes
    number: int
    horizon: int
    entries: int
    survivors: bytes
    """The ordinals of its entries, in order: a 64-bit Roaring bitmap."""
    places: tuple[ViewPlace, ...]


def compacted_path(stem: str, number: int) -> str:
    """Return the path of a view's file.

    Args:
        stem: path of the topic's table, without its ending.
        number: of the view.
    """
    return f"{stem}.{number:x}{ENDING}"


def write_view(path: Path, name: str, incarnation: bytes, view: View) -> None:
    """Write the file of a view, as a whole."""
    places = tuple(
        ViewPlace(each.ledger, each.first, each.first + each.entries, each.last_time) for each in view.places
    )
    content = ViewFile(name, incarnation, view.number, view.horizon, view.entries, view.survivors, places)
    write_part(path, view.number, content)


def read_view(path: Path, name: str, incarnation: bytes, entry: ViewEntry) -> tuple[ViewFile, BitMap64]:
    """Read a view that a table names, and the ordinals of its entries.

    Raises:
        NotFound: the file does not exist.
        Corrupt: it is damaged, or does not belong to this entry.
    """
    found = read_part(path, ViewFile)
    told = (found.name, found.incarnation, found.number, found.horizon)
    if told != (name, incarnation, entry.number, entry.horizon):
        raise Corrupt(f"{path} is not view {entry.number} of {name}; {WRITTEN_ANEW}")
    try:
        survivors = BitMap64.deserialize(found.survivors)
    except (ValueError, IndexError) as error:
        raise Corrupt(f"{path} does not decode: {error}; {WRITTEN_ANEW}") from error
    ends = [edge for each in found.places for edge in (each.first, each.end)]
    inside = sum(survivors.range_cardinality(each.first, each.end) for each in found.places)
    if (
        len(survivors) != found.entries
        or inside != found.entries
        or (found.entries > 0) != (entry.file > 0)
        or ends != sorted(ends)
        or (ends and ends[-1] > found.horizon)
    ):
        raise Corrupt(f"{path}: its entries do not fit together; {WRITTEN_ANEW}")
    return found, survivors


def stem_and_number(name: str) -> tuple[str, int] | None:
    """Return stem and number in the name of a view's file; `None` for others.

    Example:
        >>> stem_and_number("00ff.1a.compacted"), stem_and_number("00ff.table")
        (('00ff', 26), None)
    """
    stem, dot, number = name.removesuffix(ENDING).partition(".")
    if not name.endswith(ENDING) or not dot:
        return None
    try:
        return stem, int(number, 16)
    except ValueError:
        return None


__all__ = [
    "ENDING",
    "View",
    "ViewEntry",
    "ViewFile",
    "ViewPlace",
    "compacted_path",
    "read_view",
    "stem_and_number",
    "write_view",
]
