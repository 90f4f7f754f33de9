"""The format of messages that members send to each other through the carrier.

```
   0        4        5     6          8            16          24         32         40         48
   ┌────────┬────────┬─────┬──────────┬────────────┬───────────┬──────────┬──────────┬──────────┬───────
   │ "HFcg" │ version│ kind│ 0        │ incarnation│ received: view, index │ held: view, index   │ body
   └────────┴────────┴─────┴──────────┴────────────┴───────────┴──────────┴──────────┴──────────┴───────
   body of a batch      u64 number of the first event, u32 count, count × u32 size, the events
   body of a fragment   u64 number of the event, u64 its size, u64 offset, bytes
   body of the others   MessagePack: Announce, Exclude, Evict
```

Integers are little-endian. Every frame carries its sender's word: the positions that it has received, and
holds. Any program may send to a group, so `parse` refuses everything that does not fit.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from holdfast.errors import Corrupt
from holdfast.group.cpg.carrier import Process
from holdfast.group.interface import EVENT_SIZE_MAX, Member, Position

MAGIC = b"HFcg"
VERSION = 1
HEADER = struct.Struct("<4sBBHQQQQQ")
BATCH = struct.Struct("<QI")
FRAGMENT = struct.Struct("<QQQ")
GENERATION_MAX = 1 << 46
"""Above it, the ids of views would have more than 63 bits."""
KIND_BATCH, KIND_FRAGMENT, KIND_ANNOUNCE, KIND_EXCLUDE, KIND_EVICT = range(1, 6)


class Word(msgspec.Struct, frozen=True):
    """The progress of a member: both positions are cumulative."""

    received: Position
    held: Position


class Announce(msgspec.Struct, frozen=True):
    """The state of a member, for the view that a list of processes shall have."""

    generation: int
    """The generation of the view; members raise it until all have announced the same."""
    processes: list[Process]
    """The list as this member knows it, without the excluded."""
    excluded: list[Process]
    primary: int
    """Id of the primary view that the member is in; 0 if it is in none."""
    members: list[Member]
    """The members of that view."""
    index: int
    """Number of the view's events that the member has received."""
    doomed: bool
    """Whether it saw a list without a majority since that view."""
    complete: bool
    """Whether it holds the state of its cut."""
    next_number: int
    """Number of its next event that no member has received."""
    votes: list[int]
    """The nodes with a vote, by its configuration."""


class Exclude(msgspec.Struct, frozen=True):
    """A proposal to form the view of a list without processes that do not answer."""

    processes: list[Process]
    """The list that the proposal is about."""
    targets: list[Process]


class Evict(msgspec.Struct, frozen=True):
    """An order to go on without a member of the view."""

    number: int
    target: Member
    reason: str


@dataclass(frozen=True)
class Batch:
    """Whole events, with consecutive numbers from `first` on."""

    first: int
    events: Sequence[bytes]


@dataclass(frozen=True)
class Fragment:
    """A part of a large event."""

    number: int
    size: int
    offset: int
    data: bytes | memoryview
    """Without a copy, where the bytes are in a frame or an event."""


Body = Batch | Fragment | Announce | Exclude | Evict
Control = TypeVar("Control", Announce, Exclude, Evict)
KINDS: dict[int, type[Announce] | type[Exclude] | type[Evict]] = {
    KIND_ANNOUNCE: Announce,
    KIND_EXCLUDE: Exclude,
    KIND_EVICT: Evict,
}


@dataclass(frozen=True)
class Frame:
    """A message of a member."""

    incarnation: int
    word: Word
    body: Body


def pack(frame: Frame) -> bytes:
    """Return the bytes of a frame.

    Example:
        >>> word = Word(Position(256, 7), Position(256, 5))
        >>> parse(pack(Frame(3, word, Batch(9, [b"an event"])))).body
        Batch(first=9, events=[b'an event'])
    """
    body = frame.body
    parts: list[bytes | memoryview]
    if isinstance(body, Batch):
        sizes = struct.pack(f"<{len(body.events)}I", *map(len, body.events))
        kind, parts = KIND_BATCH, [BATCH.pack(body.first, len(body.events)), sizes, *body.events]
    elif isinstance(body, Fragment):
        kind, parts = KIND_FRAGMENT, [FRAGMENT.pack(body.number, body.size, body.offset), body.data]
    else:
        kind = next(number for number, made in KINDS.items() if isinstance(body, made))
        parts = [msgspec.msgpack.encode(body)]
    word = frame.word
    header = HEADER.pack(MAGIC, VERSION, kind, 0, frame.incarnation, *word.received, *word.held)
    return b"".join([header, *parts])


def parse(data: bytes) -> Frame:
    """Return the frame in these bytes.

    Raises:
        Corrupt: the bytes are not a frame of this version.
    """
    try:
        magic, version, kind, _, incarnation, *numbers = HEADER.unpack_from(data)
    except struct.error:
        raise Corrupt(
            f"a message of {len(data)} bytes is too short for a frame; another program sent it"
        ) from None
    if magic != MAGIC or version != VERSION:
        raise Corrupt(f"a message begins with {data[:5]!r}; it is not a frame of version {VERSION}")
    word = Word(Position(numbers[0], numbers[1]), Position(numbers[2], numbers[3]))
    return Frame(incarnation, word, _body(kind, data))


def _body(kind: int, data: bytes) -> Body:
    at = HEADER.size
    try:
        if kind == KIND_BATCH:
            return _batch(data, at)
        if kind == KIND_FRAGMENT:
            number, size, offset = FRAGMENT.unpack_from(data, at)
            part = memoryview(data)[at + FRAGMENT.size :]
            if not 0 < size <= EVENT_SIZE_MAX or not part or offset + len(part) > size:
                raise Corrupt(f"a fragment has {len(part)} bytes at {offset} of {size}; drop it")
            return Fragment(number, size, offset, part)
        if kind in KINDS:
            body = msgspec.msgpack.decode(memoryview(data)[at:], type=KINDS[kind])
            if isinstance(body, Announce) and not 0 <= body.generation < GENERATION_MAX:
                raise Corrupt(f"an announce has the generation {body.generation}; drop it")
            return body
    except (struct.error, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Corrupt(f"the body of a frame of kind {kind} is not readable: {error}") from None
    raise Corrupt(f"a frame has the unknown kind {kind}")


def _batch(data: bytes, at: int) -> Batch:
    first, count = BATCH.unpack_from(data, at)
    at += BATCH.size
    if count * 4 > len(data) - at:
        raise Corrupt(f"a batch names {count} events; its frame has {len(data)} bytes")
    sizes = struct.unpack_from(f"<{count}I", data, at)
    at += 4 * count
    if at + sum(sizes) != len(data):
        raise Corrupt(
            f"the events of a batch have {sum(sizes)} bytes; its frame has room for {len(data) - at}"
        )
    events = []
    for size in sizes:
        events.append(data[at : at + size])
        at += size
    return Batch(first, events)
