"""`holdfast.client.Client`: a small blocking client for what Pulsar clients cannot do.

Stages and `sink.commit` (write to many topics at once, exactly once), and the progress of a named
subscription. Plain sockets and one thread that listens; no event loop. Every request may be sent again
without harm, so a connection that breaks is made anew and the request repeated until its time is over.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from holdfast import __version__, _core, errors
from holdfast.broker.events.stage_append import stage_digest
from holdfast.broker.names import topic_name
from holdfast.broker.stage import StageReceipt
from holdfast.errors import (
    AuthenticationFailed,
    Closed,
    Corrupt,
    Denied,
    HoldfastError,
    Misuse,
    NoQuorum,
    Timeout,
    TooManyConnections,
)
from holdfast.wire.proto import pulsar_pb2 as pb

APPEND_BYTES = 1 << 20
"""What is sent to a stage at once: so much, and one message more, is in memory."""
APPEND_COUNT = 16 << 10
"""And so many messages at most: small ones are larger with what goes with each."""
FRAME_BYTES_MAX = 6 << 20
_PORTS = {"holdfast": 6650, "pulsar": 6650, "holdfast+ssl": 6651, "pulsar+ssl": 6651}
_CODES: dict[int, type[HoldfastError]] = {
    pb.AuthenticationError: AuthenticationFailed,
    pb.AuthorizationError: Denied,
    pb.ServiceNotReady: Closed,
    pb.TooManyRequests: TooManyConnections,
    pb.NotAllowedError: Misuse,
    pb.InvalidTopicName: Misuse,
}
_AGAIN = (Closed, NoQuorum, TooManyConnections)
"""The broker stops, or waits for others: ask again."""

Token = str | Callable[[], str] | None


@dataclass(frozen=True)
class Progress:
    """How far a subscription is. Positions are ordinals: numbers of entries, dense over the topic's life."""

    incarnation: bytes
    """Of the topic: another one means that it was deleted and made anew."""
    reset_number: int
    acked_to: int
    """All below is acknowledged."""
    first: int
    """The oldest that the topic has."""
    visible: int
    """Behind the newest that may be read."""


class _Lost(Exception):
    """The connection has broken: what became of the request is not known."""


class _Link:
    """One connection: requests leave under a lock, a thread hears the answers."""

    def __init__(self, sock: socket.socket, token: Token) -> None:
        self._socket = sock
        self._token = token
        self._sending = threading.Lock()
        self._waiting: dict[int, _Answer] = {}
        self._lock = threading.Lock()
        self.broken: Exception | None = None
        self.message_bytes_max = 5 << 20
        self.pid = os.getpid()

    def greet(self, deadline: float) -> None:
        """CONNECT, and its answer; then the thread begins."""
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        method, data = self._credentials()
        greeting = pb.CommandConnect(
            client_version=f"holdfast {__version__}",
            protocol_version=21,
            auth_method_name=method,
            auth_data=data,
            feature_flags=pb.FeatureFlags(supports_auth_refresh=True),
        )
        self._socket.sendall(_frame(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=greeting)))
        answer = self._read()
        if answer.type == pb.BaseCommand.ERROR:
            raise _error(answer.error)
        if answer.type != pb.BaseCommand.CONNECTED:
            raise Corrupt(f"this is no broker: it answers CONNECT with a command of type {answer.type}")
        self.message_bytes_max = answer.connected.max_message_size or self.message_bytes_max
        self._socket.settimeout(None)
        threading.Thread(target=self._listen, name="holdfast-client", daemon=True).start()

    def _credentials(self) -> tuple[str, bytes]:
        if self._token is None:
            return "none", b""
        return "token", (self._token() if callable(self._token) else self._token).encode()

    def ask(self, request: int, frame: bytes, deadline: float) -> pb.BaseCommand:
        """Raises _Lost, Timeout."""
        answer = _Answer()
        with self._lock:
            if self.broken is not None:
                raise self._lost()
            self._waiting[request] = answer
        try:
            self._send(frame)
            if not answer.came.wait(max(0.0, deadline - time.monotonic())):
                raise Timeout(
                    "no answer in time; what became of the request is not known: it may be sent again"
                )
            if answer.command is None:
                raise self._lost()
            return answer.command
        finally:
            with self._lock:
                self._waiting.pop(request, None)

    def _lost(self) -> Exception:
        """What broke it, if the broker has said so: it would say the same again."""
        if isinstance(self.broken, HoldfastError) and not isinstance(self.broken, _AGAIN):
            return type(self.broken)(str(self.broken))
        return _Lost(str(self.broken))

    def _send(self, frame: bytes) -> None:
        try:
            with self._sending:
                self._socket.sendall(frame)
        except OSError as error:
            self.close(error)
            raise _Lost(str(error)) from error

    def _listen(self) -> None:
        try:
            while True:
                self._heard(self._read())
        except Exception as error:  # whatever it is, those who wait are told
            self.close(error)

    def _heard(self, command: pb.BaseCommand) -> None:
        kind = command.type
        if kind == pb.BaseCommand.PING:
            self._send(_frame(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong())))
        elif kind == pb.BaseCommand.AUTH_CHALLENGE:
            method, data = self._credentials()
            shown = pb.AuthData(auth_method_name=method, auth_data=data)
            response = pb.CommandAuthResponse(client_version=f"holdfast {__version__}", response=shown)
            self._send(_frame(pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE, authResponse=response)))
        elif kind != pb.BaseCommand.PONG:
            for field, message in command.ListFields():
                if field.name != "type":
                    self._answered(message.request_id, command)

    def _answered(self, request: int, command: pb.BaseCommand) -> None:
        with self._lock:
            answer = self._waiting.get(request)
        if answer is not None:
            answer.command = command
            answer.came.set()
        elif command.type == pb.BaseCommand.ERROR:  # of the connection as a whole
            raise _error(command.error)

    def _read(self) -> pb.BaseCommand:
        total, size = struct.unpack(">II", self._exactly(8))
        if not 4 + size == total <= FRAME_BYTES_MAX:
            raise Corrupt(f"a frame of {total} bytes with a command of {size}: this is no broker")
        return pb.BaseCommand.FromString(self._exactly(size))

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionResetError("the broker has closed the connection")
            data += more
        return bytes(data)

    def close(self, reason: Exception) -> None:
        with self._lock:
            if self.broken is not None:
                return
            self.broken = reason
            waiting = list(self._waiting.values())
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for answer in waiting:
            answer.came.set()


