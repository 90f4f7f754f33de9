"""Where segments are, and what every kind of segment is created with."""

from __future__ import annotations

import grp
import os
from collections.abc import Mapping
from typing import Any

from holdfast import _core
from holdfast.arguments import checked_path, checked_whole
from holdfast.errors import LayoutMismatch, Misuse

GROUP_MAX = (1 << 32) - 2
"""32 bits; the last number means that there is not a group."""


def place(directory: str | os.PathLike[str] | None) -> str:
    """Return the directory of the segments."""
    return checked_path("directory", directory) if directory else str(_core.default_directory())


def names_of(kind: str, directory: str | os.PathLike[str] | None) -> list[str]:
    """Return the names of the segments of one kind."""
    return [name for found, name, _, _ in _core.list_segments(place(directory)) if found == kind]


def require_same(kind: str, name: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Check the parameters of a segment that existed before.

    Raises:
        LayoutMismatch: it has others.
    """
    other = [f"{key} is {found[key]!r}, not {wish!r}" for key, wish in wanted.items() if found[key] != wish]
    if other:
        known = kind.capitalize()
        raise LayoutMismatch(
            f"{kind} {name} exists with other parameters: {'; '.join(other)}. Open it with {known}.open(), "
            f"or remove it with {known}.unlink() first"
        )


def checked_mode(mode: int) -> int:
    """Return the permissions of a segment's file.

    Raises:
        Misuse: they are not a number from 0 to 0o777.
    """
    mode = checked_whole("mode", mode, ", such as 0o660")
    if not 0 <= mode <= 0o777:
        raise Misuse(f"mode must be 0 to 0o777, not {mode:#o}")
    return mode


def gid_of(group: str | int | None) -> int:
    """Return the number of a group; -1 for None.

    Raises:
        Misuse: there is no such group.
    """
    if group is None:
        return -1
    if not isinstance(group, int | str):
        raise Misuse(f"group must be the name or the number of a group, not {group!r}")
    if isinstance(group, int):
        if not 0 <= group <= GROUP_MAX:
            raise Misuse(f"there is no group {group}: a number is 0 to {GROUP_MAX}")
        return group
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise Misuse(f"there is no group named {group!r} on this machine") from None
