"""The base of all groups: a member's life, its positions, the order of calls."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import Closed, Misuse, NoQuorum
from holdfast.group.interface import (
    BEGINNING,
    EVENT_SIZE_MAX,
    Group,
    Listener,
    Member,
    Position,
    View,
)


class BaseGroup(Group):
    """The base of all groups: an engine calls `_deliver`, `_install`, `_tell_stable` and `_lose`."""

    def __init__(self, member: Member, explicit_holds: bool) -> None:
        self._member = member
        self._explicit_holds = explicit_holds
        self._listener: Listener | None = None
        self._ended: str | None = None
        self._view: View | None = None
        self._delivered = BEGINNING
        self._held = BEGINNING
        self._stable = BEGINNING

    @property
    def member(self) -> Member:
        return self._member

    def _begin(self, listener: Listener) -> None:
        if self._listener is not None:
            raise Misuse(f"the group of member {self._member} was started before; create a new group")
        self._listener = listener

    def _require_ready(self, event: bytes) -> None:
        """Raise an error unless an event may be submitted now."""
        if self._ended is not None:
            raise Closed(f"member {self._member} is out of the group: {self._ended}")
        if self._listener is None:
            raise Misuse(
                f"the group of member {self._member} is not started; start it before you submit events"
            )
        if len(event) > EVENT_SIZE_MAX:
            raise Misuse(f"an event has {len(event)} bytes; at most {EVENT_SIZE_MAX} are possible")
        if self._view is None or not self._view.quorate:
            raise NoQuorum(f"member {self._member} sees no majority; submit again after a quorate view")

    def hold(self, pos: Position) -> None:
        if not self._explicit_holds:
            raise Misuse("this group holds events when it delivers them; create it with explicit_holds=True")
        if pos > self._delivered:
            raise Misuse(f"position {pos} was not delivered yet; hold at most {self._delivered}")
        if self._ended is None and pos > self._held and self._view is not None and self._view.quorate:
            self._held = pos
            self._holds_changed()

    def _deliver(self, member: Member, event: bytes) -> None:
        """Deliver the next event of the view to the listener."""
        assert self._view is not None
        pos = Position(self._view.id, self._delivered.index + 1)
        self._delivered = pos
        self._call(lambda listener: listener.on_deliver(pos, member, event))
        self._hold_by_itself()

    def _install(self, view: View) -> None:
        self._view = view
        self._delivered = view.position
        self._call(lambda listener: listener.on_view(view))
        self._hold_by_itself()

    def _tell_stable(self, pos: Position) -> None:
        """Notify the listener that events up to `pos` are stable; at most those delivered here."""
        pos = min(pos, self._delivered)
        if self._ended is None and pos > self._stable:
            self._stable = pos
            self._call(lambda listener: listener.on_stable(pos))

    def _lose(self, reason: str) -> None:
        if self._ended is None:
            self._ended = reason
            if self._listener is not None:
                self._listener.on_lost(reason)
            self._end()

    def _hold_by_itself(self) -> None:
        if self._ended is not None or self._view is None:
            return
        if not self._explicit_holds and self._view.quorate:  # a minority's view has no events
            self._held = self._delivered
        self._holds_changed()

    def _call(self, call: Callable[[Listener], None]) -> None:
        if self._ended is not None or self._listener is None:
            return
        try:
            call(self._listener)
        except Exception as error:
            # A member that failed to apply an event no longer equals the others: it must not go on.
            self._lose(f"its listener raised {error!r}")
            raise

    def _holds_changed(self) -> None:
        """Notify the other members; an engine overrides this."""

    def _end(self) -> None:
        """Release what the engine has, because the member is out; an engine overrides this."""
