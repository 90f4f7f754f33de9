"""One connection of `holdfast.client`: bytes with deadlines, TLS, and answers to requests.

No call waits beyond its deadline: not for a peer that does not read, nor for a silent one. A thread hears
answers while others send. A TLS session is not for two threads at once: a lock guards it, between buffers.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable

from holdfast import __version__, errors
from holdfast.errors import (
    AuthenticationFailed,
    Closed,
    Corrupt,
    Denied,
    HoldfastError,
    IncompatibleSchema,
    Misuse,
    NoQuorum,
    NotFound,
    TooManyConnections,
)
from holdfast.protocol import FRAME_PADDING_BYTES, framed
from holdfast.protocol import pulsar_pb2 as pb

FRAME_BYTES_MAX = 6 << 20
READ_BYTES = 1 << 16
_CODES: dict[int, type[HoldfastError]] = {
    pb.AuthenticationError: AuthenticationFailed,
    pb.AuthorizationError: Denied,
    pb.ServiceNotReady: Closed,
    pb.TooManyRequests: TooManyConnections,
    pb.NotAllowedError: Misuse,
    pb.InvalidTopicName: Misuse,
    pb.ChecksumError: Corrupt,
    pb.IncompatibleSchema: IncompatibleSchema,
    pb.TopicNotFound: NotFound,
}
AGAIN = (Closed, NoQuorum, TooManyConnections)
"""The broker stops, or waits for others: ask again."""

Token = str | Callable[[], str] | None


class Lost(Exception):
    """The connection has broken: what became of the request is not known."""


def error_of(told: pb.CommandError) -> HoldfastError:
    """The error that the broker raised, by its name; or what its code means."""
    name, _, text = told.message.partition(": ")
    made = getattr(errors, name, None) if name.isidentifier() else None
    if isinstance(made, type) and issubclass(made, HoldfastError):
        return made(text)
    return _CODES.get(told.error, HoldfastError)(told.message)


def refusal_of(answer: pb.BaseCommand) -> HoldfastError | None:
    """Return why the broker refuses a request; None: it has carried it out."""
    if answer.type == pb.BaseCommand.ERROR:
        return error_of(answer.error)
    for field in ("getSchemaResponse", "getOrCreateSchemaResponse"):
        told = getattr(answer, field)
        if told.HasField("error_code"):
            return error_of(pb.CommandError(error=told.error_code, message=told.error_message))
    return None


class Channel:
    """A socket with deadlines. One thread may read while others write."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLContext | None, host: str) -> None:
        self._socket = sock
        sock.setblocking(False)
        self._sending = threading.Lock()
        """Keeps the order of what is sent. Taken before the other."""
        self._session = threading.Lock()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None if tls is None else tls.wrap_bio(self._in, self._out, server_hostname=host)

    def greet(self, deadline: float) -> None:
        """The handshake of TLS, if there is one.

        Raises:
            TimeoutError, ssl.SSLError, ConnectionError.
        """
        while self._tls is not None:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._push(self._out.read(), deadline)
                self._in.write(self._pull(deadline))
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._push(self._out.read(), deadline)  # why we go
                raise
        self._push(self._out.read(), deadline)

    def send(self, data: bytes, deadline: float) -> None:
        """All of it. Raises TimeoutError: a part may have left."""
        if not self._sending.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimeoutError("what was sent before does not leave")
        try:
            if self._tls is not None:
                with self._session:
                    self._tls.write(data)
                    data = self._out.read()
            self._push(data, deadline)
        finally:
            self._sending.release()

    def receive(self, deadline: float | None) -> bytes:
        """Something; waits for it."""
        while True:
            data = self._pull(deadline)
            if self._tls is None:
                return data
            with self._session:
                self._in.write(data)
                plain = self._plain()
            if self._out.pending:
                self._answer(deadline)
            if plain:
                return plain

    def _plain(self) -> bytes:
        assert self._tls is not None
        plain = bytearray()
        with contextlib.suppress(ssl.SSLWantReadError):
            while more := self._tls.read(READ_BYTES):
                plain += more
        return bytes(plain)

    def _answer(self, deadline: float | None) -> None:
        """Send the session's own records."""
        with self._sending:
            with self._session:
                data = self._out.read()
            self._push(data, deadline)

    def _push(self, data: bytes, deadline: float | None) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)

    def _pull(self, deadline: float | None) -> bytes:
        while True:
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
                continue
            if not data:
                raise ConnectionResetError("the broker has closed the connection")
            return data

    def _wait(self, what: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self._socket.fileno(), what)
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        if not poll.poll(left):
            raise TimeoutError("the broker is silent")

    def shut(self) -> None:
        """End reading and writing; threads that wait are woken."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket, after all threads have stopped waiting."""
        self._socket.close()


