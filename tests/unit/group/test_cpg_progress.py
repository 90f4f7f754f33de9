"""The windows of own events, and members that stand still."""

from __future__ import annotations

from holdfast.group import Member, Position, View
from holdfast.group.cpg.progress import HELD_WINDOWS, PATIENCE, Progress
from holdfast.group.cpg.wire import Word

ME, TWO, THREE = Member(1, 1), Member(2, 1), Member(3, 1)
ALL = (ME, TWO, THREE)
VIEW = View(1 << 16, ALL, ALL, (), True)
WINDOW, LIMIT_S = 100, 10.0


def at(index: int) -> Position:
    return Position(VIEW.id, index)


def progress(*complete: Member) -> Progress:
    made = Progress(ME, WINDOW)
    made.enter(VIEW, 0.0, complete)
    return made


def send(progress: Progress, index: int, size: int = 10) -> None:
    progress.submitted(size)
    progress.placed(at(index), size, 0.0)


def test_a_member_that_blocks_nobody_is_given_up_later() -> None:
    """A paused owner keeps its subscriptions from all others, also if little is published."""
    made = progress()
    send(made, 1)
    made.heard(ME, Word(at(1), at(1)), 0.0)
    made.heard(TWO, Word(at(1), at(1)), 0.0)
    assert not made.blocked
    assert made.hopeless(PATIENCE * LIMIT_S - 1, LIMIT_S) == []
    assert made.hopeless(PATIENCE * LIMIT_S, LIMIT_S) == [THREE]
    assert made.hopeless(PATIENCE * LIMIT_S + 1, LIMIT_S) == [], "each once"


def test_a_member_without_anything_to_receive_is_not_given_up() -> None:
    made = progress()
    assert made.hopeless(1e9, LIMIT_S) == []
    send(made, 1)
    for member in ALL:
        made.heard(member, Word(at(1), at(1)), 0.0)
    assert made.hopeless(1e9, LIMIT_S) == []


def test_a_slow_disk_holds_the_sender_back() -> None:
    """I28: what a member has received is in its memory until its disk has it."""
    made, sent = progress(*ALL), 0
    while not made.blocked:
        sent += 1
        send(made, sent)
        for member in ALL:
            made.heard(member, Word(at(sent), at(0 if member == THREE else sent)), 0.0)
    assert made.in_flight_bytes == 0
    assert HELD_WINDOWS * WINDOW < 10 * sent <= HELD_WINDOWS * WINDOW + 10
    made.heard(THREE, Word(at(sent), at(1)), 0.0)
    assert not made.blocked
    send(made, sent + 1)
    made.heard(THREE, Word(at(sent), at(2)), LIMIT_S)
    assert THREE not in made.hopeless(1.5 * LIMIT_S, LIMIT_S), "it gets on"


def test_a_disk_that_hangs_is_given_up() -> None:
    made = progress(*ALL)
    send(made, 1, size=HELD_WINDOWS * WINDOW + 1)
    for member in ALL:
        made.heard(member, Word(at(1), at(0 if member == THREE else 1)), 0.0)
    assert made.blocked
    assert made.hopeless(LIMIT_S, LIMIT_S) == [THREE]


def test_a_member_that_still_copies_the_state_holds_nobody_back() -> None:
    made, sent = progress(ME, TWO), 0
    while sent * 10 <= 2 * HELD_WINDOWS * WINDOW:
        sent += 1
        send(made, sent)
        for member in ALL:
            made.heard(member, Word(at(sent), Position(0, 0) if member == THREE else at(sent)), 0.0)
    assert not made.blocked
    assert made.hopeless(1e9, LIMIT_S) == []


def test_a_new_view_begins_the_time_again() -> None:
    made = progress(*ALL)
    send(made, 1)
    made.heard(ME, Word(at(1), at(1)), 0.0)
    made.heard(TWO, Word(at(1), at(1)), 0.0)
    made.enter(View(2 << 16, ALL, (), (), True), PATIENCE * LIMIT_S, ALL)
    assert made.hopeless(PATIENCE * LIMIT_S + 1, LIMIT_S) == []
