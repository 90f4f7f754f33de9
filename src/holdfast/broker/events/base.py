"""What an event is, what it may ask when it is applied, and the register of kinds.

A kind is one file: a struct with `kind`, `version`, `durable` and `apply`, under `@register`. Kind 1,
publish, is applied in the core.

Rules for `apply`, on which rest redo and replication (I49: equal events from equal states give equal states):

- It decides from the event, the state and the context alone.
- It decides first and changes then. A refusal is a `HoldfastError`, raised before anything has changed.
- What it changes, it tells with `state.touch`. An event that touched nothing takes no D.
- A field is added at the end, with a default and a new version. A field never changes its meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from holdfast.arguments import require_text
from holdfast.errors import Corrupt, Misuse, Unsupported
from holdfast.group import Member

if TYPE_CHECKING:
    from holdfast.broker.events.notices import Notice
    from holdfast.broker.state import BrokerState

PUBLISH = 1
"""The kind that the core applies."""


class Context:
    """What an event is told beside the state, and where it leaves what others must learn."""

    __slots__ = ("created", "grown", "member", "notices", "time")

    def __init__(self, member: Member | None, time: int) -> None:
        self.member = member
        """Who sent the frame; None when it is read from the journal, which does not keep that."""
        self.time = time
        """Log time, the same for all events of a frame."""
        self.notices: list[Notice] = []
        self.created: list[int] = []
        """Topics that are new."""
        self.grown: list[int] = []
        """Topics that have more entries by another way than a publish."""

    def require_sender(self, member: Member) -> None:
        """Raises Misuse where somebody speaks for another member."""
        if self.member is not None and member != self.member:
            raise Misuse(f"member {self.member} cannot open a session for {member}; only for itself")


class Event(msgspec.Struct, array_like=True, frozen=True):
    """A change that somebody asks for. Its body is the struct in msgpack."""

    kind: ClassVar[int]
    version: ClassVar[int] = 1
    durable: ClassVar[bool] = True
    """It gets a D and goes to the journal, unless it changed nothing."""
    guarded: ClassVar[bool] = True
    """Its fields come from users: `encode` looks at them."""

    @property
    def urgent(self) -> bool:
        """Somebody waits for it: it does not wait for company in the journal."""
        return True

    def encode(self) -> bytes:
        """Its body.

        Raises:
            Misuse: a field is not what it should be. Later would be too late: a member stops at an event that
                it cannot read.
        """
        try:
            body = _encoder.encode(self)
            if self.guarded:
                _decoders[self.kind].decode(body)
        except (msgspec.MsgspecError, OverflowError, TypeError, UnicodeError) as error:
            for field in msgspec.structs.fields(self):
                if field.type is str:
                    require_text(f"{field.name} of {type(self).__name__}", getattr(self, field.name))
            raise Misuse(f"this is no {type(self).__name__}: {error}") from error
        return body

    def apply(self, state: BrokerState, context: Context) -> Any:
        """Do it. Answers the outcome.

        Raises:
            HoldfastError: it is refused, on every member alike; nothing has changed.
        """
        raise NotImplementedError


Kind = TypeVar("Kind", bound=type[Event])

_encoder = msgspec.msgpack.Encoder()
_kinds: dict[int, type[Event]] = {}
_decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {}


def register(event: Kind) -> Kind:
    """Make a kind known. Its number is its for ever."""
    assert event.kind != PUBLISH, f"kind {PUBLISH} is publish"
    assert event.kind not in _kinds, f"kind {event.kind} is {_kinds[event.kind].__name__}"
    _kinds[event.kind] = event
    _decoders[event.kind] = msgspec.msgpack.Decoder(event)
    return event


def kinds() -> dict[int, type[Event]]:
    """Every kind that is known, by its number."""
    return dict(sorted(_kinds.items()))


def decode(kind: int, version: int, body: bytes) -> Event:
    """An event from its body.

    Raises:
        Unsupported: a kind or a version that this program does not know. Whoever knows it applies it, so a
            member that does not must not go on.
        Corrupt: the bytes are none.
    """
    event = _kinds.get(kind)
    if event is None or version > event.version:
        what = f"kind {kind}" if event is None else f"{event.__name__} in version {version}"
        raise Unsupported(f"an event of {what} is from a newer program; update this one")
    try:
        decoded: Event = _decoders[kind].decode(body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Corrupt(f"the body of a {event.__name__} does not decode: {error}") from error
    return decoded
