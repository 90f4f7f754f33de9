"""Compare the acknowledged entries with a plain set, after every change."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from holdfast.errors import Corrupt
from holdfast.ledger.acks import AckState, pack_bits
from tests.kit.examples import examples
from tests.kit.growth.allocated import bytes_per_call

SPAN = 60
Operation = tuple[str, int, int]


class Model:
    """A set of ordinals, and the open messages of batches. Positions count from `base`."""

    def __init__(self, base: int) -> None:
        self.base, self.end = base, base + SPAN
        self.low = base
        """Everything below is acknowledged."""
        self.acked: set[int] = set()
        self.bits: dict[int, int] = {}

    def is_acked(self, ordinal: int) -> bool:
        return ordinal < self.low or ordinal in self.acked

    def ack(self, a: int, b: int) -> None:
        for ordinal in range(max(a, self.low), min(b, self.end)):
            self.acked.add(ordinal)
            self.bits.pop(ordinal, None)

    def batch(self, ordinal: int, still_open: int) -> None:
        if not self.is_acked(ordinal) and ordinal < self.end:
            left = self.bits.get(ordinal, still_open) & still_open
            if left:
                self.bits[ordinal] = left
            else:
                self.ack(ordinal, ordinal + 1)

    def reset(self, to: int) -> None:
        self.low = to
        self.acked.clear()
        self.bits.clear()

    def open_ones(self) -> list[int]:
        return [ordinal for ordinal in range(self.base, self.end) if not self.is_acked(ordinal)]

    def mark_delete(self) -> int:
        return min(self.open_ones(), default=self.end)


def perform(acks: AckState, model: Model, operation: Operation) -> None:
    what, x, y = operation
    a, b, end = model.base + min(x, y), model.base + max(x, y), model.end
    if what == "ranges":
        acks.ack_ranges([(b, b + 3), (a, a + 2), (b + 5, b + 6)], end)
        for low, high in ((b, b + 3), (a, a + 2), (b + 5, b + 6)):
            model.ack(low, high)
    elif what == "range":
        acks.ack_ranges([(a, b)], end)
        model.ack(a, b)
    elif what == "cumulative":
        acks.ack_cumulative(b, end)
        model.ack(0, b)
    elif what == "batch":
        ordinal = model.base + x % 6 * 9  # few, so that they meet again
        acks.ack_batch(ordinal, y, end)
        model.batch(ordinal, y)
    elif what == "reset":
        acks.reset(min(a, end))
        model.reset(min(a, end))
    elif what == "advance":
        acks.advance(min(b, end))
        model.ack(0, b)
    elif what == "skip":
        to = acks.after_unacked(x, end)
        left = model.open_ones()[x:]
        assert acks.count(end) - acks.count(to) == len(left)
        assert to == end or x == 0 or to - 1 in model.open_ones()
        acks.advance(to)
        model.ack(0, min(left, default=end))


def compare(acks: AckState, model: Model) -> None:
    base, end = model.base, model.end
    acks.check(min(base, acks.acked_to), end)
    positions = range(base, end)
    assert acks.acked_to == model.mark_delete()
    assert [acks.is_acked(each) for each in positions] == [model.is_acked(each) for each in positions]
    assert acks.count(end) == len(model.open_ones())
    holes = [each for each in positions if each in model.acked and each > acks.acked_to]
    assert [each for low, high in acks.ranges() for each in range(low, high)] == holes
    assert acks.holes_count == len(holes)
    assert acks.bits_in(base, end) == model.bits
    assert acks.partial_count == len(model.bits)
    for ordinal in (base, base + 7, base + 31, end - 1):
        following = [each for each in model.open_ones() if each >= ordinal]
        assert acks.next_unacked(ordinal) == min(following, default=end)
    a, b = base + 5, base + 40
    told = acks.acked_in(a, b)
    assert [each for low, high in told for each in range(low, high)] == [
        each for each in range(a, b) if model.is_acked(each)
    ]
    assert all(one[1] < two[0] for one, two in pairwise(told)), "neighbours are one range"
    assert acks.bits_in(a, b) == {at: bits for at, bits in model.bits.items() if a <= at < b}


def run(make: Callable[[int], AckState], base: int, operations: list[Operation]) -> None:
    acks, model = make(base), Model(base)
    for operation in operations:
        perform(acks, model, operation)
        compare(acks, model)
    again = AckState.unpack(*acks.pack())
    compare(again, model)
    assert list(again.ranges()) == list(acks.ranges())


OPERATIONS = ("ranges", "range", "cumulative", "batch", "reset", "advance", "skip")
BASES = (0, (1 << 16) - 30, (1 << 32) - 17)  # where Roaring's containers end

operations_ = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, SPAN + 3), st.integers(0, SPAN + 3)), max_size=25
)


@examples(test=120)
@given(base=st.sampled_from(BASES), operations=operations_)
def test_against_a_set(base: int, operations: list[Operation]) -> None:
    """I41, and every answer."""
    run(AckState, base, operations)


# -- broken ones are noticed ---------------------------------------------------------------------------


class ResetKeepsHoles(AckState):
    def reset(self, to: int) -> None:
        holes = self._holes
        super().reset(to)
        self._holes = holes


class ResetKeepsBits(AckState):
    def reset(self, to: int) -> None:
        bits, partial = dict(self._bits), self._partial
        super().reset(to)
        self._bits, self._partial = bits, partial


class CumulativeIsIndividual(AckState):
    def ack_cumulative(self, to: int, end: int) -> None:
        self.ack_ranges([(to - 1, to)], end)


class AdvanceForgetsAbove(AckState):
    def advance(self, to: int) -> None:
        if to > self.acked_to:
            self.reset(to)


class AdvanceGoesBack(AckState):
    def advance(self, to: int) -> None:
        self.acked_to = to


class BatchForgets(AckState):
    def ack_batch(self, ordinal: int, still_open: int, end: int) -> None:
        self._bits.pop(ordinal, None)
        super().ack_batch(ordinal, still_open, end)


class HolesAreNotAbsorbed(AckState):
    def _run_end(self, ordinal: int) -> int:
        return ordinal


class BeyondTheEnd(AckState):
    def ack_ranges(self, ranges: Any, end: int) -> None:
        super().ack_ranges(ranges, end + 3)


class BitsOutliveTheirEntry(AckState):
    def _close(self, a: int, b: int) -> None:
        pass


@pytest.mark.parametrize(
    "broken",
    [
        ResetKeepsHoles,
        ResetKeepsBits,
        CumulativeIsIndividual,
        AdvanceForgetsAbove,
        AdvanceGoesBack,
        BatchForgets,
        HolesAreNotAbsorbed,
        BeyondTheEnd,
        BitsOutliveTheirEntry,
    ],
)
def test_broken_ones_are_noticed(broken: type[AckState]) -> None:
    rng = random.Random(1)  # the same in every run: it is about the mutant
    for _ in range(200):
        operations = [(rng.choice(OPERATIONS), rng.randrange(SPAN), rng.randrange(SPAN)) for _ in range(12)]
        try:
            run(broken, 0, operations)
        except AssertionError:
            return
    pytest.fail(f"{broken.__name__} was not noticed")


# -- size, and bytes -----------------------------------------------------------------------------------


def test_long_runs_cost_little() -> None:
    acks = AckState()
    acks.ack_ranges([(10, 1_000_000_000)], 1 << 40)
    assert list(acks.ranges()) == [(10, 1_000_000_000)]
    assert acks.count(1_000_000_010) == 20
    assert acks.next_unacked(500) == 1_000_000_000
    acks.ack_ranges([(0, 10)], 1 << 40)
    assert acks.acked_to == 1_000_000_000
    assert acks.holes_count == 0


def test_open_bits() -> None:
    assert pack_bits(0b110) == b"\x06"
    assert pack_bits(0) == b""
    acks = AckState()
    acks.ack_batch(0, int.from_bytes(pack_bits((1 << 99) - 1), "little"), end=1)
    assert acks.bits_in(0, 1) == {0: (1 << 99) - 1}
    assert acks.count(1) == 1
    acks.ack_batch(0, 0, end=1)
    assert (acks.acked_to, acks.partial_count) == (1, 0)


@pytest.mark.parametrize("holes", [b"\x01", b"\xff" * 40, b"\x01" + bytes(7)])
def test_holes_that_do_not_decode(holes: bytes) -> None:
    with pytest.raises(Corrupt, match="do not decode"):
        AckState.unpack(3, holes, [])


@pytest.mark.parametrize(
    ("acked_to", "hole", "bits", "first", "end"),
    [
        (3, 3, {}, 0, 10),  # the mark-delete position itself
        (3, 2, {}, 0, 10),  # below it
        (3, 10, {}, 0, 10),  # never published
        (3, 5, {5: 1}, 0, 10),  # acknowledged, and open
        (3, 5, {6: 0}, 0, 10),  # nothing open
        (3, 5, {2: 1}, 0, 10),
        (3, 5, {}, 4, 10),  # trimmed above
        (11, 12, {}, 0, 10),
    ],
)
def test_check_notices(acked_to: int, hole: int, bits: dict[int, int], first: int, end: int) -> None:
    acks = AckState(acked_to)
    acks._holes.add(hole)
    acks._holes_end = hole + 1
    acks._bits = bits
    for ordinal in bits:
        acks._partial.add(ordinal)
    with pytest.raises(AssertionError, match="I41"):
        acks.check(first, end)


def test_check_notices_a_last_hole_that_is_not_known() -> None:
    acks = AckState()
    acks.ack_ranges([(3, 6)], 10)
    acks._holes_end = 5
    with pytest.raises(AssertionError, match="I41"):
        acks.check(0, 10)


# -- memory --------------------------------------------------------------------------------------------


def batches() -> AckState:
    acks = AckState()
    acks.ack_batch(3, 0b101, 100)
    acks.ack_ranges([(5, 9)], 100)
    return acks


@pytest.mark.parametrize("acks", [AckState(), batches()], ids=["empty", "with holes"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda acks: acks.acked_in(10, 50),
        lambda acks: acks.bits_in(10, 50),
        lambda acks: list(acks.ranges()),
        lambda acks: acks.pack(),
        lambda acks: acks.check(0, 100),
        lambda acks: acks.ack_ranges([(6, 8)], 100),
    ],
    ids=["acked_in", "bits_in", "ranges", "pack", "check", "ack_ranges"],
)
def test_no_call_leaves_memory_behind(acks: AckState, ask: Callable[[AckState], object]) -> None:
    """A search in a bitmap that finds nothing leaked its iterator: 224 bytes per delivery."""
    assert bytes_per_call(lambda: ask(acks)) < 8


def test_a_bitmap_that_is_asked_in_vain_is_noticed() -> None:
    """The former fault: pyroaring does not free the iterator of an unsuccessful search."""
    empty = BitMap64()
    if bytes_per_call(lambda: list(empty)) < 8:
        pytest.fail("pyroaring frees its iterators now: `_values` in ledger/acks.py may go")
