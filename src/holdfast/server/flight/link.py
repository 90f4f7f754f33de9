"""What the server and its Flight process say to each other, over a socket that only these two have.

The server says once how to listen; the process says once where it does. From then on it asks, for each call,
who that is and what it may read; the server answers from the rules that hold for HTTP. When either end is
closed the other is gone: the kernel closes it even for who was killed.
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

from holdfast.columns.tickets import Trouble
from holdfast.errors import Closed, Misuse, Timeout

HEAD = struct.Struct("<I")
FRAME_BYTES_MAX = 4 << 20
ASKS_MAX = 64
"""Questions that wait for an answer; whoever would be one more is told to come again."""
ANSWER_S = 30.0
"""A password takes its time; a server that does not answer, or hear, within this is stuck."""
LOOK_S = 1.0

Kind = TypeVar("Kind")


class Setup(msgspec.Struct, frozen=True):
    """How to listen. A port is a number, 0 for any that is free, or None for no such listener."""

    directory: str
    host: str
    port: int | None
    tls_port: int | None
    certificate: str
    key: str
    ca: str
    """Who vouches for clients; empty: they are not asked for a certificate."""
    reads: int
    idle_s: float
    memory_bytes: int
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["text", "json"]


class Ready(msgspec.Struct, frozen=True):
    """Where it listens, or why it cannot."""

    port: int | None = None
    tls_port: int | None = None
    unsupported: str = ""
    """What is not installed."""
    failed: str = ""


class Ask(msgspec.Struct, frozen=True):
    """Who shows this, and which of these topics may it read?"""

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
    """Encode a message. Raises Misuse if the other end would not take it: the link would end with it."""
    data = msgspec.msgpack.encode(message)
    return HEAD.pack(_checked(len(data))) + data


def frame_size(head: bytes) -> int:
    """Read the size of a message. Raises Misuse if it is too large."""
    return _checked(HEAD.unpack(head)[0])


def _checked(size: int) -> int:
    if size > FRAME_BYTES_MAX:
        raise Misuse(f"a frame of {size} bytes between the server and its Flight process")
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
        """Raises OSError (TimeoutError is one): the server is gone, or does not hear; then the link ends."""
        if not self._writing.acquire(timeout=ANSWER_S):
            raise TimeoutError("others wait to be heard")
        try:
            self._channel.sendall(frame(message))
        except OSError:
            # A part may be on its way, and nothing makes sense behind it: `run` finds the end, and returns.
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)
            raise
        finally:
            self._writing.release()

    def receive(self, kind: type[Kind]) -> Kind | None:
        """The next message; None: the server is gone."""
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
        """Blocks until the server has answered.

        Raises:
            Closed: the server is gone, or too many ask.
            HoldfastError: who shows this is nobody, as the server says it.
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
        """Hand out answers until the server is gone, or `over` says why to end. Answers why."""
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
                return "the server has gone"
            found = self._waiting.get(told.number)
            if found is not None:
                _give(found, told)


def _give(future: Future[Told], told: Any = None, error: Exception | None = None) -> None:
    if future.set_running_or_notify_cancel():
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(told)
