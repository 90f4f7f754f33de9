"""Broken engines and broken machines that the suite must notice: its tests can fail."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable

import pytest

from holdfast.group import BEGINNING, Position, View
from holdfast.group.member import BaseGroup
from tests.kit.group import machine as group_machine
from tests.kit.group.checker import Broken
from tests.kit.group.cluster import lose_a_majority_at_once, turns
from tests.kit.group.machine import traces_of_two_processes
from tests.kit.sim.disk import SimFile
from tests.kit.sim.group import SimGroup
from tests.kit.sim.loop import SimLoop
from tests.kit.sim.network import Endpoint, Entry, Network, Ring
from tests.kit.sim.randomness import SeededRandomness

SEEDS = (1, 2)
"""The seeds of tests/simulation/test_group.py in `make check`."""


def caught(*words: str) -> None:
    """Require that some storm ends in an error with one of these words."""
    for seed in SEEDS:
        complaint = ""
        try:
            group_machine.run(seed, seconds=8)
        except Broken as broken:
            complaint = str(broken)
        if complaint:
            assert any(word in complaint for word in words), complaint
            return
    pytest.fail(f"no storm of {SEEDS} noticed")


def test_deliver_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member delivers events as they arrive, with gaps."""

    def hand_up(self: Endpoint) -> None:
        assert self.ring is not None
        given = getattr(self, "given", None)
        if given is None or given[0] is not self.ring:
            given = (self.ring, set[int]())
            self.given = given  # type: ignore[attr-defined]
        for number in sorted(self.received - given[1]):
            given[1].add(number)
            self.push(self.ring.log[number])
            self.handed_up += 1

    monkeypatch.setattr(Endpoint, "hand_up", hand_up)
    caught("I20", "I21", "I24", "I27")


def test_stable_before_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_is_enough(self: SimGroup) -> Position:
        return max((word[1] for word in self.endpoint.known.values()), default=BEGINNING)

    monkeypatch.setattr(SimGroup, "_majority_holds", one_is_enough)
    caught("I24")


def test_words_of_an_older_view_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier view's position is stable before a majority holds the current view."""

    def any_word(self: SimGroup) -> Position:
        held = sorted((word[1] for word in self.endpoint.known.values()), reverse=True)
        needed = self._network.majority
        return held[needed - 1] if len(held) >= needed else self._stable

    monkeypatch.setattr(SimGroup, "_majority_holds", any_word)
    caught("I24")


def test_deliver_in_a_minority_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member accepts, orders and delivers events without a quorum."""

    def admit(self: BaseGroup, event: bytes) -> None:
        assert self._listener is not None

    take = SimGroup._take

    def take_all(self: SimGroup, item: object) -> None:
        if isinstance(item, Entry):
            if item.sender is self.endpoint:
                self._unplaced.popleft()
            self._deliver(item.sender.member, item.event)
        else:
            take(self, item)  # type: ignore[arg-type]

    async def work(self: group_machine.Replica) -> None:
        while not self.lost.is_set():
            await self.node.clock.sleep(0.05)
            self.recorder.send(b'["fold", 1]')

    monkeypatch.setattr(BaseGroup, "_require_ready", admit)
    monkeypatch.setattr(SimGroup, "_take", take_all)
    monkeypatch.setattr(group_machine.Replica, "work", work)
    caught("I23")


def test_a_minority_calls_itself_quorate(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Network.__init__

    def one_vote(self: Network, *args: object) -> None:
        make(self, *args)  # type: ignore[arg-type]
        self.majority = 1

    monkeypatch.setattr(Network, "__init__", one_vote)
    caught("I23", "I24")


def test_one_member_misses_the_end_of_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Network._finish

    def forgetful(self: Network, ring: Ring, ends: list[Endpoint], numbers: list[int]) -> None:
        finish(self, ring, ends[1:], numbers)
        finish(self, ring, ends[:1], numbers[: ends[0].handed_up])

    monkeypatch.setattr(Network, "_finish", forgetful)
    caught("I20", "I21", "I24", "I27")


def test_told_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost member gets the view once more."""
    lose = BaseGroup._lose

    def chatty(self: BaseGroup, reason: str) -> None:
        lose(self, reason)
        if self._listener is not None and self._view is not None:
            self._listener.on_view(self._view)

    monkeypatch.setattr(BaseGroup, "_lose", chatty)
    caught("I25")


def test_a_disk_that_does_not_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member reports that it holds what a crash can lose."""

    async def lie(self: SimFile) -> None:
        pass

    monkeypatch.setattr(SimFile, "sync", lie)
    caught("its disk has")


def test_words_of_those_who_are_not_complete_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new member reports that it holds its view before it has the state."""
    on_view = group_machine.Replica.on_view

    def hasty(self: group_machine.Replica, view: View) -> None:
        on_view(self, view)
        if view.quorate:
            self.recorder.group.hold(view.position)

    monkeypatch.setattr(group_machine.Replica, "on_view", hasty)
    caught("I24", "I26", "I27")


def test_survivors_that_cannot_vouch_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Network, "_continues", lambda self, ring, side: len(side) >= self.majority)
    cluster, pos = lose_a_majority_at_once(5)
    assert cluster.at[3].story.ended is None
    assert pos not in [item.position for item in cluster.sim.network.history], "a stable event is gone"


# -- machines -----------------------------------------------------------------------------------------

LIVES = itertools.count()


class Unordered(group_machine.Counters):
    """Iterates in an order of its own, as over a set of objects."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = next(LIVES)

    def order(self) -> Iterable[str]:
        names = sorted(self.counters)
        cut = self.turn % (len(names) or 1)
        return names[cut:] + names[:cut]


class SetOfStrings(group_machine.Counters):
    """Iterates over a set of strings: the order differs between processes."""

    def order(self) -> Iterable[str]:
        return set(self.counters)


def test_iteration_without_an_order() -> None:
    with pytest.raises(Broken, match="I27"):
        group_machine.run(1, Unordered)


def test_iteration_over_a_set_of_strings() -> None:
    """Traces of two processes show it."""
    assert traces_of_two_processes(__file__) == 2


def test_a_loop_that_does_not_keep_to_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    make: Callable[..., None] = SimLoop.__init__
    monkeypatch.setattr(
        SimLoop, "__init__", lambda self, chance: make(self, SeededRandomness(next(LIVES), "anything"))
    )
    assert turns(1) != turns(1)


if __name__ == "__main__":
    sys.stdout.buffer.write(group_machine.run(int(sys.argv[1]), SetOfStrings)[1])
