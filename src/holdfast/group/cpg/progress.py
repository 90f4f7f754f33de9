"""Progress of the members of a view: stability, the windows, and members without progress.

There are two windows of own events: those that some member has not received, and those that some member has
not on its disk. Without the second one, a member with a slow disk would collect events in memory without end,
because a majority confirms without it.

A word counts only in the view that it is about. An event that a member delivered on its way out of a view may
be another event elsewhere, at the same position. So a position of an earlier view becomes stable only when a
majority holds the current view itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from holdfast.group.cpg.forming import Votes
from holdfast.group.cpg.wire import Word
from holdfast.group.interface import BEGINNING, Member, Position, View

HELD_WINDOWS = 16
"""Windows of own events that a member may have received, and not have on its disk."""
PATIENCE = 2
"""How much longer a member may stand still if it blocks no sender. It may own what others wait for."""


class _Placed(NamedTuple):
    position: Position
    size: int
    since: float


class _Window:
    """Own events that some member lacks, in one sense of it."""

    def __init__(self, most_bytes: int, part: Callable[[Word], Position]) -> None:
        self.bytes = 0
        self.part = part
        self.placed: deque[_Placed] = deque()
        """Own events that this member has received."""
        self.since: dict[Member, float] = {}
        """When a member last got on."""
        self._most_bytes = most_bytes

    @property
    def full(self) -> bool:
        return self.bytes > self._most_bytes

    def settle(self, least: Position) -> None:
        while self.placed and self.placed[0].position <= least:
            self.bytes -= self.placed.popleft().size


class Progress:
    """The words of a view's members, and own events that some member lacks.

    Example:
        >>> a, b = Member(1, 1), Member(2, 1)
        >>> progress = Progress(a, window_bytes=100)
        >>> progress.enter(View(256, (a, b), (a, b), (), True), now=0.0)
        >>> progress.submitted(150), progress.blocked
        (None, True)
        >>> progress.placed(Position(256, 1), 150, now=0.1)
        >>> for member in (a, b):
        ...     progress.heard(member, Word(Position(256, 1), Position(256, 1)), now=0.2)
        >>> progress.blocked, progress.majority_holds(Votes((1, 2)))
        (False, Position(view=256, index=1))
    """

    def __init__(self, me: Member, window_bytes: int) -> None:
        self.untold = False
        """Whether this member's word has changed since it was sent."""
        self._me = me
        self._received = _Window(window_bytes, lambda word: word.received)
        self._held = _Window(HELD_WINDOWS * window_bytes, lambda word: word.held)
        self._view: View | None = None
        self._words: dict[Member, Word] = {}
        self._holders: set[Member] = set()
        """Members that have the state: one that still copies it holds nothing."""
        self._given_up: set[Member] = set()

    @property
    def blocked(self) -> bool:
        return self._received.full or self._held.full

    @property
    def in_flight_bytes(self) -> int:
        """Own events that some member has not received."""
        return self._received.bytes

    def enter(self, view: View, now: float, complete: Collection[Member] = ()) -> None:
        """Begin a view: words of the last one do not count any more.

        `complete` are the members that have the state.
        """
        self._view = view
        self._words = {}
        self._holders = set(complete)
        self._given_up = set()
        for window in (self._received, self._held):
            window.since = dict.fromkeys(view.members, now)
            window.placed = deque(each._replace(since=now) for each in window.placed)

    def submitted(self, size: int) -> None:
        self._received.bytes += size
        self._held.bytes += size

    def placed(self, position: Position, size: int, now: float) -> None:
        """Note that this member has received an own event."""
        for window in (self._received, self._held):
            window.placed.append(_Placed(position, size, now))

    def own(self, word: Word, now: float) -> None:
        """Note this member's own progress."""
        if self._words.get(self._me) != word:
            self.untold = True
            self.heard(self._me, word, now)

    def heard(self, member: Member, word: Word, now: float) -> None:
        """Note the word of a member, unless it is about another view."""
        view = self._view
        if view is None or member not in view.members or word.received.view != view.id:
            return
        before = self._words.get(member)
        for window in (self._received, self._held):
            if before is None or window.part(word) > window.part(before):
                window.since[member] = now
        if word.held.view == view.id:
            self._holders.add(member)
        if before is not None:
            word = Word(max(word.received, before.received), max(word.held, before.held))
        self._words[member] = word
        self._settle(view)

    def majority_holds(self, votes: Votes) -> Position | None:
        """Return the highest position that a majority holds by words of this view, or None."""
        return self._majority(votes, lambda word: word.held)

    def majority_received(self, votes: Votes) -> Position | None:
        """Return the highest position that a majority has received in this view, or None."""
        return self._majority(votes, lambda word: word.received)

    def _majority(self, votes: Votes, part: Callable[[Word], Position]) -> Position | None:
        assert self._view is not None
        reached: dict[int, Position] = {}
        for member, word in self._words.items():
            position = part(word)
            if position.view == self._view.id and member.node in votes.nodes:
                reached[member.node] = max(position, reached.get(member.node, position))
        if len(reached) < votes.majority:
            return None
        return sorted(reached.values(), reverse=True)[votes.majority - 1]

    def hopeless(self, now: float, limit_s: float) -> list[Member]:
        """Return members, each once, that lack an own event and get no further.

        For `limit_s`, if they block this member; else for `PATIENCE` times as long.
        """
        found = {*self._still(self._received, now, limit_s), *self._still(self._held, now, limit_s)}
        # If no other member gets on, the reason may be here.
        if self._view is None or len(found) == len(self._view.members) - 1 > 1:
            return []
        self._given_up |= found
        return sorted(found)

    def _still(self, window: _Window, now: float, limit_s: float) -> list[Member]:
        """Return members that lack the oldest event of a window, and stand still."""
        patience_s = limit_s if window.full else PATIENCE * limit_s
        if self._view is None or not window.placed or now - window.placed[0].since < patience_s:
            return []
        return [
            member
            for member in self._view.members
            if member != self._me
            and member not in self._given_up
            and (window is self._received or member in self._holders)
            and now - window.since[member] >= patience_s
            and self._reached(window, member) < window.placed[0].position
        ]

    def _reached(self, window: _Window, member: Member) -> Position:
        return window.part(self._words[member]) if member in self._words else BEGINNING

    def _settle(self, view: View) -> None:
        """Remove own events from the windows when the members have them."""
        self._received.settle(min(self._reached(self._received, each) for each in view.members))
        if self._holders:
            self._held.settle(min(self._reached(self._held, each) for each in self._holders))