class _Answer:
    def __init__(self) -> None:
        self.came = threading.Event()
        self.command: pb.BaseCommand | None = None


class Client:
    """Talks to a broker that serves. Threads may share one; after a fork it connects anew.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> from holdfast.wire import Server, ServerOptions
        >>> def write(url: str) -> None:
        ...     with Client(url) as client:  # such as holdfast://localhost:6650
        ...         stage = client.stage()
        ...         stage.append("orders", [b"rope", b"tar"])
        ...         receipt = stage.close()
        ...         print(client.sink_commit("nightly", 1, [receipt]))
        ...         print(client.sink_commit("nightly", 1, [receipt]))
        ...         print(client.progress("orders", "billing", create=True).visible)
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         async with Server(broker, ServerOptions(port=0)) as server:
        ...             await asyncio.to_thread(write, server.url)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        True
        False
        2
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token = None,
        timeout: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connects with the first request.

        Args:
            url: `holdfast://host:port` or `pulsar://…`; `holdfast+ssl://…` and `pulsar+ssl://…` with TLS;
                several hosts with commas between them are tried in turn.
            token: who this is, for brokers that want to know; a function is called for each connection.
            timeout: seconds for a request with all its repetitions.
            tls: with whose certificates; default: those of the system.
        """
        self._addresses, secure = _addresses(url)
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self.url = url
        self._token = token
        self._timeout = timeout
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._requests = 0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            self._closed = True
            if self._link is not None:
                self._link.close(Closed("the client was closed"))
                self._link = None

    def __repr__(self) -> str:
        return f"<holdfast.client.Client {self.url}>"

    # -- what it can do --------------------------------------------------------------------------------

    def stage(self, id: bytes | None = None) -> Stage:  # noqa: A002  # what it is
        """A new stage, or the one of this id, to which nothing was appended yet.

        Raises:
            NoSpace: the broker's disk is full.
        """
        stage = Stage(self, id or os.urandom(16))
        self._call("stage_open", pb.CommandStageOpen(stage=stage.id))
        return stage

    def sink_commit(self, key: str, batch: int, receipts: Sequence[StageReceipt]) -> bool:
        """Publish all stages at once, exactly once per key and batch.

        False: this batch, or a later one, is published already, perhaps by this very call, whose answer was
        lost.

        Raises:
            NotFound: a stage is missing; nothing was published.
            Corrupt: a stage is not what its receipt says; nothing was published.
            Timeout: not known; commit again.
        """
        return self.sink_commit_at(key, batch, receipts)[0]

    def sink_commit_at(self, key: str, batch: int, receipts: Sequence[StageReceipt]) -> tuple[bool, int]:
        """The same, and the newest batch that the sink has published."""
        command = pb.CommandSinkCommit(key=key, batch=batch)
        for receipt in receipts:
            for stage, topic, count, digest in receipt.encode():
                command.parts.add(stage=stage, topic_id=topic, count=count, digest=digest)
        told = self._call("sink_commit", command).sink_committed
        return bool(told.committed), int(told.batch)

    def progress(
        self,
        topic: str,
        subscription: str,
        *,
        create: bool = False,
        start: Literal["earliest", "latest"] = "latest",
    ) -> Progress:
        """How far a subscription is; with `create` it is made, beginning at `start`, if it is not there.

        Raises:
            NotFound: there is no such topic or subscription.
        """
        command = pb.CommandProgress(
            topic=topic, subscription=subscription, create=create, earliest=start == "earliest"
        )
        return _progress(self._call("progress", command))

    def advance(self, topic: str, subscription: str, to: int, reset_number: int) -> Progress:
        """Acknowledge everything below `to`; a subscription that is further stays where it is.

        Raises:
            CursorModifying: the subscription was reset since `reset_number` was seen; nothing was changed.
        """
        command = pb.CommandProgressAdvance(
            topic=topic, subscription=subscription, to=to, reset_number=reset_number
        )
        return _progress(self._call("progress_advance", command))

    # -- asking ----------------------------------------------------------------------------------------

    def _call(self, name: str, message: Any) -> pb.BaseCommand:
        """Ask until there is an answer, or the time is over."""
        deadline = time.monotonic() + self._timeout
        pause_s, why = 0.01, ""
        while True:
            try:
                with self._lock:
                    self._requests += 1
                    number = self._requests
                    link = self._connected(deadline)
                message.request_id = number
                kind: Any = pb.BaseCommand.Type.Value(name.upper())
                frame = _frame(pb.BaseCommand(type=kind, **{name: message}))
                answer = link.ask(number, frame, deadline)
                if answer.type != pb.BaseCommand.ERROR:
                    return answer
                raise _error(answer.error)
            except (_Lost, OSError, *_AGAIN) as error:
                if isinstance(error, HoldfastError | TimeoutError) and not isinstance(error, _AGAIN):
                    raise
                if self._closed:
                    raise Closed(f"the client of {self.url} was closed") from None
                why = str(error)
            if time.monotonic() + pause_s >= deadline:
                raise Timeout(
                    f"{self.url} did not carry out {name} in {self._timeout} s ({why}); what became of it is "
                    "not known: it may be sent again"
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)

    def _require_fitting(self, entries: Sequence[bytes]) -> None:
        link, largest = self._link, max(map(len, entries))
        if link is not None and largest > link.message_bytes_max:
            raise Misuse(
                f"a message of {largest} bytes; the largest is {link.message_bytes_max}: "
                "send large data in pieces, or its place"
            )

    def _connected(self, deadline: float) -> _Link:
        """The connection; a new one if it has broken, or this is another process."""
        if self._closed:
            raise Closed(f"the client of {self.url} was closed")
        if self._link is not None and self._link.broken is None and self._link.pid == os.getpid():
            return self._link
        failed: Exception = ConnectionError(f"no address in {self.url}")
        for host, port in self._addresses:
            try:
                self._link = self._connect(host, port, deadline)
                return self._link
            except OSError as error:
                if isinstance(error, HoldfastError):  # it answers, and refuses
                    raise
                failed = error
        raise ConnectionError(f"{self.url}: {failed}") from failed

    def _connect(self, host: str, port: int, deadline: float) -> _Link:
        sock = socket.create_connection((host, port), max(0.001, min(10.0, deadline - time.monotonic())))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=host)
            link = _Link(sock, self._token)
            link.greet(min(deadline, time.monotonic() + 10.0))
        except TimeoutError as error:
            sock.close()
            raise ConnectionError(f"{host}:{port} does not answer") from error
        except BaseException:
            sock.close()
            raise
        return link


