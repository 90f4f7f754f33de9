"""Sets of ordinals as half-open ranges: sorted, not empty, apart from each other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from holdfast.errors import Misuse

Range = tuple[int, int]
Ranges = Sequence[Range]
_first = itemgetter(0)


def require_ranges(ranges: Ranges, what: str) -> None:
    """Check that ranges are sorted, not empty, and do not overlap.

    Raises:
        Misuse: they are not.
    """
    last = 0
    for first, end in ranges:
        if not last <= first < end:
            raise Misuse(f"{what} has the range {first} to {end} after {last}; give them sorted and apart")
        last = end


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the union of ranges, in order; those that touch are joined.

    Example:
        >>> merged([(5, 7), (1, 3), (3, 4)])
        [(1, 4), (5, 7)]
    """
    given = iter(sorted(ranges, key=_first))  # four times as fast as to compare pairs
    low, high = next(given, (0, 0))
    out: list[Range] = []
    for first, end in given:
        if first > high:
            out.append((low, high))
            low, high = first, end
        elif end > high:
            high = end
    if low < high:
        out.append((low, high))
    return out


def common(some: Ranges, others: Ranges) -> list[Range]:
    """Return what is in both sets.

    Example:
        >>> common([(0, 4), (6, 9)], [(3, 7)])
        [(3, 4), (6, 7)]
    """
    out: list[Range] = []
    a = b = 0
    while a < len(some) and b < len(others):
        first, end = max(some[a][0], others[b][0]), min(some[a][1], others[b][1])
        if first < end:
            out.append((first, end))
        if some[a][1] < others[b][1]:
            a += 1
        else:
            b += 1
    return out


def without(some: Ranges, gone: Ranges) -> list[Range]:
    """Return what is in the first set alone.

    Example:
        >>> without([(0, 4), (6, 9)], [(1, 2), (3, 7)])
        [(0, 1), (2, 3), (7, 9)]
    """
    out: list[Range] = []
    at = 0
    for first, end in some:
        while at < len(gone) and gone[at][1] <= first:
            at += 1
        look = at
        while look < len(gone) and gone[look][0] < end:
            if first < gone[look][0]:
                out.append((first, gone[look][0]))
            first = max(first, gone[look][1])
            look += 1
        if first < end:
            out.append((first, end))
    return out


def meeting(ranges: Ranges, first: int, end: int) -> list[Range]:
    """Return the ranges that meet a run of ordinals, uncut.

    Example:
        >>> meeting([(0, 4), (6, 9), (20, 21)], 3, 7)
        [(0, 4), (6, 9)]
    """
    at = max(0, bisect_right(ranges, first, key=lambda each: each[0]) - 1)
    found = []
    while at < len(ranges) and ranges[at][0] < end:
        if ranges[at][1] > first:
            found.append(ranges[at])
        at += 1
    return found
