"""Checks of the doctor on torn journals."""

from __future__ import annotations

from pathlib import Path

from holdfast.ledger.files.doctor import examine
from holdfast.ledger.layout import FORMAT, JOURNAL, PAGE, FileKind, file_header, read_file_header


def flip(path: Path, offset: int) -> None:
    """Damage a byte."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 16
    path.write_bytes(content)


def rounds_of(path: Path) -> list[int]:
    """Return the offsets of the rounds in a journal file."""
    content = path.read_bytes()
    return [at for at in range(PAGE, len(content), PAGE) if content[at : at + 4] == b"HF\3\1"]


def last_file(directory: Path) -> Path:
    """Return the newest journal file with rounds."""
    return [path for path in sorted((directory / JOURNAL).glob("0*")) if rounds_of(path)][-1]


def a_torn_last_round_is_named(directory: Path) -> None:
    """Check that a torn last round is a note with file and offset."""
    path = last_file(directory)
    last = rounds_of(path)[-1]
    flip(path, last + 100)  # behind its header, so that it still looks like a round
    found = examine(directory)
    assert found.sound
    assert [(each.file, each.offset) for each in found.findings] == [(f"{JOURNAL}/{path.name}", last)]
    assert "incomplete" in found.notes[0]


def a_torn_first_round_is_named_with_its_own_file(directory: Path, moved: int) -> None:
    """Damage the first round of the last journal file.

    A round behind it shows that the damaged one was synced.
    """
    path = last_file(directory)
    identity = read_file_header((directory / FORMAT).read_bytes())
    assert identity is not None
    content, first = path.read_bytes(), rounds_of(path)[-moved]
    number = int(path.name, 16) + 1
    own = path.with_name(f"{number:016x}")
    head = file_header(FileKind.JOURNAL, number, identity[3]).ljust(PAGE, b"\0")
    own.write_bytes(head + content[first:])
    path.write_bytes(content[:first] + bytes(len(content) - first))
    assert examine(directory).findings == []
    flip(own, PAGE + 100)
    found = examine(directory)
    assert [(each.file, each.offset) for each in found.findings] == [(f"{JOURNAL}/{own.name}", PAGE)]
    assert found.sound == (moved == 1)
    assert found.sound or f"{JOURNAL}/{own.name} at offset {PAGE}: event D" in found.faults[0]
