"""A relay hands over what a joiner kept, unless its copy ends before that."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.events import MemberHello
from holdfast.cluster.hello import Hello
from holdfast.cluster.relay import Relay, framed
from holdfast.errors import Corrupt
from holdfast.group import Member, Position, View

ME, OTHER = Member(1, 7), Member(2, 5)
CUT = View(id=4, members=(ME, OTHER), joined=(ME,), left=(), quorate=True)


WORD = Hello(2, damage="ab").encode()
HOSTILE = (
    WORD.replace(b"ab", b"\xff\xfe"),
    bytes([0xDC, 0, WORD[0] - 0x90 + 1]) + WORD[1:] + b"\x91" * 100_000 + b"\x00",
)
"""Hellos with bytes in place of text, and with a further field of endless depth."""


def engine_at(position: Position, seen: list[Position]) -> Any:
    """Return an engine whose state has this position; it notes what it gets."""
    return SimpleNamespace(
        position=position,
        on_view=lambda view: seen.append(view.position),
        on_deliver=lambda pos, member, event: seen.append(pos),
        resume=lambda delivered: None,
    )


def joiner() -> Relay:
    """Return the relay of a member that got its cut, and two events."""
    relay = Relay(lambda: Hello(1), (1, 2, 3))
    relay.use(SimpleNamespace(member=ME))  # type: ignore[arg-type]
    relay.on_view(CUT)
    for index in (1, 2):
        relay.on_deliver(Position(4, index), OTHER, b"event")
    return relay


def test_the_log_tells_who_comes_and_goes(caplog: pytest.LogCaptureFixture) -> None:
    """An operator sees on each member when another one left and came back."""

    async def play() -> None:
        with caplog.at_level("INFO", "holdfast.cluster"):
            relay = joiner()
            assert not caplog.messages, "its own first view is told by the server"
            relay.on_view(View(id=5, members=(ME,), joined=(), left=(OTHER,), quorate=True))
            again = Member(2, 6)
            relay.on_view(View(id=6, members=(ME, again), joined=(again,), left=(), quorate=True))
            relay.on_view(View(id=7, members=(ME, again), joined=(), left=(), quorate=True))
        assert caplog.messages == [
            "view 5 has nodes 1: node 2 left",
            "view 6 has nodes 1, 2: node 2 joined",
        ]

    asyncio.run(play())


@pytest.mark.parametrize("end", [Position(4, 0), Position(4, 1), Position(4, 9)])
def test_a_copy_that_reaches_what_was_kept(end: Position) -> None:
    async def play() -> None:
        seen: list[Position] = []
        joiner().attach(engine_at(end, seen))
        assert seen == [Position(4, index) for index in range(3)]

    asyncio.run(play())


def test_a_copy_that_is_too_short_is_refused() -> None:
    """I232: the events between it and the cut would be skipped."""

    async def play() -> None:
        with pytest.raises(Corrupt, match="ends at 3:9, not at 4:0 or later"):
            joiner().attach(engine_at(Position(3, 9), []))

    asyncio.run(play())


def test_a_copy_without_dropped_events_is_refused() -> None:
    async def play() -> None:
        relay = joiner()
        relay._drop()
        relay._drop()
        with pytest.raises(Corrupt, match="ends at 4:0, not at 4:1"):
            relay.attach(engine_at(Position(4, 0), []))

    asyncio.run(play())


@pytest.mark.parametrize(
    "body", [b"\x91\xa1\xff", b"\x93", HOSTILE[0], HOSTILE[1]], ids=["short", "end", "text", "deep"]
)
def test_a_hello_that_does_not_decode_is_no_word(body: bytes) -> None:
    """Else each member that hears it would be lost."""

    async def play() -> None:
        relay = joiner()
        relay.on_deliver(Position(4, 3), OTHER, framed(MemberHello(4, body)))
        assert relay.hellos == {}
        relay.on_deliver(Position(4, 4), OTHER, framed(MemberHello(4, Hello(2).encode())))
        assert list(relay.hellos) == [OTHER]

    asyncio.run(play())


def test_an_elected_member_goes_on_from_its_own_end() -> None:
    async def play() -> None:
        relay, seen = joiner(), list[Position]()
        relay.elected = True
        relay.attach(engine_at(Position(3, 9), seen))
        assert len(seen) == 3

    asyncio.run(play())