class Link:
    """Requests leave, a thread hears the answers."""

    def __init__(self, channel: Channel, token: Token) -> None:
        self._channel = channel
        self._token = token
        self._waiting: dict[int, _Answer] = {}
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self.broken: Exception | None = None
        self.message_bytes_max = 5 << 20

    def greet(self, deadline: float, listen: bool = True) -> None:
        """Send CONNECT and await its answer; with `listen`, a thread hears the rest.

        Raises:
            AuthenticationFailed, Denied, …: the broker refuses this client.
            TimeoutError, OSError: it does not answer.
        """
        method, data = self._credentials()
        greeting = pb.CommandConnect(
            client_version=f"holdfast {__version__}",
            protocol_version=21,
            auth_method_name=method,
            auth_data=data,
            feature_flags=pb.FeatureFlags(supports_auth_refresh=True),
        )
        self._channel.send(framed(greeting), deadline)
        answer, _ = self._read(deadline)
        if answer.type == pb.BaseCommand.ERROR:
            raise error_of(answer.error)
        if answer.type != pb.BaseCommand.CONNECTED:
            raise Corrupt(f"the answer to CONNECT is a command of type {answer.type}; this is not a broker")
        self.message_bytes_max = answer.connected.max_message_size or self.message_bytes_max
        if listen:
            threading.Thread(target=self._listen, name="holdfast-client", daemon=True).start()

    def _credentials(self) -> tuple[str, bytes]:
        if self._token is None:
            return "none", b""
        return "token", (self._token() if callable(self._token) else self._token).encode()

    def ask(self, request: int, frame: bytes, deadline: float) -> pb.BaseCommand:
        """The answer.

        Raises:
            Lost: the connection has broken, or the broker has not answered in time.
            HoldfastError: it has, and the broker has said why.
        """
        answer = _Answer()
        with self._lock:
            if self.broken is not None:
                raise self._lost()
            self._waiting[request] = answer
        try:
            self.send(frame, deadline)
            if not answer.came.wait(max(0.0, deadline - time.monotonic())):
                # Perhaps it is only slow. But a connection whose other end has vanished looks the same, and
                # other requests that wait here may be repeated elsewhere.
                self.break_off(TimeoutError("there was no answer in time"))
                raise Lost("there was no answer in time")
            if answer.command is None:
                raise self._lost()
            return answer.command
        finally:
            with self._lock:
                self._waiting.pop(request, None)

    def _lost(self) -> Exception:
        """Return the broker's own error, if it has told one: it would tell it again."""
        if isinstance(self.broken, HoldfastError) and not isinstance(self.broken, AGAIN):
            return type(self.broken)(str(self.broken))
        return Lost(str(self.broken))

    def send(self, frame: bytes, deadline: float) -> None:
        """Send a whole frame. Raises Lost: the connection has broken."""
        try:
            self._channel.send(frame, deadline)
        except (OSError, ValueError) as error:
            self.break_off(error)
            raise Lost(str(error)) from error

    def _listen(self) -> None:
        try:
            while True:
                command, _ = self._read(None)
                if not self._own(command):
                    self._heard(command)
        except Exception as error:  # requests that wait fail with it
            self.break_off(error)
        self._channel.close()

    def hear(self, deadline: float) -> tuple[pb.BaseCommand, bytes]:
        """Return the next command and the entry behind it: where no thread listens.

        Raises:
            TimeoutError, OSError, Corrupt.
        """
        while self._own((found := self._read(deadline))[0]):
            pass
        return found

    def _own(self, command: pb.BaseCommand) -> bool:
        """Answer a command that concerns the connection alone; False: it is another one."""
        kind, soon = command.type, time.monotonic() + 10.0
        if kind == pb.BaseCommand.PING:
            self.send(framed(pb.CommandPong()), soon)
        elif kind == pb.BaseCommand.AUTH_CHALLENGE:
            method, data = self._credentials()
            shown = pb.AuthData(auth_method_name=method, auth_data=data)
            response = pb.CommandAuthResponse(client_version=f"holdfast {__version__}", response=shown)
            self.send(framed(response), soon)
        return kind in (pb.BaseCommand.PING, pb.BaseCommand.PONG, pb.BaseCommand.AUTH_CHALLENGE)

    def _heard(self, command: pb.BaseCommand) -> None:
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
            raise error_of(command.error)

    def _read(self, deadline: float | None) -> tuple[pb.BaseCommand, bytes]:
        """Return the next command and the entry behind it. After a TimeoutError nothing is lost."""
        self._fill(8, deadline)
        total, size = struct.unpack_from(">II", self._buffer)
        if not 4 + size <= total <= max(FRAME_BYTES_MAX, self.message_bytes_max + FRAME_PADDING_BYTES):
            raise Corrupt(
                f"the answer is not Pulsar's protocol (a frame of {total} bytes with a command of {size}); "
                "use the broker's Pulsar port, such as 6650"
            )
        self._fill(4 + total, deadline)
        frame = bytes(self._buffer[8 : 4 + total])
        del self._buffer[: 4 + total]
        return pb.BaseCommand.FromString(frame[:size]), frame[size:]

    def _fill(self, count: int, deadline: float | None) -> None:
        while len(self._buffer) < count:
            self._buffer += self._channel.receive(deadline)

    def forget(self) -> None:
        """Close the socket where no thread listens, also in a forked child."""
        self._channel.close()

    def break_off(self, reason: Exception) -> None:
        """Fail all requests that wait. The thread that hears closes the socket."""
        with self._lock:
            if self.broken is not None:
                return
            self.broken = reason
            waiting = list(self._waiting.values())
        self._channel.shut()
        for answer in waiting:
            answer.came.set()


class _Answer:
    def __init__(self) -> None:
        self.came = threading.Event()
        self.command: pb.BaseCommand | None = None


__all__ = ["AGAIN", "Channel", "Link", "Lost", "Token", "error_of", "refusal_of"]
