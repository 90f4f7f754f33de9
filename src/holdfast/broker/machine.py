"""Apply frames of events: the only way in which a broker's state changes.

The input is a frame at a position of the one order. The output is the outcome of each event, and in the log's
round the bytes that make it durable. The same frames give the same state and the same bytes on every member,
and again when the journal is redone (I49).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast import _core
from holdfast.broker import state_codec
from holdfast.broker.events import Context, Event, Notice, Published, ViewChange, decode
from holdfast.broker.events.base import PUBLISH
from holdfast.broker.events.exchanges import refused, route
from holdfast.broker.events.outcomes import NO_ID
from holdfast.broker.state import BrokerState
from holdfast.errors import Corrupt, HoldfastError
from holdfast.group import Member, Position, View
from holdfast.ids import MessageId

_EVENT_COUNT = slice(4, 8)  # in a frame's header: see native/holdfast/base/frame_layout.hpp


class Tail(NamedTuple):
    """A topic that has more entries than before the frame."""

    topic: int
    end: int
    """The ordinal of its next entry."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a frame."""

    position: Position
    first_d: int
    """0: the frame has no durable event."""
    last_d: int
    """The last D so far, of this frame or an earlier one."""
    events: list[Event | None]
    """In their order; None in the place of a publish."""
    outcomes: list[Any]
    """Of each event: its outcome, or the error with which it was refused."""
    tails: list[Tail]
    notices: list[Notice]
    """Changes that concern others than the submitters."""


@dataclass(frozen=True, slots=True)
class Captured:
    """The state at one moment, for a snapshot."""

    d: int
    position: Position
    parts: list[bytes]
    ledgers: dict[int, tuple[int, int]]
    """Every live ledger's file, with the size of its data and its entries."""


class Machine:
    """Holds a broker's state and applies events to it.

    Example:
        >>> from holdfast.broker.events import TopicCreate
        >>> from holdfast.group import Member
        >>> event = TopicCreate("persistent://public/default/orders", bytes(16))
        >>> frame = _core.Frame()
        >>> frame.event(event.kind, event.version, event.encode())
        >>> machine = Machine()
        >>> machine.apply(1, 1, Member(1, 1), frame.take(0)).outcomes
        [TopicCreated(topic=1)]
    """

    def __init__(self, log: _core.Log | None = None) -> None:
        self.state = BrokerState(log or _core.Log())

    @property
    def log(self) -> _core.Log:
        """The core's log. `load` replaces it."""
        return self.state.log

    # -- applying --------------------------------------------------------------------------------------

    def apply(self, view: int, index: int, member: Member, frame: bytes) -> Applied:
        """Apply a frame that was delivered.

        Raises:
            Corrupt: the bytes are not a frame. Nothing has changed.
            Unsupported: the frame has events of a newer program. This member must stop.
        """
        return self._run(Position(view, index), member, frame, redo=False)

    def view(self, view: View, unclean: bool = False) -> Applied:
        """Apply the event with which a view begins, at its position."""
        event = ViewChange(list(view.members), unclean, view.votes)
        frame = _core.Frame()
        frame.event(event.kind, event.version, event.encode())
        return self._run(view.position, None, frame.take(0), redo=False)

    def redo(self, view: int, index: int, frame: bytes) -> None:
        """Apply a frame of the journal. Each of its events was accepted before.

        Raises:
            Corrupt: an event is refused now, so it does not belong to this state.
        """
        applied = self._run(Position(view, index), None, frame, redo=True)
        for event, outcome in zip(applied.events, applied.outcomes, strict=True):
            if isinstance(outcome, HoldfastError):
                what = "a publish" if event is None else type(event).__name__
                raise Corrupt(
                    f"the journal's {what} at {applied.position} was accepted once and is refused now "
                    f"({outcome}): it does not belong to this snapshot; run holdfast doctor"
                ) from outcome

    def _run(self, position: Position, member: Member | None, frame: bytes, redo: bool) -> Applied:
        log, state = self.state.log, self.state
        log.begin(frame, position.view, position.index, redo)
        context = Context(member, log.time, position)
        events: list[Event | None] = []
        outcomes: list[Any] = []
        urgent = False
        while (found := log.step()) is not None:
            event = None if found[0] == PUBLISH else decode(*found)  # else to an exchange
            before = state.changes
            try:
                outcome = route(state, context) if event is None else event.apply(state, context)
            except HoldfastError as refusal:
                if state.changes != before:
                    what = "a publish" if event is None else type(event).__name__
                    raise AssertionError(f"{what} was refused half-way") from refusal
                outcome = refusal.with_traceback(None)
            if redo or state.changes != before:
                log.accept()
                urgent |= event is None or event.urgent
            events.append(event)
            outcomes.append(outcome)
        publishes = int.from_bytes(frame[_EVENT_COUNT], "little") - len(events)
        done = log.finish(urgent or publishes > 0)
        for published in done.published:
            events.insert(published[0], None)
            outcomes.insert(published[0], _published(*published))
        state.position = position
        return Applied(
            position,
            done.first_d,
            done.last_d,
            events,
            outcomes,
            self._tails([*(tail[0] for tail in done.tails), *context.grown]),
            context.notices,
        )

    def _tails(self, topics: Iterable[int]) -> list[Tail]:
        """Return the tails of topics that exist. Hidden ledgers of stages are left out."""
        state, tails = self.state, list[Tail]()
        for id in dict.fromkeys(topics):  # noqa: A001
            topic = state.topics.get(id)
            if topic is not None:
                state.refresh(topic)
                tails.append(Tail(id, topic.ledgers.end))
        return tails

    # -- snapshots -------------------------------------------------------------------------------------

    def load(self, snapshot: Iterable[bytes]) -> None:
        """Replace the state by that of a snapshot's parts.

        Raises:
            Corrupt: the parts do not fit together.
        """
        self.state = state_codec.unpack(snapshot)

    def capture(self) -> Captured:
        """Return the state of this moment, for a snapshot; only changed objects are encoded."""
        state = self.state
        packed = state_codec.pack(state)
        ledgers = {file: (size, entries) for file, size, entries in state.files()}
        return Captured(state.log.next_d - 1, state.position, packed, ledgers)

    def digest(self) -> bytes:
        """Return 16 bytes that are equal for equal states."""
        return state_codec.digest(self.state)

    def check(self) -> None:
        """Assert every invariant."""
        self.state.check()


def _published(
    _: int, code: int, ledger: int, entry: int, ordinal: int, count: int, duplicates: list[int] | None
) -> Published | HoldfastError:
    if code:
        return refused(code)
    first = MessageId(ledger, entry) if count else NO_ID
    return Published(first, ordinal, count, tuple(duplicates or ()))
