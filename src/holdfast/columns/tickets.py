"""Requests to Flight: names of actions, their bodies, and tickets.

All of them are JSON from outside. Names are parsed, numbers are compared with the topic, and bodies that are
too long are not read.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from holdfast import errors
from holdfast.columns.open_chunks import OpenChunks
from holdfast.ids import NUMBER_MAX
from holdfast.names import TopicName

BODY_BYTES_MAX = 1 << 20
"""Bytes of an action's body or a ticket, which may have the keys of a filter."""
AMONG_MAX = 1000
"""How many topics one request looks for."""

NEWEST = -1
"""Instead of the number of a compacted view: the newest one. A topic without a view is read itself."""

Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
BOUND_MAX = 1 << 62
Bound = Annotated[int, msgspec.Meta(ge=-BOUND_MAX, le=BOUND_MAX)]
Asked = TypeVar("Asked", bound=msgspec.Struct)


class Among(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `topics`, which may be empty. The result is a list of names."""

    among: Annotated[list[str], msgspec.Meta(max_length=AMONG_MAX)] = []
    """The topics to look for, with their partitions; empty: all."""


class OfTopic(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `plan`. The result is an Extent.

    Defaults are not sent: an older server may not know the field.
    """

    topic: str
    incarnation: str = ""
    """In hexadecimal; empty: any."""
    view: Annotated[int, msgspec.Meta(ge=NEWEST, le=NUMBER_MAX)] = 0
    """The number of the compacted view to read through; 0: none. Only `plan` takes NEWEST."""


class AtTime(OfTopic, kw_only=True):
    """The body of `time`. The result is an ordinal."""

    time_ms: Bound


class InRange(OfTopic, kw_only=True):
    """A range of entries of a topic."""

    start: Number
    stop: Number


class Weighed(InRange, kw_only=True):
    """The body of `weights`. The result is pairs (ordinal, bytes before it)."""

    step: Number = 0
    """Bytes between pairs, roughly; 0: one pair for each ledger."""


class Chunks(InRange, kw_only=True):
    """The body of `chunks`. The result is an Opened."""

    before: list[tuple[bytes, Number, Number]] = []
    """Messages that are open at `start`: digest of the uuid, first part, newest part."""


class OfVersions(OfTopic, kw_only=True):
    """The body of `schemas`. The result is a list of schemas, from version `first` on.

    It may have some of them only. It is empty behind the last one. An empty schema stands for a deletion.
    """

    first: Number = 0


class Read(InRange, kw_only=True):
    """A ticket for rows of the entries from `start` up to, but not including, `stop`."""

    columns: Annotated[list[str], msgspec.Meta(min_length=1, max_length=32)]
    permissive: bool = False
    publish_min_us: Bound | None = None
    publish_max_us: Bound | None = None
    keys: list[bytes] | None = None
    whole: Number | None = None
    skip: Number = 0
    """Rows at the beginning that the reader has already: an entry may have many."""


class Extent(msgspec.Struct):
    """The readable range of a topic."""

    incarnation: str
    first: int
    visible: int
    view: int = 0
    """The number of the compacted view; 0: none."""
    horizon: int = 0
    """The entry below which the view stands for the topic."""


class Opened(msgspec.Struct):
    """The chunked messages that are open at an entry."""

    open: list[OpenChunks]
    to: int
    """That entry: `stop`, or an earlier one if that would take long. The caller continues from there."""


class Mark(msgspec.Struct, array_like=True):
    """Sent with every batch of rows: where another connection continues after it."""

    start: int
    """Read from this ordinal on ..."""
    skip: int
    """... and leave out this many rows."""
    end: bool = False
    """Whether the stream is complete. Without it the stream was cut."""
    damaged: int = 0
    """How many entries this stream has left out (mode=permissive), all before `start`."""


class Trouble(msgspec.Struct):
    """An error that this program raises on purpose, as it is sent."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: Exception) -> Trouble:
        named = (each.__name__ for each in type(error).__mro__ if hasattr(errors, each.__name__))
        return cls(next(named, "HoldfastError"), str(error))

    def error(self) -> errors.HoldfastError:
        """Return the error as it was raised by the server."""
        kind = getattr(errors, self.kind, None)
        found = isinstance(kind, type) and issubclass(kind, errors.HoldfastError)
        return kind(self.text) if found else errors.HoldfastError(self.text)  # type: ignore[misc]


def parsed(data: bytes, kind: type[Asked]) -> Asked:
    """Decode a request. Raises Misuse: it is malformed."""
    if len(data) > BODY_BYTES_MAX:
        raise errors.Misuse(f"the request has {len(data)} bytes; at most {BODY_BYTES_MAX} are read")
    try:
        found = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise errors.Misuse(f"the request is malformed: {error}") from None
    if isinstance(found, OfTopic):
        found.topic = str(TopicName.parse(found.topic))
    return found


def require_inside(asked: InRange, first: int, visible: int) -> None:
    """Raise NotFound if the range was trimmed, Misuse if it is beyond the visible end."""
    if asked.start > asked.stop or asked.stop > visible:
        raise errors.Misuse(
            f"{asked.topic}: entries {asked.start} to {asked.stop} are not a range below {visible}, the "
            "visible end; plan again"
        )
    if asked.start < first:
        raise errors.NotFound(
            f"{asked.topic}: entry {asked.start} was trimmed; the oldest is {first}; plan again"
        )
