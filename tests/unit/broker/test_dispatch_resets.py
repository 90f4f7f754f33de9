"""Concurrent resets, lost callers and owners, and acknowledgements during resets (I56, I57, I58)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.broker.dispatch.revision import Revision, RevisionController, Window
from holdfast.broker.events import Ack, Fence, Reset
from holdfast.errors import Closed, CursorModifying, Misuse, Outdated, Timeout
from tests.kit.broker.dispatch_world import World, outcome, run

ALL = list(range(10))


# -- several at once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
def test_every_reset_ends_its_window_where_memory_follows(
    durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One path, also where the dispatcher hears of the reset before its caller does."""
    ended: list[int | None] = []

    class Watched(RevisionController):
        def end(self, window: Window, editor: Callable[[], None], **numbers: int | None) -> Revision | None:
            ended.append(numbers["reset_number"])
            return super().end(window, editor, **numbers)

        def revise(self, editor: Callable[[], None], **numbers: int | None) -> Revision:
            assert "reset_number" not in numbers, "a reset that passes its window by"
            return super().revise(editor, **numbers)

    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        await asyncio.gather(world.dispatcher.reset(3), world.dispatcher.reset(5))
        assert (ended, inbox.cleared_at, world.dispatcher.under_revision) == ([1, 2], [1, 2], False)
        await world.settle()
        assert inbox.ordinals == ALL[5:]

    monkeypatch.setattr("holdfast.broker.dispatch.reset.RevisionController", Watched)
    run(scenario, durable=durable)


@pytest.mark.parametrize("durable", [False, True])
def test_a_reset_is_durable_before_memory_follows(durable: bool) -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10, again=False)
        await world.settle()
        world.order.hold_stable = True
        reset = asyncio.ensure_future(world.dispatcher.reset(3))
        await world.settle()
        assert world.cursor.reset_number == 1  # applied
        assert inbox.cleared_at == []
        assert world.dispatcher.read_position == 10
        assert world.dispatcher.revision.reset_number == 0
        assert not reset.done()
        world.order.release()
        revision = await reset
        assert revision.reset_number == 1
        assert inbox.cleared_at == [1]
        assert world.dispatcher.read_position == 3
        world.dispatcher.flow(inbox.id, 10)
        await world.settle()
        assert inbox.ordinals == ALL[3:]
        assert inbox.counts == [0] * 7
        assert {message.reset_number for message in inbox.messages} == {1}

    run(scenario, durable=durable)


def test_sinks_are_cleared_before_the_caller_is_told() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10, again=False)
        await world.settle()
        await world.dispatcher.reset(0)
        assert inbox.cleared_at == [1]
        await world.settle()
        assert inbox.messages == []  # nothing of before comes after, and permits begin anew
        world.dispatcher.flow(inbox.id, 10)
        await world.settle()
        assert inbox.ordinals == ALL

    run(scenario)


def test_concurrent_resets_happen_one_after_another() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        targets = [4, 0, 7, 2]
        answers = await asyncio.gather(*(world.dispatcher.reset(target) for target in targets))
        assert [answer.reset_number for answer in answers] == [1, 2, 3, 4]
        resets = [event for event in world.order.log if isinstance(event, Reset)]
        assert [(event.target, event.expected) for event in resets] == [(4, 0), (0, 1), (7, 2), (2, 3)]
        assert inbox.cleared_at == [1, 2, 3, 4]
        await world.settle()
        assert inbox.ordinals == ALL[2:]

    run(scenario)


def test_who_waits_too_long_for_another_reset_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        world.order.hold_apply = True
        first = asyncio.ensure_future(world.dispatcher.reset(4))
        await world.settle()
        with pytest.raises(CursorModifying, match="changed nothing"):
            await world.dispatcher.reset(8, timeout_s=2)
        world.order.release()
        assert (await first).reset_number == 1
        await world.settle(5)
        assert world.cursor.reset_number == 1
        assert world.dispatcher.read_position == 4

    run(scenario)


