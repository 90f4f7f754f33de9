"""Messages between the server and its Flight process, over their private socket.

The server sends the setup once, and the process answers with its ports. Then, for each call, the process asks
for the caller's role and readable topics. The server answers by the rules of HTTP. When one of them ends or
is killed, the kernel closes the socket, and the other notices.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.columns import Trouble
from holdfast.errors import Closed, Misuse, Timeout

HEAD = struct.Struct("<I")
FRAME_BYTES_MAX = 4 << 20
ASKS_MAX = 64
"""Questions that wait for an answer; further callers are told to retry."""
ANSWER_S = 30.0
"""Time for the server to read a question and to answer: checking a password takes a while."""
LOOK_S = 1.0

Kind = TypeVar("Kind")


class Setup(msgspec.Struct, frozen=True):
    """The setup of the process. Port 0: any free one, None: no listener."""

    directory: str
    host: str
    port: int | None
    tls_port: int | None
    certificate: str
    key: str
    ca: str
    """Authorities of clients' certificates; empty: clients need no certificate."""
    reads: int
    idle_s: float
    memory_bytes: int
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["text", "json"]


class Ready(msgspec.Struct, frozen=True):
    """The ports of the process, or why it does not listen."""

    port: int | None = None
    tls_port: int | None = None
    unsupported: str = ""
    """The missing package, and how to install it."""
    failed: str = ""


class Ask(msgspec.Struct, frozen=True):
    """A question: the role behind this header, and which of these topics it may read."""

    number: int
    header: str | None
    """`Authorization`, as in HTTP."""
    topics: list[str]


class Told(msgspec.Struct, frozen=True):
    """The answer."""

    number: int
    role: str = ""
    allowed: list[bool] = []
    trouble: Trouble | None = None


def frame(message: msgspec.Struct) -> bytes:
    """Encode a message. Raises Misuse if it is too large for the other end."""
    data = msgspec.msgpack.encode(message)
    return HEAD.pack(_checked(len(data))) + data


def frame_size(head: bytes) -> int:
    """Read the size of a message. Raises Misuse if it is too large."""
    return _checked(HEAD.unpack(head)[0])


def _checked(size: int) -> int:
    if size > FRAME_BYTES_MAX:
        words = "a message between the server and its Flight process"
        raise Misuse(f"{words} has {size} bytes; at most {FRAME_BYTES_MAX} are allowed")
    return size


class Link:
    """The end of the Flight process: one thread reads answers, any thread asks."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        limit = struct.pack("@ll", int(ANSWER_S), int(ANSWER_S % 1 * 1e6))
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._writing = threading.Lock()
        self._counting = threading.Lock()
        self._waiting: dict[int, Future[Told]] = {}
        self._number = 0
        self._closed = False

    def send(self, message: msgspec.Struct) -> None:
        """Send a message.

        Raises:
            OSError: the server has stopped, or does not read (TimeoutError); then the link ends.
        """
        if not self._writing.acquire(timeout=ANSWER_S):
            raise TimeoutError("the server does not read")
        try:
            self._channel.sendall(frame(message))
        except OSError:
            # After a partial message no further one can be read. `run` notices the end, and returns.
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)
            raise
        finally:
            self._writing.release()

    def receive(self, kind: type[Kind]) -> Kind | None:
        """Receive the next message; None: the server has stopped."""
        head = self._read(HEAD.size)
        data = None if head is None else self._read(frame_size(head))
        return None if data is None else msgspec.msgpack.decode(data, type=kind)

    def _read(self, size: int) -> bytes | None:
        found = bytearray()
        while len(found) < size:
            try:
                part = self._channel.recv(size - len(found))
            except ConnectionError:
                return None
            if not part:
                return None
            found += part
        return bytes(found)

    def ask(self, header: str | None, topics: list[str]) -> Told:
        """Ask the server, and wait for its answer.

        Raises:
            Closed: the server stops, or too many questions wait.
            AuthenticationFailed: the server refuses the header.
        """
        with self._counting:
            if self._closed or len(self._waiting) >= ASKS_MAX:
                raise Closed("too many requests at once, or the server is stopping; retry later")
            self._number += 1
            number, future = self._number, Future[Told]()
            self._waiting[number] = future
        try:
            self.send(Ask(number, header, topics))
            told = future.result(ANSWER_S)
        except (TimeoutError, OSError) as error:
            raise Timeout("the server did not answer the authorization request; retry later") from error
        finally:
            self._waiting.pop(number, None)
        if told.trouble is not None:
            raise told.trouble.error()
        return told

    def run(self, over: Callable[[], str]) -> str:
        """Pass on answers until the server stops or `over` returns a reason; return the reason."""
        looked = time.monotonic()
        while True:
            ready, _, _ = select.select([self._channel], [], [], LOOK_S)
            if time.monotonic() - looked >= LOOK_S:
                if why := over():
                    return why
                looked = time.monotonic()
            if not ready:
                continue
            told = self.receive(Told)
            if told is None:
                self._closed = True
                for future in list(self._waiting.values()):
                    _give(future, error=Closed("the server is stopping; retry later"))
                return "the server has stopped"
            found = self._waiting.get(told.number)
            if found is not None:
                _give(found, told)


def _give(future: Future[Told], told: Any = None, error: Exception | None = None) -> None:
    if future.set_running_or_notify_cancel():
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(told)
