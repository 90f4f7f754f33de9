"""Members ask the owner of a subscription: acknowledgements after a reset, moves, takes and rejects."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.broker.dispatch import asking
from holdfast.broker.dispatch.ownership import Ownership
from holdfast.broker.events import Answer
from holdfast.errors import HoldfastError, Outdated, Timeout
from tests.kit.broker.ask_scenes import (
    moved_at_the_owner,
    moved_beside_deliveries,
    offered,
    offers_of_one_turn,
)
from tests.kit.broker.trio import Trio, scene


def test_the_owner_filters_what_is_offered() -> None:
    """I58: it alone knows what it has delivered since the reset."""
    offered()


def test_offers_of_one_turn_are_one_event() -> None:
    offers_of_one_turn()


def test_moves_takes_and_rejects_run_at_the_owner() -> None:
    moved_at_the_owner()


def test_a_message_is_moved_or_delivered_but_not_both() -> None:
    moved_beside_deliveries()


def test_the_owner_dies_with_an_offer() -> None:
    """The next owner answers, or the view ends the request."""

    async def work(trio: Trio) -> None:
        one = trio.consumer(1, "failover")
        await one.open()
        async with trio.consumer(2, "failover", priority=1):
            await trio.publish(1, 10)
            await one.seek("earliest")
            await trio.settle()
            receipt = trio.dispatcher(2).ack_ranges([(0, 4)], 1, receipt=True)
            assert receipt is not None
            trio.crash(1)
            with pytest.raises(Outdated):
                await asyncio.wait_for(receipt, 5)
            assert trio.owner() == 2

    scene(work)


def test_a_reset_between_an_offer_and_its_answer() -> None:
    async def work(trio: Trio) -> None:
        async with trio.consumer(1, "failover") as one, trio.consumer(2, "failover", priority=1):
            await trio.publish(1, 10)
            await one.seek("earliest")
            await trio.settle()
            receipt = trio.dispatcher(2).ack_ranges([(0, 4)], 1, receipt=True)
            assert receipt is not None
            again = asyncio.create_task(one.seek("earliest"))
            with pytest.raises(Outdated):
                await receipt
            await again
            await trio.settle()
            assert trio.dispatcher(2).acked_to == 0

    scene(work)


def test_an_owner_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bounded time: the error says that it may have happened."""
    monkeypatch.setattr(Ownership, "_asked", lambda self, notice: None)

    async def work(trio: Trio) -> None:
        async with trio.consumer(1, receiver_queue=1):
            await trio.publish(1, 10)
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(Timeout, match="may still happen"):
                await trio.brokers[2].admin.take("orders", "billing")
            assert loop.time() - began < asking.WAIT_S + 1
            assert not trio.brokers[2].ownership.asks._waiting

    scene(work)


def test_without_an_owner_a_move_runs_where_it_is_asked_for() -> None:
    async def work(trio: Trio) -> None:
        await trio.publish(1, 4)
        assert trio.owner() is None
        taken = [await trio.brokers[number].admin.take("orders", "billing") for number in (1, 2, 3)]
        assert [each.ordinal for each in taken if each is not None] == [0, 1, 2]

    scene(work)


def test_errors_come_back_as_they_are() -> None:
    for error in (Outdated("a"), Timeout("b"), HoldfastError("c")):
        made = asking.error_of(asking.refusal(error))
        assert (type(made), str(made)) == (type(error), str(error))
    assert type(asking.error_of(asking.refusal(ValueError("d")))) is HoldfastError
    assert type(asking.error_of(Answer("WAIT_S", "e"))) is HoldfastError
