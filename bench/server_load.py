"""The load generator: plain sockets and pre-encoded frames, the same for each contestant.

It is written in Python. Its work per message is small: a slice of a buffer out, a step over a frame in. So it
keeps servers busier than usual clients do. Its own processor time is not the server's.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bench.answers import BenchError

CHUNK = 500
"""Messages sent with one call."""
DEPTH = 4
"""Chunks in flight."""
READ = 1 << 18
SILENT_S = 20.0


class Counter(Protocol):
    """Finds answers in the bytes that were read."""

    def __call__(self, data: bytes) -> int:
        """Return how many answers ended in this piece; keep an incomplete one for the next."""


@dataclass(frozen=True)
class Load:
    """The result of a generator."""

    messages: int
    seconds: float


def read(wire: socket.socket) -> bytes:
    wire.settimeout(SILENT_S)
    try:
        data = wire.recv(READ)
    except TimeoutError:
        raise BenchError(f"no answer within {SILENT_S:.0f} s") from None
    if not data:
        raise BenchError("the server has closed the connection")
    return data


def flood(
    wire: socket.socket,
    chunk: bytes,
    messages: int,
    counter: Counter,
    seconds: float,
    per: int = 1,
    depth: int = DEPTH,
) -> Load:
    """Send a chunk of messages repeatedly, with at most `depth` chunks in flight.

    `per`: messages per answer.
    """
    sent = answered = 0
    begin = time.perf_counter()
    end = begin + seconds
    while True:
        now = time.perf_counter()
        while now < end and sent - answered <= (depth - 1) * messages:
            wire.settimeout(SILENT_S)
            wire.sendall(chunk)
            sent += messages
        if answered >= sent:
            return Load(sent, time.perf_counter() - begin)
        answered += counter(read(wire)) * per


def paced(wire: socket.socket, frame: bytes, counter: Counter, rate: float, seconds: float) -> list[int]:
    """Send a message each 1/rate s; return ns from due time to answer.

    A message is sent even if the one before has no answer yet.
    """
    wanted = int(rate * seconds)
    times: list[int] = []
    begin = time.perf_counter_ns()
    step = int(1e9 / rate)
    sent = 0
    while len(times) < wanted:
        now = time.perf_counter_ns()
        while sent < wanted and begin + sent * step <= now:
            wire.sendall(frame)
            sent += 1
        due = begin + sent * step - time.perf_counter_ns()
        wait = max(0.0, due / 1e9) if sent < wanted else SILENT_S
        if select.select([wire], [], [], wait)[0]:
            found = counter(read(wire))
            now = time.perf_counter_ns()
            for _ in range(found):
                times.append(now - (begin + len(times) * step))
        elif sent >= wanted:
            raise BenchError(f"{wanted - len(times)} messages were not answered")
    return times


class Pattern:
    """Counts answers by a text that each has once."""

    def __init__(self, text: bytes, each: int = 1) -> None:
        self._text, self._each = text, each
        self._rest = b""
        self._over = 0

    def __call__(self, data: bytes) -> int:
        whole = self._rest + data
        found = whole.count(self._text) + self._over
        self._over = found % self._each
        at = whole.rfind(self._text)
        behind = at + len(self._text) if at >= 0 else 0
        self._rest = whole[max(behind, len(whole) - len(self._text) + 1) :]
        return found // self._each


def drain(
    wire: socket.socket,
    count: int,
    ask: bytes,
    take: Callable[[bytes], tuple[int, bytes]],
    more: Callable[[int], bytes] | None = None,
) -> Load:
    """Consume `count` messages.

    `ask` is sent first. `take` finds messages and returns how many, with the bytes that acknowledge them.
    `more` returns the bytes that ask for further messages.
    """
    taken = 0
    begin = time.perf_counter()
    wire.sendall(ask)
    while taken < count:
        found, acks = take(read(wire))
        taken += found
        if found:
            wire.sendall(acks + more(found) if more is not None else acks)
    return Load(taken, time.perf_counter() - begin)
