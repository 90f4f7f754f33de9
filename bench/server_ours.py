"""`holdfast serve` under the load generator: pre-encoded frames of the Pulsar protocol."""

from __future__ import annotations

import itertools
import socket
import struct
import sys
from pathlib import Path
from typing import Any

from bench.answers import BenchError
from bench.broker_stations import payloads
from bench.server_load import CHUNK, DEPTH, Load, drain, flood, paced, read
from bench.server_process import ServerProcess, free_port
from holdfast._core import encode_messages
from holdfast.protocol import pulsar_pb2 as pb

BATCH = 100
"""Messages of a batched entry."""
PERMITS = 4 * CHUNK
_FIELDS = {number: field.name for number, field in pb.BaseCommand.DESCRIPTOR.fields_by_number.items()}
Type = pb.BaseCommand


def frame(kind: int, entry: bytes = b"", **fields: Any) -> bytes:
    """Return a frame: a command, and the entry behind it."""
    given: dict[str, Any] = {"type": kind, _FIELDS[kind]: fields}
    body = pb.BaseCommand(**given).SerializeToString()
    return struct.pack(">II", 4 + len(body) + len(entry), len(body)) + body + entry


class Frames:
    """Splits frames; keeps them if `keep`, else only counts them."""

    def __init__(self, keep: bool = False) -> None:
        self._rest = b""
        self.kept: list[bytes] | None = [] if keep else None

    def __call__(self, data: bytes) -> int:
        whole = self._rest + data if self._rest else data
        at, end, found = 0, len(whole), 0
        while at + 4 <= end:
            following = at + 4 + int.from_bytes(whole[at : at + 4], "big")
            if following > end:
                break
            if self.kept is not None:
                self.kept.append(whole[at + 4 : following])
            at, found = following, found + 1
        self._rest = whole[at:]
        return found


def command_of(data: bytes) -> pb.BaseCommand:
    size = int.from_bytes(data[:4], "big")
    return pb.BaseCommand.FromString(data[4 : 4 + size])


class Ours:
    """A server on a directory of its own, and one connection to it."""

    name = "holdfast serve"
    durability = "fdatasync before the receipt, one for all that waits"
    program = sys.executable
    depth = DEPTH

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.server = ServerProcess(
            [
                *(sys.executable, "-m", "holdfast.cli", "serve", "--data", str(directory / "data")),
                *("--port", str(self.port), "--http-port", str(free_port()), "--log-level", "warning"),
            ],
            directory,
        )
        self.url = f"pulsar://127.0.0.1:{self.port}"
        self._topics = itertools.count(1)
        self._requests = itertools.count(1)
        self.wire = self.connect()

    def connect(self) -> socket.socket:
        wire = self.server.wait_for(self.port)
        wire.sendall(frame(Type.CONNECT, client_version="bench", protocol_version=19))
        frames = Frames(keep=True)
        while not frames(read(wire)):
            pass
        return wire

    def _ask(self, kind: int, **fields: Any) -> None:
        self.wire.sendall(frame(kind, request_id=next(self._requests), **fields))
        frames = Frames(keep=True)
        while not frames(read(self.wire)):
            pass
        assert frames.kept is not None
        answer = command_of(frames.kept[0])
        if answer.type == Type.ERROR:
            raise BenchError(answer.error.message)

    def open(self) -> str:
        """Open a producer on a topic of its own."""
        topic = f"persistent://public/default/bench-{next(self._topics)}"
        self.wire.close()
        self.wire = self.connect()
        self._ask(Type.PRODUCER, topic=topic, producer_id=1)
        return topic

    def sends(self, size: int, batched: bool, count: int = CHUNK) -> bytes:
        batch = BATCH if batched else 1
        entries = encode_messages(payloads(size, count), "bench", 0, 1, batch=batch)
        return b"".join(
            frame(
                Type.SEND,
                entry,
                producer_id=1,
                sequence_id=n * batch,
                **({"num_messages": batch} if batched else {}),
            )
            for n, entry in enumerate(entries)
        )

    def first(self) -> None:
        """Publish one message and wait for its confirmation."""
        self.open()
        self.publish(100, 0.0, False)

    def publish(self, size: int, seconds: float, batched: bool) -> Load:
        if seconds == 0.0:
            self.wire.sendall(self.sends(size, False, 1))
            Frames()(read(self.wire))
            return Load(1, 0.0)
        self.open()
        per = BATCH if batched else 1
        return flood(self.wire, self.sends(size, batched), CHUNK, Frames(), seconds, per, self.depth)

    def latencies(self, size: int, rate: float, seconds: float) -> list[int]:
        self.open()
        return paced(self.wire, self.sends(size, False, 1), Frames(), rate, seconds)

    def prepare(self, size: int, count: int) -> None:
        """Publish unbatched messages for `consume`, with frames that acknowledge each."""
        topic = self.open()
        self._subscription: dict[str, Any] = {
            "topic": topic,
            "subscription": "bench",
            "consumer_id": 1,
            "subType": pb.CommandSubscribe.Shared,
            "initialPosition": 1,
        }
        self._ask(Type.SUBSCRIBE, **self._subscription)
        chunk = self.sends(size, False)
        frames = Frames(keep=True)
        answered = 0
        for sent in range(CHUNK, count + CHUNK, CHUNK):
            self.wire.sendall(chunk)
            while answered < sent:
                answered += frames(read(self.wire))
        assert frames.kept is not None
        self._acks: list[bytes] = []
        for each in frames.kept:
            at = command_of(each).send_receipt.message_id
            where = pb.MessageIdData(ledgerId=at.ledgerId, entryId=at.entryId)
            self._acks.append(frame(Type.ACK, consumer_id=1, ack_type=0, message_id=[where]))

    def consume(self) -> Load:
        """Consume all prepared messages as Shared, each acknowledged by a command of its own."""
        frames, acks = Frames(), iter(self._acks)
        ask = frame(Type.FLOW, consumer_id=1, messagePermits=PERMITS)
        owed = 0

        def take(data: bytes) -> tuple[int, bytes]:
            found = frames(data)
            return found, b"".join(itertools.islice(acks, found))

        def more(found: int) -> bytes:
            nonlocal owed
            owed += found
            if owed < PERMITS // 2:
                return b""
            permits, owed = owed, 0
            return frame(Type.FLOW, consumer_id=1, messagePermits=permits)

        load = drain(self.wire, len(self._acks), ask, take, more)
        self.wire.sendall(
            frame(Type.PING)
        )  # sent behind the last acknowledgement: its answer shows that the server read all of them
        while not frames(read(self.wire)):
            pass
        self._nothing_left()
        return load

    def _nothing_left(self) -> None:
        """Check that no acknowledged message is delivered again; else the measurement is not valid."""
        self._ask(Type.CLOSE_CONSUMER, consumer_id=1)
        self._ask(Type.SUBSCRIBE, **self._subscription)
        self.wire.sendall(frame(Type.FLOW, consumer_id=1, messagePermits=1) + frame(Type.PING))
        frames = Frames(keep=True)
        while not frames(read(self.wire)):
            pass
        if frames.kept and command_of(frames.kept[0]).type == Type.MESSAGE:
            raise BenchError("acknowledged messages were delivered again")

    def close(self) -> None:
        self.wire.close()
        self.server.end()
