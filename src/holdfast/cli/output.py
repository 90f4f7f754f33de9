"""How answers are written: JSON, tables, sizes and ages."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence


def print_json(answer: object) -> None:
    """One JSON value on one line, so that several answers make JSON lines."""
    try:
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(answer), ensure_ascii=False, allow_nan=False)
    print(text, flush=True)


def tell(options: argparse.Namespace, answer: object, words: str) -> int:
    """Print an answer, as JSON or in words; returns the exit status 0."""
    if options.json:
        print_json(answer)
    else:
        print(words, flush=True)
    return 0


def _finite(answer: object) -> object:
    """Replace numbers that JSON cannot express by null: readers refuse Python's words."""
    if isinstance(answer, dict):
        return {name: _finite(each) for name, each in answer.items()}
    if isinstance(answer, list | tuple):
        return [_finite(each) for each in answer]
    return None if isinstance(answer, float) and not math.isfinite(answer) else answer


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Columns in line; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(head), *cells]) for column in range(len(head))]
    right = [
        bool(rows) and all(isinstance(row[column], int | float) for row in rows)
        for column in range(len(head))
    ]

    def line(texts: Sequence[str]) -> str:
        parts = (
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(texts, widths, right, strict=True)
        )
        return "  ".join(parts).rstrip()

    return [line(head), *(line(row) for row in cells)]


def size_words(size: int) -> str:
    """1536 -> "1.5 KiB"."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"


def age_words(seconds: float) -> str:
    """0.25 -> "250 ms", 90 -> "1.5 min"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for limit, divisor, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.1f} {unit}"
    return f"{seconds / 86400:.1f} days"


def plural(number: int, noun: str) -> str:
    """1 message, 2 messages; 2 processes; 2 entries."""
    if number == 1:
        return f"{number:,} {noun}"
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {many}"
