"""The revision controller by itself: windows, numbers, and the guard (I55, I56, I57)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.broker.dispatch.revision import Revision, RevisionController, Window
from holdfast.errors import CursorModifying
from tests.kit.sim.loop import SimLoop
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.world import SimClock


def in_virtual_time(coroutine: Coroutine[Any, Any, None], loop: SimLoop) -> None:
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.close()


@pytest.fixture
def loop() -> SimLoop:
    return SimLoop(SeededRandomness(1))  # type: ignore[abstract]  # sockets it has none


@pytest.fixture
def revision(loop: SimLoop) -> RevisionController:
    return RevisionController(3, 2, SimClock(loop, 0))


def nothing() -> None:
    """An editor that changes nothing."""


def test_a_read_is_current_until_something_changes(revision: RevisionController) -> None:
    seen = revision.begin_read()
    assert seen == Revision(3, 2, 0) == revision.number
    assert not revision.is_outdated(seen)
    assert (revision.reset_number, revision.owner_epoch, revision.number.rewind_number) == seen


@pytest.mark.parametrize(
    ("change", "number"),
    [
        ({}, Revision(3, 2, 1)),
        ({"reset_number": 4}, Revision(4, 2, 0)),
        ({"owner_epoch": 3}, Revision(3, 3, 0)),
        ({"reset_number": 3, "owner_epoch": 2}, Revision(3, 2, 1)),
    ],
)
def test_any_change_outdates_a_read(
    revision: RevisionController, change: dict[str, int], number: Revision
) -> None:
    seen = revision.begin_read()
    assert revision.revise(nothing, **change) == number
    assert revision.is_outdated(seen)
    assert not revision.is_outdated(revision.begin_read())


def test_a_window_refuses_reads_and_outdates_those_in_flight(revision: RevisionController) -> None:
    seen = revision.begin_read()
    window = revision.start(b"token")
    assert window is not None
    assert revision.under_revision
    assert revision.window is window
    assert (window.token, window.expected) == (b"token", 3)
    assert revision.is_outdated(seen)
    with pytest.raises(CursorModifying, match="being reset"):
        revision.begin_read()
    revision.end(window, nothing)
    assert not revision.under_revision
    assert revision.is_outdated(seen)  # also where nothing was edited


def test_one_window_at_a_time(revision: RevisionController) -> None:
    first = revision.start(b"first")
    assert first is not None
    assert revision.start(b"second") is None
    assert revision.end(first, nothing) is not None
    second = revision.start(b"second")
    assert second is not None
    edited: list[str] = []
    assert revision.end(first, lambda: edited.append("late")) is None
    assert not edited
    assert revision.under_revision


def test_the_editor_runs_before_the_number_changes(revision: RevisionController) -> None:
    seen: list[Revision] = []
    window = revision.start(b"token")
    assert window is not None
    assert revision.end(window, lambda: seen.append(revision.number), reset_number=4) == Revision(4, 2, 0)
    assert seen == [Revision(3, 2, 0)]


def test_an_editor_that_fails_leaves_the_window_open(revision: RevisionController) -> None:
    window = revision.start(b"token")
    assert window is not None
    with pytest.raises(ZeroDivisionError):
        revision.end(window, lambda: 1 // 0)  # type: ignore[arg-type]
    assert revision.under_revision
    assert revision.number == Revision(3, 2, 0)


def test_changes_inside_a_window_join_in(revision: RevisionController) -> None:
    window = revision.start(b"token")
    assert window is not None
    assert revision.revise(nothing) == Revision(3, 2, 1)
    assert revision.under_revision
    assert revision.end(window, nothing, reset_number=4) == Revision(4, 2, 1)


def test_who_waits_goes_on_when_the_window_closes(loop: SimLoop, revision: RevisionController) -> None:
    async def main() -> None:
        window = revision.start(b"token")
        assert window is not None
        order: list[int] = []

        async def wait(number: int) -> None:
            await revision.closed()
            order.append(number)

        waiting = [asyncio.ensure_future(wait(number)) for number in range(3)]
        await asyncio.sleep(1)
        assert order == []
        revision.end(window, nothing)
        await asyncio.gather(*waiting)
        assert order == [0, 1, 2]
        await revision.closed()  # and there is nothing to wait for now

    in_virtual_time(main(), loop)


def test_the_guard_is_called_again_and_again_and_edits_nothing(loop: SimLoop) -> None:
    guarded: list[tuple[float, Window]] = []
    revision = RevisionController(
        0, 0, SimClock(loop, 0), lambda window: guarded.append((round(loop.time(), 3), window))
    )

    async def main() -> None:
        window = revision.start(b"token", deadline_s=5)
        assert window is not None
        await asyncio.sleep(16)
        assert guarded == [(5.0, window), (10.0, window), (15.0, window)]
        assert revision.under_revision
        assert revision.number == Revision(0, 0, 0)
        revision.end(window, nothing)
        await asyncio.sleep(20)
        assert len(guarded) == 3

    in_virtual_time(main(), loop)
