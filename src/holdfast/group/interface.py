"""The interface of a group: an order of events, views, and what a majority holds.

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

from holdfast.errors import Misuse

EVENT_SIZE_MAX = 64 << 20
"""The largest event, in bytes. An engine whose transport takes less splits events."""

FRAME_BYTES = 32 << 10
"""Size from which on a broker sends a frame of events: one that a network carries without fragments."""

WINDOW_BYTES = 4 << 20
"""The most bytes that a member may have in flight to any other member before `drain` waits."""


class Position(NamedTuple):
    """The position of an event in the one order. Positions compare as tuples.

    Example:
        >>> Position(3, 9) < Position(4, 0) < Position(4, 1)
        True
    """

    view: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    """1 for the first event of the view; 0 is the view itself."""

    def __str__(self) -> str:
        return f"{self.view}:{self.index}"


BEGINNING = Position(0, 0)
"""The position before the first view."""


class Member(NamedTuple):
    """One life of a node in the group. After a restart it is another member.

    Example:
        >>> print(Member(node=2, incarnation=7))
        2.7
    """

    node: int
    """The node, which has the vote."""
    incarnation: int
    """The number of this life; a node never uses one twice."""

    def __str__(self) -> str:
        return f"{self.node}.{self.incarnation}"


@dataclass(frozen=True)
class View:
    """The members of the group from a position on, the same on each member.

    `joined` and `left` are the changes since the last quorate view, the same for all members. A quorate view
    that has a member in `joined` is the cut of that member. Before the member applies later events, its state
    must be that of the cut's position.

    Example:
        >>> a, b = Member(1, 1), Member(2, 1)
        >>> view = View(id=4, members=(a, b), joined=(b,), left=(), quorate=True)
        >>> view.is_cut_of(b), view.is_cut_of(a), str(view.position)
        (True, False, '4:0')
    """

    id: int
    """Rises along the history of each member. Two views never share an id, even in parts of a split."""
    members: tuple[Member, ...]
    """In ascending order."""
    joined: tuple[Member, ...]
    left: tuple[Member, ...]
    quorate: bool
    """The members' nodes are a majority of the configured votes."""
    votes: tuple[int, ...] = ()
    """The nodes with a vote, in ascending order; empty for a broker alone."""

    @property
    def position(self) -> Position:
        return Position(self.id, 0)

    def is_cut_of(self, member: Member) -> bool:
        return self.quorate and member in self.joined


class Listener:
    """The receiver of a group's events. The methods do nothing; override those that you need.

    The group calls them on the loop, one at a time, never from inside `mcast`. A listener that raises has
    failed to apply what the other members applied. The group then calls `on_lost`, and the member is out.
    """

    def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        """Receive the next event of the one order, from `member`. Called only in quorate views."""

    def on_view(self, view: View) -> None:
        """Receive a change of members: after the last view's events, before those of this view."""

    def on_stable(self, pos: Position) -> None:
        """Learn that a majority of the configured votes holds all events up to `pos`.

        `pos` rises, and is at most the position of the last delivered event.
        """

    def on_lost(self, reason: str) -> None:
        """Learn that this member is out of the group. To rejoin, start a new group.

        This is the last call to the listener.
        """


@dataclass(frozen=True)
class GroupStats:
    """Positions and bytes of a group, as one member sees them."""

    member: Member
    view: View | None
    delivered: Position
    held: Position
    """The position up to which this member has confirmed that it holds all events."""
    stable: Position
    in_flight_bytes: int
    """Own events that the slowest member of the view has not confirmed; `drain` waits for these."""
    waiting_bytes: int
    """Events that were received and not yet delivered to the listener."""


class Group(ABC):
    """A member's end of a group. After `leave` or `on_lost` create another.

    With `explicit_holds`, an event counts as held only after a call of `hold`. The member calls it after its
    sync, and at its cut when it has the state. Without `explicit_holds`, a delivered event is held.
    """

    alone: bool = False
    """Whether this member is the only one that the group can ever have."""
    frame_bytes: int = FRAME_BYTES
    """Size from which on a broker sends a frame of events before its turn of the loop ends."""

    @property
    def blocked(self) -> bool:
        """Whether `drain` would wait: some member lacks more than a window of this member's events."""
        return False

    @property
    @abstractmethod
    def member(self) -> Member:
        """The member of this end."""

    @abstractmethod
    async def start(self, listener: Listener) -> None:
        """Join the group. Return after the first `on_view`, which need not be quorate.

        Raises:
            Misuse: this group was started before.
            Closed: the member was lost before its first view.
        """

    @abstractmethod
    async def leave(self) -> None:
        """Wait until this member's events are delivered, then leave the group.

        The listener is not called after the return. A second call does nothing; so does one after `on_lost`.
        """

    @abstractmethod
    def mcast(self, event: bytes) -> None:
        """Submit an event, to be delivered once to each member, in the one order.

        This member gets it, too. If this member is lost first, the event may reach all members, only members
        that are lost with this one, or no member.

        Raises:
            NoQuorum: the view is not quorate; nothing was submitted.
            Misuse: not started, or the event is larger than `EVENT_SIZE_MAX`.
            Closed: left, or lost.
        """

    @abstractmethod
    async def drain(self) -> None:
        """Wait until the slowest member has all but a window of this member's events.

        Raises:
            Closed: the member was lost while waiting.
        """

    @abstractmethod
    def hold(self, pos: Position) -> None:
        """Confirm that this member holds its cut's state and the events up to `pos`.

        In a view that is not quorate it has no effect.

        Raises:
            Misuse: `pos` was not delivered yet, or the group was created without `explicit_holds`.
        """

    def evict(self, member: Member, reason: str = "an administrator evicted it") -> None:
        """Go on without a member of the view, which is lost and may come back.

        Raises:
            Misuse: this group cannot, the member is not in the view, or the rest would be no majority.
        """
        raise Misuse(f"a {type(self).__name__} cannot evict member {member}; stop its process")

    @abstractmethod
    def stats(self) -> GroupStats:
        """Return positions and bytes as this member knows them."""
