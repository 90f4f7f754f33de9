"""Ownership of subscriptions: the decisions when events are applied, and the turns of a member."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from holdfast._core import Dispatch
from holdfast.broker.events import (
    Advance,
    Fence,
    HeldReturned,
    OwnerChanged,
    OwnershipAsk,
    OwnershipRelease,
    OwnershipReturn,
    OwnershipWanted,
    Reset,
    SubscriptionDelete,
)
from holdfast.broker.ranges import common, meeting, merged, require_ranges, without
from holdfast.errors import Fenced, Misuse
from tests.kit.broker.events import nothing_happens, refused
from tests.kit.broker.owner_checks import (
    A,
    B,
    Bench,
    C,
    Table,
    an_idle_member_asks_again,
    in_virtual_time,
    shared_turns_go_round,
)
from tests.kit.sim.randomness import SeededRandomness

# -- the decisions -------------------------------------------------------------------------------------


def test_the_first_consumer_owns_at_once() -> None:
    """I66: the owner is a member with consumers. `Table` checks it after every event."""
    table = Table()
    table.join(B)
    assert table.notices == [OwnerChanged(table.of, B, table.of.taken, 0, [], [], None)]
    table.join(B)
    assert table.notices == [], "the same member again: nothing to tell"
    table.join(A)
    assert table.notices == [OwnershipWanted(table.of)]
    assert table.of.owner == B, "it releases first"


def test_shared_turns_go_round() -> None:
    shared_turns_go_round()


def test_the_active_consumer_decides() -> None:
    """Failover: best priority, then the first that joined; the owner is asked to release first."""
    table = Table("failover")
    first = table.join(A, priority=1)
    table.join(B, priority=1)
    assert table.notices == [], "it is not due"
    table.join(C, priority=0)
    assert (table.of.owner, table.notices) == (A, [OwnershipWanted(table.of)])
    table.release(A, pending=[(1, 3)], idle=True)
    assert (table.of.owner, table.of.held, table.of.idle) == (C, {}, set())
    table.release(C)
    assert table.of.owner == C, "its consumer is still the active one"
    table.leave(first)
    assert table.of.owner == C


def test_an_active_consumer_that_leaves_makes_another_member_due() -> None:
    table = Table("failover")
    best = table.join(A)
    table.join(B, priority=1)
    table.join(A, priority=2)
    table.leave(best)
    assert (table.of.owner, table.notices) == (A, [OwnershipWanted(table.of)])
    table.release(A)
    assert table.of.owner == B


def test_the_last_consumer_of_the_owner_leaves() -> None:
    table = Table()
    first, _ = table.join(A), table.join(B)
    taken = table.of.taken
    table.leave(first)
    assert table.of.owner == B
    assert table.of.taken > taken
    assert table.notices == [OwnerChanged(table.of, B, table.of.taken, 0, [], [], None)]


def test_no_consumer_no_owner() -> None:
    table = Table()
    table.leave(table.join(A))
    assert table.of.owner is None
    assert table.notices[-1].owner is None


@pytest.mark.parametrize("member", [A, B])
def test_only_the_owner_releases_and_under_its_number(member: Any) -> None:
    table = Table()
    table.join(A)
    table.join(B)
    stale = OwnershipRelease(table.of.id, table.of.taken - (member == A), member, 0)
    refused(table.rig, stale, Fenced, "nothing was released", member=member)


def test_a_view_costs_nothing_where_no_consumer_is() -> None:
    """A view comes to all subscriptions at once; most have no consumer."""
    table = Table()
    taken = table.of.taken
    assert table.rig.enter(A, B).notices == []
    assert table.of.taken == taken
    table.leave(table.join(A))
    taken = table.of.taken
    assert table.rig.enter(A).notices == []
    assert table.of.taken == taken


def test_a_view_or_a_turn_makes_releases_under_way_void() -> None:
    table = Table()
    table.join(A)
    table.join(B)
    before = OwnershipRelease(table.of.id, table.of.taken, A, 0)
    table.rig.enter(A, B)
    assert table.of.owner == A, "a view with the owner leaves it"
    refused(table.rig, before, Fenced, member=A)
    now = OwnershipRelease(table.of.id, table.of.taken, A, 0)
    table.rig.do(Fence(table.of.id, b"token", 0))
    table.rig.do(now, A)
    assert table.of.owner == B, "a fence of a reset does not concern it"


def test_nobody_releases_for_another_member() -> None:
    table = Table()
    table.join(A)
    for event in (
        OwnershipRelease(table.of.id, table.of.taken, A, 0),
        OwnershipAsk(table.of.id, A),
        OwnershipReturn(table.of.id, A, 0, [(1, 2)]),
    ):
        refused(table.rig, event, Misuse, member=B)


@pytest.mark.parametrize("ranges", [[(3, 3)], [(3, 2)], [(3, 5), (4, 6)], [(5, 6), (1, 2)]])
def test_ranges_that_are_none(ranges: list[tuple[int, int]]) -> None:
    table = Table()
    table.join(A)
    refused(table.rig, OwnershipRelease(table.of.id, table.of.taken, A, 0, ranges), Misuse, "sorted", A)
    refused(table.rig, OwnershipReturn(table.of.id, A, 0, ranges), Misuse, "sorted", A)


def test_pending_entries_are_held_elsewhere() -> None:
    table = Table()
    table.join(A)
    table.join(B)
    table.rig.do(Advance(table.of.id, 0, to=2))
    table.release(A, pending=[(0, 4), (6, 9), (18, 40)], counts=[(3, 1)], undelivered=[(2, 3)])
    held = [(2, 4), (6, 9), (18, 20)]
    assert table.of.held == {A: held}, "without what is acknowledged, or was never published"
    assert table.notices == [OwnerChanged(table.of, B, table.of.taken, 0, held, [(3, 1)], [(2, 3)])]
    table.release(B, pending=[(4, 5)])
    assert table.of.held == {B: [(4, 5)]}, "the owner's own tables know what it holds"
    assert table.notices[0].elsewhere == [(4, 5)]


def test_a_reset_makes_what_is_held_void() -> None:
    table = Table()
    table.join(A)
    table.join(B)
    table.release(A, pending=[(0, 4)])
    table.rig.do(Reset(table.of.id, b"token", 0, 1))
    assert table.of.held == {}
    table.release(B, pending=[(2, 4)], counts=[(2, 1)], undelivered=[(1, 3)], reset_number=0)
    assert table.of.owner == A, "the release counts"
    assert table.of.held == {}, "its entries were delivered before the reset"
    assert (table.notices[0].counts, table.notices[0].undelivered) == ([], None)


def test_what_was_delivered_since_a_reset_stays_known() -> None:
    """I58: the next owner need not have seen the release; another reset begins anew."""
    table = Table()
    table.join(A)
    table.join(B)
    table.rig.do(Reset(table.of.id, b"token", 0, 4))
    table.release(A, undelivered=[(6, 8), (10, 20)])
    assert table.of.delivered == [(4, 6), (8, 10)]
    table.release(B, undelivered=[(4, 12)])
    assert table.of.delivered == [(4, 6), (8, 10), (12, 20)]
    table.rig.do(Advance(table.of.id, 1, to=9))
    table.release(A, undelivered=[(10, 12)], reset_number=0)
    assert table.of.delivered == [(9, 10), (12, 20)]
    table.rig.do(Reset(table.of.id, b"other", 1, 4))
    assert table.of.delivered == []


def test_returned_entries_are_told_to_the_owner() -> None:
    table = Table()
    table.join(A)
    table.join(B)
    table.release(A, pending=[(0, 4), (6, 9)])
    table.give_back(A, (1, 2), (3, 7))
    assert table.of.held == {A: [(0, 1), (2, 3), (7, 9)]}
    assert table.notices == [HeldReturned(table.of, 0, [(1, 2), (3, 4), (6, 7)], [])]
    nothing_happens(table.rig, OwnershipReturn(table.of.id, A, 0, [(1, 2)]))
    nothing_happens(table.rig, OwnershipReturn(table.of.id, A, 1, [(0, 1)]))
    table.give_back(A, (0, 9))
    assert table.of.held == {}


def test_a_member_that_leaves_returns_everything() -> None:
    table = Table()
    session = table.join(A)
    table.join(B)
    table.release(A, pending=[(0, 4)], idle=True)
    table.leave(session)
    assert (table.of.held, table.of.idle) == ({}, set())
    assert table.notices == [HeldReturned(table.of, 0, [(0, 4)], [])]


def test_a_dead_owner_is_replaced_and_the_dead_hold_nothing() -> None:
    table = Table()
    for member in (A, B, C):
        table.join(member)
    table.release(A, pending=[(0, 2)])
    table.release(B, pending=[(2, 5)], idle=True)
    assert table.of.owner == C
    table.rig.enter(B)
    assert (table.of.owner, table.of.held, table.of.idle) == (B, {}, set())
    assert table.notices[-1] == OwnerChanged(table.of, B, table.of.taken, 0, [], [], None)
    table.rig.enter()
    assert table.of.owner is None


def test_an_idle_member_asks() -> None:
    table = Table()
    table.join(A)
    table.join(B)
    table.release(A, idle=True)
    table.ask(A)
    assert (table.of.idle, table.notices) == (set(), [OwnershipWanted(table.of)])
    nothing_happens(table.rig, OwnershipAsk(table.of.id, A))


def test_ownership_survives_snapshots_and_the_journal() -> None:
    table = Table()
    for member in (A, B, C):
        table.join(member)
    table.release(A, pending=[(0, 2)], idle=True)
    table.release(B, pending=[(2, 5), (7, 9)])
    digest = table.rig.machine.digest()
    assert table.rig.twin().digest() == digest
    assert table.rig.restarted().digest() == digest
    captured = table.rig.machine.capture()
    assert table.rig.restarted(captured.parts, len(table.rig.journal)).digest() == digest
    table.of.idle.clear()
    assert table.rig.machine.digest() != digest
    table.rig.do(SubscriptionDelete(table.of.id, force=True))


# -- the turns of a member -----------------------------------------------------------------------------


def test_a_turn_ends_after_its_time_if_others_wait() -> None:
    async def work() -> None:
        bench = Bench()
        bench.table.flow(bench.consumer, 10)
        bench.owner(A)
        await asyncio.sleep(0.09)
        assert bench.served.told == ["take"]
        await asyncio.sleep(0.02)
        assert bench.served.told == ["take", "halt"], "it stops before it submits the release"
        assert bench.kinds == ["OwnershipRelease"]
        standings: list[str] = [bench.tenure.standing]
        bench.owner(B, 2)
        assert [*standings, bench.tenure.standing] == ["releasing", "other"]

    in_virtual_time(work)


def test_nothing_to_do_is_no_reason_to_rotate() -> None:
    """No event while nothing is delivered; the first delivery after the turn ends it."""

    async def work() -> None:
        bench = Bench()
        bench.table.flow(bench.consumer, 10)
        bench.served.has_work = False
        bench.owner(A)
        await asyncio.sleep(5)
        assert bench.events == []
        bench.tenure.gave()
        await asyncio.sleep(0)
        assert bench.kinds == ["OwnershipRelease"]

    in_virtual_time(work)


def test_no_timer_and_no_event_alone() -> None:
    async def work() -> None:
        bench = Bench()
        bench.members = 1
        bench.owner(A)
        bench.tenure.gave()
        bench.tenure.looked()
        assert bench.tenure._timer is None
        await asyncio.sleep(1)
        assert bench.events == []

    in_virtual_time(work)


def test_an_owner_without_permits_releases_as_idle_and_asks_again() -> None:
    an_idle_member_asks_again()


def test_all_idle_is_quiet() -> None:
    async def work() -> None:
        bench = Bench()
        bench.of.idle = {B}
        bench.owner(A)
        bench.tenure.gave()
        await asyncio.sleep(5)
        assert bench.events == []
        bench.of.idle = set()
        bench.tenure.looked()  # B asks
        assert bench.kinds == ["OwnershipRelease"]

    in_virtual_time(work)


def test_a_release_that_cannot_be_sent_is_undone() -> None:
    async def work() -> None:
        bench = Bench(failing=True)
        bench.table.flow(bench.consumer, 10)
        bench.owner(A, elsewhere=[(1, 2)])
        await asyncio.sleep(0.11)
        assert bench.served.told == ["take", "halt", "take"]
        assert list(bench.served.elsewhere) == [(1, 2)]
        assert bench.tenure.standing == "owner"
        await asyncio.sleep(0.11)
        assert len(bench.events) == 2, "it tries again after another turn"

    in_virtual_time(work)


def test_what_consumers_give_back_is_returned_until_it_is_sent() -> None:
    async def work() -> None:
        bench = Bench(failing=True)
        bench.owner(B)
        bench.table.set_count(4, 2)
        bench.table.put_back([(3, 5)])
        bench.tenure.looked()
        assert bench.events == [OwnershipReturn(1, A, 0, [(3, 5)], [(4, 2)])]
        await asyncio.sleep(0.01)
        bench.failing = False
        await asyncio.sleep(0.2)
        assert len(bench.events) == 2
        assert bench.table.replay_entries == 0

    in_virtual_time(work)


def test_counts_and_undelivered_entries_travel_with_the_release() -> None:
    async def work() -> None:
        bench = Bench()
        bench.table.expect(0, 10)
        bench.table.set_count(3, 5)
        bench.of.counts = {2: 1, 3: 2}
        bench.owner(A, undelivered=[(0, 4), (8, 20)])
        assert [bench.table.count_of(at) for at in (1, 2, 3)] == [0, 1, 5]
        assert bench.table.undelivered_ranges() == [(0, 4), (8, 10)]
        bench.tenure.gave()
        await asyncio.sleep(0)
        release = bench.events[0]
        assert isinstance(release, OwnershipRelease)
        assert (release.counts, release.undelivered) == ([(2, 1), (3, 5)], [(0, 4), (8, 10)])

    in_virtual_time(work)


def test_the_last_consumer_s_counts_are_passed_on() -> None:
    async def work() -> None:
        bench = Bench()
        bench.of.idle = {B}
        bench.owner(A)
        bench.tenure.part()
        assert bench.events == [], "there is nothing to pass on"
        bench.table.set_count(3, 1)
        bench.tenure.part()
        assert bench.kinds == ["OwnershipRelease"]

    in_virtual_time(work)


def test_a_closed_tenure_is_silent() -> None:
    async def work() -> None:
        bench = Bench()
        bench.table.flow(bench.consumer, 10)
        bench.owner(A)
        bench.tenure.close()
        bench.tenure.looked()
        await asyncio.sleep(1)
        assert bench.events == []

    in_virtual_time(work)


class Scattered:
    """Tables whose consumers hold entries in this many ranges, and have no permits."""

    def __init__(self, table: Dispatch, ranges: int, wanted: int) -> None:
        self._table = table
        self._ranges = ranges
        self.wanted = wanted

    def held(self) -> list[tuple[int, int]]:
        return [(2 * each, 2 * each + 1) for each in range(self._ranges)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


@pytest.mark.parametrize("wanted", [0, 1])
@pytest.mark.parametrize(("ranges", "fewest", "most"), [(100, 80, 600), (100_000, 2, 6)])
def test_turns_are_longer_if_much_is_held(wanted: int, ranges: int, fewest: int, most: int) -> None:
    """Each release names all that is held, and every member writes and applies it."""

    async def work() -> None:
        bench = Bench()
        bench.tenure.serve(bench.served, Scattered(bench.table, ranges, wanted))  # type: ignore[arg-type]
        released, epoch = 0, 0
        began = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < began + 10:
            if bench.tenure.standing != "owner":
                bench.of.owner, bench.of.idle = A, set()
                bench.owner(A, epoch := epoch + 1)
            bench.tenure.gave()
            await asyncio.sleep(0.02)
            released += len(bench.events)
            bench.events.clear()
        assert fewest <= released <= most, f"{released} releases of {ranges} ranges in 10 s"

    in_virtual_time(work)


# -- ranges --------------------------------------------------------------------------------------------


def test_ranges_against_sets() -> None:
    chance = SeededRandomness(7)

    def some() -> list[tuple[int, int]]:
        return merged((at, at + 1 + chance.integer(3)) for at in (chance.integer(24) for _ in range(5)))

    def members(ranges: Sequence[tuple[int, int]]) -> set[int]:
        return {each for first, end in ranges for each in range(first, end)}

    for _ in range(300):
        a, b = some(), some()
        require_ranges(a, "a")
        assert members(common(a, b)) == members(a) & members(b)
        assert members(without(a, b)) == members(a) - members(b)
        assert common(a, b) == merged(common(a, b))
        first = chance.integer(20)
        found = meeting(a, first, first + 5)
        assert members(found) & set(range(first, first + 5)) == members(a) & set(range(first, first + 5))
        assert all(low < first + 5 and end > first for low, end in found)


class Looked(list[tuple[int, int]]):
    """Ranges that count how many of them were looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.looks += len(self)
        return super().__iter__()


