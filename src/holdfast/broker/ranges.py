"""Sets of ordinals as half-open ranges: sorted, not empty, apart from each other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from holdfast.errors import Misuse

Range = tuple[int, int]
Ranges = Sequence[Range]
FEW = 16
"""A set is small beside another one that has so many times its ranges."""
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
    out: list[Range] = []
    high = -1
    for each in sorted(ranges, key=_first):  # four times as fast as to compare pairs
        first, end = each
        if first > high:
            out.append(each)  # mostly nothing joins it, and it stays the same object
            high = end
        elif end > high:
            out[-1] = (out[-1][0], end)
            high = end
    return out


def common(some: Ranges, others: Ranges) -> list[Range]:
    """Return what is in both sets.

    Few ranges are looked up among many: a member may hold 100,000, and get one of them back.

    Example:
        >>> common([(0, 4), (6, 9)], [(3, 7)])
        [(3, 4), (6, 7)]
    """
    few, many = (some, others) if len(some) < len(others) else (others, some)
    if _is_few(few, many):
        return [
            (max(first, low), min(end, high)) for first, end in few for low, high in meeting(many, first, end)
        ]
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
    if _is_few(some, gone):
        for first, end in some:
            out += _cut([(first, end)], meeting(gone, first, end))
        return out
    if not _is_few(gone, some):
        return _cut(some, gone)
    done = at = 0
    while at < len(gone):
        low, high, next_ = *_met(some, *gone[at], done), at + 1
        while next_ < len(gone) and high > low and gone[next_][0] < some[high - 1][1]:
            high, next_ = max(high, _met(some, *gone[next_], high - 1)[1]), next_ + 1
        out += some[done:low]
        out += _cut(some[low:high], gone[at:next_])
        done, at = high, next_
    return [*out, *some[done:]]


def _is_few(few: Ranges, many: Ranges) -> bool:
    """Return whether to look each range of one set up in the other."""
    return len(few) * FEW < len(many)


def _met(ranges: Ranges, first: int, end: int, begin: int) -> tuple[int, int]:
    """Return where the ranges that meet a run begin and end, from `begin` on."""
    low = bisect_right(ranges, first, begin, key=itemgetter(1))
    return low, bisect_left(ranges, end, low, key=_first)


def _cut(some: Ranges, gone: Ranges) -> list[Range]:
    """Return what is in the first set alone, by one pass over both."""
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