def test_a_reset_that_others_overtook_is_refused() -> None:
    """Another member's reset comes first in the order: the number is not the expected one."""

    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        world.order.hold_apply = True
        reset = asyncio.ensure_future(world.dispatcher.reset(4))
        await world.settle()
        world.cursor.apply(Reset(7, b"another's", 0, 8))
        world.order.release()
        answer = await outcome(reset)
        assert isinstance(answer, CursorModifying)
        await world.settle()
        assert world.dispatcher.read_position == 10
        assert inbox.cleared_at == [1]  # the other's, followed
        assert inbox.ordinals == [8, 9]

    run(scenario)


def test_following_somebody_elses_reset() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        moved = world.cursor.apply(Reset(7, b"another's", 0, 5))
        for _ in range(3):  # told more than once
            world.dispatcher.moved(moved.reset_number, moved.target)
        await world.settle()
        assert inbox.cleared_at == [1]
        assert inbox.ordinals == ALL[5:]

    run(scenario)


def test_the_engine_may_tell_of_a_reset_before_its_caller_is_told() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        world.order.hold_stable = True
        reset = asyncio.ensure_future(world.dispatcher.reset(5))
        await world.settle()
        world.dispatcher.moved(1, 5)
        world.order.release()
        assert (await reset).reset_number == 1
        await world.settle()
        assert inbox.cleared_at == [1]
        assert inbox.ordinals == ALL[5:]
        assert not world.dispatcher.revision.under_revision

    run(scenario)


# -- callers and owners that go ------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["timeout", "cancelled"])
@pytest.mark.parametrize("held", ["apply", "stable"])
def test_a_caller_that_goes_leaves_the_reset_to_the_dispatcher(way: str, held: str) -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        world.order.hold_apply = held == "apply"
        world.order.hold_stable = held == "stable"
        call = asyncio.ensure_future(world.dispatcher.reset(2, timeout_s=3))
        await world.settle(1)
        if way == "cancelled":
            call.cancel()
        await asyncio.wait({call})
        if way == "timeout":
            with pytest.raises(Timeout, match="may still happen"):
                call.result()
        assert world.dispatcher.revision.under_revision
        world.order.release()
        await world.settle()
        assert not world.dispatcher.revision.under_revision
        assert inbox.ordinals == ALL[2:]
        assert (await world.dispatcher.reset(9)).reset_number == 2
        await world.settle()
        assert inbox.ordinals == [9]

    run(scenario)


def test_a_reset_whose_owner_vanishes_before_it_was_ordered() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(5)
        await world.settle()
        world.order.hold_apply = True
        call = asyncio.ensure_future(world.dispatcher.reset(0, timeout_s=100))
        await world.settle()
        late = world.order._submitted[0][0]
        world.vanish()
        world.order.lose()
        with pytest.raises(Timeout, match="was cancelled"):
            await call
        world.dispatcher.flow(inbox.id, 5)
        await world.settle(9)
        assert inbox.ordinals == [0, 1, 2, 3, 4]
        assert world.dispatcher.stats().under_revision
        world.order.release()
        await world.settle(2)  # the guard has come
        assert isinstance(world.order.log[-1], Fence)
        stats = world.dispatcher.stats()
        assert not stats.under_revision
        assert stats.revision == (0, 1, 0)
        assert inbox.cleared_at == []
        assert inbox.ordinals == ALL  # goes on where it was
        with pytest.raises(CursorModifying, match="given up"):
            world.cursor.apply(late)  # it must not happen any more
        await world.ack(inbox, ALL)  # acknowledgements stayed valid
        assert world.cursor.acks.acked_to == 10

    run(scenario, reset_timeout_s=10)


def test_a_reset_whose_owner_vanishes_after_it_was_ordered() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        world.order.hold_stable = True
        call = asyncio.ensure_future(world.dispatcher.reset(6, timeout_s=100))
        await world.settle()
        world.vanish()
        assert isinstance(await outcome(call), Timeout)
        world.order.release()
        await world.settle(9)
        assert inbox.cleared_at == []  # the window is still open
        assert world.dispatcher.revision.under_revision
        await world.settle(2)
        assert inbox.cleared_at == [1]
        assert inbox.ordinals == ALL[6:]
        assert world.dispatcher.stats().revision == (1, 0, 0)

    run(scenario, reset_timeout_s=10)


