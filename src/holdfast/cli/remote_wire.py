"""Producing and consuming through a server: as much of the Pulsar protocol as two commands need.

One connection, plain and blocking: a command does one thing at a time.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, Self
from urllib.parse import urlsplit

from holdfast import __version__, errors
from holdfast._core import encode_messages, parse_entry
from holdfast.cli.places import Place
from holdfast.cli.remote import LATEST_LEDGER, Http, RemoteAdmin, path_of
from holdfast.cli.remote_messages import RemoteMessage, of_entry
from holdfast.ids import MessageId
from holdfast.protocol import pulsar_pb2 as pb

Type = pb.BaseCommand
ANSWER_S = 60.0
MORE_S = 0.005
"""After the first message of a run: how long to wait for the next."""
_FIELDS = {number: field.name for number, field in pb.BaseCommand.DESCRIPTOR.fields_by_number.items()}
_NOWHERE = (1 << 64) - 1


class Wire:
    """A connection."""

    def __init__(self, http: Http, topic: str) -> None:
        found = http.get(path_of(topic).replace("/admin/v2/", "/lookup/v2/topic/", 1))
        secure = http.url.startswith("https:")
        if secure and http.token and not found["brokerUrlTls"]:
            raise errors.Misuse(
                f"{http.url} takes messages without TLS only, which would show the token; say its "
                "http: address if that is meant"
            )
        url = urlsplit(
            (found["brokerUrlTls"] if secure else "") or found["brokerUrl"] or found["brokerUrlTls"]
        )
        host, port = url.hostname or "127.0.0.1", url.port or 6650
        self._socket = socket.create_connection((host, port), ANSWER_S)
        if url.scheme.endswith("+ssl"):
            self._socket = ssl.create_default_context().wrap_socket(self._socket, server_hostname=host)
        self._buffer = bytearray()
        self._requests = itertools.count(1)
        self.waiting: deque[tuple[Any, bytes]] = deque()
        """Heard while an answer was waited for."""
        hello: dict[str, Any] = {"client_version": f"holdfast {__version__}", "protocol_version": 19}
        if http.token:
            hello |= {"auth_method_name": "token", "auth_data": http.token.encode()}
        self.tell(Type.CONNECT, **hello)
        self._wait(lambda command: command.type == Type.CONNECTED)

    def open(self, kind: int, **fields: Any) -> Any:
        """The first request, without which the connection is of no use."""
        try:
            return self.ask(kind, **fields)
        except BaseException:
            self.close()
            raise

    def tell(self, kind: int, entry: bytes = b"", **fields: Any) -> None:
        self._socket.settimeout(ANSWER_S)
        self._socket.sendall(framed(kind, entry, **fields))

    def ask(self, kind: int, **fields: Any) -> Any:
        """The answer to a request.

        Raises:
            HoldfastError: it was refused.
        """
        number = next(self._requests)
        self.tell(kind, request_id=number, **fields)
        command = self._wait(lambda command: getattr(content(command), "request_id", None) == number)
        return content(command)

    def _wait(self, wanted: Any) -> Any:
        while True:
            heard = self.hear(ANSWER_S)
            if heard is None:
                raise errors.Timeout(f"the server did not answer within {ANSWER_S:.0f} s")
            if heard[0].type == Type.ERROR:
                self.close()
                damaged = heard[0].error.error == pb.ChecksumError
                raise (errors.Corrupt if damaged else errors.HoldfastError)(heard[0].error.message)
            if wanted(heard[0]):
                return heard[0]
            self.waiting.append(heard)

    def hear(self, timeout_s: float) -> tuple[Any, bytes] | None:
        """The next command and the entry behind it; None if none comes. Pings are answered."""
        limit = time.monotonic() + timeout_s
        while True:
            if len(self._buffer) >= 4:
                size = 4 + struct.unpack_from(">I", self._buffer)[0]
                if len(self._buffer) >= size:
                    frame = bytes(self._buffer[4:size])
                    del self._buffer[:size]
                    length = struct.unpack_from(">I", frame)[0]
                    command = pb.BaseCommand.FromString(frame[4 : 4 + length])
                    if command.type != Type.PING:
                        return command, frame[4 + length :]
                    self.tell(Type.PONG)
                    continue
            self._socket.settimeout(max(0.0005, limit - time.monotonic()))
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                return None
            if not data:
                raise errors.Closed("the server has closed the connection")
            self._buffer += data

    def close(self) -> None:
        self._socket.close()


def framed(kind: int, entry: bytes = b"", **fields: Any) -> bytes:
    given: dict[str, Any] = {"type": kind, _FIELDS[kind]: fields}
    body = pb.BaseCommand(**given).SerializeToString()
    return struct.pack(">II", 4 + len(body) + len(entry), len(body)) + body + entry


def content(command: Any) -> Any:
    return getattr(command, _FIELDS[command.type])


class RemoteProducer:
    """Publishes, and waits until it is durable."""

    def __init__(self, http: Http, topic: str, name: str | None) -> None:
        self._http, self._topic, self._name = http, topic, name

    async def __aenter__(self) -> Self:
        self._wire = Wire(self._http, self._topic)
        named = {} if self._name is None else {"producer_name": self._name}
        opened = self._wire.open(Type.PRODUCER, topic=self._topic, producer_id=1, **named)
        self._name, self._next = opened.producer_name, opened.last_sequence_id + 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._wire.close()

    async def send_many(
        self,
        payloads: Sequence[bytes],
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        event_time: datetime | None = None,
    ) -> list[MessageId]:
        entries = encode_messages(
            payloads,
            self._name or "",
            self._next,
            int(time.time() * 1000),
            key=key,
            properties=properties,
            event_time_ms=0 if event_time is None else int(event_time.timestamp() * 1000),
        )
        for number, entry in enumerate(entries, self._next):
            self._wire.tell(Type.SEND, entry, producer_id=1, sequence_id=number)
        self._next += len(entries)
        found: list[MessageId] = []
        while len(found) < len(entries):
            heard = self._wire.hear(ANSWER_S)
            if heard is None:
                raise errors.Timeout(f"{len(entries) - len(found)} messages were not confirmed")
            kind, message = heard[0].type, content(heard[0])
            if kind == Type.SEND_RECEIPT:
                at = message.message_id
                duplicate = at.ledgerId == _NOWHERE
                found.append(MessageId(-1, -1) if duplicate else MessageId(at.ledgerId, at.entryId))
            elif kind in (Type.SEND_ERROR, Type.ERROR):
                raise errors.HoldfastError(message.message)
            elif kind == Type.CLOSE_PRODUCER:
                raise errors.Closed(
                    "the server has closed the producer; what was not confirmed may be missing"
                )
        return found


class _Receiver:
    def __init__(self, http: Http, topic: str, start: Place, receiver_queue: int) -> None:
        self._http, self._topic, self._start = http, topic, start
        self._queue = receiver_queue
        self._inbox: deque[RemoteMessage] = deque()
        self._asked: dict[str, Any] = {}
        """What it subscribed with."""
        self._closed = False

    async def __aexit__(self, *_: object) -> None:
        self._wire.close()

    def _open(self, **fields: Any) -> None:
        self._wire, self._asked = Wire(self._http, self._topic), fields
        self._wire.open(Type.SUBSCRIBE, topic=self._topic, consumer_id=1, **fields)
        self._wire.tell(Type.FLOW, consumer_id=1, messagePermits=self._queue)

    async def receive_many(self, count: int, timeout: float | None = None) -> list[RemoteMessage]:
        """At least one, at most so many.

        Raises:
            Timeout: none came in time.
            Corrupt: what should come next is damaged on the server's disk; the text names file and position.
            Closed: the server has closed the consumer for another reason.
        """
        limit = time.monotonic() + (ANSWER_S if timeout is None else timeout)
        while not self._inbox:
            if self._closed or not self._take(max(0.0, limit - time.monotonic())):
                if self._closed:
                    self._tell_why()
                raise errors.Timeout("no message came in time")
        while len(self._inbox) < count and self._take(MORE_S):
            pass
        taken = [self._inbox.popleft() for _ in range(min(count, len(self._inbox)))]
        self._wire.tell(Type.FLOW, consumer_id=1, messagePermits=len(taken))
        return taken

    def _take(self, timeout_s: float) -> bool:
        waiting = self._wire.waiting
        heard = waiting.popleft() if waiting else self._wire.hear(timeout_s)
        if heard is None:
            return False
        command, entry = heard
        if command.type == Type.CLOSE_CONSUMER:
            self._closed = True
            return False
        if command.type == Type.MESSAGE:
            at = MessageId(command.message.message_id.ledgerId, command.message.message_id.entryId)
            left = command.message.ack_set
            for message in of_entry(at, parse_entry(entry), command.message.redelivery_count):
                index = max(0, message.id.batch)
                if not left or left[index // 64] >> (index % 64) & 1:
                    self._inbox.append(message)
        return True

    def _tell_why(self) -> NoReturn:
        """Subscribe again where this consumer ended: the server refuses it with the reason, if there is one.

        Raises:
            Corrupt, Closed.
        """
        self._wire.ask(Type.SUBSCRIBE, topic=self._topic, consumer_id=1, **self._asked)
        raise errors.Closed("the server has closed the consumer; start again")


class RemoteConsumer(_Receiver):
    """A durable subscription."""

    def __init__(
        self,
        http: Http,
        topic: str,
        subscription: str,
        start: Place = "latest",
        receiver_queue: int = 1000,
        receipts: bool = True,
    ) -> None:
        super().__init__(http, topic, start, receiver_queue)
        self.subscription = subscription
        self._acked: dict[tuple[int, int], set[int]] = {}

    async def __aenter__(self) -> Self:
        admin = RemoteAdmin(self._http)
        if not isinstance(self._start, str) and self.subscription not in admin.subscriptions(self._topic):
            await admin.create_subscription(self._topic, self.subscription, self._start)
        self._open(
            subscription=self.subscription,
            subType=pb.CommandSubscribe.Exclusive,
            initialPosition=1 if self._start == "earliest" else 0,
        )
        return self

    async def ack_many(self, messages: Sequence[RemoteMessage]) -> None:
        """Returns when it is durable."""
        ids = []
        for message in messages:
            ledger, entry, batch = message.id
            data = pb.MessageIdData(ledgerId=ledger, entryId=entry)
            if message.batch_size:
                done = self._acked.setdefault((ledger, entry), set())
                done.add(batch)
                data.batch_size = message.batch_size
                left = [index for index in range(message.batch_size) if index not in done]
                words = [0] * ((message.batch_size + 63) // 64) if left else []
                for index in left:
                    words[index // 64] |= 1 << (index % 64)
                data.ack_set.extend(each - (1 << 64) if each >> 63 else each for each in words)
                if not left:
                    del self._acked[ledger, entry]
            ids.append(data)
        answer = self._wire.ask(Type.ACK, consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids)
        if answer.HasField("error"):
            raise errors.HoldfastError(answer.message)


class RemoteReader(_Receiver):
    """A look from a place on, which leaves no trace."""

    def __init__(self, http: Http, topic: str, start: Place = "earliest", receiver_queue: int = 1000) -> None:
        super().__init__(http, topic, start, receiver_queue)
        self._at: MessageId | None = None

    async def __aenter__(self) -> Self:
        place = self._start
        admin = RemoteAdmin(self._http)
        if isinstance(place, datetime):
            place = admin.at_time(self._topic, place)
        if isinstance(place, MessageId):
            start = pb.MessageIdData(ledgerId=place.ledger, entryId=max(place.entry, 0))
            self._at = MessageId(place.ledger, place.entry - 1)
        elif place == "earliest":
            start = pb.MessageIdData(ledgerId=_NOWHERE, entryId=_NOWHERE)
        else:
            start = pb.MessageIdData(ledgerId=LATEST_LEDGER, entryId=LATEST_LEDGER)
            self._at = self._last()
        self._open(
            subscription=f"holdfast-cli-{time.time_ns():x}",
            subType=pb.CommandSubscribe.Exclusive,
            durable=False,
            start_message_id=start,
        )
        return self

    def _last(self) -> MessageId:
        found = self._http.get(path_of(self._topic) + "/lastMessageId")
        return MessageId(found["ledgerId"], found["entryId"])

    async def has_more(self) -> bool:
        if self._inbox:
            return True
        last = self._last()
        if last.entry < 0:
            return False
        return self._at is None or (self._at.ledger, self._at.entry) < (last.ledger, last.entry)

    async def receive_many(self, count: int, timeout: float | None = None) -> list[RemoteMessage]:
        taken = await super().receive_many(count, timeout)
        self._at = taken[-1].id
        last = pb.MessageIdData(ledgerId=self._at.ledger, entryId=self._at.entry)
        self._asked["start_message_id"] = last
        if not self._inbox and not self._closed:  # the server tells of damage once nothing is held
            cumulative = pb.CommandAck.Cumulative
            self._wire.tell(Type.ACK, consumer_id=1, ack_type=cumulative, message_id=[last])
        return taken
