"""Redis Streams and NATS JetStream under the same load generator, with their own protocols.

They do what a durable queue needs. Entries are confirmed, and a consumer group or durable consumer
acknowledges messages one by one.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
from pathlib import Path

from bench.answers import BenchError
from bench.broker_stations import payloads
from bench.server_load import CHUNK, DEPTH, Load, Pattern, drain, flood, paced, read
from bench.server_process import ServerProcess, found, free_port


def texts(size: int, count: int) -> list[bytes]:
    """Return payloads without bytes that a protocol's text could match."""
    return [each.hex().encode()[:size] for each in payloads(size, count)]


# -- Redis ---------------------------------------------------------------------------------------------


def resp(*words: bytes) -> bytes:
    """Return a Redis command."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Redis:
    """Redis Streams: XADD, XREADGROUP, one XACK for each entry."""

    program = "redis-server"
    sync = ""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        program = found(self.program)
        assert program is not None
        self.server = ServerProcess(
            [
                *(
                    program,
                    "--port",
                    str(self.port),
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--daemonize",
                    "no",
                ),
                *("--appendonly", "yes", "--appendfsync", self.sync, "--dir", str(directory)),
            ],
            directory,
        )
        self._streams = itertools.count(1)
        self.wire = self.server.wait_for(self.port)

    def _ask(self, *words: bytes) -> bytes:
        self.wire.sendall(resp(*words))
        answer = read(self.wire)
        if answer.startswith(b"-"):
            raise BenchError(answer.decode(errors="replace"))
        return answer

    def first(self) -> None:
        while True:
            self.wire.sendall(resp(b"XADD", b"first", b"*", b"d", b"x"))
            if read(self.wire).startswith(b"$"):  # else Redis is still loading
                return

    def _open(self) -> bytes:
        if stream := getattr(self, "_stream", b""):
            self._ask(b"DEL", stream)
        self._stream = b"s%d" % next(self._streams)
        return self._stream

    def _adds(self, size: int, count: int = CHUNK) -> bytes:
        return b"".join(resp(b"XADD", self._stream, b"*", b"d", each) for each in texts(size, count))

    def publish(self, size: int, seconds: float, batched: bool) -> Load:
        self._open()
        return flood(self.wire, self._adds(size), CHUNK, Pattern(b"\r\n", 2), seconds)

    def latencies(self, size: int, rate: float, seconds: float) -> list[int]:
        self._open()
        return paced(self.wire, self._adds(size, 1), Pattern(b"\r\n", 2), rate, seconds)

    def prepare(self, size: int, count: int) -> None:
        self._open()
        self._count = count
        chunk = self._adds(size)
        for _ in range(0, count, CHUNK):
            self.wire.sendall(chunk)
            answers = Pattern(b"\r\n", 2)
            left = CHUNK
            while left:
                left -= answers(read(self.wire))
        self._ask(b"XGROUP", b"CREATE", self._stream, b"g", b"0")

    def consume(self) -> Load:
        ask = resp(
            *(b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"%d" % CHUNK, b"STREAMS", self._stream, b">")
        )
        ids = re.compile(rb"\r\n(\d{13,}-\d+)\r\n")
        rest = b""
        waiting = 0

        def take(data: bytes) -> tuple[int, bytes]:
            nonlocal rest, waiting
            whole = rest + data
            names = list(ids.finditer(whole))
            rest = whole[names[-1].end() - 2 :] if names else whole[-64:]
            waiting += len(names)
            return len(names), b"".join(resp(b"XACK", self._stream, b"g", each[1]) for each in names)

        def more(taken: int) -> bytes:
            nonlocal waiting
            if waiting >= CHUNK:
                waiting -= CHUNK
                return ask
            return b""

        load = drain(self.wire, self._count, ask, take, more)
        self.wire.sendall(resp(b"ECHO", b"all-done"))  # behind the answers to all acknowledgements
        heard = b""
        while b"all-done" not in heard:
            heard = heard[-8:] + read(self.wire)
        pending = self._ask(b"XPENDING", self._stream, b"g")
        if not pending.startswith(b"*4\r\n:0\r\n"):
            raise BenchError(f"messages were not acknowledged: {pending[:80]!r}")
        return load

    def close(self) -> None:
        self.wire.close()
        self.server.end()


class RedisAlways(Redis):
    name = "Redis Streams, always"
    durability = "fsync before the answer, one for all that waits"
    sync = "always"


class RedisEverysec(Redis):
    name = "Redis Streams, everysec"
    durability = "fsync once a second: a power cut loses that much"
    sync = "everysec"


# -- NATS ----------------------------------------------------------------------------------------------


class Nats:
    """NATS JetStream on files: acknowledged publishes, a push consumer with explicit acknowledgements."""

    name = "NATS JetStream, file"
    durability = "page cache: synced every two minutes"
    program = "nats-server"
    replicas = 1
    depth = DEPTH

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        program = found(self.program)
        assert program is not None
        self.server = ServerProcess(
            [program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(directory / "js")], directory
        )
        self._streams = itertools.count(1)
        self.wire = self._connect()

    def _connect(self) -> socket.socket:
        wire = self.server.wait_for(self.port)
        wire.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB inbox.> 1\r\nPING\r\n')
        heard = b""
        while b"PONG\r\n" not in heard:
            heard += read(wire)
        return wire

    def _ask(self, subject: str, body: object) -> bytes:
        data = json.dumps(body).encode()
        self.wire.sendall(b"PUB %b inbox.ask %d\r\n%b\r\n" % (subject.encode(), len(data), data))
        heard = b""
        while heard.count(b"\r\n") < 2:
            heard += read(self.wire)
        if b'"error"' in heard:
            raise BenchError(heard.decode(errors="replace"))
        return heard

    def first(self) -> None:
        self._open()
        self.wire.sendall(self._puts(100, 1))
        answers = Pattern(b'"seq":')
        while not answers(read(self.wire)):
            pass

    def _open(self) -> None:
        self.wire.close()
        self.wire = self._connect()
        if stream := getattr(self, "_stream", ""):
            self._ask(f"$JS.API.STREAM.DELETE.{stream}", {})
        self._stream = f"s{next(self._streams)}"
        self._ask(
            f"$JS.API.STREAM.CREATE.{self._stream}",
            {
                "name": self._stream,
                "subjects": [self._stream],
                "storage": "file",
                "retention": "limits",
                "max_msgs": -1,
                "max_bytes": -1,
                "num_replicas": self.replicas,
            },
        )

    def _puts(self, size: int, count: int = CHUNK) -> bytes:
        subject = self._stream.encode()
        return b"".join(
            b"PUB %b inbox.p %d\r\n%b\r\n" % (subject, len(each), each) for each in texts(size, count)
        )

    def publish(self, size: int, seconds: float, batched: bool) -> Load:
        self._open()
        return flood(self.wire, self._puts(size), CHUNK, Pattern(b'"seq":'), seconds, depth=self.depth)

    def latencies(self, size: int, rate: float, seconds: float) -> list[int]:
        self._open()
        return paced(self.wire, self._puts(size, 1), Pattern(b'"seq":'), rate, seconds)

    def prepare(self, size: int, count: int) -> None:
        self._open()
        self._count = count
        chunk = self._puts(size)
        for _ in range(0, count, CHUNK):
            self.wire.sendall(chunk)
            answers, left = Pattern(b'"seq":'), CHUNK
            while left:
                left -= answers(read(self.wire))

    def consume(self) -> Load:
        self.wire.close()
        self.wire = self._connect()
        self._ask(
            f"$JS.API.CONSUMER.DURABLE.CREATE.{self._stream}.d",
            {
                "stream_name": self._stream,
                "config": {
                    "durable_name": "d",
                    "deliver_subject": f"deliver.{self._stream}",
                    "ack_policy": "explicit",
                    "max_ack_pending": 20 * CHUNK,
                    "deliver_policy": "all",
                    "replay_policy": "instant",
                },
            },
        )
        ask = b"SUB deliver.%b 2\r\n" % self._stream.encode()  # nothing is pushed before a client listens
        head = re.compile(rb"MSG \S+ 2 (\$JS\.ACK\.\S+) \d+\r\n")
        rest = b""

        def take(data: bytes) -> tuple[int, bytes]:
            nonlocal rest
            whole = rest + data
            found = list(head.finditer(whole))
            rest = whole[found[-1].end() :][-256:] if found else whole[-256:]
            return len(found), b"".join(b"PUB %b 4\r\n+ACK\r\n" % each[1] for each in found)

        load = drain(self.wire, self._count, ask, take)
        self.wire.sendall(b"PING\r\n")
        while b"PONG" not in read(self.wire):
            pass
        return load

    def close(self) -> None:
        self.wire.close()
        self.server.end()
