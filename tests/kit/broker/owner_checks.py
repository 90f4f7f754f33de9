"""The decisions on owners of subscriptions, and the turns of one member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from holdfast._core import Dispatch
from holdfast.broker.dispatch.ownership import Tenure
from holdfast.broker.events import (
    ConsumerJoin,
    ConsumerLeave,
    Event,
    OwnerChanged,
    OwnershipAsk,
    OwnershipRelease,
    OwnershipReturn,
)
from holdfast.broker.state import Consumer, SubscriptionState, SubscriptionType
from holdfast.errors import NoQuorum
from holdfast.group import Member
from holdfast.ledger import AckState
from tests.kit.broker.events import Rig
from tests.kit.sim.loop import SimLoop
from tests.kit.sim.randomness import SeededRandomness

A, B, C = Member(1, 1), Member(2, 1), Member(3, 1)


class Table:
    """A subscription with consumers at three members, and the decisions on its owner."""

    def __init__(self, type: SubscriptionType = "shared", entries: int = 20) -> None:  # noqa: A002
        self.rig = Rig()
        self.rig.enter(A, B, C)
        topic = self.rig.topic()
        self.rig.filled(topic, entries)
        self.type: SubscriptionType = type
        self.of: SubscriptionState = self.rig.subscription(topic)

    @property
    def notices(self) -> list[Any]:
        """The notices of the last frame."""
        assert self.rig.last is not None
        return self.rig.last.notices

    def join(self, member: Member, priority: int = 0) -> int:
        event = ConsumerJoin(self.of.id, f"c{member.node}", self.type, priority, member)
        return int(self.rig.do(event, member).session)

    def leave(self, session: int) -> None:
        self.rig.do(ConsumerLeave(session))

    def release(self, member: Member, epoch: int | None = None, **more: Any) -> Any:
        number = more.pop("reset_number", self.of.reset_number)
        taken = self.of.taken if epoch is None else epoch
        return self.rig.do(OwnershipRelease(self.of.id, taken, member, number, **more), member)

    def ask(self, member: Member) -> Any:
        return self.rig.do(OwnershipAsk(self.of.id, member), member)

    def give_back(self, member: Member, *ranges: tuple[int, int], reset_number: int | None = None) -> Any:
        number = self.of.reset_number if reset_number is None else reset_number
        return self.rig.do(OwnershipReturn(self.of.id, member, number, list(ranges)), member)


def shared_turns_go_round() -> None:
    """Turns go round in the order of nodes.

    Idle members are left out. The sender stays only if no other wants it.
    """
    table = Table()
    for member in (B, A, C):
        table.join(member)
    assert table.of.owner == B, "the first that joined"
    seen = []
    for _ in range(4):
        assert table.of.owner is not None
        table.release(table.of.owner)
        seen.append(table.of.owner)
    assert seen == [C, A, B, C]
    table.release(C, idle=True)
    table.release(A)
    assert table.of.owner == B
    table.release(B)
    assert table.of.owner == A, "C is idle"
    table.release(A, idle=True)
    table.release(B, idle=True)
    assert table.of.owner == B, "all others are idle: the sender stays"
    assert table.of.idle == {A, C}
    table.ask(C)
    table.release(B)
    assert table.of.owner == C


# -- the turns of a member -----------------------------------------------------------------------------


class Served:
    """A dispatcher that notes what its tenure tells it."""

    def __init__(self) -> None:
        self.consumers = 1
        self.reset_number = 0
        self.has_work = True
        self.elsewhere: Sequence[tuple[int, int]] = ()
        self.is_busy = True
        self.told: list[Any] = []

    def take(self, elsewhere: Sequence[tuple[int, int]], hashes: bytes = b"") -> None:
        self.elsewhere = elsewhere
        self.told.append("take")

    def halt(self) -> None:
        self.told.append("halt")

    def consumers_changed(self) -> None:
        self.told.append("consumers")

    def returned(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.told.append(list(ranges))


class Bench:
    """The tenure of member A in a group of two, and its events."""

    def __init__(self, failing: bool = False) -> None:
        self.of = SubscriptionState(1, 1, "billing", AckState(), owner_epoch=0)
        self.of.attach(Consumer(1, "a", "shared", 0, A))
        self.of.attach(Consumer(2, "b", "shared", 0, B))
        self.of.owner = A
        self.events: list[Event] = []
        self.failing = failing
        self.members = 2
        self.table = Dispatch()
        self.consumer = self.table.add(0)
        self.served = Served()
        self.tenure = Tenure(self.of, A, lambda: self.members, self.submit, turn_s=0.1)
        self.tenure.serve(self.served, self.table)

    def submit(self, event: Event) -> asyncio.Future[Any]:
        self.events.append(event)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.failing:
            future.set_exception(NoQuorum("no quorum"))
        return future

    def owner(self, member: Any, epoch: int = 1, **more: Any) -> None:
        given = {"counts": [], "undelivered": None, "elsewhere": [], **more}
        self.tenure.changed(OwnerChanged(self.of, member, epoch, 0, **given))

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


def in_virtual_time(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = SimLoop(SeededRandomness(1))  # type: ignore[abstract]  # it has no sockets
    loop.run_until_complete(work())
    loop.close()


def an_idle_member_asks_again() -> None:
    """An owner without permits releases as idle, and asks once when it has permits again."""

    async def work() -> None:
        bench = Bench()
        bench.owner(A)
        bench.tenure.gave()
        await asyncio.sleep(0)
        release = bench.events[0]
        assert isinstance(release, OwnershipRelease)
        assert release.idle
        bench.of.owner, bench.of.idle = B, {A}
        bench.owner(B, 2)
        await asyncio.sleep(1)
        assert bench.kinds == ["OwnershipRelease"], "without permits it asks for nothing"
        bench.table.flow(bench.consumer, 1)
        bench.tenure.looked()
        bench.tenure.looked()
        assert bench.kinds == ["OwnershipRelease", "OwnershipAsk"], "it asks once"

    in_virtual_time(work)
