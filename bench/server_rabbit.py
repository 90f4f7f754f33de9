"""RabbitMQ under the same load generator, with the needed part of AMQP 0-9-1."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import subprocess
from pathlib import Path

from bench.answers import BenchError
from bench.server_load import CHUNK, DEPTH, Load, drain, flood, paced, read
from bench.server_peers import texts
from bench.server_process import ServerProcess, found, free_port

METHOD, HEADER, BODY = 1, 2, 3
END = b"\xce"
PREFETCH = 4 * CHUNK
START, TUNE, OPENED = (10, 10), (10, 30), (10, 41)
DELIVER, ACK = (60, 60), (60, 80)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + END


def method(channel: int, name: tuple[int, int], arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *name) + arguments)


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


class Frames:
    """Splits frames into (kind, payload)."""

    def __init__(self) -> None:
        self._rest = b""

    def __call__(self, data: bytes) -> list[tuple[int, bytes]]:
        whole = self._rest + data
        at, found = 0, []
        while at + 7 <= len(whole):
            kind, _, size = struct.unpack_from(">BHI", whole, at)
            if at + 8 + size > len(whole):
                break
            found.append((kind, whole[at + 7 : at + 7 + size]))
            at += 8 + size
        self._rest = whole[at:]
        return found


class Confirms:
    """Counts confirmations; one may confirm many messages."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._upto = 0
        self._above: set[int] = set()

    def __call__(self, data: bytes) -> int:
        before = self._upto + len(self._above)
        for kind, payload in self._frames(data):
            if kind == METHOD and struct.unpack_from(">HH", payload) == ACK:
                tag, many = struct.unpack_from(">QB", payload, 4)
                if many:
                    self._upto = max(self._upto, tag)
                    self._above = {each for each in self._above if each > self._upto}
                else:
                    self._above.add(tag)
        return self._upto + len(self._above) - before


