"""Find open chunked messages, and how far a subscription may therefore move.

A chunked message is read with its last part, and its other parts are looked for before that. So the broker
must keep the first parts of messages that are still open. `Floor.below` returns up to where a reader may let
it trim.

A producer that died leaves a message open for good. Such a message is given up in three cases:

- More than LOOK_BACK_BYTES follow its beginning: no reader looks back that far.
- The whole topic is read, and no part of the message came for WAIT_S.
- OPEN_MAX other messages are open that had a part since.

WAIT_S is log time: from the newest part to the log time that the broker returns with the subscription. The
clock of the reading machine is not used: it may differ from the broker's by a year.
"""

from __future__ import annotations

import contextlib
import math
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast._core import chunks_in
from holdfast.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from holdfast.columns.files import EntryReader

LOOK_BACK_BYTES = 1 << 30
"""How far before its range a reader looks for the beginning of a chunked message."""
WAIT_S = 3600.0
"""Clients give up after a minute by default."""
OPEN_MAX = 4096
"""How many open messages are known at a time; client and server have memory for that."""


class OpenChunks(msgspec.Struct, array_like=True, frozen=True):
    """A chunked message whose last part has not been seen."""

    uuid: bytes
    """The `digest` of its uuid."""
    first: int
    """Position of its first part."""
    newest: int
    """Position of its newest part."""


class _Topic(Protocol):
    """The part of `TopicReader` that is needed here."""

    incarnation: bytes

    def plan(self) -> tuple[int, int]: ...

    def at_time(self, time_ms: int) -> int: ...

    def weights(self, start: int, stop: int) -> list[tuple[int, int]]: ...

    def open_chunks(self, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]: ...


def digest(uuid: bytes) -> bytes:
    """Return a short key for a chunked message, whose uuid may have megabytes."""
    return blake2b(uuid, digest_size=16).digest()


def scan(topic: EntryReader, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]:
    """Return the messages open at `stop`, given those at `start`, by reading in between."""
    return scan_for(math.inf, topic, start, stop, before)[0]


def scan_for(
    seconds: float, topic: EntryReader, start: int, stop: int, before: list[OpenChunks]
) -> tuple[list[OpenChunks], int]:
    """Like `scan`, but time-limited; always makes progress. Returns the position that was reached, too."""
    found = {each.uuid: each for each in _newest(before)}
    at, until = start, time.monotonic() + seconds
    while (at := topic.next(at, stop)) < stop and (at == start or time.monotonic() < until):
        try:
            run = topic.run(at, stop)
        except Corrupt:  # reported by the reader of that range
            at += 1
            continue
        except NotFound:
            at = max(at + 1, topic.plan()[0])
            continue
        for place, name, chunk, chunks in chunks_in(run):
            uuid, ordinal = digest(name), run.first_ordinal + place
            known = found.get(uuid)
            if chunk == chunks - 1:
                found.pop(uuid, None)
            elif known is not None:
                found[uuid] = OpenChunks(uuid, known.first, ordinal)
            elif chunk == 0:
                found[uuid] = OpenChunks(uuid, ordinal, ordinal)
        if len(found) > OPEN_MAX:
            found = {each.uuid: each for each in _newest(list(found.values()))}
        at += len(run)
    return sorted(found.values(), key=lambda each: each.first), min(at, stop)


def _newest(found: list[OpenChunks]) -> list[OpenChunks]:
    return sorted(found, key=lambda each: each.newest)[-OPEN_MAX:]


class Floor:
    """Computes up to where one topic may be trimmed. Each entry is read once.

    After a restart it starts at the subscription's position: nothing below it is needed.
    """

    def __init__(self) -> None:
        self._incarnation = b""
        self._at = 0
        self._open: list[OpenChunks] = []

    def below(self, topic: _Topic, since: int, position: int, now_ns: int) -> int:
        """Return up to where entries may be trimmed, when all below `position` is read.

        Args:
            topic: as a `Place` opens it.
            since: position of the subscription; messages open at `position` started there or later.
            position: all below it is read; it is below the visible end.
            now_ns: log time of the topic's broker (`Progress.log_time`); 0: not known, and no message is too
                old.
        """
        first, visible = topic.plan()
        if topic.incarnation != self._incarnation or not since <= self._at <= position:
            self._incarnation, self._open = topic.incarnation, []
            self._at = _within_reach(topic, min(max(since, first), position), position)
        start = min(max(self._at, first), position)
        self._open = topic.open_chunks(start, position, self._open) if start < position else self._open
        self._at = position
        self._open = [each for each in self._open if each.first >= first]
        if self._open and position >= visible and now_ns:
            with contextlib.suppress(Corrupt):  # then the age is unknown, and the message is kept
                late = topic.at_time((now_ns - int(WAIT_S * 1e9)) // 1_000_000)
                self._open = [each for each in self._open if each.newest >= late]
        while self._open and topic.weights(self._open[0].first, position)[-1][1] > LOOK_BACK_BYTES:
            del self._open[0]
        return self._open[0].first if self._open else position


def _within_reach(topic: _Topic, start: int, stop: int) -> int:
    """Return from where on readers look for parts of messages that end behind `stop`."""
    if start >= stop:
        return start
    weights = topic.weights(start, stop)
    return max([start, *(at for at, before in weights if weights[-1][1] - before > LOOK_BACK_BYTES)])


__all__ = ["LOOK_BACK_BYTES", "Floor", "OpenChunks", "digest", "scan", "scan_for"]
