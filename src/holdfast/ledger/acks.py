"""The entries of a topic that a subscription has acknowledged.

```
 acked     acked            acked                          bits: entry 12 is a batch, of which
 ████████████████░░░░░░░░░░░█████░░░░▒░░░░░░░░░            some messages are acknowledged
 0               acked_to   holes    12       end
```

`acked_to` is the mark-delete position: everything below it is acknowledged. An acknowledged entry above it is
a hole in the backlog. Holes are kept in a Roaring bitmap. All positions are ordinals, all ranges half-open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyroaring import BitMap64

from holdfast.errors import Corrupt

_CHUNK = 1 << 16
"""Ranges are found chunk by chunk, as Roaring stores them: long runs and scattered holes are both cheap."""


def pack_bits(mask: int) -> bytes:
    """Encode a mask in as few bytes as possible, little-endian."""
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


class AckState:
    """The acknowledgements of one subscription.

    `acked_to` is never itself a hole (I41): the entry at this position is not acknowledged.

    Example:
        >>> acks = AckState()
        >>> acks.ack_ranges([(0, 2), (5, 7)], end=10)
        >>> acks.acked_to, list(acks.ranges()), acks.count(end=10)
        (2, [(5, 7)], 6)
        >>> acks.ack_ranges([(2, 5)], end=10)
        >>> acks.acked_to
        7
        >>> acks.reset(3)
        >>> acks.count(end=10)
        7
    """

    __slots__ = ("_bits", "_holes", "_holes_end", "_partial", "acked_to")

    def __init__(self, acked_to: int = 0) -> None:
        self.acked_to = acked_to
        self._holes = BitMap64()
        self._holes_end = 0
        """The ordinal after the last hole, if there is a hole: holes are removed from the front only."""
        self._bits: dict[int, int] = {}
        self._partial = BitMap64()
        """The sorted keys of `_bits`: a dictionary cannot be searched for a range."""

    # -- changes ---------------------------------------------------------------------------------------

    def ack_ranges(self, ranges: Iterable[tuple[int, int]], end: int) -> None:
        """Acknowledge whole entries. Ordinals from `end` on are not published yet and are ignored."""
        add, low, last = self._holes.add_range, self.acked_to, self._holes_end
        for a, b in ranges:  # of Key_Shared, each entry is a range of its own
            if b > end:
                b = end
            if a <= low:
                if b > low:
                    low = b
            elif a < b:
                add(a, b)
                if b > last:
                    last = b
                if self._bits:
                    self._close(a, b)
        self._holes_end = last
        self.advance(low)

    def ack_cumulative(self, to: int, end: int) -> None:
        """Acknowledge everything below `to`."""
        self.advance(min(to, end))

    def ack_batch(self, ordinal: int, still_open: int, end: int) -> None:
        """Acknowledge messages of a batch. Messages in the mask stay open, if they were open."""
        if ordinal >= end or self.is_acked(ordinal):
            return
        left = self._bits.get(ordinal, still_open) & still_open
        if left:
            self._bits[ordinal] = left
            self._partial.add(ordinal)
        else:
            self.ack_ranges([(ordinal, ordinal + 1)], end)

    def reset(self, to: int) -> None:
        """Acknowledge everything below `to`, and nothing else."""
        self.acked_to = to
        self._holes = BitMap64()
        self._holes_end = 0
        self._bits.clear()
        self._partial = BitMap64()

    def advance(self, to: int) -> None:
        """Acknowledge everything below `to`, and keep the holes above. Never moves back."""
        if to < self.acked_to:
            return
        if to in self._holes:
            to = self._run_end(to)
        if to > self.acked_to:
            self._holes.remove_range(0, to)
            if self._bits:
                self._close(0, to)
            self.acked_to = to

    def _close(self, a: int, b: int) -> None:
        """Delete the bits of batches in the range, which are now acknowledged as a whole."""
        for ordinal in _within(self._partial, a, b):
            self._partial.remove(ordinal)
            del self._bits[ordinal]

    # -- questions -------------------------------------------------------------------------------------

    def is_acked(self, ordinal: int) -> bool:
        """Return whether an entry is acknowledged as a whole, with every message of a batch."""
        return ordinal < self.acked_to or ordinal in self._holes

    def next_unacked(self, ordinal: int) -> int:
        """Return the first ordinal from here on that is not acknowledged."""
        ordinal = max(ordinal, self.acked_to)
        return self._run_end(ordinal) if ordinal in self._holes else ordinal

    def acked_in(self, a: int, b: int) -> list[tuple[int, int]]:
        """Return the acknowledged ranges within [a, b), in order and merged."""
        low = min(max(a, self.acked_to), b)
        head = [(a, low)] if a < low else []
        return [*head, *self.ranges(low, b)]

    def bits_in(self, a: int, b: int) -> dict[int, int]:
        """Return the open messages of each partially acknowledged batch in [a, b)."""
        if not self._bits:
            return {}
        return {ordinal: self._bits[ordinal] for ordinal in _within(self._partial, a, b)}

    def bits_of(self, ordinal: int) -> int | None:
        """Return the open messages of a partially acknowledged batch; `None` for any other entry."""
        return self._bits.get(ordinal)

    def count(self, end: int) -> int:
        """Count the entries below `end` that are not acknowledged."""
        if end <= self.acked_to:
            return 0
        return end - self.acked_to - self._holes.range_cardinality(self.acked_to, end)

    def after_unacked(self, count: int, end: int) -> int:
        """Return the position after `count` unacknowledged entries; `end` if there are fewer."""
        low, high = self.acked_to, end
        if self.count(end) <= count:
            return end
        while low < high:  # the first position with `count` open entries below it
            middle = (low + high) // 2
            if self.count(middle) < count:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def holes_count(self) -> int:
        """The number of acknowledged entries above `acked_to`."""
        return len(self._holes)

    @property
    def partial_count(self) -> int:
        """The number of partially acknowledged batches."""
        return len(self._bits)

    def ranges(self, a: int = 0, b: int | None = None) -> Iterator[tuple[int, int]]:
        """Return the holes as sorted ranges; equal contents give equal ranges.

        Acknowledgements must not change while the caller iterates. A task that pauses starts a new iteration.
        """
        holes = self._holes
        end = self._holes_end if holes else 0
        b = end if b is None else min(b, end)
        start = stop = -1
        while a < b and (a := holes.next_set_bit(a)) < b:  # the hole before `_holes_end` ends the search
            chunk = min((a | (_CHUNK - 1)) + 1, b)
            if holes.contains_range(a, chunk):
                found: Iterable[tuple[int, int]] = ((a, chunk),)
            else:
                window = BitMap64()
                window.add_range(a, chunk)
                found = ((each, each + 1) for each in (window & holes).to_array())
            for low, high in found:
                if low != stop:
                    if start >= 0:
                        yield start, stop
                    start = low
                stop = high
            a = chunk
        if start >= 0:
            yield start, stop

    def next_hole(self, ordinal: int) -> int | None:
        """Return the first hole from an ordinal on; `None` if there is no hole."""
        behind = not self._holes or ordinal >= self._holes_end
        return None if behind else self._holes.next_set_bit(ordinal)

    def ranges_begun(self, a: int, b: int) -> int:
        """Count the ranges of holes that start within [a, b), by words of bits.

        Example:
            >>> acks = AckState()
            >>> acks.ack_ranges([(2, 4), (5, 7)], end=10)
            >>> acks.ranges_begun(0, 6), acks.ranges_begun(3, 5), acks.ranges_begun(5, 9)
            (2, 0, 1)
        """
        window = BitMap64()
        window.add_range(max(a - 1, 0), b)
        window &= self._holes
        follow = window.shift(1).intersection_cardinality(window)  # holes that follow another hole
        return int(self._holes.range_cardinality(a, b) - follow)

    def _run_end(self, ordinal: int) -> int:
        """Return the end of the run of holes at this ordinal, in logarithmic time."""
        holes, step = self._holes, 1
        while holes.contains_range(ordinal, ordinal + step):
            ordinal += step
            step *= 2
        while step > 1:
            step //= 2
            if holes.contains_range(ordinal, ordinal + step):
                ordinal += step
        return ordinal

    # -- kept ------------------------------------------------------------------------------------------

    def pack(self) -> tuple[int, bytes, list[tuple[int, bytes]]]:
        """Encode for a snapshot: `acked_to`, the holes, the open bits of batches."""
        self._holes.run_optimize()
        bits = [(ordinal, pack_bits(self._bits[ordinal])) for ordinal in _values(self._partial)]
        return self.acked_to, self._holes.serialize() if self._holes else b"", bits

    @classmethod
    def unpack(cls, acked_to: int, holes: bytes, bits: Iterable[tuple[int, bytes]]) -> AckState:
        """Decode what `pack` returned.

        Raises:
            Corrupt: the bytes are not from `pack`.
        """
        acks = cls(acked_to)
        try:
            acks._holes = BitMap64.deserialize(holes) if holes else BitMap64()
            acks._holes_end = acks._holes.max() + 1 if acks._holes else 0
        except (ValueError, IndexError) as error:
            raise Corrupt(f"the acknowledged holes above {acked_to} do not decode: {error}") from error
        for ordinal, mask in bits:
            acks._bits[ordinal] = int.from_bytes(mask, "little")
            acks._partial.add(ordinal)
        return acks

    def check(self, first: int, end: int) -> None:
        """I41: first ≤ acked_to ≤ end; holes lie above `acked_to`, bits on open entries, all below `end`."""
        holes = self._holes
        assert first <= self.acked_to <= end, f"I41: acked up to {self.acked_to}, outside [{first}, {end}]"
        assert not holes or holes.min() > self.acked_to, f"I41: a hole at {holes.min()} ≤ {self.acked_to}"
        assert not holes or holes.max() < end, f"I41: a hole at {holes.max()}, and the topic ends at {end}"
        last = self._holes_end - 1
        assert not holes or holes.max() == last, f"I41: the last hole is {holes.max()}, not {last}"
        assert list(_values(self._partial)) == sorted(self._bits), (
            "I41: the index of the bits differs from the bits"
        )
        for ordinal, mask in self._bits.items():
            assert mask, f"I41: the batch at {ordinal} has no open message"
            assert self.acked_to <= ordinal < end, f"I41: bits at {ordinal}, outside [{self.acked_to}, {end})"
            assert ordinal not in holes, f"I41: the batch at {ordinal} is acknowledged, and has open messages"


def _values(values: BitMap64) -> Iterable[int]:
    """Return all values. Empty bitmaps are not iterated: pyroaring leaks an iterator that finds nothing."""
    return values if values else ()


def _within(values: BitMap64, a: int, b: int) -> list[int]:
    """Return the values in [a, b), at a cost by values. See `_values`."""
    found: list[int] = []
    if not values or values.max() < a:
        return found
    for value in values.iter_equal_or_larger(a):
        if value >= b:
            break
        found.append(value)
    return found
