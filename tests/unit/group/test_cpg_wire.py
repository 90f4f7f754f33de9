"""Frames of the `cpg` engine: format, division of events, and bytes of strangers."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Corrupt, NotFound
from holdfast.group import EVENT_SIZE_MAX, Member, Position
from holdfast.group.cpg import library
from holdfast.group.cpg.carrier import Process
from holdfast.group.cpg.inbox import Stream
from holdfast.group.cpg.outbox import EVENTS_MAX, Outbox
from holdfast.group.cpg.wire import (
    FRAGMENT,
    HEADER,
    Announce,
    Batch,
    Body,
    Evict,
    Exclude,
    Fragment,
    Frame,
    Word,
    pack,
    parse,
)

WORD = Word(Position(7 << 16, 3), Position(7 << 16, 1))
BODIES: list[Body] = [
    Batch(5, []),
    Batch(5, [b"", b"one", b"x" * 1000]),
    Fragment(9, 100, 50, b"y" * 50),
    Announce(3, [Process(1, 2)], [], 9, [Member(1, 4)], 6, True, False, next_number=8, votes=[1, 2]),
    Exclude([Process(1, 2), Process(2, 3)], [Process(2, 3)]),
    Evict(4, Member(2, 9), "a reason"),
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_frame_comes_back(body: Body) -> None:
    frame = Frame(12, WORD, body)
    assert parse(pack(frame)) == frame


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_cut_frame_is_refused(body: Body) -> None:
    data = pack(Frame(12, WORD, body))
    whole = [size for size in range(len(data)) if _parses(data[:size])]
    # A fragment that ends earlier is a shorter fragment, and its receiver waits for the rest.
    assert not whole or isinstance(body, Fragment)
    assert all(size > HEADER.size + FRAGMENT.size for size in whole)


def _parses(data: bytes) -> bool:
    try:
        parse(data)
    except Corrupt:
        return False
    return True


@given(st.binary(max_size=300), st.integers(0, 8), st.booleans())
def test_any_bytes_are_a_frame_or_refused(tail: bytes, kind: int, ours: bool) -> None:
    """Nothing but `Corrupt` is raised."""
    head = HEADER.pack(b"HFcg", 1, kind, 0, 1, 2, 3, 4, 5) if ours else b""
    assert _parses(head + tail) in (True, False)


def test_text_that_is_none_and_endless_depth_are_refused() -> None:
    """The decoder has other errors for them than for other bytes."""
    data = bytearray(pack(Frame(12, WORD, Evict(4, Member(2, 9), "ab"))))
    assert not _parses(bytes(data).replace(b"ab", b"\xff\xfe"))
    data[HEADER.size] += 1  # a further field
    assert _parses(bytes(data) + b"\xa1z\x00")
    assert not _parses(bytes(data) + b"\xa1z" + b"\x91" * 100_000 + b"\x00")


def test_sizes_are_checked() -> None:
    header = HEADER.pack(b"HFcg", 1, 2, 0, 1, 2, 3, 4, 5)
    for number, size, offset in ((1, 0, 0), (1, EVENT_SIZE_MAX + 1, 0), (1, 10, 8), (1, 10, 1 << 40)):
        with pytest.raises(Corrupt, match="fragment"):
            parse(header + FRAGMENT.pack(number, size, offset) + b"abc")
    with pytest.raises(Corrupt, match="kind"):
        parse(HEADER.pack(b"HFcg", 1, 99, 0, 1, 2, 3, 4, 5))
    with pytest.raises(Corrupt, match="version"):
        parse(HEADER.pack(b"HFcg", 2, 1, 0, 1, 2, 3, 4, 5))


@given(
    st.lists(st.binary(max_size=40), max_size=12),
    st.lists(st.integers(0, 9), max_size=40),
)
def test_every_event_arrives_once_and_in_order(events: list[bytes], steps: list[int]) -> None:
    """I20: also if a change drops parts, and the sender sends again."""
    outbox, stream = Outbox(batch_bytes=12, fragment_bytes=5), Stream(1)
    for event in events:
        outbox.add(event)
    under_way: list[Batch | Fragment | Evict] = []
    arrived: list[bytes | Evict] = []

    def deliver() -> None:
        for item in stream.take(under_way.pop(0)):
            arrived.append(item)
            assert outbox.delivered(outbox.first) == item

    for step in steps:
        if step == 0 and stream.drop_partial():
            outbox.rewind()
        elif step < 5 and under_way:
            deliver()
        else:
            body = outbox.peek()
            if body is not None:
                under_way.append(body)
                outbox.sent()
    while (body := outbox.peek()) is not None or under_way:
        if body is not None:
            under_way.append(body)
            outbox.sent()
        else:
            deliver()
    assert arrived == events
    assert len(outbox) == outbox.unsent_bytes == 0


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    library.library.cache_clear()
    with pytest.raises(NotFound, match="libcpg4"):
        library.library()


def test_names_of_groups_are_checked() -> None:
    for name in ("", "x" * 129):
        with pytest.raises(ValueError, match="name"):
            library.Cpg(name)


def test_numbers_of_any_width() -> None:
    most = 2**64 - 1
    word = Word(Position(most, most), Position(most, most))
    for body in (Batch(most, [b"event"]), Fragment(most, 8, 4, b"half")):
        frame = Frame(most, word, body)
        assert parse(pack(frame)) == frame


def test_a_batch_has_an_end() -> None:
    outbox = Outbox()
    for _ in range(EVENTS_MAX + 1):
        outbox.add(b"")
    sizes = []
    while isinstance(body := outbox.peek(), Batch):
        sizes.append(len(body.events))
        outbox.sent()
    assert sizes == [EVENTS_MAX, 1]
