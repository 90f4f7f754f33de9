"""A quiet cluster has an event now and then."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from holdfast.group import Member, Position
from holdfast.server import pulse as module
from holdfast.server.pulse import Silence, pulse


@dataclass
class Stats:
    member: Member
    delivered: Position = field(default=Position(256, 1))


@dataclass
class Fake:
    """A broker and its membership, by what a pulse asks them."""

    node: int
    view: tuple[Member, ...] = (Member(1, 5), Member(2, 5), Member(3, 5))
    repeated: int = 0
    stats: Stats = field(init=False)

    def __post_init__(self) -> None:
        self.stats = Stats(Member(self.node, 5))

    @property
    def membership(self) -> Fake:
        return self

    def group_stats(self) -> Stats:
        return self.stats

    def repeat(self) -> None:
        self.repeated += 1
        self.stats.delivered = Position(256, self.stats.delivered.index + 1)


def test_each_event_ends_a_silence() -> None:
    silence = Silence(Position(256, 1), 0.0)
    assert [silence.lasts(Position(256, index), 9.0 * index, 10.0) for index in range(2, 6)] == [False] * 4
    assert not silence.lasts(Position(256, 5), 54.9, 10.0)
    assert silence.lasts(Position(256, 5), 55.0, 10.0)
    assert not silence.lasts(Position(256, 5), 64.9, 10.0), "it begins anew"


def test_the_lowest_member_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    first, last = Fake(1), Fake(3)

    async def until_the_last() -> int:
        tasks = [asyncio.create_task(pulse(each, 0.04)) for each in (first, last)]  # type: ignore[arg-type]
        while not last.repeated:
            await asyncio.sleep(0.001)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return first.repeated

    assert asyncio.run(until_the_last()) >= 1