class Stage:
    """Made by `Client.stage`: append, close, and let somebody commit the receipt. For one thread."""

    def __init__(self, client: Client, id: bytes) -> None:  # noqa: A002
        self._client = client
        self.id = id
        self._parts: dict[str, tuple[int, int, int]] = {}
        """By the topic's full name: its id, how many entries, their digest."""
        self._closed = False

    def append(
        self,
        topic: str,
        data: Iterable[bytes],
        *,
        key: str | bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time_ms: int = 0,
        batch: int = 1,
    ) -> int:
        """Add messages for a topic: durable when it returns, and invisible. How many entries they make.

        `data` may be long: it is taken, encoded and sent piece by piece.

        Raises:
            NoSpace: the broker's disk is full. Any error: the stage may hold a part; drop it.
        """
        made, topic = 0, topic_name(topic)
        for piece in _pieces(data, batch):
            entries = _core.encode_messages(
                piece,
                "stage",
                self._parts.get(topic, (0, 0, 0))[1],
                time.time_ns() // 1_000_000,
                key=key,
                properties=properties,
                event_time_ms=event_time_ms,
                batch=batch,
            )
            made += self.append_entries(topic, entries)
        return made

    def append_entries(self, topic: str, entries: Iterable[bytes]) -> int:
        """The same with entries that `holdfast._core.encode_messages` has made. How many they were."""
        if self._closed:
            raise Closed(f"stage {self.id.hex()} was closed; open another one")
        made, topic = 0, topic_name(topic)
        for piece in _pieces(entries, 1):
            self._client._require_fitting(piece)
            _, count, digest = self._parts.get(topic, (0, 0, 0))
            command = pb.CommandStageAppend(stage=self.id, topic=topic, at=count, entries=piece)
            told = self._client._call("stage_append", command).stage_appended
            wanted = (count + len(piece), stage_digest(piece, digest))
            if (told.count, told.digest) != wanted:
                raise Corrupt(
                    f"stage {self.id.hex()} has {told.count} entries for {topic}, should have {wanted[0]}, "
                    "or has others than were sent; drop it, and stage the batch again"
                )
            self._parts[topic] = (told.topic_id, *wanted)
            made += len(piece)
        return made

    def close(self) -> StageReceipt:
        """Nothing more is added. The receipt can be pickled, and travels to whoever commits.

        Raises:
            Corrupt: the stage holds something else than was sent.
        """
        told = self._client._call("stage_close", pb.CommandStageClose(stage=self.id)).stage_receipt
        parts = tuple((part.topic_id, part.count, part.digest) for part in told.parts)
        if parts != tuple(sorted(self._parts.values())):
            raise Corrupt(f"stage {self.id.hex()} holds something else than was sent; stage the batch again")
        self._closed = True
        return StageReceipt(self.id, parts)

    def drop(self) -> None:
        """Give it up; does nothing once it is committed."""
        self._closed = True
        self._client._call("stage_drop", pb.CommandStageDrop(stage=self.id))


