"""Broken copies of the `cpg` engine that storms over a simulated Corosync must notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import pytest

from holdfast.group import Position, View
from holdfast.group.cpg import engine as engine_module
from holdfast.group.cpg import forming
from holdfast.group.cpg.carrier import Process
from holdfast.group.cpg.engine import CpgGroup
from holdfast.group.cpg.forming import Votes
from holdfast.group.cpg.inbox import Stream
from holdfast.group.cpg.progress import Progress
from holdfast.group.cpg.wire import Announce, Batch, Evict, Fragment, Frame
from holdfast.group.interface import Member
from holdfast.group.member import BaseGroup
from tests.kit.cluster import on_corosync
from tests.kit.group.checker import Broken
from tests.kit.group.hand_plays import (
    HandPlay,
    a_member_that_does_not_answer_is_left_out,
    a_minority_does_not_resume,
    a_partial_event_is_sent_again,
    a_second_broker_of_a_node_is_left_out,
    kept_events_belong_to_the_old_view,
    nothing_is_stable_while_a_view_forms,
    parts_of_a_departed_sender_are_dropped,
    survivors_that_cannot_vouch_are_lost,
)
from tests.kit.group.machine import Replica
from tests.kit.group.totem import run_on_totem

Patch = Callable[[pytest.MonkeyPatch], None]


def quorate_without_counting(patch: pytest.MonkeyPatch) -> None:
    """A member asks a service that is not in the order of messages."""
    patch.setattr(Votes, "quorate", lambda self, nodes: True)


def stable_at_self_delivery(patch: pytest.MonkeyPatch) -> None:
    def own_word(self: Progress, votes: Votes) -> Position | None:
        word = self._words.get(self._me)
        return word.received if word is not None else None

    patch.setattr(Progress, "majority_holds", own_word)


def delivered_when_received(patch: pytest.MonkeyPatch) -> None:
    """A member delivers its own events as soon as they are ordered."""

    def own_word(self: Progress, votes: Votes) -> Position | None:
        word = self._words.get(self._me)
        return word.received if word is not None else None

    patch.setattr(Progress, "majority_received", own_word)


def words_of_an_older_view_count(patch: pytest.MonkeyPatch) -> None:
    enter = Progress.enter

    def keep(self: Progress, view: View, now: float, complete: list[Member]) -> None:
        words = self._words
        enter(self, view, now, complete)
        self._words = {member: word for member, word in words.items() if member in view.members}

    def all_count(self: Progress, votes: Votes) -> Position | None:
        held = sorted((word.held for word in self._words.values()), reverse=True)
        return held[votes.majority - 1] if len(held) >= votes.majority else None

    patch.setattr(Progress, "enter", keep)
    patch.setattr(Progress, "majority_holds", all_count)


def parts_are_kept_over_a_change(patch: pytest.MonkeyPatch) -> None:
    """A partial event stays; a new member has never seen its begin."""
    new = CpgGroup._new_streams

    def keep(self: CpgGroup, formed: forming.Formed) -> dict[Process, Stream]:
        return {**new(self, formed), **self._streams}

    patch.setattr(Stream, "drop_partial", lambda self: False)
    patch.setattr(CpgGroup, "_new_streams", keep)


def parts_are_kept_after_a_departure(patch: pytest.MonkeyPatch) -> None:
    parts_are_kept_over_a_change(patch)
    take_list = CpgGroup._take_list

    def keep(self: CpgGroup, processes: frozenset[Process]) -> None:
        streams = self._streams
        take_list(self, processes)
        self._streams = {**streams, **self._streams}

    patch.setattr(CpgGroup, "_take_list", keep)


def dropped_parts_are_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    drop = Stream.drop_partial

    def forget(self: Stream) -> bool:
        drop(self)
        return False

    patch.setattr(Stream, "drop_partial", forget)


def events_in_a_minority(patch: pytest.MonkeyPatch) -> None:
    """A member accepts, orders and delivers events without a quorum."""

    def take_body(self: CpgGroup, sender: Process, body: Batch | Fragment | Evict) -> None:
        for item in self._streams[sender].take(body):
            if sender == self._me:
                self._own_came_back(item)
            if not isinstance(item, Evict):
                self._deliver(self._members[sender], item)

    async def work(self: Replica) -> None:
        while not self.lost.is_set():
            await self.node.clock.sleep(0.05)
            self.recorder.send(b'["fold", 1]')

    patch.setattr(BaseGroup, "_require_ready", lambda self, event: None)
    patch.setattr(CpgGroup, "_take_body", take_body)
    patch.setattr(CpgGroup, "_primary", property(lambda self: self._view))
    patch.setattr(Replica, "work", work)


def a_minority_resumes(patch: pytest.MonkeyPatch) -> None:
    """A member that was cut off goes on after the heal."""
    raise_generation = CpgGroup._raise_generation

    def forget(self: CpgGroup, generation: int) -> None:
        raise_generation(self, generation)
        self._doomed = None

    patch.setattr(CpgGroup, "_raise_generation", forget)
    patch.setattr(CpgGroup, "_announcement", _undoomed(CpgGroup._announcement))
    patch.setattr(forming, "_cannot_vouch", lambda votes, staying: None)


def _undoomed(announcement: Callable[[CpgGroup], Announce]) -> Callable[[CpgGroup], Announce]:
    def say(self: CpgGroup) -> Announce:
        self._doomed = None
        return announcement(self)

    return say


def kept_events_wait_for_the_next_view(patch: pytest.MonkeyPatch) -> None:
    """Events between two lists go into the next view."""
    regroup, deliver = CpgGroup._regroup, CpgGroup._take_kept

    def later(self: CpgGroup, evictions: bool) -> None:
        if evictions:
            deliver(self, evictions)

    def keep(self: CpgGroup) -> None:
        kept = self._kept
        regroup(self)
        self._kept = kept

    patch.setattr(CpgGroup, "_take_kept", later)
    patch.setattr(CpgGroup, "_regroup", keep)


def ids_without_the_life(patch: pytest.MonkeyPatch) -> None:
    def shorter(self: Votes, generation: int, members: Collection[Member]) -> int:
        return generation << 16 | self.nodes.index(min(members).node)

    patch.setattr(Votes, "view_id", shorter)


def survivors_that_cannot_vouch_go_on(patch: pytest.MonkeyPatch) -> None:
    def never(votes: Votes, staying: Sequence[Announce]) -> str | None:
        return None

    patch.setattr(forming, "_cannot_vouch", never)


def a_view_before_all_announced(patch: pytest.MonkeyPatch) -> None:
    def most(processes: Collection[Process], announces: Mapping[Process, Announce]) -> bool:
        return all(process in announces for process in processes)

    patch.setattr(engine_module, "agreed", most)


def the_excluded_go_on(patch: pytest.MonkeyPatch) -> None:
    """A member that was left out of a view takes part all the same."""

    def stay(self: CpgGroup, processes: frozenset[Process], reason: str) -> None:
        self._excluded |= processes - {self._me}
        self._raise_generation(self._generation + 1)

    patch.setattr(CpgGroup, "_exclude", stay)


def words_count_while_a_view_forms(patch: pytest.MonkeyPatch) -> None:
    take = CpgGroup._take_frame

    def at_once(self: CpgGroup) -> Position:
        return self._progress.majority_holds(self._votes) or self._stable if self._primary else self._stable

    def also_then(self: CpgGroup, sender: Process, frame: Frame, size: int) -> None:
        take(self, sender, frame, size)
        member = self._members.get(sender)
        if member is not None and self._ended is None:
            self._progress.heard(member, frame.word, self._time())

    patch.setattr(CpgGroup, "_majority_holds", at_once)
    patch.setattr(CpgGroup, "_take_frame", also_then)


def a_node_has_two_brokers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(forming, "_doubles", lambda announces: None)


IN_STORMS: list[tuple[Patch, str]] = [
    (quorate_without_counting, "I23"),
    (stable_at_self_delivery, "I24"),
    (words_of_an_older_view_count, "I24"),
    (dropped_parts_are_not_sent_again, "I20"),
    (events_in_a_minority, "I23"),
    (a_minority_resumes, "I27"),
    (ids_without_the_life, "I22"),
    (a_view_before_all_announced, "I22"),
]
SEEDS = (1, 2, 3, 4, 5)


@pytest.mark.parametrize(("mutant", "invariant"), IN_STORMS, ids=lambda each: getattr(each, "__name__", each))
def test_found_in_a_storm(mutant: Patch, invariant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    for seed in SEEDS:
        complaint = ""
        try:
            run_on_totem(seed, seconds=6)
        except Broken as broken:
            complaint = str(broken)
        if complaint:
            assert complaint.startswith(invariant)
            return
    pytest.fail(f"no storm of {SEEDS} noticed")


BY_HAND: list[tuple[Patch, HandPlay]] = [
    (parts_are_kept_over_a_change, a_partial_event_is_sent_again),
    (parts_are_kept_after_a_departure, parts_of_a_departed_sender_are_dropped),
    (kept_events_wait_for_the_next_view, kept_events_belong_to_the_old_view),
    (dropped_parts_are_not_sent_again, a_partial_event_is_sent_again),
    (survivors_that_cannot_vouch_go_on, survivors_that_cannot_vouch_are_lost),
    (the_excluded_go_on, a_member_that_does_not_answer_is_left_out),
    (a_minority_resumes, a_minority_does_not_resume),
    (delivered_when_received, a_minority_does_not_resume),
    (words_count_while_a_view_forms, nothing_is_stable_while_a_view_forms),
    (a_node_has_two_brokers, a_second_broker_of_a_node_is_left_out),
]


@pytest.mark.parametrize(("mutant", "play"), BY_HAND, ids=lambda each: each.__name__)
def test_found_by_hand(mutant: Patch, play: HandPlay, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        asyncio.run(play())


BY_BROKERS: list[tuple[Patch, str, int]] = [
    (quorate_without_counting, "I23", 3),
    (stable_at_self_delivery, "I24", 1),
    (a_minority_resumes, "I27", 5),
]
"""Each with the invariant that it breaks, and a seed that shows it."""


@pytest.mark.parametrize(
    ("mutant", "invariant", "seed"), BY_BROKERS, ids=lambda each: getattr(each, "__name__", str(each))
)
def test_found_by_whole_brokers(
    mutant: Patch, invariant: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(Broken, match=invariant):
        on_corosync.joins(seed, 1.5)
