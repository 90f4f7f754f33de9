"""Views of the `cpg` engine, with every message ordered by hand."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.errors import BadConfiguration, Corrupt, Misuse, NoQuorum
from holdfast.group import Member
from holdfast.group.cpg import CpgGroup
from holdfast.group.cpg.carrier import Process
from holdfast.group.cpg.forming import OTHER_NODE, Dropped, Formed, Votes, form
from holdfast.group.cpg.library import _refusal
from holdfast.group.cpg.wire import Announce, parse
from tests.kit.group.hand import Hand, by_hand
from tests.kit.group.hand_plays import HAND_PLAYS, HandPlay


@pytest.mark.parametrize("play", HAND_PLAYS, ids=lambda play: play.__name__)
def test_by_hand(play: HandPlay) -> None:
    """I20 to I26: each play asserts its own case."""
    hand = asyncio.run(play())
    assert hand.checker.stories


def test_a_view_needs_every_announce() -> None:
    async def play() -> None:
        hand = Hand(1, 2, 3)
        for number in (1, 2, 3):
            await hand.add(number)
        await hand.list_(1, 2, 3)
        for sender in (1, 2):
            hand.order_one(sender)
        await hand.turn()
        assert not any(recorder.story.views for recorder in hand.at.values())
        hand.order_one(3)
        await hand.turn()
        assert [len(recorder.story.views) for recorder in hand.at.values()] == [1, 1, 1]
        await hand.close()

    asyncio.run(play())


def test_generations_are_made_equal() -> None:
    """A member that knows a higher view raises the id for all."""

    async def play() -> None:
        hand = Hand(1, 2)
        for number in (1, 2):
            await hand.add(number)
        hand.group(2)._generation = 70
        await hand.list_(1, 2)
        await hand.order()
        assert {recorder.story.views[-1].id >> 16 for recorder in hand.at.values()} == {71}
        await hand.close()

    asyncio.run(play())


def test_a_member_that_counts_other_votes_is_left_out() -> None:
    """By its shorter list it would be a majority alone."""

    async def play() -> None:
        hand = Hand(1, 2, 3)
        await hand.add(2)
        await hand.add(3)
        hand.votes = [1]
        await hand.add(1)
        await hand.list_(1, 2, 3)
        await hand.order()
        with pytest.raises(BadConfiguration, match=r"node 1 has \[1\], and the others have \[1, 2, 3\]"):
            await hand._starts[2]
        assert not hand.at[1].story.views
        await hand.list_(2, 3)
        await hand.order(2, 3)
        assert [hand.at[number].story.views[-1].quorate for number in (2, 3)] == [True, True]
        hand.checker.check()
        await hand.close()

    asyncio.run(play())


def test_a_daemon_that_does_not_run_is_told_from_one_that_refuses() -> None:
    assert "Corosync does not run on this node" in _refusal(2)
    assert "allow its uid in /etc/corosync/uidgid.d" in _refusal(11)


def test_a_life_that_repeats_an_earlier_one_is_dropped() -> None:
    """Else it would count as a member with the state of the last view."""
    listed = [Process(1, 5), Process(2, 6), Process(3, 9)]
    before = [Member(1, 7), Member(2, 7), Member(3, 7)]
    announces = {
        each: Announce(
            2, listed, [], *((1, before) if each.node < 3 else (0, [])), 0, False, True, 0, [1, 2, 3]
        )
        for each in listed
    }
    outcome = form(Votes((1, 2, 3)), announces, dict.fromkeys(listed, 7))
    assert isinstance(outcome, Dropped)
    assert outcome.processes == {Process(3, 9)}
    assert "process 9 of node 3 is member 3.7 again" in outcome.reason
    other = form(Votes((1, 2, 3)), announces, dict.fromkeys(listed, 7) | {Process(3, 9): 8})
    assert isinstance(other, Formed)
    assert other.view.joined == (Member(3, 8),)
    assert other.view.votes == (1, 2, 3)


@pytest.mark.parametrize("primary", [{}, {Process(3, 9): 7, Process(1, 5): 7}])
def test_one_process_of_a_node_stays(primary: dict[Process, int]) -> None:
    """The vote of a node would count for what only one of its directories holds."""
    listed = [Process(1, 5), Process(2, 6), Process(3, 4), Process(3, 9)]
    announces = {
        each: Announce(1, listed, [], primary.get(each, 0), [], 0, False, True, 0, [1, 2, 3])
        for each in listed
    }
    outcome = form(Votes((1, 2, 3)), announces, dict.fromkeys(listed, 1))
    stays, goes = (9, 4) if primary else (4, 9)
    assert isinstance(outcome, Dropped)
    assert outcome.processes == {Process(3, goes)}
    assert not outcome.misfits  # it tries again: the other one may just be ending
    assert f"process {goes} of node 3 beside process {stays}" in outcome.reason
    left = {each: announces[each] for each in listed if each.pid != goes}
    assert isinstance(form(Votes((1, 2, 3)), left, dict.fromkeys(left, 1)), Formed)


def test_a_generation_out_of_bounds_is_refused() -> None:
    """The ids of later views would not fit into a frame."""

    async def play() -> None:
        async with by_hand(1, 2) as hand:
            announce = hand.group(1)._announcement()
            for generation in (-1, 1 << 60):
                frame = hand.group(1)._packed(msgspec.structs.replace(announce, generation=generation))
                with pytest.raises(Corrupt, match="has the generation"):
                    parse(frame)

    asyncio.run(play())


def test_evict_is_refused() -> None:
    async def play() -> None:
        async with by_hand(1, 2, votes=3) as hand:
            member = hand.at[2].story.member
            with pytest.raises(Misuse, match="no majority"):
                hand.group(1).evict(member)
            with pytest.raises(Misuse, match="not in view"):
                hand.group(1).evict(member._replace(incarnation=99))
            await hand.add(3)
            with pytest.raises(NoQuorum):
                hand.group(3).evict(member)

    asyncio.run(play())


def test_the_id_of_a_view() -> None:
    """I22: sides of a split, and lives of a node, have different ids."""
    votes = Votes((3, 5, 9))
    assert votes.view_id(7, [Member(5, 2), Member(9, 1)]) == 7 << 16 | 2 << 8 | 1
    assert votes.view_id(7, [Member(3, 2)]) == 7 << 16 | 2 << 8
    assert votes.view_id(7, [Member(4, 0x1FF)]) == 7 << 16 | 0xFF << 8 | OTHER_NODE
    with pytest.raises(Misuse, match="at most 255"):
        CpgGroup(name="many", node=1, nodes=range(1, 300), incarnation=1, view_floor=0)
