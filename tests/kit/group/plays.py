"""Plays for every engine of a group: calls to its members, and their calls."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import Closed, Misuse
from holdfast.group import EVENT_SIZE_MAX, Listener, Member, Position, View
from tests.kit.group.checker import Recorder
from tests.kit.group.engines import Engine, Site


def events_of(recorder: Recorder) -> list[tuple[Position, tuple[Member, bytes]]]:
    return list(recorder.story.events.items())


def all_members_are_given_the_same_in_the_same_order(engine: Engine) -> None:
    """I20, I21: each member gets all events, also its own, in one order."""
    given = []

    async def play(site: Site) -> None:
        recorder = await site.start(site.group())
        for number in range(40):
            recorder.send(b"%d/%d " % (site.number, number) + b"x" * (number * 50))
            if number % 7 == 0:
                await recorder.group.drain()
        await site.until(lambda: len(recorder.story.events) == 40 * site.members)
        given.append(events_of(recorder))

    checker = engine.run(play)
    checker.settled()
    assert len(given) == engine.members
    assert all(events == given[0] for events in given)


def an_event_comes_back_after_mcast_has_returned(engine: Engine) -> None:
    """A caller may finish its turn before the event is applied."""

    async def play(site: Site) -> None:
        recorder = await site.start(site.group())
        recorder.send(b"event")
        assert all(member != recorder.story.member for member, _ in recorder.story.events.values())
        await site.until(lambda: len(recorder.story.events) == site.members)

    engine.run(play)


def events_may_be_sent_from_a_call(engine: Engine) -> None:
    """Events sent in `on_view` and `on_deliver` come later, in the one order."""

    class Chain(Listener):
        recorder: Recorder | None = None

        def on_view(self, view: View) -> None:
            if self.recorder is not None and len(view.members) == engine.members:
                self.recorder.send(b"4")

        def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
            if self.recorder is not None and member == self.recorder.story.member and event != b"0":
                self.recorder.send(b"%d" % (int(event) - 1))

    async def play(site: Site) -> None:
        chain = Chain()
        recorder = await site.start(site.group(), chain)
        chain.recorder = recorder
        recorder.send(b"4")
        await site.until(lambda: len(recorder.story.events) == 5 * site.members)

    engine.run(play).settled()


def stable_is_what_a_majority_said_it_holds(engine: Engine) -> None:
    """I24: the stable position also rises to the end when all members hold all."""

    async def play(site: Site) -> None:
        group = site.group(explicit_holds=True)
        recorder = await site.start(group, told=True)
        recorder.send(b"event")
        await site.until(lambda: len(recorder.story.events) == site.members)
        last = recorder.story.last
        with pytest.raises(Misuse, match="not delivered"):
            group.hold(Position(last.view, last.index + 1))
        await site.meet()
        await site.clock.sleep(0.05)  # it must not become stable meanwhile
        assert recorder.story.stable < last
        if site.number <= site.members // 2:
            recorder.hold(last)
        await site.clock.sleep(0.05)  # nor now
        assert recorder.story.stable < last, "half of the members is no majority"
        await site.meet()
        recorder.hold(last)
        await site.until(lambda: recorder.story.stable == last)
        assert group.stats().stable == group.stats().held == last

    engine.run(play)


def holding_by_itself(engine: Engine) -> None:
    """Without explicit holds, delivered events are held, and become stable."""

    async def play(site: Site) -> None:
        recorder = await site.start(site.group())
        recorder.send(b"event")
        await site.until(lambda: len(recorder.story.events) == site.members)
        await site.until(lambda: recorder.story.stable == recorder.story.last)
        with pytest.raises(Misuse, match="explicit_holds"):
            recorder.group.hold(recorder.story.last)
        await site.meet()

    engine.run(play)


def drain_bounds_what_is_under_way(engine: Engine) -> None:
    """I28: at most the window and one more event are under way."""
    most = 0

    async def play(site: Site) -> None:
        nonlocal most
        recorder = await site.start(site.group(window_bytes=1 << 16))
        for _ in range(60):
            recorder.send(bytes(8 << 10))
            await recorder.group.drain()
            stats = recorder.group.stats()
            assert stats.in_flight_bytes <= 1 << 16
            most = max(most, stats.waiting_bytes)
        await site.until(lambda: len(recorder.story.events) == 60 * site.members)
        await site.meet()

    engine.run(play)
    assert most <= engine.members * ((1 << 16) + (8 << 10))


def large_events(engine: Engine) -> None:
    async def play(site: Site) -> None:
        recorder = await site.start(site.group())
        with pytest.raises(Misuse, match="at most"):
            recorder.group.mcast(bytes(EVENT_SIZE_MAX + 1))
        if site.number == 1:
            recorder.send(b"\xaa" * (5 << 20))
            recorder.send(b"")
        await site.until(lambda: len(recorder.story.events) == 2)
        assert [len(event) for _, event in recorder.story.events.values()] == [5 << 20, 0]
        await site.meet()

    engine.run(play)


def leave_is_clean(engine: Engine) -> None:
    """I25: all members get earlier events; then the member gets no more calls."""
    sent: list[bytes] = []

    async def play(site: Site) -> None:
        recorder = await site.start(site.group())
        if site.number == 1:
            for number in range(20):
                recorder.send(b"%d" % number)
                sent.append(b"%d" % number)
            await recorder.group.leave()
            told = len(recorder.story.events), len(recorder.story.views)
            assert told[0] == 20
            assert recorder.story.ended is None
            recorder.story.ended = "it left"  # from here on the checker minds
            with pytest.raises(Closed):
                recorder.group.mcast(b"late")
            await recorder.group.leave()
            await site.clock.sleep(0.05)  # nothing must be told meanwhile
            assert told == (len(recorder.story.events), len(recorder.story.views))
        else:
            await site.until(lambda: len(recorder.story.views[-1].members) == site.members - 1)
            view = recorder.story.views[-1]
            assert [member.node for member in view.left] == [1]
            assert not view.joined
            assert [event for _, event in recorder.story.events.values()] == sent
        await site.meet()

    engine.run(play)


def misuse_is_named(engine: Engine) -> None:
    async def play(site: Site) -> None:
        group = site.group()
        with pytest.raises(Misuse, match="start"):
            group.mcast(b"early")
        recorder = await site.start(group)
        with pytest.raises(Misuse, match="before"):
            await group.start(recorder)
        await site.meet()

    engine.run(play)


def a_listener_that_raises_is_out(engine: Engine) -> None:
    """I25: it no longer equals the others; the error is raised."""
    errors: list[BaseException] = []

    class Failing(Listener):
        def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
            raise RuntimeError("cannot apply this")

    async def play(site: Site) -> None:
        if not engine.simulated:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        recorder = await site.start(site.group(), Failing() if site.number == 1 else None)
        if site.number == 1:
            recorder.send(b"event")
            await site.until(lambda: recorder.story.ended is not None)
            with pytest.raises(Closed):
                await recorder.group.drain()
            assert "cannot apply this" in str(recorder.story.ended)

    if engine.simulated:
        with pytest.raises(RuntimeError, match="cannot apply this"):
            engine.run(play)
    else:
        engine.run(play)
        assert [str(error) for error in errors] == ["cannot apply this"]


PLAYS = [
    all_members_are_given_the_same_in_the_same_order,
    an_event_comes_back_after_mcast_has_returned,
    events_may_be_sent_from_a_call,
    stable_is_what_a_majority_said_it_holds,
    holding_by_itself,
    drain_bounds_what_is_under_way,
    large_events,
    leave_is_clean,
    misuse_is_named,
    a_listener_that_raises_is_out,
]
