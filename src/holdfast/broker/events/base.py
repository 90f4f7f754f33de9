"""Define events, the context in which they are applied, and the register of kinds.

A kind is a struct with fields and `apply`, under `@event(number)`; the fields are its format. Kinds of one
noun are one file. Kind 1, publish, is applied in the core.

Rules for `apply`, on which redo and replication rest (I49: equal events from equal states give equal states):

- It decides from the event, the state and the context alone.
- It decides first and changes then. A refusal is a `HoldfastError`, raised before anything has changed.
- It reports each change with `state.touch`. An event that touched nothing takes no D.
- A field is added at the end, with a default and a new version. A field never changes its meaning.

Members of a cluster may run different programs. An event is sent in a version that all members know, or it is
refused before it is sent (`holdfast.broker.membership`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from holdfast.arguments import require_text
from holdfast.errors import Corrupt, Misuse, Unsupported
from holdfast.group import BEGINNING, Member, Position

if TYPE_CHECKING:
    from holdfast.broker.events.notices import Notice
    from holdfast.broker.state import BrokerState

PUBLISH = 1
"""The kind that the core applies."""


class Context:
    """Carry what an event knows beside the state, and collect what others must learn."""

    __slots__ = ("grown", "member", "notices", "position", "time")

    def __init__(self, member: Member | None, time: int, position: Position = BEGINNING) -> None:
        self.member = member
        """The sender of the frame; None when it is read from the journal, which does not keep it."""
        self.time = time
        """Log time, the same for all events of a frame."""
        self.position = position
        """Of the frame, in the one order."""
        self.notices: list[Notice] = []
        self.grown: list[int] = []
        """Topics that grew by another event than a publish."""

    def require_sender(self, member: Member) -> None:
        """Raise Misuse if the sender is another member."""
        if self.member is not None and member != self.member:
            raise Misuse(f"member {self.member} cannot open a session for {member}; only for itself")


class Event(msgspec.Struct, array_like=True, frozen=True):
    """A change that is asked for. Its body is the struct in msgpack."""

    kind: ClassVar[int]
    version: ClassVar[int]
    """The newest version that this program knows."""
    base: ClassVar[int]
    """The version that every member knows, also one that has not announced itself yet; 0: none."""
    older: ClassVar[tuple[int, ...]]
    """Number of fields in each version before the newest. Versions that are not here cannot be sent."""
    guarded: ClassVar[bool]
    """Its fields come from users: `encode` checks them."""
    awaited: ClassVar[bool]

    @property
    def urgent(self) -> bool:
        """A caller waits for it: its journal round starts at once."""
        return self.awaited

    def encode(self, version: int | None = None) -> bytes:
        """Return its body, in this version or the newest one.

        Raises:
            Misuse: a field has a wrong type. Later is too late: a member stops at an event that it cannot
                decode.
            Unsupported: the older version cannot say what this event says.
        """
        try:
            if version is None or version == self.version:
                body = _encoder.encode(self)
            else:
                body = _encoder.encode(self._leading(version))
            if self.guarded:
                _decoders[self.kind].decode(body)
        except (msgspec.MsgspecError, OverflowError, TypeError, UnicodeError) as error:
            for field in msgspec.structs.fields(self):
                if field.type is str:
                    require_text(f"{field.name} of {type(self).__name__}", getattr(self, field.name))
            raise Misuse(f"this is not a {type(self).__name__}: {error}") from error
        return body

    def _leading(self, version: int) -> list[Any]:
        """Return the fields of an older version. The others must have their defaults."""
        fields = msgspec.structs.fields(self)
        count = self.older[version - 1] if 0 < version <= len(self.older) else 0
        later = [each.name for each in fields[count:] if getattr(self, each.name) != _default(each)]
        if not count or later:
            what = f"its {', '.join(later)}" if count else "it"
            raise Unsupported(
                f"version {version} of {type(self).__name__} cannot carry {what}; update all members first"
            )
        return [getattr(self, each.name) for each in fields[:count]]

    def apply(self, state: BrokerState, context: Context) -> Any:
        """Change the state. Returns the outcome.

        Raises:
            HoldfastError: the event is refused, on every member alike; nothing has changed.
        """
        raise NotImplementedError


Kind = TypeVar("Kind", bound=type[Event])

_encoder = msgspec.msgpack.Encoder()
_kinds: dict[int, type[Event]] = {}
_decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {}


def event(
    kind: int,
    *,
    version: int = 1,
    base: int = 1,
    older: tuple[int, ...] = (),
    guarded: bool = True,
    urgent: bool = True,
) -> Callable[[Kind], Kind]:
    """Register a class as the event of a kind. A number is never reused.

    A kind that was added after the first cluster has `base=0`: members that do not know it may be present.
    """
    assert kind != PUBLISH, f"kind {PUBLISH} is publish"
    assert kind not in _kinds, f"kind {kind} is {_kinds[kind].__name__}"

    def register(made: Kind) -> Kind:
        made.kind, made.version, made.guarded, made.awaited = kind, version, guarded, urgent
        made.base, made.older = base, older
        _kinds[kind], _decoders[kind] = made, msgspec.msgpack.Decoder(made)
        return made

    return register


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def kinds() -> dict[int, type[Event]]:
    """Return all known kinds by number."""
    return dict(sorted(_kinds.items()))


def decode(kind: int, version: int, body: bytes) -> Event:
    """Decode an event from its body.

    Raises:
        Unsupported: a kind or a version that this program does not know. Other members apply it, so this one
            must stop.
        Corrupt: the bytes are not an event.
    """
    known = _kinds.get(kind)
    if known is None or version > known.version:
        what = f"kind {kind}" if known is None else f"{known.__name__} in version {version}"
        raise Unsupported(f"an event of {what} is from a newer program; update this one")
    try:
        decoded: Event = _decoders[kind].decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Corrupt(f"the body of a {known.__name__} does not decode: {error}") from error
    return decoded
