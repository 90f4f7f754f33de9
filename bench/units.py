"""Figures as people read them."""

from __future__ import annotations

from bench.figures import Spread


def number(value: float) -> str:
    """Three digits and a unit: 1.05 M, 350 k, 42."""
    for limit, divisor, unit in ((1e6, 1e6, " M"), (1e3, 1e3, " k")):
        if value >= limit * 0.9995:
            return f"{_three_digits(value / divisor)}{unit}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def spread(values: Spread) -> str:
    return f"{number(values.median)} [{number(values.low)}–{number(values.high)}]"


def size_name(size: int) -> str:
    if size >= 1 << 20 and size % (1 << 20) == 0:
        return f"{size >> 20} MiB"
    if size >= 1 << 10 and size % (1 << 10) == 0:
        return f"{size >> 10} KiB"
    return f"{size} B"
