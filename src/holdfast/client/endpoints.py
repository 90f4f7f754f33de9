"""Publish to a topic and read it through a server, for the commands.

Calls block, and each object has a connection of its own, for one thread. Nothing is sent again: open another
object after an error.
"""

from __future__ import annotations

import itertools
import struct
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NoReturn, Self

from holdfast._core import Batch, TopicMessage, crc32c, encode_messages, parse_entry, parse_run, seal_block
from holdfast.client.client import Client
from holdfast.client.link import Lost, error_of
from holdfast.errors import Closed, HoldfastError, Timeout, Unsupported
from holdfast.formatting import plural
from holdfast.ids import MessageId
from holdfast.protocol import content, framed
from holdfast.protocol import pulsar_pb2 as pb

Type = pb.BaseCommand
ANSWER_S = 60.0
MORE_S = 0.005
"""Time to wait for the next message of a run."""
LATEST = (1 << 63) - 1
_NOWHERE = (1 << 64) - 1
_MAGIC = b"\x0e\x01"


class _Session:
    """A connection of its own."""

    def __init__(self, client: Client) -> None:
        self._link = client.link(ANSWER_S)
        self._numbers = itertools.count(1)
        self._waiting: deque[tuple[Any, bytes]] = deque()
        """Heard while an answer was waited for."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._link.forget()

    def _open(self, message: Any) -> Any:
        """Ask for the one thing that the connection is for."""
        try:
            return self._ask(message)
        except BaseException:
            self._link.forget()
            raise

    def _tell(self, message: Any, entry: bytes = b"") -> None:
        frame = framed(message)
        if entry:
            frame = struct.pack(">I", len(frame) - 4 + len(entry)) + frame[4:] + entry
        try:
            self._link.send(frame, time.monotonic() + ANSWER_S)
        except Lost as error:
            raise Closed(str(error)) from None

    def _ask(self, message: Any) -> Any:
        """Send a request and return its answer.

        Raises:
            HoldfastError: the server refused it.
        """
        message.request_id = next(self._numbers)
        self._tell(message)
        while (heard := self._hear(ANSWER_S)) is not None:
            answer = content(heard[0])
            if heard[0].type == Type.ERROR:
                raise error_of(answer)
            if getattr(answer, "request_id", None) == message.request_id:
                return answer
            self._waiting.append(heard)
        raise Timeout(f"the server did not answer within {ANSWER_S:.0f} s")

    def _hear(self, timeout_s: float) -> tuple[pb.BaseCommand, bytes] | None:
        """Return the next command with the entry behind it; None: none came in time."""
        try:
            return self._link.hear(time.monotonic() + max(0.0005, timeout_s))
        except TimeoutError:
            return None
        except OSError:
            raise Closed("the server has closed the connection") from None


class Producer(_Session):
    """Publishes, and waits until it is durable."""

    def __init__(self, client: Client, topic: str, name: str | None = None) -> None:
        super().__init__(client)
        opened = self._open(pb.CommandProducer(topic=topic, producer_id=1, producer_name=name))
        self._name, self._next = opened.producer_name, opened.last_sequence_id + 1

    async def send_many(
        self,
        payloads: Sequence[bytes],
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        event_time: datetime | None = None,
        deliver_at: datetime | None = None,
        deliver_after: float | None = None,
    ) -> list[MessageId]:
        """Publish messages; returns their ids when all are durable."""
        at_ms = 0 if deliver_at is None else int(deliver_at.timestamp() * 1000)
        if deliver_after is not None:
            at_ms = int((time.time() + deliver_after) * 1000)
        entries = encode_messages(
            payloads,
            self._name,
            self._next,
            int(time.time() * 1000),
            key=key,
            properties=properties,
            event_time_ms=0 if event_time is None else int(event_time.timestamp() * 1000),
            deliver_at_ms=at_ms,
        )
        for number, entry in enumerate(entries, self._next):
            self._tell(pb.CommandSend(producer_id=1, sequence_id=number), entry)
        self._next += len(entries)
        found: list[MessageId] = []
        while len(found) < len(entries):
            heard = self._hear(ANSWER_S)
            if heard is None:
                raise Timeout(f"not confirmed: {plural(len(entries) - len(found), 'message')}")
            kind, message = heard[0].type, content(heard[0])
            if kind == Type.SEND_RECEIPT:
                at = message.message_id
                duplicate = at.ledgerId == _NOWHERE
                found.append(MessageId(-1, -1) if duplicate else MessageId(at.ledgerId, at.entryId))
            elif kind in (Type.SEND_ERROR, Type.ERROR):
                raise HoldfastError(message.message)
            elif kind == Type.CLOSE_PRODUCER:
                raise Closed("the server has closed the producer; what was not confirmed may be missing")
        return found


class _Receiver(_Session):
    def __init__(self, client: Client, topic: str, receiver_queue: int, **subscribed: Any) -> None:
        super().__init__(client)
        self._inbox: deque[TopicMessage] = deque()
        exclusive = pb.CommandSubscribe.Exclusive
        self._subscribe = pb.CommandSubscribe(topic=topic, consumer_id=1, subType=exclusive, **subscribed)
        self._closed = False
        self._open(self._subscribe)
        self._tell(pb.CommandFlow(consumer_id=1, messagePermits=receiver_queue))

    async def receive_many(self, count: int, timeout: float | None = None) -> list[TopicMessage]:
        """Return at least one message and at most `count`.

        Raises:
            Timeout: none came in time.
            Corrupt: the next message is damaged on the server's disk; the text names file and position.
            Closed: the server has closed the consumer for another reason.
        """
        limit = time.monotonic() + (ANSWER_S if timeout is None else timeout)
        while not self._inbox:
            if self._closed or not self._take(max(0.0, limit - time.monotonic())):
                if self._closed:
                    self._raise_why()
                raise Timeout("no message came in time")
        while len(self._inbox) < count and self._take(MORE_S):
            pass
        taken = [self._inbox.popleft() for _ in range(min(count, len(self._inbox)))]
        self._tell(pb.CommandFlow(consumer_id=1, messagePermits=len(taken)))
        return taken

    def _take(self, timeout_s: float) -> bool:
        heard = self._waiting.popleft() if self._waiting else self._hear(timeout_s)
        if heard is None:
            return False
        command, entry = heard
        if command.type == Type.CLOSE_CONSUMER:
            self._closed = True
            return False
        if command.type == Type.MESSAGE:
            told = command.message
            at = MessageId(told.message_id.ledgerId, told.message_id.entryId)
            self._inbox += messages_of(at, entry, told.redelivery_count, told.ack_set)
        return True

    def _raise_why(self) -> NoReturn:
        """Subscribe again where this consumer ended; a refusal has the reason.

        Raises:
            Corrupt, Closed.
        """
        self._ask(self._subscribe)
        raise Closed("the server has closed the consumer; start again")


class Consumer(_Receiver):
    """A consumer of a durable subscription."""

    def __init__(
        self, client: Client, topic: str, subscription: str, earliest: bool, receiver_queue: int = 1000
    ) -> None:
        self.subscription = subscription
        self._acked: dict[tuple[int, int], set[int]] = {}
        super().__init__(
            client, topic, receiver_queue, subscription=subscription, initialPosition=int(earliest)
        )

    def backlog(self) -> int | None:
        """Return the entries that are not acknowledged; None: the server has closed the consumer."""
        answer = self._ask(pb.CommandConsumerStats(consumer_id=1))
        return None if answer.HasField("error_code") else int(answer.msgBacklog)

    async def ack_many(self, messages: Sequence[TopicMessage]) -> None:
        """Acknowledge messages; returns when that is durable."""
        ids = []
        for message in messages:
            at, size = (message.ledger, message.entry), message.batch_size
            data = pb.MessageIdData(ledgerId=at[0], entryId=at[1])
            if message.batch_index >= 0:
                done = self._acked.setdefault(at, set())
                done.add(message.batch_index)
                left = sum(1 << index for index in range(size) if index not in done)
                data.batch_size = size
                if left:
                    words = -(-size // 64)
                    data.ack_set.extend(struct.unpack(f"<{words}q", left.to_bytes(words * 8, "little")))
                else:
                    del self._acked[at]
            ids.append(data)
        answer = self._ask(pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids))
        if answer.HasField("error"):
            raise HoldfastError(answer.message)


class Reader(_Receiver):
    """Reads from a place on, and leaves no trace."""

    def __init__(
        self,
        client: Client,
        topic: str,
        start: Literal["earliest", "latest"] | MessageId = "earliest",
        receiver_queue: int = 1000,
    ) -> None:
        at = {"earliest": (_NOWHERE, _NOWHERE), "latest": (LATEST, LATEST)}
        self._at: MessageId | None = None
        if isinstance(start, MessageId):
            self._at = MessageId(start.ledger, start.entry - 1)
        place = at[start] if isinstance(start, str) else (start.ledger, max(start.entry, 0))
        super().__init__(
            client,
            topic,
            receiver_queue,
            subscription=f"holdfast-cli-{time.time_ns():x}",
            durable=False,
            start_message_id=pb.MessageIdData(ledgerId=place[0], entryId=place[1]),
        )
        if start == "latest":
            self._at = self._last()

    def _last(self) -> MessageId:
        found = self._ask(pb.CommandGetLastMessageId(consumer_id=1)).last_message_id
        return MessageId(found.ledgerId, -1 if found.entryId == _NOWHERE else found.entryId)

    async def has_more(self) -> bool:
        """Tell whether there are messages behind those that were received."""
        if self._inbox or self._closed:
            return True
        try:
            last = self._last()
        except HoldfastError:  # the messages before the damage come first
            if not self._waiting:
                raise
            return True
        if last.entry < 0:
            return False
        return self._at is None or (self._at.ledger, self._at.entry) < (last.ledger, last.entry)

    async def receive_many(self, count: int, timeout: float | None = None) -> list[TopicMessage]:
        taken = await super().receive_many(count, timeout)
        self._at = taken[-1].id
        last = pb.MessageIdData(ledgerId=self._at.ledger, entryId=self._at.entry)
        self._subscribe.start_message_id.CopyFrom(last)
        if not self._inbox and not self._closed:  # the server tells of damage once nothing is held
            done = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative, message_id=[last])
            self._tell(done)
        return taken


# -- entries -------------------------------------------------------------------------------------------


def messages_of(
    at: MessageId, entry: bytes, redelivered: int = 0, ack_set: Sequence[int] = ()
) -> list[TopicMessage]:
    """Return the messages of an entry; of a batch, those that `ack_set` leaves open.

    Raises:
        Unsupported: it is compressed in a way that this program cannot open.
    """
    if (info := parse_entry(entry)).compression:
        size = len(entry) - len(info.payload)
        metadata = pb.MessageMetadata.FromString(entry[10 if entry[:2] == _MAGIC else 4 : size])
        names = {1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}
        entry = entry_of(metadata, info.payload, names.get(info.compression, str(info.compression)))
    words = (word & _NOWHERE for word in ack_set)
    left = sum(word << 64 * number for number, word in enumerate(words)) if ack_set else None
    block = seal_block(2, at.entry, 0, entry)
    run = parse_run(at.ledger, 0, at.entry, b"", block + bytes(-len(block) % 8))
    return list(Batch(run, redeliveries=[redelivered], open=[left]))


def entry_of(metadata: pb.MessageMetadata, payload: bytes, compression: str) -> bytes:
    """Make an entry of its parts; the payload is decompressed."""
    if compression == "ZLIB":
        payload = zlib.decompress(payload)
    elif compression != "NONE":
        raise Unsupported(f"the message is compressed with {compression}; read it with a Pulsar client")
    metadata.ClearField("compression")
    head = metadata.SerializeToString()
    body = struct.pack(">I", len(head)) + head + payload
    return _MAGIC + struct.pack(">I", crc32c(body)) + body
