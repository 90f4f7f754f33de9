"""Act on files and descriptors as other code of the same user might."""

from __future__ import annotations

from pathlib import Path

STRANGER = b"not ours. " * 1000
"""The content of a file that has replaced another."""


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    new = path.with_name("new")
    new.write_bytes(STRANGER)
    new.replace(path)


def move(path: Path) -> None:
    path.rename(path.parent.parent / f"moved.{path.name}")


def descriptors_of(path: Path) -> list[int]:
    """Return the descriptors of this process that are open on a file."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            if each.readlink() == path:
                found.append(int(each.name))
        except OSError:  # the descriptor that lists them
            continue
    return found
