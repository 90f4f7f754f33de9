"""Delivery times: types of subscriptions, few permits, clocks that jump, resets and rewinds (I271)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.broker.dispatch import schedule
from holdfast.broker.dispatch.schedule import LOOK_S, Times
from holdfast.broker.dispatch.types import Reason
from tests.kit.broker.dispatch_world import GatedTopic, World
from tests.kit.sim.world import EPOCH_NS

BEGIN_MS = EPOCH_NS // 1_000_000


def world_of(entries: int, times: dict[int, float], **options: Any) -> World:
    """A topic whose entries have these delivery times, in seconds from now."""
    at_ms = {ordinal: BEGIN_MS + round(seconds * 1000) for ordinal, seconds in times.items()}
    return World(
        topic=GatedTopic(entries, times_ms=at_ms, ledger_entries=options.pop("ledger", 1 << 30)), **options
    )


def test_a_delayed_message_does_not_block_later_ones() -> None:
    world = world_of(5, {0: 5, 1: 2, 3: 2})

    async def scenario(world: World) -> None:
        inbox = world.join()
        await world.settle(1.9)
        assert inbox.ordinals == [2, 4]
        stats = world.dispatcher.stats()
        assert (stats.scheduled_entries, stats.backlog) == (3, 5)
        await world.settle(0.11)
        assert inbox.ordinals == [2, 4, 1, 3]
        await world.settle(3)
        assert inbox.ordinals == [2, 4, 1, 3, 0]
        assert inbox.counts == [0] * 5, "a wait is not a delivery"

    world.run(scenario)


@pytest.mark.parametrize("type_", ["exclusive", "failover"])
def test_one_consumer_in_order_gets_everything_at_once(type_: Any) -> None:
    world = world_of(3, {1: 100})

    async def scenario(world: World) -> None:
        inbox = world.join(type=type_)
        await world.settle(0.1)
        assert inbox.ordinals == [0, 1, 2]
        assert world.dispatcher.stats().scheduled_entries == 0

    world.run(scenario)


def test_a_delayed_message_does_not_block_its_key() -> None:
    """Key_Shared: it comes at its time, to the holder of its key, and once."""
    world = World(topic=GatedTopic(8, keys=2, times_ms={0: BEGIN_MS + 5000, 1: BEGIN_MS + 2000}))

    async def scenario(world: World) -> None:
        one = world.join(type="key_shared", name="one")
        await world.settle(1.9)
        assert one.ordinals == [2, 3, 4, 5, 6, 7]
        assert world.dispatcher.stats().scheduled_entries == 2
        await world.settle(0.3)
        assert one.ordinals[6:] == [1]
        two = world.join(type="key_shared", name="two")
        await world.settle(5)
        assert sorted(one.ordinals[7:] + two.ordinals) == [0] or not two.ordinals, "one key has one consumer"
        await world.ack(one, [*range(1, 8)])
        await world.settle(0.1)
        assert sorted(one.ordinals + two.ordinals) == [*range(8)], "each comes once"
        assert world.dispatcher.stats().scheduled_entries == 0

    world.run(scenario)


def test_a_due_message_waits_for_the_holder_of_its_key() -> None:
    """Key_Shared: its key has moved, and drains first."""
    world = World(topic=GatedTopic(40, keys=10, times_ms=dict.fromkeys(range(10), BEGIN_MS + 1000)))

    async def scenario(world: World) -> None:
        one = world.join(type="key_shared", name="one")
        await world.settle(0.5)
        assert one.ordinals == [*range(10, 40)]
        two = world.join(type="key_shared", name="two")
        await world.settle(1)
        assert not two.ordinals, "one holds later messages of each key"
        moved = set(range(10)) - set(one.ordinals)
        assert 0 < len(moved) < 10
        assert world.dispatcher.diagnose().reason == Reason.KEYS_WAIT
        await world.ack(one, [at for at in one.ordinals if at % 10 in moved])
        await world.settle(0.1)
        assert set(two.ordinals) == moved

    world.run(scenario)


def test_what_shared_held_back_stays_for_key_shared() -> None:
    """The type changes between consumers; a consumer that joins reads nothing again."""
    world = World(topic=GatedTopic(100, keys=10, times_ms=dict.fromkeys(range(1, 100), BEGIN_MS + 60_000)))

    async def scenario(world: World) -> None:
        shared = world.join()
        await world.settle(0.1)
        assert shared.ordinals == [0]
        await world.ack(shared, [0])
        world.dispatcher.remove_consumer(shared.id)
        before = len(world.topic.reads)
        inboxes = [world.join(type="key_shared", name=name) for name in "abc"]
        await world.settle(59)
        assert not any(each.ordinals for each in inboxes)
        assert len(world.topic.reads) == before
        assert world.dispatcher.diagnose().reason == Reason.SCHEDULED
        await world.settle(1.2)
        assert sorted(at for each in inboxes for at in each.ordinals) == [*range(1, 100)]
        for each in inboxes:
            for key in range(10):
                mine = [at for at in each.ordinals if at % 10 == key]
                assert mine in ([], [at for at in range(1, 100) if at % 10 == key])

    world.run(scenario)


def test_another_type_gets_what_was_held_back() -> None:
    """Also after the position has passed many runs of it."""
    world = world_of(100, dict.fromkeys(range(0, 100, 2), 1000.0))

    async def scenario(world: World) -> None:
        shared = world.join()
        await world.settle(0.1)
        await world.ack(shared, range(1, 100, 2))
        world.dispatcher.remove_consumer(shared.id)
        assert not world.dispatcher.has_work
        assert world.dispatcher.read_position == 100
        again = world.join()
        await world.settle(0.1)
        assert again.ordinals == []
        world.dispatcher.remove_consumer(again.id)
        assert not world.dispatcher.has_work
        alone = world.join(type="exclusive")
        await world.settle(0.1)
        assert alone.ordinals == list(range(0, 100, 2))

    world.run(scenario)


def test_permits_are_not_used_by_what_waits() -> None:
    """Reads look ahead with few permits."""
    world = world_of(5000, dict.fromkeys(range(4990), 10.0))

    async def scenario(world: World) -> None:
        inbox = world.join(permits=1)
        await world.settle(1)
        assert inbox.ordinals == [4990]
        assert len(world.topic.reads) < 25, "each read looks further ahead"
        world.dispatcher.flow(inbox.id, 3)
        await world.settle(0.1)
        assert inbox.ordinals == [4990, 4991, 4992, 4993]
        await world.settle(10)
        world.dispatcher.flow(inbox.id, 2)
        await world.settle(0.1)
        assert inbox.ordinals[4:] == [0, 1], "what became due comes first"

    world.run(scenario)


def test_a_tick_limits_the_looks() -> None:
    """A hundred messages within one tick are taken by few looks."""
    world = world_of(
        100,
        {each: 1 + each / 1000 for each in range(100)},
    )

    async def scenario(world: World) -> None:
        inbox = world.join()
        await world.settle(1.5)
        assert inbox.ordinals == list(range(100))
        assert world.dispatcher.stats().reads_replay <= 3

    world.run(scenario)


def test_messages_that_are_due_at_once_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million with one delivery time do not stop the loop."""
    monkeypatch.setattr(schedule, "LOOK_ENTRIES", 4)
    look, taken = schedule.Scheduling._look, list[int]()

    def looked(self: schedule.Scheduling) -> None:
        before = self._table.scheduled_entries
        look(self)
        taken.append(before - self._table.scheduled_entries)

    monkeypatch.setattr(schedule.Scheduling, "_look", looked)
    times = Times(0, tick_s=5.0)
    world = world_of(10, dict.fromkeys(range(10), 2.0))
    world.dispatcher._scheduling._times = lambda: times._replace(now_ns=world.clock.now_ns())

    async def scenario(world: World) -> None:
        inbox = world.join()
        await world.settle(2.01)
        assert inbox.ordinals == [*range(10)]
        assert taken == [4, 4, 2]

    world.run(scenario)


