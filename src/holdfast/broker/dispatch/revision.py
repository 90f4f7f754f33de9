"""The revision of a cursor: a read compares it before its result is used.

A cursor has a read position, and its dispatcher has tables beside it. A reset changes all of them. It takes
time, because it is durable before memory changes. So it opens a *window*: while one is open, new reads are
refused, and results of earlier reads are not used. At its end, position, tables and revision change in one
step, so a read that started before the window is recognised after it (**I55**).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from holdfast.errors import CursorModifying
from holdfast.system import Clock


class Revision(NamedTuple):
    """A state of the cursor, as a read saw it.

    Any difference means that the cursor has changed.

    Example:
        >>> Revision(reset_number=3, owner_epoch=1, rewind_number=0) == Revision(3, 1, 1)
        False
    """

    reset_number: int
    """Durable: the number of resets. Acknowledgements carry it."""
    owner_epoch: int
    """Durable: rises with every new owner, and when a reset is fenced off."""
    rewind_number: int
    """Volatile: rises when the position moves without a reset."""

    def __str__(self) -> str:
        return f"{self.reset_number}.{self.owner_epoch}.{self.rewind_number}"


class Window:
    """A revision in progress."""

    __slots__ = ("expected", "since_ns", "token")

    def __init__(self, token: bytes, expected: int, since_ns: int) -> None:
        self.token = token
        """Token of the event that ends the window."""
        self.expected = expected
        """The reset number that this event expects."""
        self.since_ns = since_ns


class RevisionController:
    """Keeps the revision of one cursor.

    All calls come from the event loop, so there is no lock.

    `guard(window)` is called when a window has been open for its deadline, and again after each further one.
    It submits a fencing event, and changes nothing itself (**I57**).

    Example:
        >>> from holdfast.system import SystemClock
        >>> revision = RevisionController(reset_number=0, owner_epoch=1, clock=SystemClock())
        >>> seen = revision.begin_read()
        >>> window = revision.start(b"token")
        >>> revision.under_revision, revision.is_outdated(seen), revision.start(b"other")
        (True, True, None)
        >>> position = [7]
        >>> print(revision.end(window, lambda: position.clear(), reset_number=1))
        1.1.0
        >>> revision.is_outdated(seen), revision.is_outdated(revision.begin_read()), position
        (True, False, [])
    """

    def __init__(
        self,
        reset_number: int,
        owner_epoch: int,
        clock: Clock,
        guard: Callable[[Window], None] | None = None,
    ) -> None:
        self._number = Revision(reset_number, owner_epoch, 0)
        self._clock = clock
        self._guard = guard
        self._window: Window | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []

    # -- looking ---------------------------------------------------------------------------------------

    @property
    def number(self) -> Revision:
        return self._number

    @property
    def reset_number(self) -> int:
        return self._number.reset_number

    @property
    def owner_epoch(self) -> int:
        return self._number.owner_epoch

    @property
    def window(self) -> Window | None:
        """The open window."""
        return self._window

    @property
    def under_revision(self) -> bool:
        return self._window is not None

    def is_outdated(self, revision: Revision) -> bool:
        """Return whether a read from this revision must be dropped: it changed, or will."""
        return self._window is not None or revision != self._number

    def begin_read(self) -> Revision:
        """Return the revision that a new read has to compare later.

        Raises:
            CursorModifying: a window is open.
        """
        if self.is_outdated(self._number):
            since_s = 0.0 if self._window is None else self._age_s(self._window)
            raise CursorModifying(
                f"the cursor is being reset (for {since_s:.3f} s so far); read again after the reset"
            )
        return self._number

    # -- changing --------------------------------------------------------------------------------------

    def start(self, token: bytes, deadline_s: float | None = None) -> Window | None:
        """Open a window; `None` if another is open. After `deadline_s` the guard is called."""
        if self._window is not None:
            return None
        self._window = Window(token, self._number.reset_number, self._clock.monotonic_ns())
        if deadline_s is not None:
            self._watch(self._window, deadline_s)
        return self._window

    def end(
        self,
        window: Window,
        editor: Callable[[], None],
        *,
        reset_number: int | None = None,
        owner_epoch: int | None = None,
    ) -> Revision | None:
        """Close this window: run the editor and change the revision, in one step.

        Returns `None`, and runs nothing, if this window has ended before.
        """
        if self._window is not window:
            return None
        self._edit(editor, reset_number, owner_epoch)
        self._close()
        return self._number

    def revise(
        self,
        editor: Callable[[], None],
        *,
        reset_number: int | None = None,
        owner_epoch: int | None = None,
    ) -> Revision:
        """Run the editor and change the revision at once. An open window stays open."""
        self._edit(editor, reset_number, owner_epoch)
        return self._number

    async def closed(self) -> None:
        """Wait until no window is open."""
        while self._window is not None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def abandon(self) -> None:
        """Close the window for good: the guard is not called, and waiting calls continue."""
        self._close()

    # -- inside ----------------------------------------------------------------------------------------

    def _edit(self, editor: Callable[[], None], reset_number: int | None, owner_epoch: int | None) -> None:
        before = self._number
        after = before._replace(
            reset_number=before.reset_number if reset_number is None else reset_number,
            owner_epoch=before.owner_epoch if owner_epoch is None else owner_epoch,
        )
        if after == before:
            after = before._replace(rewind_number=before.rewind_number + 1)
        editor()
        self._number = after

    def _close(self) -> None:
        self._window = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _watch(self, window: Window, deadline_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(deadline_s, self._overdue, window, deadline_s)

    def _overdue(self, window: Window, deadline_s: float) -> None:
        if self._window is not window:
            return
        self._watch(window, deadline_s)
        if self._guard is not None:
            self._guard(window)

    def _age_s(self, window: Window) -> float:
        return (self._clock.monotonic_ns() - window.since_ns) / 1e9
