"""Key_Shared: which consumer of a subscription gets which keys.

Each key has a hash of 0 to 65,535 (`native/holdfast/entry/key.hpp`). Each hash belongs to at most one
consumer: by an automatic split, or by ranges that the consumers name. Both are functions of the consumers
alone, in the order in which they joined, so all members agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Protocol

import msgspec

from holdfast._core import split_keys
from holdfast.errors import Busy, Misuse
from holdfast.formatting import plural

HASHES = 65536
RANGES_MAX = 1000
"""Ranges that one consumer may name."""

Ranges = Sequence[tuple[int, int]]
"""Of ordinals or hashes."""


class Sharing(Protocol):
    """A consumer, as others meet it."""

    @property
    def name(self) -> str: ...
    @property
    def keys(self) -> KeyShared | None: ...


class KeyShared(msgspec.Struct, array_like=True, frozen=True):
    """How a consumer shares keys with others.

    Example:
        >>> KeyShared(ranges=((0, 32767),)).mode, KeyShared().mode
        ('sticky', 'auto_split')
    """

    ranges: tuple[tuple[int, int], ...] = ()
    """Hashes, both ends included, that this consumer gets; empty: an automatic split."""
    unordered: bool = False
    """A key moves to its new consumer at once, although the old one has not acknowledged its messages."""

    @property
    def mode(self) -> str:
        return "sticky" if self.ranges else "auto_split"

    def require_sound(self) -> None:
        """Check the ranges.

        Raises:
            Misuse: a range is not within 0 to 65,535, or two ranges of this consumer overlap.
        """
        if len(self.ranges) > RANGES_MAX:
            raise Misuse(f"{len(self.ranges)} ranges of hashes; a consumer has at most {RANGES_MAX}")
        for first, last in self.ranges:
            if not 0 <= first <= last < HASHES:
                raise Misuse(
                    f"a range of hashes from {first} to {last}; use two numbers from 0 to {HASHES - 1}, the "
                    "smaller one first"
                )
        for one, two in pairwise(sorted(self.ranges)):
            if two[0] <= one[1]:
                raise Misuse(
                    f"the ranges of hashes {_text(one)} and {_text(two)} of one consumer overlap; join them"
                )

    def require_fits(self, subscription: str, others: Iterable[Sharing]) -> None:
        """Check that a consumer can join others.

        Raises:
            Misuse: the others share keys in another way.
            Busy: another consumer has some of the hashes.
        """
        for other in others if self.ranges else islice(others, 1):  # the others agree with each other
            keys = other.keys or KeyShared()
            if keys.mode != self.mode:
                raise Misuse(
                    f"the subscription {subscription!r} has {keys.mode} consumers while {other.name!r} is "
                    f"attached; a consumer with {self.mode} cannot join them"
                )
            if keys.unordered != self.unordered:
                raise Misuse(
                    f"the consumers of subscription {subscription!r} do not agree on "
                    f"allow_out_of_order_delivery: {other.name!r} has {keys.unordered}"
                )
            both = _overlap(self.ranges, keys.ranges)
            if both is not None:
                raise Busy(
                    f"the range of hashes {_text(both[0])} overlaps {_text(both[1])}, which consumer "
                    f"{other.name!r} of subscription {subscription!r} has; use ranges that are apart"
                )


def _overlap(mine: Ranges, theirs: Ranges) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return a range of each that overlap; None: all are apart.

    In one pass: 65 consumers may have 1,000 ranges each, and every member checks each of them.
    """
    mine, theirs = sorted(mine), sorted(theirs)
    a = b = 0
    while a < len(mine) and b < len(theirs):
        if mine[a][1] < theirs[b][0]:
            a += 1
        elif theirs[b][1] < mine[a][0]:
            b += 1
        else:
            return mine[a], theirs[b]
    return None


def _text(hashes: tuple[int, int]) -> str:
    return f"{hashes[0]}-{hashes[1]}"


def split(consumers: Sequence[tuple[str, KeyShared]]) -> list[tuple[int, int, int]]:
    """Return ranges of hashes in order, each with the index of its consumer.

    Both ends are included.

    Example:
        >>> split([("a", KeyShared(ranges=((7, 9),))), ("b", KeyShared(ranges=((0, 3), (10, 10))))])
        [(0, 3, 1), (7, 9, 0), (10, 10, 1)]
        >>> split([("a", KeyShared())])
        [(0, 65535, 0)]
    """
    if any(keys.ranges for _, keys in consumers):
        return sorted(
            (first, last, index) for index, (_, keys) in enumerate(consumers) for first, last in keys.ranges
        )
    return split_keys([name for name, _ in consumers])


# -- hashes of entries that members hold ---------------------------------------------------------------


def count(ranges: Ranges) -> int:
    """Return the number of ordinals in ranges."""
    return sum(end - first for first, end in ranges)


def require_hashes(ranges: Ranges, hashes: bytes) -> None:
    """Raise Misuse if there are not two bytes for each ordinal."""
    if len(hashes) != 2 * count(ranges):
        raise Misuse(f"{len(hashes)} bytes of hashes for {plural(count(ranges), 'entry')}; two for each")


def hashes_of(ranges: Ranges, hashes: bytes, kept: Ranges) -> bytes:
    """Return the hashes of the ordinals of `ranges` that are in `kept`; both are sorted.

    Example:
        >>> hashes_of([(3, 5), (9, 10)], b"aabbcc", [(4, 5), (9, 10)])
        b'bbcc'
    """
    out, at, here = [], 0, 0
    for first, end in kept:
        while at < len(ranges) and ranges[at][0] < end:
            low, high = max(first, ranges[at][0]), min(end, ranges[at][1])
            begin = here + 2 * (low - ranges[at][0])
            out.append(hashes[begin : begin + 2 * max(0, high - low)])
            if ranges[at][1] > end:
                break
            here += 2 * (ranges[at][1] - ranges[at][0])
            at += 1
    return b"".join(out)


def joined(parts: Iterable[tuple[Ranges, bytes]]) -> bytes:
    """Return the hashes of several members' ranges, in the order of all their ordinals.

    Example:
        >>> joined([([(3, 4), (9, 10)], b"aacc"), ([(5, 6)], b"bb")])
        b'aabbcc'
    """
    runs = []
    for ranges, hashes in parts:
        at = 0
        for first, end in ranges:
            runs.append((first, end, hashes[at : at + 2 * (end - first)]))
            at += 2 * (end - first)
    out, next_ = [], 0
    for first, end, hashes in sorted(runs):
        begin = max(first, next_)
        out.append(hashes[2 * (begin - first) :] if begin < end else b"")
        next_ = max(next_, end)
    return b"".join(out)
