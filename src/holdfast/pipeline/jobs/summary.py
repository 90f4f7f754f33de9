"""Format the report of a job as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Report:
    """The result of a job."""

    def record(self) -> dict[str, Any]:
        """Return the report for `--json`."""
        return asdict(self)

    def table(self) -> str:
        """Return the report as text."""
        raise NotImplementedError


def plural(number: int, noun: str) -> str:
    """Return `1 message` or `2 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def short(topic: str) -> str:
    """Shorten a topic's name."""
    return topic.removeprefix("persistent://").removeprefix("public/default/")


def readable(name: str) -> str:
    """Escape a name that a user gave: one line, without control characters.

    Example:
        >>> readable("rig\\n\\x1b[2J")
        'rig\\\\n\\\\x1b[2J'
    """
    return name if name.isprintable() else repr(name)[1:-1]


def text_table(
    head: Sequence[str], rows: Sequence[Sequence[object]], numbers: int | None = None
) -> list[str]:
    """Align columns; numbers, and all columns from `numbers` on, to the right.

    Example:
        >>> text_table(("TOPIC", "ROWS"), [("orders", 12345), ("tar", 7)])
        ['TOPIC     ROWS', 'orders  12,345', 'tar          7']
    """
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    lines = [list(head), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    right = [
        (numbers is not None and column >= numbers)
        or (bool(rows) and all(isinstance(row[column], int | float) for row in rows))
        for column in range(len(head))
    ]
    return [
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]


def size_words(size: int) -> str:
    """Return `1.5 KiB` for 1536."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"


def time_words(micros: float) -> str:
    """Return `1.5 ms` for 1500 µs."""
    if abs(micros) < 1000:
        return f"{micros:.0f} µs"
    if abs(micros) < 1_000_000:
        return f"{micros / 1000:.3g} ms"
    return f"{micros / 1_000_000:.3g} s"