def test_the_guard_edits_nothing_by_itself() -> None:
    """I57: while no event comes through, nothing changes, and one fence is enough."""

    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        world.order.hold_apply = True
        call = asyncio.ensure_future(world.dispatcher.reset(0, timeout_s=1000))
        await world.settle(95)
        stats = world.dispatcher.stats()
        assert stats.under_revision
        assert stats.read_position == 10
        assert inbox.cleared_at == []
        waiting = [type(event) for event, _ in world.order._submitted]
        assert waiting == [Reset, Fence]
        assert stats.diagnosis.reason == "under revision"
        assert stats.diagnosis.stuck
        world.order.release()
        assert (await call).reset_number == 1  # it came before its fence, so it happened
        await world.settle()
        assert inbox.ordinals == ALL

    run(scenario, reset_timeout_s=10)


def test_a_reset_without_a_timeout_waits_as_long_as_the_option_says() -> None:
    """The default was 30 s, also in a broker with another `reset_timeout_s`."""

    async def scenario(world: World) -> None:
        world.order.hold_apply = True
        call = asyncio.ensure_future(outcome(world.dispatcher.reset(5)))
        await world.settle(9)
        assert not call.done()
        await world.settle(2)
        assert "no outcome after 10" in str(await call)

    run(scenario, reset_timeout_s=10)


def test_a_window_outlives_a_fence_that_is_lost() -> None:
    async def scenario(world: World) -> None:
        world.order.hold_apply = True
        call = asyncio.ensure_future(outcome(world.dispatcher.reset(5, timeout_s=1000)))
        await world.settle()
        world.vanish()
        world.order.lose()
        await world.settle(11)
        event, future = world.order._submitted.pop()
        assert isinstance(event, Fence)
        future.set_exception(Closed("lost"))
        world.order.release()
        await world.settle(11)  # the next one
        assert not world.dispatcher.revision.under_revision
        assert isinstance(await call, Timeout)

    run(scenario, reset_timeout_s=10)


def test_closing_tells_who_waits() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10)
        world.order.hold_apply = True
        first = asyncio.ensure_future(outcome(world.dispatcher.reset(5)))
        second = asyncio.ensure_future(outcome(world.dispatcher.reset(6)))
        await world.settle()
        reason = Closed("the broker is closing")
        world.dispatcher.close(reason)
        assert isinstance(await first, Closed)
        assert isinstance(await second, Closed)
        assert inbox.end is reason
        with pytest.raises(Closed):
            await world.dispatcher.reset(1)
        with pytest.raises(Closed):
            world.join()

    run(scenario)


# -- with acknowledgements around it -------------------------------------------------------------------


def test_an_ack_before_a_reset_is_ordered_before_it() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        receipt = world.dispatcher.ack(inbox.messages[:3], receipt=True)
        reset = asyncio.ensure_future(world.dispatcher.reset(0))
        assert receipt is not None
        await receipt
        await reset
        assert [type(event) for event in world.order.log] == [Ack, Reset]
        await world.settle()
        assert inbox.ordinals == ALL
        assert world.dispatcher.backlog == 10

    run(scenario)


def test_an_ack_behind_a_reset_cannot_undo_it() -> None:
    """I58: an acknowledgement submitted during a reset is refused when it is applied."""

    async def scenario(world: World) -> None:
        inbox = world.join(10)
        await world.settle()
        messages = [*inbox.messages]
        world.order.hold_apply = True
        reset = asyncio.ensure_future(world.dispatcher.reset(0))
        await world.settle()
        queued = [world.dispatcher.ack(messages[:3], receipt=True), world.dispatcher.ack(messages[5:], True)]
        await world.settle()
        world.order.release()
        await reset
        late = world.dispatcher.ack(messages, receipt=True)
        for receipt in [*queued, late]:
            assert receipt is not None
            with pytest.raises(Outdated):
                await receipt
        assert world.dispatcher.ack(messages) is None  # without a receipt: no error, no effect
        await world.settle()
        assert world.cursor.acks.acked_to == 0
        assert world.dispatcher.backlog == 10
        assert inbox.ordinals == ALL
        assert world.dispatcher.stats().acks_outdated == 28

    run(scenario)


