"""A carrier that a test moves by hand: each message, each list.

Example:
    async with by_hand(1, 2, 3) as hand:        # all in one view
        hand.at[1].send(b"event")
        await hand.order()                      # everything that was sent, to all
        await hand.list_(1, 2)                  # the next list of 1 and 2
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from holdfast.group.cpg import CpgGroup
from holdfast.group.cpg.carrier import Carrier, Item, Listed, Message, Process
from holdfast.group.cpg.outbox import Outbox
from tests.kit.group.checker import Checker, Recorder

TURNS = 12
"""Turns of the loop until all groups have taken their items."""


class HandCarrier(Carrier):
    """The connection of one process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.sent: deque[bytes] = deque()
        self.inbox: deque[Item] = deque()
        self.open = True
        self._arrived: Callable[[], None] | None = None

    async def join(self, arrived: Callable[[], None]) -> Process:
        self._arrived = arrived
        return self.process

    def take(self) -> Item | None:
        return self.inbox.popleft() if self.inbox else None

    def send(self, data: bytes) -> bool:
        self.sent.append(data)
        return True

    async def leave(self) -> None:
        self.close()

    def close(self) -> None:
        self.open = False
        self._arrived = None

    def give(self, item: Item) -> None:
        self.inbox.append(item)
        if self._arrived is not None:
            asyncio.get_running_loop().call_soon(self._arrived)


class Hand:
    """Members by node, and the order of their messages."""

    def __init__(self, *numbers: int, votes: int | None = None, **options: Any) -> None:
        self.numbers = numbers
        self.votes = list(range(1, (votes or len(numbers)) + 1))
        self.options: dict[str, Any] = {"explicit_holds": False, **options}
        self.checker = Checker(len(self.votes), uniform=True)
        self.carriers: dict[int, HandCarrier] = {}
        self.at: dict[int, Recorder] = {}
        self._lives = 0
        self._starts: list[asyncio.Task[None]] = []

    async def add(self, number: int, pid: int = 0, node: int = 0) -> None:
        """Start a member, which waits for its first list; `node` is its number by default."""
        self._lives += 1
        carrier = HandCarrier(Process(node or number, pid or 100 + self._lives))
        group = CpgGroup(
            name="by hand",
            node=node or number,
            nodes=self.votes,
            incarnation=self._lives,
            view_floor=0,
            carrier=carrier,
            **self.options,
        )
        group._outbox = Outbox(batch_bytes=16, fragment_bytes=8)
        self.carriers[number] = carrier
        self.at[number] = Recorder(self.checker, group)
        self.at[number].holds_by_itself = not self.options["explicit_holds"]
        self._starts.append(asyncio.create_task(group.start(self.at[number])))
        await self.turn()

    async def turn(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def list_(self, *numbers: int, to: tuple[int, ...] = ()) -> None:
        """Give the list of these processes to each of them, or to some only."""
        listed = Listed(frozenset(self.carriers[number].process for number in numbers))
        for number in to or numbers:
            self.carriers[number].give(listed)
        await self.turn()

    def order_one(self, sender: int, *to: int) -> None:
        """Order the next message of a process, for some processes."""
        data = self.carriers[sender].sent.popleft()
        for number in to or self.carriers:
            self.carriers[number].give(Message(self.carriers[sender].process, data))

    async def order(self, *numbers: int, rounds: int = 8) -> None:
        """Order all messages of these processes, and their answers, for all of them."""
        together = numbers or tuple(self.carriers)
        for _ in range(rounds):
            await self.turn()
            for number in together:
                while self.carriers[number].sent:
                    self.order_one(number, *together)
        await self.turn()

    def events(self, number: int) -> list[bytes]:
        return [event for _, event in self.at[number].story.events.values()]

    def group(self, number: int) -> CpgGroup:
        group = self.at[number].group
        assert isinstance(group, CpgGroup)
        return group

    async def close(self) -> None:
        for recorder in self.at.values():
            assert isinstance(recorder.group, CpgGroup)
            if recorder.group._ended is None:
                recorder.group._ended = "closed"  # `leave` would wait for messages that are never ordered
                recorder.group._end()
        await asyncio.gather(*self._starts, return_exceptions=True)


@contextlib.asynccontextmanager
async def by_hand(*numbers: int, votes: int | None = None, **options: Any) -> AsyncIterator[Hand]:
    """Give members of one view; check the calls to them at the end."""
    hand = Hand(*numbers, votes=votes, **options)
    try:
        for number in numbers:
            await hand.add(number)
        await hand.list_(*numbers)
        await hand.order()
        yield hand
        hand.checker.check()
    finally:
        await hand.close()