def test_clocks_that_jump() -> None:
    """Set ahead: due within `LOOK_S`. Set back: later, and never lost."""
    world = world_of(3, {0: 3600, 1: 30, 2: 1})

    async def scenario(world: World) -> None:
        inbox = world.join()
        await world.settle(0.5)
        world.clock.jump(3600)
        await world.settle(LOOK_S)
        assert inbox.ordinals == [0, 1, 2]
        world.clock.jump(-3600)
        world.dispatcher.nack(inbox.id, [0, 1, 2], 0)
        await world.settle(0.5)
        assert inbox.ordinals == [0, 1, 2, 2]
        assert world.dispatcher.stats().scheduled_entries == 2, "they are not due any more"
        await world.settle(3600)
        assert inbox.ordinals == [0, 1, 2, 2, 1, 0]

    world.run(scenario)


def test_a_policy_that_changes() -> None:
    """Switched off: what waits comes within `LOOK_S`, and new messages at once."""
    world = world_of(2, {0: 1000, 1: 1000})
    active = [True]
    world.dispatcher._scheduling._times = lambda: Times(world.clock.now_ns(), active[0], 1.0)

    async def scenario(world: World) -> None:
        inbox = world.join()
        await world.settle(1)
        active[0] = False
        await world.settle(LOOK_S)
        assert inbox.ordinals == [0, 1]

    world.run(scenario)


def test_resets_skips_and_expiry_with_times_pending() -> None:
    world = world_of(10, dict.fromkeys(range(0, 10, 2), 60.0))

    async def scenario(world: World) -> None:
        inbox = world.join()
        await world.settle(0.1)
        assert inbox.ordinals == [1, 3, 5, 7, 9]
        await world.ack(inbox, [1, 3])
        await world.dispatcher.advance(to=3)  # skip, clear, expiry: what waits below goes
        await world.settle(0.1)
        assert world.dispatcher.stats().scheduled_entries == 3
        await world.dispatcher.reset(0)  # what waits is read again, and waits again
        await world.settle(0.1)
        assert inbox.ordinals == [1, 3, 5, 7, 9]
        assert world.dispatcher.stats().scheduled_entries == 5
        await world.dispatcher.reset(5)
        await world.settle(0.1)
        assert (inbox.ordinals, world.dispatcher.stats().scheduled_entries) == ([5, 7, 9], 2)
        await world.settle(60)
        assert inbox.ordinals == [5, 7, 9, 6, 8]

    world.run(scenario)


def test_a_rewind_reads_nothing_that_waits() -> None:
    """Consumers that come and go cost no scan of what is held back."""
    world = world_of(1000, dict.fromkeys(range(1, 1000), 60.0))

    async def scenario(world: World) -> None:
        first = world.join()
        await world.settle(0.1)
        before = len(world.topic.reads)
        world.dispatcher.remove_consumer(first.id)
        second = world.join()
        await world.settle(0.1)
        assert second.ordinals == [0]
        assert world.topic.reads[before:] == [(0, 1000)] or len(world.topic.reads) == before + 1
        found = world.dispatcher.diagnose()
        assert found.reason == Reason.ALL_PENDING, "entry 0 is held"
        assert "all due entries were delivered" in found.text
        assert "999 entries until their delivery time, the first at " in found.text
        await world.ack(second, [0])
        assert world.dispatcher.diagnose().reason == Reason.SCHEDULED
        await world.settle(59)
        assert not world.dispatcher.diagnose().stuck

    world.run(scenario)


def test_many_runs_are_passed_in_steps() -> None:
    """A search for the next entry passes a bounded number of runs."""
    world = world_of(6000, dict.fromkeys(range(0, 6000, 2), 1e6))

    async def scenario(world: World) -> None:
        inbox = world.join(permits=10_000)
        await world.settle(1)
        await world.ack(inbox, range(1, 6000, 2))
        world.dispatcher.rewind()
        await world.settle(1)
        assert world.dispatcher.read_position == 6000
        world.topic.grow(1)
        world.dispatcher.wake()
        await world.settle(0.1)
        assert inbox.ordinals == [6000]

    world.run(scenario)


@pytest.mark.parametrize(("delay_s", "words"), [(60.0, ""), (1e15, "after the year 9999")])
def test_the_diagnosis_tells_the_first_time(delay_s: float, words: str) -> None:
    world = world_of(2, {0: delay_s, 1: delay_s + 1})
    told = words or f"at {datetime.fromtimestamp(BEGIN_MS // 1000 + 60, UTC):%Y-%m-%dT%H:%M:%SZ}"

    async def scenario(world: World) -> None:
        world.join()
        await world.settle(0.1)
        found = world.dispatcher.diagnose()
        assert found.text == f"2 entries until their delivery time, the first {told}"

    world.run(scenario)


def test_an_owner_that_returns_waits_again() -> None:
    """The timer of its first turn ends while another member dispatches."""
    world = world_of(1, {0: LOOK_S + 15})

    async def scenario(world: World) -> None:
        inbox = world.join()
        await world.settle(0.1)
        assert world.dispatcher.stats().scheduled_entries == 1
        world.dispatcher.halt()
        await world.settle(LOOK_S + 1)
        world.dispatcher.take([])
        await world.settle(5)
        assert inbox.ordinals == [], "not due"
        await world.settle(10)
        assert inbox.ordinals == [0]

    world.run(scenario)