def test_one_entry_among_many_costs_few_looks() -> None:
    """A client may give messages back one by one: every member applies each."""
    held = [(2 * at, 2 * at + 1) for at in range(20_000)]
    for one in ((0, 1), (20_000, 20_001), (39_998, 39_999)):
        for work in (common, without):
            many = Looked(held)
            assert len(work(many, [one])) in (1, 19_999)
            assert many.looks < 200, f"{work.__name__} looked at {many.looks} ranges"
        for work in (common, without):
            many = Looked(held)
            work([one], many)
            assert many.looks < 200, f"{work.__name__} looked at {many.looks} ranges"


def test_few_ranges_against_many() -> None:
    many = [(5 * at, 5 * at + 3) for at in range(100)]
    gone = [(1, 2), (11, 12), (12, 17), (94, 96), (497, 900)]
    everyone = {each for first, end in many for each in range(first, end)}
    taken = {each for first, end in gone for each in range(first, end)}
    for found, wanted in (
        (without(many, gone), everyone - taken),
        (without(gone, many), taken - everyone),
        (common(many, gone), everyone & taken),
        (common(gone, many), everyone & taken),
    ):
        assert [each for first, end in found for each in range(first, end)] == sorted(wanted)


def test_a_return_carries_the_counts_of_its_entries() -> None:
    """It looks its entries up, one by one if they are few."""

    async def work() -> None:
        bench = Bench()
        for ordinal in range(50):
            bench.table.set_count(ordinal, 3)
        for runs, counts in (([(7, 9), (60, 61)], [(7, 3), (8, 3)]), ([(40, 100)], [])):
            bench.events.clear()
            bench.table.put_back(runs)
            bench.tenure.give_back()
            (event,) = bench.events
            assert isinstance(event, OwnershipReturn)
            assert event.counts == (counts or [(each, 3) for each in range(40, 50)])

    in_virtual_time(work)
