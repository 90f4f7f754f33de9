"""Requests of a member to owners: each of them ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.broker.dispatch.asking import Asks
from holdfast.broker.events import Asked, Event, OwnershipAsk
from holdfast.errors import Timeout
from holdfast.group import Member

ME, OWNER = Member(1, 1), Member(2, 1)


@pytest.mark.parametrize("heard", [True, False])
def test_a_request_ends_with_the_view_that_its_answerer_left(heard: bool) -> None:
    """Both may settle in one turn: the view is heard before the outcome."""

    async def play() -> None:
        sent: list[asyncio.Future[Any]] = []

        def submit(event: Event) -> asyncio.Future[Any]:
            sent.append(asyncio.get_running_loop().create_future())
            return sent[-1]

        asks = Asks(ME, submit)
        answer = asks.ask(lambda number: OwnershipAsk(number, ME), "a request")
        sent[0].set_result(Asked(OWNER))
        if heard:
            await asyncio.sleep(0)
        asks.viewed({ME})
        for _ in range(3):
            await asyncio.sleep(0)
        assert answer.done(), "it waits for a member that has left"
        with pytest.raises(Timeout, match=r"2\.1 left before it answered"):
            await answer

    asyncio.run(play())


def test_a_request_that_settles_later_waits_for_its_answerer() -> None:
    async def play() -> None:
        sent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asks = Asks(ME, lambda event: sent)
        asks.viewed({ME, OWNER})
        answer = asks.ask(lambda number: OwnershipAsk(number, ME), "a request")
        sent.set_result(Asked(OWNER))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not answer.done()
        asks.ended(Timeout("the end of the test"))

    asyncio.run(play())
