"""What is asked of Flight: names of actions, and what stands in their bodies and in tickets.

All of it is JSON and comes from outside. Nothing of it is believed: names are parsed, numbers are compared
with what the topic has, and what is too long is not read.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from holdfast import errors
from holdfast.columns.open_chunks import OpenChunks
from holdfast.ids import NUMBER_MAX
from holdfast.names import TopicName

BODY_BYTES_MAX = 1 << 20
"""Of an action's body or a ticket: keys of a filter may stand in it."""
AMONG_MAX = 1000
"""Topics that one question looks for."""

Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
BOUND_MAX = 1 << 62
Bound = Annotated[int, msgspec.Meta(ge=-BOUND_MAX, le=BOUND_MAX)]
Asked = TypeVar("Asked", bound=msgspec.Struct)


class Among(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `topics`, which may be empty. Answered: names."""

    among: Annotated[list[str], msgspec.Meta(max_length=AMONG_MAX)] = []
    """Those that are looked for, if not all; their partitions are meant, too."""


class OfTopic(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `plan`. Answered: Extent."""

    topic: str
    incarnation: str = ""
    """In hexadecimal; empty: whichever is there."""


class AtTime(OfTopic, kw_only=True):
    """The body of `time`. Answered: an ordinal."""

    time_ms: Bound


class InRange(OfTopic, kw_only=True):
    """Some entries of a topic."""

    start: Number
    stop: Number


class Weighed(InRange, kw_only=True):
    """The body of `weights`. Answered: pairs (ordinal, bytes before it)."""

    step: Number = 0
    """One for about so many bytes; 0: one for each ledger."""


class Chunks(InRange, kw_only=True):
    """The body of `chunks`. Answered: Opened."""

    before: list[tuple[bytes, Number, Number]] = []
    """Those that are open at `start`: a digest of its uuid, its first part, its newest."""


class Read(InRange, kw_only=True):
    """A ticket: rows of the entries from `start` up to, without, `stop`."""

    columns: Annotated[list[str], msgspec.Meta(min_length=1, max_length=32)]
    permissive: bool = False
    publish_min_us: Bound | None = None
    publish_max_us: Bound | None = None
    keys: list[bytes] | None = None
    whole: Number | None = None
    skip: Number = 0
    """Rows of the beginning that are there already: an entry may be many."""


class Extent(msgspec.Struct):
    """What a topic holds."""

    incarnation: str
    first: int
    visible: int


class Opened(msgspec.Struct):
    """Which chunked messages are open at an entry."""

    open: list[OpenChunks]
    to: int
    """That entry: `stop`, or an earlier one if that would take long; then whoever asks goes on from there."""


class Mark(msgspec.Struct, array_like=True):
    """Goes with every batch of rows: how to go on behind it, on another connection."""

    start: int
    """Read from this ordinal on ..."""
    skip: int
    """... and leave out so many rows."""
    end: bool = False
    """Nothing comes any more. Without it a stream was cut."""
    damaged: int = 0
    """Entries that this stream has left out (mode=permissive), all before `start`."""


class Trouble(msgspec.Struct):
    """Why something was refused: goes with every error that this program raises on purpose."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: Exception) -> Trouble:
        named = (each.__name__ for each in type(error).__mro__ if hasattr(errors, each.__name__))
        return cls(next(named, "HoldfastError"), str(error))

    def error(self) -> errors.HoldfastError:
        """As it was raised over there."""
        kind = getattr(errors, self.kind, None)
        found = isinstance(kind, type) and issubclass(kind, errors.HoldfastError)
        return kind(self.text) if found else errors.HoldfastError(self.text)  # type: ignore[misc]


def parsed(data: bytes, kind: type[Asked]) -> Asked:
    """Raises Misuse: it is none."""
    if len(data) > BODY_BYTES_MAX:
        raise errors.Misuse(f"the request has {len(data)} bytes; at most {BODY_BYTES_MAX} are read")
    try:
        found = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise errors.Misuse(f"the request is not what it should be: {error}") from None
    if isinstance(found, OfTopic):
        found.topic = str(TopicName.parse(found.topic))
    return found


def require_inside(asked: InRange, first: int, visible: int) -> None:
    """Raises NotFound (it was trimmed), Misuse (it is beyond what is visible)."""
    if asked.start > asked.stop or asked.stop > visible:
        raise errors.Misuse(
            f"{asked.topic}: entries {asked.start} to {asked.stop} are no range below {visible}, the end of "
            "what is visible; plan again"
        )
    if asked.start < first:
        raise errors.NotFound(
            f"{asked.topic}: entry {asked.start} was trimmed; the oldest is {first}; plan again"
        )
