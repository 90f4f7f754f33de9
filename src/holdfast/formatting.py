"""Numbers as text for people: counts, sizes, ages, and tables with aligned columns."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, noun: str) -> str:
    """Return a count with its noun in singular or plural.

    Example:
        >>> plural(1, "message"), plural(2000, "message"), plural(2, "process"), plural(0, "entry")
        ('1 message', '2,000 messages', '2 processes', '0 entries')
    """
    if number == 1:
        return f"{number:,} {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number:,} {noun[:-1]}ies"
    ending = "es" if noun.endswith(("s", "ch", "sh")) else "s"
    return f"{number:,} {noun}{ending}"


def size_words(size: int) -> str:
    """Return `1.5 KiB` for 1536."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"


def age_words(seconds: float) -> str:
    """Return `250 ms` for 0.25 and `1.5 min` for 90."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for limit, divisor, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.1f} {unit}"
    return f"{seconds / 86400:.1f} days"


def time_words(micros: float) -> str:
    """Return `1.5 ms` for 1500 µs."""
    if abs(micros) < 1000:
        return f"{micros:.0f} µs"
    if abs(micros) < 1_000_000:
        return f"{micros / 1000:.3g} ms"
    return f"{micros / 1_000_000:.3g} s"


def text_table(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    numbers: int | None = None,
    *,
    grouped: bool = False,
) -> list[str]:
    """Align columns; numbers, and all columns from `numbers` on, to the right.

    Example:
        >>> text_table(("TOPIC", "ROWS"), [("orders", 12345), ("tar", 7)], grouped=True)
        ['TOPIC     ROWS', 'orders  12,345', 'tar          7']
    """
    cells = [
        [f"{cell:,}" if grouped and isinstance(cell, int) else str(cell) for cell in row] for row in rows
    ]
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
