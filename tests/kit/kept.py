"""The file of findings of nights: `tests/kit/kept.json`, or the file named by $HOLDFAST_KEPT.

An entry belongs to the storm of its name. It is a seed; a seed and a length, if `tests/kit/nightly.py` can
make the storm shorter; or a case, as the hostile fuzzer writes it. Two nights may add at once, and either may
be killed at any instruction. So the file is replaced as a whole, under a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Case = dict[str, Any]
Entry = int | list[int] | Case
Kept = dict[str, list[Entry]]


def kept_file() -> Path:
    """Return the path of the file; $HOLDFAST_KEPT names another."""
    return Path(os.environ.get("HOLDFAST_KEPT") or Path(__file__).with_name("kept.json"))


def load() -> Kept:
    """Return all entries by the name of their storm."""
    path = kept_file()
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist; restore it from git, or write {{}} to it") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} cannot be read: {error}; resolve its merge conflict, or restore it from git"
        ) from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no object of storms; restore it from git")
    for name, entries in found.items():
        if not isinstance(entries, list) or not all(map(is_entry, entries)):
            raise ValueError(
                f"{path}: {name!r} must be a list of seeds, [seed, length] pairs or cases, not {entries!r}"
            )
    return found


def is_entry(value: object) -> bool:
    if isinstance(value, list):
        return len(value) == 2 and all(type(each) is int for each in value)
    return type(value) is int or isinstance(value, dict)


def add(name: str, entry: Entry, instead: Entry | None = None) -> None:
    """Add an entry, unless it exists; remove `instead`."""
    with locked():
        known = load()
        entries = known.setdefault(name, [])
        if instead in entries:
            entries.remove(instead)
        if entry not in entries:
            entries.append(entry)
        write(json.dumps(known, indent=2, sort_keys=True) + "\n")


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Exclude other nights. The folder is locked, because the file itself is replaced."""
    folder = os.open(kept_file().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def write(text: str) -> None:
    """Replace the file as a whole; a full disk or a kill leaves the old."""
    path = kept_file()
    descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(new).chmod(0o644)
        Path(new).replace(path)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise
