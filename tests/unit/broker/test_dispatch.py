"""Dispatch: permits, turns, priorities, active consumer, redelivery, diagnosis (I50 to I53, I59)."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType

import pytest

from holdfast._core import Batch
from holdfast.broker.dispatch.types import Reason
from holdfast.broker.state import SubscriptionType
from holdfast.errors import Busy, Corrupt, Misuse
from tests.kit.broker.dispatch_world import Inbox, World, run

ALL = list(range(10))


# -- permits -------------------------------------------------------------------------------------------


def test_messages_come_within_permits() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(0)
        await world.settle()
        assert world.topic.reads == []
        for permits in (1, 2, 4):
            world.dispatcher.flow(inbox.id, permits)
            await world.settle()
        assert inbox.ordinals == ALL[:7]
        assert world.topic.reads == [(0, 1), (1, 2), (3, 4)]
        await world.ack(inbox, ALL)
        await world.settle()
        assert inbox.ordinals == ALL[:7]  # acknowledgements give no permits

    run(scenario)


def test_permits_are_overshot_by_less_than_one_entry() -> None:
    """I50: batches of 7, permits of 10: two entries, 4 messages too many."""

    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        assert len(inbox.messages) == 14
        (stats,) = world.dispatcher.stats().consumers
        assert stats.permits == -4
        for _ in range(60):
            world.dispatcher.flow(inbox.id, 1)
            await world.settle()
            (stats,) = world.dispatcher.stats().consumers
            assert -7 < stats.permits <= 0
        assert len(inbox.messages) == 70
        assert sorted(inbox.ordinals) == sorted([*ALL] * 7)

    run(scenario, batch=7)


def test_a_paused_consumer_keeps_its_permits() -> None:
    """The one account: what it was given before, and what it gives meanwhile."""

    async def scenario(world: World) -> None:
        inbox = world.join(2)
        await world.settle()
        world.dispatcher.flow(inbox.id, 1)
        world.dispatcher.pause(inbox.id)
        world.dispatcher.flow(inbox.id, 2)
        await world.settle()
        (stats,) = world.dispatcher.stats().consumers
        assert (inbox.ordinals, stats.permits, stats.paused) == (ALL[:2], 3, True)
        found = world.dispatcher.diagnose()
        assert (found.reason, "do not read what they were sent" in found.text) == (Reason.NO_PERMITS, True)
        world.dispatcher.resume(inbox.id)
        await world.settle()
        assert inbox.ordinals == ALL[:5]

    run(scenario)


def test_what_was_read_beyond_the_permits_is_read_again_in_order() -> None:
    """The first read takes entries for single messages; the rest waits for a replay read."""

    async def scenario(world: World) -> None:
        inbox = world.join(8, type="exclusive")
        await world.settle()
        assert inbox.ordinals == [0] * 5 + [1] * 5
        assert world.dispatcher.stats().replay_entries == 6
        world.dispatcher.flow(inbox.id, 42)
        await world.settle()
        assert inbox.ordinals == [each for each in ALL for _ in range(5)]
        assert inbox.counts == [0] * 50

    run(scenario, batch=5)


def test_new_entries_wake_the_dispatcher() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(100)
        await world.settle()
        assert inbox.ordinals == []
        world.topic.grow(3)
        world.dispatcher.wake()
        await world.settle()
        world.topic.grow(2)
        world.dispatcher.wake()
        await world.settle()
        assert inbox.ordinals == [0, 1, 2, 3, 4]

    run(scenario, entries=0)


def test_reads_go_over_the_ends_of_ledgers() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(100)
        await world.settle()
        assert inbox.ordinals == ALL
        world.dispatcher.redeliver(inbox.id, [1, 2, 3, 4, 8])
        await world.settle()
        assert inbox.ordinals[10:] == [1, 2, 3, 4, 8]

    run(scenario, ledger_entries=3)


def test_acknowledged_entries_are_not_delivered() -> None:
    async def scenario(world: World) -> None:
        world.cursor.acks.ack_ranges([(0, 2), (4, 6), (200, 300)], 310)
        inbox = world.join(1000)
        await world.settle()
        expected = [each for each in range(310) if not (each < 2 or 4 <= each < 6 or 200 <= each < 300)]
        assert inbox.ordinals == expected
        assert world.topic.reads == [(2, 198), (300, 10)]  # long runs are not even read

    run(scenario, entries=310)


def test_a_trimmed_beginning_is_passed_over() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(3)
        await world.settle()
        world.topic.first = 6
        world.dispatcher.redeliver(inbox.id)
        await world.settle()
        assert inbox.ordinals == [6, 7, 8]

    run(scenario)


# -- who gets what -------------------------------------------------------------------------------------


def test_shared_consumers_take_turns() -> None:
    async def scenario(world: World) -> None:
        inboxes = [world.join(0) for _ in range(3)]
        for inbox in inboxes:
            world.dispatcher.flow(inbox.id, 100)
        await world.settle()
        assert [inbox.ordinals for inbox in inboxes] == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5]]

    run(scenario, turn_entries=2)


def test_the_best_priority_with_permits_is_served() -> None:
    """I53."""

    async def scenario(world: World) -> None:
        low = world.join(0, priority=5)
        high = world.join(0, priority=1)
        world.dispatcher.flow(low.id, 100)
        world.dispatcher.flow(high.id, 4)
        await world.settle()
        assert (high.ordinals, low.ordinals) == ([0, 1, 2, 3], ALL[4:])

    run(scenario)


def test_an_entry_is_pending_at_one_consumer() -> None:
    """I51: an entry that one consumer holds goes to no other until it is returned."""

    async def scenario(world: World) -> None:
        first, second = world.join(4), world.join(100)
        await world.settle()
        assert sorted(first.ordinals + second.ordinals) == ALL
        world.dispatcher.remove_consumer(first.id)
        await world.settle()
        assert sorted(second.ordinals) == ALL
        assert world.dispatcher.stats().pending_entries == 10

    run(scenario)


def test_types_do_not_mix() -> None:
    async def scenario(world: World) -> None:
        one = world.join(type="exclusive")
        with pytest.raises(Busy):
            world.join(type="exclusive")
        with pytest.raises(Misuse, match="shared"):
            world.join(type="shared")
        world.dispatcher.remove_consumer(one.id)
        world.join(type="shared")
        assert world.dispatcher.type == "shared"
        assert world.dispatcher.consumers == 1
        with pytest.raises(Misuse, match="one by one"):
            world.dispatcher.ack_up_to(3, 0)

    run(scenario)


def test_failover_serves_the_best_and_hands_over_in_order() -> None:
    async def scenario(world: World) -> None:
        first = world.join(4, type="failover", priority=1, name="first")
        second = world.join(100, type="failover", priority=1, name="second")
        await world.settle()
        assert (first.active_told, second.active_told) == ([True], [False])
        assert (first.ordinals, second.ordinals) == ([0, 1, 2, 3], [])
        await world.ack(first, [0])
        world.dispatcher.remove_consumer(first.id)
        await world.settle()
        assert second.active_told == [False, True]
        assert second.ordinals == ALL[1:]
        assert second.counts == [1, 1, 1, 0, 0, 0, 0, 0, 0]
        best = world.join(100, type="failover", priority=0, name="best")
        await world.settle()
        assert (best.active_told, second.active_told) == ([True], [False, True, False])
        assert second.cleared_at == [0]
        assert best.ordinals == ALL[1:]
        assert best.counts == [2, 2, 2, 1, 1, 1, 1, 1, 1]
        names = [each.name for each in world.dispatcher.stats().consumers]
        assert names == ["best", "second"]
        world.dispatcher.remove_consumer(second.id)  # a stand-by goes: nothing changes
        await world.settle()
        assert best.ordinals == ALL[1:]

    run(scenario)


def test_redelivery_keeps_the_order_of_an_exclusive_subscription() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10, type="exclusive")
        await world.settle()
        await world.ack(inbox, [0, 1, 5])
        world.dispatcher.redeliver(inbox.id, [3])
        await world.settle()
        assert inbox.cleared_at == [0]  # messages that it had not taken are redelivered
        assert inbox.ordinals == [2, 3, 4, 6, 7, 8, 9]
        assert inbox.counts == [1] * 7
        assert world.dispatcher.stats().revision == (0, 0, 1)

    run(scenario)


def test_the_last_consumer_leaves_a_dispatcher_as_new() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        await world.ack(inbox, [0, 1, 2, 6])
        world.dispatcher.nack(inbox.id, [4], 100.0)
        world.dispatcher.remove_consumer(inbox.id)
        stats = world.dispatcher.stats()
        assert (stats.read_position, stats.pending_entries, stats.replay_entries) == (3, 0, 0)
        assert stats.delayed_entries == 0
        again = world.join(10)
        await world.settle()
        assert again.ordinals == [3, 4, 5, 7, 8, 9]
        assert again.counts == [1] * 6  # what killed its only consumer is known for it

    run(scenario)


# -- what comes again ----------------------------------------------------------------------------------


def test_negative_acknowledgements_back_off() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(100)
        await world.settle()
        times = []
        for _ in range(5):
            count = len(inbox.messages)
            world.dispatcher.nack(inbox.id, [3])
            began = world.loop.time()
            while len(inbox.messages) == count:
                await world.settle(0.01)
            assert inbox.ordinals[-1] == 3
            times.append(round(world.loop.time() - began, 1))
        assert times == [1.0, 2.0, 4.0, 5.0, 5.0]
        assert inbox.counts[10:] == [1, 2, 3, 4, 5]  # I52
        world.dispatcher.nack(inbox.id, [4, 5], 0.5)
        await world.settle(0.6)
        assert inbox.ordinals[15:] == [4, 5]
        world.dispatcher.nack(inbox.id, [6], 0)
        await world.settle()
        assert inbox.ordinals[17:] == [6]

    run(scenario, nack_first_s=1.0, nack_factor=2.0, nack_most_s=5.0)


def test_an_ack_ends_the_wait_of_a_negative_one() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(100)
        await world.settle()
        world.dispatcher.nack(inbox.id, [3])
        await world.ack(inbox, [3])
        await world.settle(100)
        assert inbox.ordinals == ALL

    run(scenario)


def test_a_negative_ack_of_an_exclusive_consumer_rewinds() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(100, type="exclusive")
        await world.settle()
        await world.ack(inbox, [0, 1, 2])
        world.dispatcher.nack(inbox.id, [5])
        await world.settle(0.9)
        assert inbox.cleared_at == []
        await world.settle(0.2)
        assert inbox.cleared_at == [0]
        assert inbox.ordinals == ALL[3:]
        assert inbox.counts == [1] * 7

    run(scenario)


def test_what_is_held_for_too_long_goes_to_others() -> None:
    async def scenario(world: World) -> None:
        slow = world.join(5, ack_timeout_s=10)
        await world.settle()
        assert slow.ordinals == ALL[:5]
        await world.settle(5)
        world.dispatcher.flow(slow.id, 2)
        await world.settle()
        assert slow.ordinals == ALL[:7]
        quick = world.join(100)
        await world.settle(1)
        await world.ack(slow, [0, 1])
        assert quick.ordinals == [7, 8, 9]
        await world.settle(5)  # 2, 3, 4 were given 11 s ago, 5 and 6 six seconds ago
        assert quick.ordinals == [7, 8, 9, 2, 3, 4]
        assert quick.counts == [0, 0, 0, 1, 1, 1]
        await world.settle(10)
        assert quick.ordinals == [7, 8, 9, 2, 3, 4, 5, 6]
        await world.settle(1000)  # the quick one has no limit
        assert len(quick.ordinals) == 8

    run(scenario)


def test_counts_grow_with_every_delivery() -> None:
    """I52."""

    async def scenario(world: World) -> None:
        for count in range(4):
            inbox = world.join(3)
            other = world.join(0)
            await world.settle()
            assert inbox.ordinals == [0, 1, 2]
            assert inbox.counts == [count] * 3
            world.dispatcher.remove_consumer(inbox.id)
            world.dispatcher.remove_consumer(other.id)
        inbox = world.join(10)
        await world.settle()
        assert inbox.counts == [4, 4, 4, 0, 0, 0, 0, 0, 0, 0]

    run(scenario)


@pytest.mark.parametrize("type", ["shared", "exclusive", "key_shared"])
def test_counts_stay_when_the_broker_closes_a_consumer(type: SubscriptionType) -> None:  # noqa: A002
    async def scenario(world: World) -> None:
        for _ in range(3):
            inbox = world.join(3, type=type)
            await world.settle()
            assert (inbox.ordinals, inbox.counts) == ([0, 1, 2], [0] * 3)
            world.dispatcher.remove_consumer(inbox.id, counted=False)
        left = world.join(3, type=type)
        await world.settle()
        world.dispatcher.remove_consumer(left.id)
        inbox = world.join(3, type=type)
        await world.settle()
        assert inbox.counts == [1] * 3

    run(scenario)


# -- trouble -------------------------------------------------------------------------------------------


def test_a_read_that_fails_is_tried_again() -> None:
    async def scenario(world: World) -> None:
        damage = Corrupt("ledger 3, offset 4096: bad sum")
        world.topic.failures.extend([damage, damage, OSError(5, "I/O error")])
        inbox = world.join(10)
        await world.settle(0.01)
        stats = world.dispatcher.stats()
        assert "offset 4096" in stats.last_error
        assert stats.diagnosis.reason == Reason.READ_FAILED
        await world.settle(1)
        # The run, its first entry alone, that entry twice more, and the rest.
        assert len(world.topic.reads) == 5
        assert inbox.failures == [damage]
        assert inbox.ordinals == ALL
        assert world.dispatcher.stats().last_error == ""
        world.topic.failures.append(Corrupt("once more"))
        world.dispatcher.redeliver(inbox.id, [4])
        world.dispatcher.flow(inbox.id, 10)
        await world.settle(1)
        assert inbox.ordinals[10:] == [4]

    run(scenario)


def test_a_sink_that_fails_is_gone() -> None:
    class Broken(Inbox):
        def deliver(self, batch: Batch) -> None:
            raise ZeroDivisionError

    world = World(turn_entries=2)

    async def begin() -> None:
        broken = Broken(world, 5)
        broken.id = world.dispatcher.add_consumer(broken, "broken")
        good.append(world.join(100))
        world.dispatcher.flow(broken.id, 5)
        await world.settle()

    async def scenario(world: World) -> None:
        await world.settle()
        assert world.dispatcher.consumers == 1
        assert sorted(good[0].ordinals) == ALL

    good: list[Inbox] = []
    with pytest.raises(ZeroDivisionError):  # the loop reports it
        world.loop.run_until_complete(begin())
    world.run(scenario)


# -- looking -------------------------------------------------------------------------------------------


def test_reasons_for_standing_still() -> None:
    async def scenario(world: World) -> None:
        def reason() -> str:
            return world.dispatcher.diagnose().reason

        assert reason() == Reason.NO_CONSUMERS
        inbox = world.join(0, name="idle")
        assert reason() == Reason.NO_PERMITS
        assert "idle" in world.dispatcher.diagnose().text
        world.topic.gate.shut = True
        world.dispatcher.flow(inbox.id, 100)
        await world.settle(40)
        found = world.dispatcher.diagnose()
        assert found.reason == Reason.READ_IN_FLIGHT
        assert "sequential read from 0" in found.text
        assert "40.0 s" in found.text
        assert found.stuck
        world.topic.gate.open()
        await world.settle()
        found = world.dispatcher.diagnose()
        assert found.reason == Reason.ALL_PENDING
        assert "idle holds 10" in found.text
        assert not found.stuck  # something was just delivered
        await world.settle(31)
        assert world.dispatcher.diagnose().stuck
        await world.ack(inbox, ALL[1:])
        world.dispatcher.nack(inbox.id, [0])
        found = world.dispatcher.diagnose()
        assert found.reason == Reason.DELAYED
        assert "in 1.0 s" in found.text
        world.order.hold_apply = True
        reset = asyncio.ensure_future(world.dispatcher.reset(0))
        await world.settle(0.5)
        assert reason() == Reason.UNDER_REVISION
        world.order.release()
        await reset
        world.dispatcher.flow(inbox.id, 100)
        await world.settle()
        await world.ack(inbox, ALL)
        found = world.dispatcher.diagnose()
        assert found.reason == Reason.NO_BACKLOG
        await world.settle(100)
        assert not world.dispatcher.stats().diagnosis.stuck

    run(scenario)


def test_a_consumer_may_hold_so_much_and_no_more() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(100)
        await world.settle()
        assert inbox.ordinals == [0, 1, 2, 3]
        assert world.dispatcher.diagnose().reason == Reason.UNACKED_LIMIT
        await world.ack(inbox, [1, 2])
        await world.settle()
        assert inbox.ordinals == [0, 1, 2, 3, 4, 5]

    run(scenario, unacked_max=4)


def test_stats() -> None:
    async def scenario(world: World) -> None:
        first, second = world.join(3, name="first", priority=2), world.join(0, name="second")
        await world.settle(2)
        world.dispatcher.redeliver(first.id, [1])
        await world.ack(first, [0])
        stats = world.dispatcher.stats()
        assert stats.type == "shared"
        assert (stats.acked_to, stats.backlog, stats.read_position) == (1, 9, 3)
        assert (stats.pending_entries, stats.replay_entries) == (1, 1)
        best, other = stats.consumers
        assert (best.name, best.id, other.name, other.priority) == ("second", second.id, "first", 2)
        assert (other.permits, other.pending_entries, other.delivered_messages) == (0, 1, 3)
        assert other.oldest_pending_s == pytest.approx(2, abs=0.1)
        assert stats.revision == world.dispatcher.revision.number

    run(scenario)


def test_nothing_is_done_per_entry_in_python() -> None:
    """I59: count calls per run of 1000 entries that three consumers share and acknowledge."""

    async def scenario(world: World) -> None:
        calls = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            ours = "/broker/" in frame.f_code.co_filename or "/ledger/" in frame.f_code.co_filename
            calls += ours and event in ("call", "c_call")

        class Taker(Inbox):
            def deliver(self, batch: Batch) -> None:
                self.batches.append(batch)
                world.dispatcher.flow(self.id, batch.permits)
                world.dispatcher.ack(batch)

        takers = [Taker(world, 0) for _ in range(3)]
        for taker in takers:
            taker.id = world.dispatcher.add_consumer(taker, "taker")
        sys.setprofile(count)
        try:
            for taker in takers:
                world.dispatcher.flow(taker.id, 1000)
            await world.settle(0.1)
        finally:
            sys.setprofile(None)
        assert world.cursor.acks.acked_to == 20_000
        assert len(world.topic.reads) <= 25
        assert calls < 160 * len(world.topic.reads), (calls, len(world.topic.reads))

    run(scenario, entries=20_000)
