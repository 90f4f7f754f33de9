"""A small client that does exactly what a test says, frame by frame."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
from typing import Any

from holdfast._core import encode_messages
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.definitions import definition

Type = pb.BaseCommand
PATIENCE_S = 20.0
"""Seconds to wait for an answer that must come."""

_FIELDS = {
    number: field.name
    for number, field in pb.BaseCommand.DESCRIPTOR.fields_by_number.items()  # a command's type is its field's
}


class Raw:
    """One connection to a server."""

    def __init__(self, url: str, greet: bool = True, receive_bytes: int = 0) -> None:
        host, _, port = url.removeprefix("pulsar://").rpartition(":")
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect((host, int(port)))
        self._buffer = bytearray()
        self._requests = itertools.count(1)
        self.entries: list[bytes] = []
        """The entries of the received messages, in order."""
        if greet:
            self.tell(Type.CONNECT, client_version="raw", protocol_version=19)
            self.connected = self.expect(Type.CONNECTED)

    # -- sending ---------------------------------------------------------------------------------------

    def tell(self, kind: int, entry: bytes = b"", **fields: Any) -> None:
        """Send a command, with an entry behind it if one is given."""
        self.socket.sendall(frame_of(kind, entry, **fields))

    def ask(self, kind: int, answer: int = Type.SUCCESS, **fields: Any) -> Any:
        """Send a request, and return its answer; earlier commands are dropped."""
        request = next(self._requests)
        self.tell(kind, request_id=request, **fields)
        while True:
            got, message = self.hear()
            if getattr(message, "request_id", None) == request:
                assert got == answer, (got, message)
                return message

    def produce(self, topic: str, producer: int = 1, **fields: Any) -> Any:
        return self.ask(
            Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=full(topic), producer_id=producer, **fields
        )

    def subscribe(self, topic: str, consumer: int = 1, sub_type: int = 0, **fields: Any) -> Any:
        fields = {"subscription": "s", "initialPosition": 1, **fields}
        return self.ask(Type.SUBSCRIBE, topic=full(topic), consumer_id=consumer, subType=sub_type, **fields)

    def send(self, sequence: int, data: bytes, producer: int = 1) -> None:
        entry = encode_messages([data], "raw", sequence, 1)[0]
        self.tell(Type.SEND, entry, producer_id=producer, sequence_id=sequence)

    def publish(self, topic: str, count: int) -> list[Any]:
        """Publish b"0", b"1", …; return their ids."""
        self.produce(topic)
        for n in range(count):
            self.send(n, b"%d" % n)
        ids = [self.expect(Type.SEND_RECEIPT).message_id for _ in range(count)]
        self.ask(Type.CLOSE_PRODUCER, producer_id=1)
        return ids

    def schema(self, topic: str, size: int) -> bytes:
        """Give a topic a schema of `size` bytes; return the request whose answer repeats it."""
        self.ask(
            Type.GET_OR_CREATE_SCHEMA,
            Type.GET_OR_CREATE_SCHEMA_RESPONSE,
            topic=full(topic),
            schema={"name": "x", "schema_data": definition(size), "type": 2},
        )
        return stuffed(frame_of(Type.GET_SCHEMA, topic=full(topic), request_id=1), size)

    def push(self, data: bytes) -> None:
        """Send bytes without a timeout, in a thread; end with the connection."""
        left = memoryview(data)
        with contextlib.suppress(OSError, ValueError):  # the socket was closed
            while left:
                if select.select([], [self.socket], [], 0.1)[1]:
                    left = left[self.socket.send(left, socket.MSG_DONTWAIT) :]

    def flow(self, permits: int, consumer: int = 1) -> None:
        self.tell(Type.FLOW, consumer_id=consumer, messagePermits=permits)

    def ack(self, *ids: Any, consumer: int = 1, cumulative: bool = False, request: int | None = None) -> None:
        fields: dict[str, Any] = {} if request is None else {"request_id": request}
        self.tell(Type.ACK, consumer_id=consumer, ack_type=int(cumulative), message_id=ids, **fields)

    def watch(
        self, pattern: str, watcher: int = 1, answer: int = Type.WATCH_TOPIC_LIST_SUCCESS, **more: Any
    ) -> Any:
        fields = {"namespace": "public/default", "topics_pattern": pattern, **more}
        return self.ask(Type.WATCH_TOPIC_LIST, answer, watcher_id=watcher, **fields)

    def unwatch(self, watcher: int = 1) -> None:
        self.ask(Type.WATCH_TOPIC_LIST_CLOSE, watcher_id=watcher)

    # -- receiving -------------------------------------------------------------------------------------

    def hear(self, timeout_s: float | None = None) -> tuple[int, Any]:
        """Return type and message of the next command; raise EOFError if the server has closed."""
        total = struct.unpack(">I", self._take(4, timeout_s))[0]
        frame = self._take(total, timeout_s)
        size = struct.unpack(">I", frame[:4])[0]
        command = pb.BaseCommand.FromString(frame[4 : 4 + size])
        if len(frame) > 4 + size:
            self.entries.append(frame[4 + size :])
        return command.type, getattr(command, _FIELDS[command.type])

    def waits(self, timeout_s: float) -> bool:
        """Return whether something is here within this time, at least a part of a command."""
        return bool(self._buffer) or bool(select.select([self.socket], [], [], timeout_s)[0])

    def expect(self, kind: int, timeout_s: float | None = None) -> Any:
        """Return the next command, which must have this type; answer pings meanwhile."""
        while True:
            got, message = self.hear(timeout_s)
            if got == Type.PING:
                self.tell(Type.PONG)
                continue
            assert got == kind, f"{Type.Type.Name(got)}: {message}"
            return message

    def messages(self, count: int) -> list[Any]:
        return [self.expect(Type.MESSAGE) for _ in range(count)]

    def silent(self, timeout_s: float = 0.05) -> None:
        """Require that nothing arrives before a ping's answer, nor for a time after it."""
        self.tell(Type.PING)
        got = self.hear()
        assert got[0] == Type.PONG, f"{got} came, and nothing should"
        try:
            got = self.hear(timeout_s)
        except TimeoutError:
            return
        raise AssertionError(f"{got} came, and nothing should")

    def closed(self) -> list[tuple[int, Any]]:
        """Receive until the server closes; return all commands."""
        heard = []
        try:
            while True:
                heard.append(self.hear())
        except (EOFError, ConnectionResetError):
            return heard

    def _take(self, count: int, timeout_s: float | None) -> bytes:
        self.socket.settimeout(PATIENCE_S if timeout_s is None else timeout_s)
        while len(self._buffer) < count:
            got = self.socket.recv(1 << 16)
            if not got:
                raise EOFError
            self._buffer += got
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def frame_of(kind: int, entry: bytes = b"", **fields: Any) -> bytes:
    """Return the frame of a command."""
    whole: dict[str, Any] = {"type": kind, _FIELDS[kind]: fields}
    body = pb.BaseCommand(**whole).SerializeToString()
    return struct.pack(">II", 4 + len(body) + len(entry), len(body)) + body + entry


def stuffed(frame: bytes, size: int) -> bytes:
    """Return the frame with `size` further bytes in a field without a meaning."""
    length = int.from_bytes(frame[4:8], "big")
    more = bytes([0xA2, 0xFA, 0x01, *varint(size)]) + bytes(size)  # field 4004
    body, entry = frame[8 : 8 + length] + more, frame[8 + length :]
    return (4 + len(body) + len(entry)).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body + entry


def varint(number: int) -> list[int]:
    out = []
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return [*out, number]


def id_of(message: Any, **more: Any) -> Any:
    """Return the id of a MESSAGE, to acknowledge it."""
    return pb.MessageIdData(ledgerId=message.message_id.ledgerId, entryId=message.message_id.entryId, **more)


def sends(count: int, size: int, producer: int = 1) -> bytes:
    """Return the frames of `count` SENDs."""
    entries = encode_messages([bytes(size)] * count, "raw", 0, 1)
    return b"".join(
        frame_of(Type.SEND, entry, producer_id=producer, sequence_id=n) for n, entry in enumerate(entries)
    )
