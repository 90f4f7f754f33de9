"""Hold SENDs of producers whose topic has used up its publish rate.

The core hands over the SENDs of such a producer instead of publishing them. They are kept here, and published
in their order when the rate allows. So other producers of the connection go on. Only if more than
`HELD_BYTES` are held is the connection not read, since the protocol has no other way to slow a client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast._core import WireReader
from holdfast.protocol import framed
from holdfast.protocol import pulsar_pb2 as pb

if TYPE_CHECKING:
    from holdfast.broker import Bucket
    from holdfast.server.pulsar.connection import Connection
    from holdfast.server.pulsar.producers import WireProducer

HELD_BYTES = 1 << 20
"""Bytes of held SENDs of a connection, above which it is not read."""

LOW_MESSAGES, LOW_BYTES = 10_000, 4 << 20
"""Rates per second below which each SEND is looked at by itself."""

STEP_S = 0.02
"""Least time between two looks at the held SENDs of a producer."""

LONGEST_S = 1.0
"""Longest time between two looks: a changed rate has its effect by then."""

_FRAME_BYTES = 1 << 20
"""Bytes of a frame of events, behind which the next one begins."""

PUBLISHES = 1
"""The kind of an item of the reader that is an event."""

_PAUSE = "publish rate"
_SEQUENCES = 16
"""Bytes of a SEND in `sequences`: its number, and the highest of its batch."""


class _Held:
    """The held SENDs of one producer."""

    __slots__ = ("drained", "due", "paying", "producer", "sends", "timer")

    def __init__(self, producer: WireProducer) -> None:
        self.producer = producer
        self.sends: deque[tuple[int, bytes]] = deque()
        """Number of messages, and the frame."""
        self.timer: asyncio.TimerHandle | None = None
        self.paying: Bucket | None = None
        """The bucket from which the first of them has taken its part; None: it has not."""
        self.due = 0.0
        """When all that was taken before is paid, and the first may be published."""
        self.drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class HeldSends:
    """The held SENDs of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._on = connection
        self._held: dict[int, _Held] = {}
        """By the producer's id: those whose SENDs are not published at once."""
        self._reader = WireReader(connection.options.frame_bytes)
        """Reads held frames: the same checks apply to them."""
        self.bytes = 0

    def __contains__(self, producer: int) -> bool:
        return producer in self._held

    def hold(self, producer: WireProducer, delay_s: float) -> None:
        """Hold the SENDs that follow: the rate of their topic is used up."""
        self._arm(self._begin(producer), delay_s)

    def limited(self, producer: WireProducer) -> None:
        """Hold all SENDs of a producer with a low rate: one read could exceed it."""
        if producer.id not in self._held and _is_low(producer):
            self._begin(producer)

    def look(self, producer: WireProducer) -> None:
        """Look at a producer's held SENDs now: its rate has changed."""
        held = self._held.get(producer.id)
        if held is not None:
            if held.timer is not None:
                held.timer.cancel()
            self._on.producers.set_on(self._reader, producer)
            self._look(held)

    def _begin(self, producer: WireProducer) -> _Held:
        self._on.reader.set_passing_producer(producer.id)
        self._on.producers.set_on(self._reader, producer)
        held = self._held[producer.id] = _Held(producer)
        return held

    def add(self, id: int, sequences: bytes, entries: list[tuple[int, bytes]]) -> None:  # noqa: A002
        """Hold a run of SENDs that the core has handed over."""
        held = self._held[id]
        for at, (messages, entry) in enumerate(entries):
            place = sequences[_SEQUENCES * at : _SEQUENCES * (at + 1)]
            command = pb.CommandSend(producer_id=id, sequence_id=int.from_bytes(place[:8], "little"))
            if highest := int.from_bytes(place[8:], "little"):
                command.highest_sequence_id = highest
            frame = _with_entry(framed(command), entry)
            held.sends.append((messages, frame))
            self._count(len(frame))
        if held.timer is None:
            self._look(held)

    async def drained(self, id: int) -> None:  # noqa: A002
        """Wait until the SENDs of a producer are published."""
        held = self._held.get(id)
        if held is not None and held.sends:
            await asyncio.shield(held.drained)

    def drop(self, id: int) -> None:  # noqa: A002
        """Forget the SENDs of a producer that was closed: its client sends them again."""
        held = self._held.pop(id, None)
        if held is None:
            return
        if held.timer is not None:
            held.timer.cancel()
        if held.paying is not None:
            messages, frame = held.sends[0]
            held.paying.give_back(messages, len(frame))
        self._reader.drop_producer(id)
        self._count(-sum(len(frame) for _, frame in held.sends))
        held.sends.clear()
        if not held.drained.done():
            held.drained.set_result(None)

    def _arm(self, held: _Held, delay_s: float) -> None:
        wait_s = min(max(delay_s, STEP_S), LONGEST_S)
        held.timer = self._on.loop.call_later(wait_s, self._look, held)

    def _look(self, held: _Held) -> None:
        """Publish what the rate allows; if nothing is left, let the core publish again."""
        producer, broker = held.producer, self._on.broker
        held.timer = None
        while held.sends and self._is_paid(held):
            _, frame = held.sends[0]
            if broker.behind or (broker.frame.count and broker.frame.size + len(frame) > _FRAME_BYTES):
                break
            held.sends.popleft()
            self._count(-len(frame))
            held.paying = None
            if not self._publish(producer, frame):
                return
        low = _is_low(producer)
        if held.sends or (_debt_s(producer) and not low):
            self._arm(held, held.due - self._on.loop.time() if held.sends else _debt_s(producer))
            return
        if not held.drained.done():
            held.drained.set_result(None)
        held.drained = self._on.loop.create_future()
        if not low:
            self.drop(producer.id)
            self._on.producers.resume(producer)

    def _is_paid(self, held: _Held) -> bool:
        """Return whether the first SEND may be published.

        It takes its part once, and waits for what was taken before. So each producer has its turn, however
        much another one holds.
        """
        bucket, now = held.producer.bucket, self._on.loop.time()
        if bucket is not held.paying:
            messages, frame = held.sends[0]
            held.paying, held.due = bucket, now
            if bucket is not None:
                held.due += bucket.debt_s
                bucket.take(messages, len(frame))
        return held.due <= now

    def _publish(self, producer: WireProducer, frame: bytes) -> bool:
        """Publish a held SEND; return False if its producer has ended instead."""
        producers, broker = self._on.producers, self._on.broker
        producers.heed_space(len(frame))
        events = broker.frame
        before = events.count
        items: list[Any] = list(self._reader.feed(frame, events))
        futures = broker.added(events.count - before) if events.count > before else []
        for kind, *item in items:
            if kind == PUBLISHES:
                producers.accepted(futures.pop(0), *item)
            else:
                producers.refused(*item)
        return producer.id in self._held

    def _count(self, size: int) -> None:
        self.bytes += size
        self._on.server.budget.hold((self._on, "rate"), self.bytes)
        if self.bytes > HELD_BYTES:
            self._on.pause(_PAUSE)
        elif 2 * self.bytes <= HELD_BYTES:
            self._on.go_on(_PAUSE)


def _is_low(producer: WireProducer) -> bool:
    """Return whether the rate of a producer's topic is low."""
    messages, size = (0.0, 0.0) if producer.bucket is None else producer.bucket.rates
    return 0 < messages < LOW_MESSAGES or 0 < size < LOW_BYTES


def _debt_s(producer: WireProducer) -> float:
    """Return the seconds until the topic of a producer has paid for what was published."""
    return 0.0 if producer.bucket is None else producer.bucket.debt_s


def _with_entry(frame: bytes, entry: bytes) -> bytes:
    """Put an entry behind the command of a frame."""
    size = int.from_bytes(frame[:4], "big") + len(entry)
    return size.to_bytes(4, "big") + frame[4:] + entry
