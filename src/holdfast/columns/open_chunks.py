"""Which chunked messages have begun and not ended, and how far a subscription may therefore move.

A chunked message is read with its last part, and its other parts are looked for before that. So whoever has
read up to a position, and lets the broker trim, keeps the first parts of what is still open there:
`Floor.below` says from where on.

A producer that died leaves a message open for good. It is not waited for any more once so much lies behind
its beginning that no reader looks back so far (LOOK_BACK_BYTES), or when all of the topic is read and nothing
of the message came for WAIT_S; nor when OPEN_MAX others are open of which something came since.

WAIT_S is the broker's log time, from that of the newest part to the log time that the broker tells with the
subscription. The clock of the machine that reads is not asked: it may be a year from the broker's.
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
"""How many are known at a time: whoever asks for them and whoever answers has room for that."""


class OpenChunks(msgspec.Struct, array_like=True, frozen=True):
    """A chunked message that has begun, and whose last part was not there yet."""

    uuid: bytes
    """Its `digest`."""
    first: int
    """Where its first part stands."""
    newest: int
    """Where the last one stands that was seen."""


class _Topic(Protocol):
    """What is needed of a `TopicReader`."""

    incarnation: bytes

    def plan(self) -> tuple[int, int]: ...

    def at_time(self, time_ms: int) -> int: ...

    def weights(self, start: int, stop: int) -> list[tuple[int, int]]: ...

    def open_chunks(self, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]: ...


def digest(uuid: bytes) -> bytes:
    """By which a chunked message is known here: a producer may choose a name of megabytes."""
    return blake2b(uuid, digest_size=16).digest()


def scan(topic: EntryReader, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]:
    """What is open at `stop`, by reading on from `start`, where `before` was open."""
    return scan_for(math.inf, topic, start, stop, before)[0]


def scan_for(
    seconds: float, topic: EntryReader, start: int, stop: int, before: list[OpenChunks]
) -> tuple[list[OpenChunks], int]:
    """The same, for about so long: what is open where it ended, and where that is; it gets on each time."""
    found = {each.uuid: each for each in _newest(before)}
    at, until = start, time.monotonic() + seconds
    while at < stop and (at == start or time.monotonic() < until):
        try:
            run = topic.run(at, stop)
        except Corrupt:  # whoever reads that range says so
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
    """How far below may be trimmed, for one topic. Remembers what is open: each entry is looked at once.

    After a restart it begins where the subscription stands, below which nothing is needed.
    """

    def __init__(self) -> None:
        self._incarnation = b""
        self._at = 0
        self._open: list[OpenChunks] = []

    def below(self, topic: _Topic, since: int, position: int, now_ns: int) -> int:
        """Everything below the answer, at most `position`, can go when all below `position` is read.

        Args:
            topic: as a `Place` opens it.
            since: where the subscription stands; what is open at `position` began there or later.
            position: up to where all is read; below the visible end.
            now_ns: the log time of the topic's broker (`Progress.log_time`); 0: not known, and nothing is too
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
            with contextlib.suppress(Corrupt):  # then its age is not known, and it is kept
                late = topic.at_time((now_ns - int(WAIT_S * 1e9)) // 1_000_000)
                self._open = [each for each in self._open if each.newest >= late]
        while self._open and topic.weights(self._open[0].first, position)[-1][1] > LOOK_BACK_BYTES:
            del self._open[0]
        return self._open[0].first if self._open else position


def _within_reach(topic: _Topic, start: int, stop: int) -> int:
    """From where on readers look for parts of what comes behind `stop`: not before it."""
    if start >= stop:
        return start
    weights = topic.weights(start, stop)
    return max([start, *(at for at, before in weights if weights[-1][1] - before > LOOK_BACK_BYTES)])


__all__ = ["LOOK_BACK_BYTES", "Floor", "OpenChunks", "digest", "scan", "scan_for"]