def _pieces(data: Iterable[bytes], batch: int) -> Iterator[list[bytes]]:
    """About a megabyte each, and whole batches."""
    piece, size = list[bytes](), 0
    for each in data:
        full = size + len(each) > APPEND_BYTES or len(piece) >= APPEND_COUNT
        if piece and full and len(piece) % batch == 0:
            yield piece
            piece, size = [], 0
        piece.append(each)
        size += len(each)
    if piece:
        yield piece


def _frame(command: pb.BaseCommand) -> bytes:
    return _core.frame_command(command.SerializeToString())


def _progress(answer: pb.BaseCommand) -> Progress:
    told = answer.progress_response
    return Progress(told.incarnation, told.reset_number, told.acked_to, told.first, told.visible)


def _error(told: pb.CommandError) -> HoldfastError:
    """The error that the broker raised, by its name; or what its code means."""
    name, _, text = told.message.partition(": ")
    made = getattr(errors, name, None) if name.isidentifier() else None
    if isinstance(made, type) and issubclass(made, HoldfastError):
        return made(text)
    return _CODES.get(told.error, HoldfastError)(told.message)


def _addresses(url: str) -> tuple[list[tuple[str, int]], bool]:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.netloc or parts.path not in ("", "/"):
        raise Misuse(f"{url!r} is no broker's address; write holdfast://host:port")
    found = []
    try:
        for each in parts.netloc.split(","):
            one = urlsplit(f"//{each}")
            if not one.hostname:
                raise ValueError("no host")
            found.append((one.hostname, one.port or _PORTS[parts.scheme]))
    except ValueError as error:
        raise Misuse(f"{url!r} is no broker's address: {error}; write holdfast://host:port") from None
    return found, parts.scheme.endswith("+ssl")


__all__ = ["Client", "Progress", "Stage", "StageReceipt"]