def test_a_cumulative_ack_behind_a_reset_cannot_undo_it() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(10, type="exclusive")
        await world.settle()
        last = inbox.messages[-1]
        world.order.hold_apply = True
        reset = asyncio.ensure_future(world.dispatcher.reset(3))
        await world.settle()
        queued = world.dispatcher.ack_cumulative(last, receipt=True)
        await world.settle()
        world.order.release()
        await reset
        late = world.dispatcher.ack_cumulative(last, receipt=True)
        for receipt in (queued, late):
            assert receipt is not None
            with pytest.raises(Outdated):
                await receipt
        assert world.cursor.acks.acked_to == 3

    run(scenario)


def test_old_acks_of_a_reconnected_client_are_filtered_after_a_backward_reset() -> None:
    """A client acknowledges an old delivery under the new number: refused until redelivery."""

    async def scenario(world: World) -> None:
        inbox = world.join(10, again=False)
        await world.settle()
        await world.dispatcher.reset(2)
        assert world.dispatcher.revision.reset_number == 1
        old = world.dispatcher.ack_ranges([(5, 8)], 1, receipt=True)
        assert old is not None
        with pytest.raises(Outdated):
            await old
        assert world.cursor.acks.acked_to == 2
        world.dispatcher.flow(inbox.id, 4)
        await world.settle()
        assert inbox.ordinals == [2, 3, 4, 5]
        mixed = world.dispatcher.ack_ranges([(4, 8)], 1, receipt=True)  # 4 and 5 were delivered again
        assert mixed is not None
        with pytest.raises(Outdated, match="2 of these"):
            await mixed
        assert world.cursor.acks.acked_in(0, 10) == [(0, 2), (4, 6)]
        world.dispatcher.flow(inbox.id, 10)
        await world.settle()
        assert inbox.ordinals == [2, 3, 4, 5, 6, 7, 8, 9]
        receipt = world.dispatcher.ack_ranges([(6, 10)], 1, receipt=True)
        assert receipt is not None
        await receipt
        assert world.cursor.acks.count(10) == 2

    run(scenario)


def test_acks_of_another_session_need_no_pending_entry() -> None:
    async def scenario(world: World) -> None:
        first = world.join(10)
        await world.settle()
        world.dispatcher.remove_consumer(first.id)
        second = world.join(0)
        receipt = world.dispatcher.ack(first.messages[:4], receipt=True)  # it has reconnected
        assert receipt is not None
        await receipt
        world.dispatcher.flow(second.id, 100)
        await world.settle()
        assert second.ordinals == ALL[4:]
        assert second.counts == [1] * 6

    run(scenario)


# -- advances ------------------------------------------------------------------------------------------


def test_an_advance_raises_the_rewind_number_alone() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(4)
        await world.settle()
        assert await world.dispatcher.advance(to=2) == 2
        stats = world.dispatcher.stats()
        assert stats.revision == (0, 0, 1)
        assert stats.pending_entries == 2
        assert inbox.cleared_at == []
        await world.ack(inbox, [2, 3])  # still valid
        assert world.cursor.acks.acked_to == 4
        assert await world.dispatcher.advance(skip=3) == 7
        world.dispatcher.flow(inbox.id, 100)
        await world.settle()
        assert inbox.ordinals == [0, 1, 2, 3, 7, 8, 9]
        assert await world.dispatcher.advance(to=world.topic.visible) == 10
        assert world.dispatcher.backlog == 0
        assert world.dispatcher.stats().pending_entries == 0

    run(scenario)


def test_an_advance_behind_a_reset_cannot_undo_it() -> None:
    async def scenario(world: World) -> None:
        world.order.hold_apply = True
        reset = asyncio.ensure_future(world.dispatcher.reset(0))
        await world.settle()
        advance = asyncio.ensure_future(outcome(world.dispatcher.advance(to=9)))
        await world.settle()
        world.order.release()
        await reset
        assert isinstance(await advance, CursorModifying)
        assert world.cursor.acks.acked_to == 0
        with pytest.raises(Misuse):
            await world.dispatcher.advance(to=1, skip=1)

    run(scenario)


def test_the_caller_of_an_advance_may_give_up() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(0)
        world.order.hold_apply = True
        with pytest.raises(Timeout, match="may still happen"):
            await world.dispatcher.advance(to=6, timeout_s=1)
        world.order.release()
        await world.settle()
        world.dispatcher.flow(inbox.id, 100)
        await world.settle()
        assert inbox.ordinals == ALL[6:]

    run(scenario)