class Rabbit:
    """A durable queue, persistent messages, publisher confirms, one acknowledgement for each delivery."""

    program = "rabbitmq-server"
    depth = DEPTH
    arguments = b""
    """Arguments of the queue, as an AMQP table."""

    def __init__(self, directory: Path) -> None:
        self.port, dist, self._mapper = free_port(), free_port(), free_port()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{self.port}\nloopback_users = none\nlog.console = true\n"
        )
        (directory / "enabled_plugins").write_text("[].\n")
        # The program in /usr/sbin changes to another user, which does not own our directory.
        program = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        self.server = ServerProcess(
            [str(program if program.exists() else found(self.program))],
            directory,
            {
                "HOME": str(directory),
                "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
                "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
                "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
                "RABBITMQ_LOG_BASE": str(directory),
                "RABBITMQ_PID_FILE": str(directory / "pid"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
                "RABBITMQ_DIST_PORT": str(dist),
                "ERL_EPMD_PORT": str(self._mapper),
                "ERL_EPMD_ADDRESS": "127.0.0.1",
            },
        )
        self._queues = itertools.count(1)
        self._unread: list[tuple[int, bytes]] = []
        self.wire = self._connect()

    # -- talking ---------------------------------------------------------------------------------------

    def _connect(self) -> socket.socket:
        wire = self.wire = self.server.wait_for(self.port)
        self._frames = Frames()
        self._unread = []
        wire.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(START)
        plain = b"\0guest\0guest"
        wire.sendall(
            method(
                0,
                (10, 11),
                struct.pack(">I", 0)
                + short("PLAIN")
                + struct.pack(">I", len(plain))
                + plain
                + short("en_US"),
            )
        )
        self._expect(TUNE)
        wire.sendall(method(0, (10, 31), struct.pack(">HIH", 2047, 131072, 0)))
        wire.sendall(method(0, (10, 40), short("/") + b"\0\0"))
        self._expect(OPENED)
        self._ask((20, 10), short(""))
        return wire

    def _expect(self, name: tuple[int, int]) -> bytes:
        while True:
            while self._unread:
                kind, payload = self._unread.pop(0)
                if kind == METHOD:
                    got = struct.unpack_from(">HH", payload)
                    if got == name:
                        return payload
                    if got in ((10, 50), (20, 40)):
                        raise BenchError(f"RabbitMQ refuses: {payload[4:200]!r}")
            self._unread += self._frames(read(self.wire))

    def _ask(self, name: tuple[int, int], arguments: bytes) -> bytes:
        """Send a request and return its answer, whose number is the request's plus one."""
        self.wire.sendall(method(1, name, arguments))
        return self._expect((name[0], name[1] + 1))

    # -- measuring -------------------------------------------------------------------------------------

    def _open(self) -> None:
        if queue := getattr(self, "_queue", ""):
            self._ask((50, 40), b"\0\0" + short(queue) + b"\0")
        self.wire.close()
        self.wire = self._connect()
        self._queue = f"q{next(self._queues)}"
        table = struct.pack(">I", len(self.arguments)) + self.arguments
        self._ask((50, 10), b"\0\0" + short(self._queue) + b"\x02" + table)
        self._ask((85, 10), b"\0")

    def _publishes(self, size: int, count: int = CHUNK) -> bytes:
        publish = method(1, (60, 40), b"\0\0" + short("") + short(self._queue) + b"\0")
        parts = []
        for each in texts(size, count):
            head = struct.pack(">HHQHB", 60, 0, len(each), 0x1000, 2)  # delivery mode 2: persistent
            parts += [publish, frame(HEADER, 1, head), frame(BODY, 1, each)]
        return b"".join(parts)

    def first(self) -> None:
        self._open()
        self.wire.sendall(self._publishes(100, 1))
        confirms = Confirms()
        while not confirms(read(self.wire)):
            pass

    def publish(self, size: int, seconds: float, batched: bool) -> Load:
        self._open()
        return flood(self.wire, self._publishes(size), CHUNK, Confirms(), seconds, depth=self.depth)

    def latencies(self, size: int, rate: float, seconds: float) -> list[int]:
        self._open()
        return paced(self.wire, self._publishes(size, 1), Confirms(), rate, seconds)

    def prepare(self, size: int, count: int) -> None:
        self._open()
        self._count = count
        chunk, confirms = self._publishes(size), Confirms()
        for _ in range(0, count, CHUNK):
            self.wire.sendall(chunk)
            left = CHUNK
            while left > 0:
                left -= confirms(read(self.wire))

    def consume(self) -> Load:
        self.wire.close()
        self.wire = self._connect()
        self._ask((60, 10), struct.pack(">IHB", 0, PREFETCH, 0))
        frames = Frames()

        def take(data: bytes) -> tuple[int, bytes]:
            acks = []
            for kind, payload in frames(data):
                if kind == METHOD and payload[:4] == b"\0\x3c\0\x3c":
                    tag_at = 5 + payload[4]
                    acks.append(method(1, ACK, payload[tag_at : tag_at + 8] + b"\0"))
            return len(acks), b"".join(acks)

        ask = method(1, (60, 20), b"\0\0" + short(self._queue) + short("c") + b"\0" + struct.pack(">I", 0))
        load = drain(self.wire, self._count, ask, take)
        self._frames, self._unread = frames, []
        left = self._ask((50, 10), b"\0\0" + short(self._queue) + b"\x01" + struct.pack(">I", 0))
        ready = struct.unpack_from(">I", left, 5 + left[4])[0]
        if ready:
            raise BenchError(f"{ready} messages were not consumed")
        return load

    def close(self) -> None:
        self.wire.close()
        self.server.end()
        with contextlib.suppress(OSError):  # Erlang's port mapper is a daemon: it ends only by request
            subprocess.run(
                ["epmd", "-kill"],
                env={**os.environ, "ERL_EPMD_PORT": str(self._mapper)},
                capture_output=True,
                timeout=10,
                check=False,
            )


class RabbitClassic(Rabbit):
    name = "RabbitMQ, classic durable"
    durability = "fsync, grouped, before the confirm"


class RabbitQuorum(Rabbit):
    name = "RabbitMQ, quorum of one"
    durability = "Raft log, fsync before the confirm"
    arguments = short("x-queue-type") + b"S" + struct.pack(">I", 6) + b"quorum"
