"""Cases of the `cpg` engine that storms meet too rarely."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from holdfast.group.cpg.wire import Exclude, Frame, Word, pack, parse
from tests.kit.group.hand import Hand, by_hand


async def kept_events_belong_to_the_old_view() -> Hand:
    """I21: an event between two lists is in the old view."""
    async with by_hand(1, 2, 3, votes=5) as hand:
        hand.at[1].send(b"between")
        await hand.turn()
        while len(hand.carriers[1].sent) > 1:
            hand.order_one(1)
        await hand.list_(1, 2, 3)
        event = hand.carriers[1].sent.popleft()
        hand.carriers[1].sent.appendleft(event)
        hand.order_one(1, 1, 2, 3)
        await hand.turn()
        old = hand.at[1].story.views[-1]
        assert not hand.events(1)
        await hand.add(4)
        await hand.list_(1, 2, 3, 4)
        await hand.order()
        (pos,) = hand.at[2].story.events
        assert pos.view == old.id
        assert not hand.events(4)
        hand.at[4].send(b"later")
        await hand.order()
        assert hand.events(4) == [b"later"]
        assert hand.events(1) == [b"between", b"later"]
    return hand


async def a_partial_event_is_sent_again() -> Hand:
    """I20, I21: an event that a list cuts in two is delivered whole."""
    large = b"0123456789" * 5
    async with by_hand(1, 2, votes=3) as hand:
        hand.at[1].send(large)
        hand.at[1].send(b"behind it")
        await hand.turn()
        for _ in range(2):  # a part of it
            hand.order_one(1)
        await hand.add(3)
        await hand.list_(1, 2, 3)
        await hand.order(rounds=20)
        for number in (1, 2, 3):
            assert hand.events(number) == [large, b"behind it"], number
    return hand


async def parts_of_a_departed_sender_are_dropped() -> Hand:
    """I21: the same process returns as another member; nothing of the one before is left."""
    async with by_hand(1, 2, 3) as hand:
        hand.at[3].send(b"whole")
        await hand.order()
        hand.at[3].send(b"0123456789" * 5)
        await hand.turn()
        hand.order_one(3)
        await hand.list_(1, 2)
        await hand.order(1, 2)
        assert hand.events(1) == [b"whole"]
        await hand.add(3, pid=hand.carriers[3].process.pid)
        await hand.list_(1, 2, 3)
        await hand.order()
        hand.at[3].send(b"anew")
        await hand.order()
        assert hand.events(1) == [b"whole", b"anew"]
        assert hand.events(3) == [b"anew"]
    return hand


async def survivors_that_cannot_vouch_are_lost() -> Hand:
    """I26: two of three left, with a stable event that the third lacks."""
    async with by_hand(1, 2, 3) as hand:
        hand.at[1].send(b"stable without 3")
        for _ in range(4):
            await hand.turn()
            for sender in (1, 2):
                while hand.carriers[sender].sent:
                    hand.order_one(sender, 1, 2)
        await hand.turn()
        assert hand.at[1].story.stable == hand.at[1].story.last
        survivor = hand.at[3]
        await hand.add(1)
        await hand.add(2)
        await hand.list_(1, 2, 3)
        await hand.order()
        assert "vouch" in str(survivor.story.ended)
        await hand.list_(1, 2)
        await hand.order(1, 2)
        view = hand.at[1].story.views[-1]
        assert view.quorate
        assert view.joined == view.members
    return hand


async def a_member_that_does_not_answer_is_left_out() -> Hand:
    """I22: all leave it out at the same place in the order."""
    async with by_hand(1, 2, 3) as hand:
        late = hand.at[3]
        await hand.list_(1, 2, 3)
        hand.order_one(1)
        hand.order_one(2)
        await hand.turn()
        hand.group(1)._propose_exclusion()
        await hand.turn()
        body = parse(hand.carriers[1].sent[-1]).body
        assert isinstance(body, Exclude)
        assert body.targets == [hand.carriers[3].process]
        await hand.order()
        assert late.story.ended is not None
        view = hand.at[1].story.views[-1]
        assert [member.node for member in view.members] == [1, 2]
        assert view.left == (late.story.member,)
    return hand


async def a_newcomer_learns_of_the_excluded() -> Hand:
    """I22: a process that was left out stays so in the next list."""
    async with by_hand(1, 2, 3, 4, votes=5) as hand:
        hand.group(1).evict(hand.at[4].story.member)
        asleep = hand.carriers.pop(4)
        await hand.order(1, 2, 3)
        assert [member.node for member in hand.at[1].story.views[-1].members] == [1, 2, 3]
        await hand.add(5)
        hand.carriers[4] = asleep
        await hand.list_(1, 2, 3, 4, 5, to=(1, 2, 3, 5))
        await hand.order(1, 2, 3, 5)
        assert [member.node for member in hand.at[5].story.views[-1].members] == [1, 2, 3, 5]
        hand.at[5].send(b"with the newcomer")
        await hand.order(1, 2, 3, 5)
        assert hand.events(2) == [b"with the newcomer"]
    return hand


async def a_minority_does_not_resume() -> Hand:
    """I21: a member that was alone for a moment is lost."""
    async with by_hand(1, 2, 3) as hand:
        hand.at[3].send(b"self-delivered")
        await hand.turn()
        hand.order_one(3, 3)
        await hand.turn()
        assert not hand.events(3), "it is the only one with this event"
        await hand.list_(3)
        await hand.list_(1, 2)
        await hand.list_(1, 2, 3)
        assert hand.at[3].story.ended is not None
        await hand.list_(1, 2)
        await hand.order(1, 2)
        assert [member.node for member in hand.at[1].story.views[-1].members] == [1, 2]
        assert not hand.events(1)
    return hand


async def strangers_cannot_speak() -> Hand:
    """Frames of strangers, and bytes that are not a frame, have no effect."""
    async with by_hand(1, 2) as hand:
        carrier = hand.carriers[2]
        forged = Frame(1, Word(hand.at[1].story.last, hand.at[1].story.last), Exclude([], []))
        carrier.sent += [b"", b"HFcg", pack(forged), bytes(1000)]
        await hand.order()
        hand.at[1].send(b"all the same")
        await hand.order()
        assert hand.events(1) == hand.events(2) == [b"all the same"]
    return hand


async def nothing_is_stable_while_a_view_forms() -> Hand:
    """I24: a word after the list does not count for the old view."""
    async with by_hand(1, 2, 3, explicit_holds=True) as hand:
        hand.at[1].send(b"event")
        await hand.order()
        last = hand.at[1].story.last
        assert last.index == 1
        for number in (1, 2):
            hand.at[number].hold(last)
        await hand.turn()
        await hand.list_(1, 2)
        for sender in (1, 2):  # their words, sent before the list
            hand.order_one(sender, 1, 2)
        await hand.turn()
        assert hand.at[1].story.stable < last
    return hand


async def a_second_broker_of_a_node_is_left_out() -> Hand:
    """The vote of a node would count for what only one of its directories holds."""
    async with by_hand(1, 2, 3) as hand:
        await hand.add(4, pid=1, node=3)
        await hand.list_(1, 2, 3, 4)
        await hand.order()
        assert "two brokers of one node" in (hand.at[4].story.ended or "")
        await hand.list_(1, 2, 3)
        await hand.order(1, 2, 3)
        hand.at[3].send(b"the first goes on")
        await hand.order(1, 2, 3)
        assert hand.events(1) == hand.events(3) == [b"the first goes on"]
        assert not hand.at[4].story.views
    return hand


HandPlay = Callable[[], Coroutine[None, None, Hand]]
HAND_PLAYS: list[HandPlay] = [
    nothing_is_stable_while_a_view_forms,
    kept_events_belong_to_the_old_view,
    a_partial_event_is_sent_again,
    parts_of_a_departed_sender_are_dropped,
    survivors_that_cannot_vouch_are_lost,
    a_member_that_does_not_answer_is_left_out,
    a_newcomer_learns_of_the_excluded,
    a_minority_does_not_resume,
    strangers_cannot_speak,
    a_second_broker_of_a_node_is_left_out,
]
