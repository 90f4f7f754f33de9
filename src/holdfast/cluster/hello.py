"""Hellos: the words of members in the group while one of them joins."""

from __future__ import annotations

import msgspec

from holdfast.broker.events import ViewChange, decode
from holdfast.broker.state import ViewMark
from holdfast.broker.state_codec import history_of
from holdfast.errors import Corrupt, HoldfastError
from holdfast.ledger.copies import StoreSurvey

_EVENT = 16
"""Where the first event of a frame begins; see native/holdfast/base/frame_layout.hpp."""
_BODY = _EVENT + 8


class Held(msgspec.Struct, array_like=True, frozen=True):
    """The durable events of one frame: D of the last one, position, checksum."""

    last_d: int
    view: int
    index: int
    crc: int


class CutMark(msgspec.Struct, array_like=True, frozen=True):
    """The view in which a copy was begun: its member holds nothing of it."""

    view: int
    check: int


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """A member's directory, as the others must know it to choose whose continues.

    Example:
        >>> Hello.decode(Hello(node=2, fresh=True).encode()).node
        2
    """

    node: int
    ready: bool = False
    """It serves, or was elected: others can copy from it."""
    fresh: bool = False
    """It has no store."""
    cluster: bytes = b""
    """The incarnation of its directory."""
    complete: bool = True
    """False: a copy did not end, or the store is damaged."""
    cuts: list[CutMark] = msgspec.field(default_factory=list)
    """If a copy did not end: in which views it was begun."""
    forced: bool = False
    """An administrator has chosen it as the survivor."""
    history: list[ViewMark] = msgspec.field(default_factory=list)
    stable_d: int = 0
    """It knows that all events up to this one are stable."""
    last_d: int = 0
    start_d: int = 0
    """All its frames behind this event are listed."""
    frames: list[Held] = msgspec.field(default_factory=list)
    damage: str = ""

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """Decode a hello.

        Raises:
            Corrupt: the bytes are none.
        """
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise Corrupt(f"a member sent a hello that does not decode: {error}; update it") from error

    @property
    def last_view(self) -> ViewMark | None:
        """The view of its last events."""
        return self.history[-1] if self.history else None


def hello_of(node: int, found: StoreSurvey, forced: bool = False) -> Hello:
    """Return what a member says about its directory."""
    cuts, damage = list[CutMark](), found.damage
    if found.mark is not None:
        try:
            cuts = msgspec.msgpack.decode(found.mark, type=list[CutMark])
        except (msgspec.MsgspecError, RecursionError) as error:
            damage = f"its mark does not decode: {error}"
    try:
        views = views_of(found)
    except HoldfastError as error:
        views, damage = [], str(error)
    return Hello(
        node=node,
        fresh=found.fresh,
        cluster=found.incarnation,
        complete=found.mark is None and not damage,
        cuts=cuts,
        forced=forced,
        history=views,
        stable_d=found.stable_d,
        last_d=found.last_d,
        start_d=found.start_d,
        frames=[Held(frame.last_d, *frame.position, frame.crc) for frame in found.frames],
        damage=damage,
    )


def views_of(found: StoreSurvey) -> list[ViewMark]:
    """Return the views of a directory: of its snapshot, and of the journal behind it."""
    views = [] if found.head is None else history_of(found.head)
    for d, position, frame in found.views:
        event = decode(frame[_EVENT + 4], frame[_EVENT + 5], frame[_BODY:])
        if isinstance(event, ViewChange):
            views.append(event.mark(position.view, d))
    return views
