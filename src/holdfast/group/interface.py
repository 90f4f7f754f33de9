"""What a broker needs of a group: one order of events, views in it, and the word that a majority has it.

Example:
    >>> import asyncio
    >>> from holdfast.group import Listener, LocalGroup, Member, Position
    >>> class Printer(Listener):
    ...     def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
    ...         print(tuple(pos), member, event)
    >>> async def main() -> None:
    ...     group = LocalGroup()
    ...     await group.start(Printer())
    ...     group.mcast(b"hello")
    ...     await group.leave()
    >>> asyncio.run(main())
    (1, 1) 1.1 b'hello'
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

EVENT_SIZE_MAX = 64 << 20
"""The largest event, in bytes. An engine whose carrier takes less cuts events up by itself."""

WINDOW_BYTES = 4 << 20
"""How much a member may have under way, to anybody, before `drain` waits."""


class Position(NamedTuple):
    """Where an event stands in the one order. Tuples compare as positions do.

    Example:
        >>> Position(3, 9) < Position(4, 0) < Position(4, 1)
        True
    """

    view: int
    index: int  # type: ignore[assignment]  # in the place of tuple.index, which nobody needs here
    """1 for the first event of the view; 0 is the view itself."""

    def __str__(self) -> str:
        return f"{self.view}:{self.index}"


BEGINNING = Position(0, 0)
"""Before everything."""


class Member(NamedTuple):
    """One life of a node in the group. A node that comes back is another member.

    Example:
        >>> print(Member(node=2, incarnation=7))
        2.7
    """

    node: int
    """Carries the vote."""
    incarnation: int
    """Never used twice by its node."""

    def __str__(self) -> str:
        return f"{self.node}.{self.incarnation}"


@dataclass(frozen=True)
class View:
    """Who is in the group from here on. Equal, field by field, on all its members.

    `joined` and `left` are against the last quorate view, whoever looks. A member that stands in `joined` of
    a quorate view is at its cut: its state must be that of this position before it applies what follows.

    Example:
        >>> a, b = Member(1, 1), Member(2, 1)
        >>> view = View(id=4, members=(a, b), joined=(b,), left=(), quorate=True)
        >>> view.is_cut_of(b), view.is_cut_of(a), str(view.position)
        (True, False, '4:0')
    """

    id: int
    """Rises along every member's history; no two views share one, not even in different parts of a split."""
    members: tuple[Member, ...]
    """In ascending order."""
    joined: tuple[Member, ...]
    left: tuple[Member, ...]
    quorate: bool
    """The members' nodes are a majority of the configured votes."""

    @property
    def position(self) -> Position:
        return Position(self.id, 0)

    def is_cut_of(self, member: Member) -> bool:
        return self.quorate and member in self.joined


class Listener:
    """What a group calls, on the loop, one call at a time, never from inside `mcast`. Override what you need.

    A listener that raises has failed to apply what the others applied: it is told `on_lost`, and its member
    is out of the group.
    """

    def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        """The next event of the one order, from `member`. Only in quorate views."""

    def on_view(self, view: View) -> None:
        """The membership changed: after all events of the view before, before all events of this one."""

    def on_stable(self, pos: Position) -> None:
        """A majority of the configured votes holds everything up to `pos`. Rises up to what was delivered."""

    def on_lost(self, reason: str) -> None:
        """This member is no longer in the group. The last call. To come back, start a new group."""


@dataclass(frozen=True)
class GroupStats:
    """A look at one member's group."""

    member: Member
    view: View | None
    delivered: Position
    held: Position
    """Up to where this member has said that it holds everything."""
    stable: Position
    in_flight_bytes: int
    """Own events that some member of the view is not known to have taken; `drain` waits for these."""
    waiting_bytes: int
    """Events that were received and not yet handed to the listener."""


class Group(ABC):
    """A member's end of a group. One object is one life: after `leave` or `on_lost` make another.

    With `explicit_holds`, an event counts as held only when the listener's owner says so with `hold`: after
    its sync, and, at its cut, after it has the state. Else taking the call is holding.
    """

    @property
    @abstractmethod
    def member(self) -> Member:
        """Who this end is."""

    @abstractmethod
    async def start(self, listener: Listener) -> None:
        """Join. Returns after the first `on_view`, which need not be quorate.

        Raises:
            Misuse: this group was started before.
            Closed: the member was lost before its first view.
        """

    @abstractmethod
    async def leave(self) -> None:
        """Wait for the delivery of what this member submitted, then go. Nothing is called after the return.

        A second call does nothing; so does one after `on_lost`.
        """

    @abstractmethod
    def mcast(self, event: bytes) -> None:
        """Submit an event. It is delivered to every member, this one included, once, in the one order.

        If this member is lost first, the event may be delivered to all, to some that are lost with it, or to
        none.

        Raises:
            NoQuorum: the view is not quorate; nothing was submitted.
            Misuse: not started, or the event is larger than `EVENT_SIZE_MAX`.
            Closed: left, or lost.
        """

    @abstractmethod
    async def drain(self) -> None:
        """Wait until less than the window of this member's events is under way to the slowest member.

        Raises:
            Closed: the member was lost while waiting.
        """

    @abstractmethod
    def hold(self, pos: Position) -> None:
        """Say that this member holds everything up to `pos`: what was delivered, and the state of its cut.

        In a view that is not quorate it says nothing: there is nothing to hold.

        Raises:
            Misuse: beyond what was delivered, or this group holds by itself.
        """

    @abstractmethod
    def stats(self) -> GroupStats:
        """What this member knows."""
