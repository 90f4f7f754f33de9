"""`holdfast.client.Client`: a small blocking client for what Pulsar clients cannot do.

Stages and `sink.commit` (write to many topics at once, exactly once), and the progress of a named
subscription. Plain sockets and one thread that listens; no event loop. Every request may be sent again
without harm, so a connection that breaks is made anew and the request repeated until its time is over.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from holdfast import _core
from holdfast.arguments import checked_patience, require_text
from holdfast.broker import StageReceipt, stage_digest
from holdfast.client.link import AGAIN, Channel, Link, Lost, Token, refusal_of
from holdfast.errors import (
    AuthenticationFailed,
    Closed,
    Corrupt,
    HoldfastError,
    Misuse,
    NotFound,
    Timeout,
    Unsupported,
)
from holdfast.formatting import plural
from holdfast.names import topic_name
from holdfast.protocol import COMMIT_PARTS_MAX, ENTRY_PADDING_BYTES, FRAME_PADDING_BYTES, framed
from holdfast.protocol import pulsar_pb2 as pb

APPEND_BYTES = 1 << 20
"""Bytes that are sent to a stage at once; one more message is in memory."""
APPEND_COUNT = 16 << 10
"""Messages that are sent to a stage at once."""
CONNECT_S = 10.0
"""Time for a server to answer; several servers share less than that."""
_PORTS = {"holdfast": 6650, "pulsar": 6650, "holdfast+ssl": 6651, "pulsar+ssl": 6651}


@dataclass(frozen=True)
class Progress:
    """The position of a subscription, in ordinals: dense numbers of a topic's entries."""

    incarnation: bytes
    """Of the topic: another one means that it was deleted and made anew."""
    reset_number: int
    acked_to: int
    """All below is acknowledged."""
    first: int
    """The oldest that the topic has."""
    visible: int
    """Behind the newest that may be read."""
    log_time: int = field(default=0, compare=False)
    """The broker's log time as it answered, in ns, not compared; 0: an older broker does not tell it."""


class Client:
    """Talks to a server. Threads may share a client; after a fork it reconnects.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> from holdfast.server import Server, ServerOptions
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
            token: authentication token; a function is called for each connection.
            timeout: seconds for a request with all its repetitions.
            tls: with whose certificates; default: those of the system.
        """
        self._addresses, secure = _addresses(url)
        self._best = 0
        """The address that answered last."""
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self.url = url
        self._token = token
        self._timeout = checked_patience(timeout)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._requests = 0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._after_fork()
        self._closed = True
        with self._lock:
            if self._link is not None:
                self._link.break_off(Closed("the client was closed"))
                self._link = None

    def __repr__(self) -> str:
        return f"<holdfast.client.Client {self.url}>"

    # -- what it can do --------------------------------------------------------------------------------

    def stage(self, id: bytes | None = None) -> Stage:  # noqa: A002  # what it is
        """Open a new stage, or the stage of this id, which must be empty.

        Raises:
            NoSpace: the broker's disk is full.
        """
        stage = Stage(self, id or os.urandom(16))
        self._call("stage_open", pb.CommandStageOpen(stage=stage.id))
        return stage

    def sink_commit(self, key: str, batch: int, receipts: Sequence[StageReceipt]) -> bool:
        """Publish all stages at once, exactly once per key and batch.

        Returns False if this batch or a later one is published already. After a lost answer, the same call
        may have published it.

        Raises:
            NotFound: a stage is missing; nothing was published.
            Corrupt: a stage differs from its receipt; nothing was published.
            Misuse: there are more than 20,000 parts (stages times topics).
            Timeout: the outcome is unknown; commit again.
        """
        return self.sink_commit_at(key, batch, receipts)[0]

    def sink_commit_at(self, key: str, batch: int, receipts: Sequence[StageReceipt]) -> tuple[bool, int]:
        """Commit as `sink_commit` does; return also the newest batch that the sink has published."""
        require_text("key", key)
        command = pb.CommandSinkCommit(key=key, batch=_counted(batch, "batch"))
        for receipt in receipts:
            for stage, topic, count, digest in receipt.encode():
                command.parts.add(stage=stage, topic_id=topic, count=count, digest=digest)
        if len(command.parts) > COMMIT_PARTS_MAX:
            raise Misuse(
                f"a commit of {len(command.parts)} parts (stages times topics); "
                f"at most {COMMIT_PARTS_MAX} are possible: use fewer, larger stages"
            )
        told = self._call("sink_commit", command).sink_committed
        return bool(told.committed), int(told.batch)

    def progress(
        self,
        topic: str,
        subscription: str,
        *,
        create: bool = False,
        start: Literal["earliest", "latest"] = "latest",
        incarnation: bytes = b"",
    ) -> Progress:
        """Return the progress of a subscription; `create` creates it, from `start` on.

        `incarnation` of an earlier `Progress` names the topic exactly: no topic is created. A topic that was
        created again under the same name is refused.

        Raises:
            NotFound: the topic or subscription does not exist, or the topic was created again.
        """
        require_text("topic", topic)
        require_text("subscription", subscription)
        command = pb.CommandProgress(
            topic=topic,
            subscription=subscription,
            create=create,
            earliest=start == "earliest",
            incarnation=incarnation,
        )
        return _progress(self._call("progress", command))

    def advance(
        self, topic: str, subscription: str, to: int, reset_number: int, incarnation: bytes = b""
    ) -> Progress:
        """Acknowledge everything below `to`. The cursor never goes back.

        `incarnation` of an earlier `Progress` names the topic exactly: a topic that was created again under
        the same name is refused.

        Raises:
            CursorModifying: the subscription was reset since `reset_number` was read; nothing was changed.
            NotFound: the topic or subscription does not exist, or the topic was created again.
        """
        require_text("topic", topic)
        require_text("subscription", subscription)
        command = pb.CommandProgressAdvance(
            topic=topic,
            subscription=subscription,
            to=_counted(to, "to"),
            reset_number=_counted(reset_number, "reset_number"),
            incarnation=incarnation,
        )
        return _progress(self._call("progress_advance", command))

    def add_schema(self, topic: str, schema: bytes) -> int:
        """Add a schema to a topic, as a producer does, and return its version.

        A topic that does not exist is created. `schema` is a `Schema` of the protocol, encoded. If the topic
        has it, nothing changes.

        Raises:
            IncompatibleSchema: it does not fit those of the topic, or producers may not add any.
        """
        require_text("topic", topic)
        command = pb.CommandGetOrCreateSchema(topic=topic, schema=pb.Schema.FromString(schema))
        told = self._call("get_or_create_schema", command).getOrCreateSchemaResponse
        return int.from_bytes(told.schema_version, "big")

    def has_schema(self, topic: str, version: int) -> bool:
        """Return whether a topic has a schema of this version."""
        require_text("topic", topic)
        wanted = _counted(version, "version").to_bytes(8, "big")
        try:
            self._call("get_schema", pb.CommandGetSchema(topic=topic, schema_version=wanted))
        except NotFound:
            return False
        return True

    def http_url(self) -> str:
        """Return the HTTP address of the same broker, as secure as this client's.

        Raises:
            Unsupported: the broker has no such HTTP address.
            Timeout: there was no answer in time.
        """
        told = self._call("http_ports", pb.CommandHttpPorts()).http_ports_response
        scheme, port = ("http", told.http_port) if self._tls is None else ("https", told.https_port)
        if not port:
            raise Unsupported(f"{self.url} has no {scheme} address; set listen.{scheme}_port there")
        host = self._addresses[self._best][0]
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def message_bytes_max(self) -> int | None:
        """The largest entry that the broker takes; None: it was not asked for anything yet."""
        link = self._link
        return None if link is None else link.message_bytes_max

    # -- asking ----------------------------------------------------------------------------------------

    def _call(self, name: str, message: Any) -> pb.BaseCommand:
        """Ask until there is an answer, or the time is over."""
        self._after_fork()
        deadline = time.monotonic() + self._timeout
        pause_s, why, sent = 0.01, "", False
        while True:
            try:
                number, link = self._connection(deadline)
                message.request_id = number
                frame = framed(message)
                if len(frame) > link.message_bytes_max + FRAME_PADDING_BYTES:
                    raise Misuse(
                        f"{name} makes a request of {len(frame)} bytes, and {self.url} takes at most "
                        f"{link.message_bytes_max + FRAME_PADDING_BYTES}: publish fewer stages, or to fewer "
                        "topics, at once"
                    )
                sent = True
                answer = link.ask(number, frame, deadline)
                refusal = refusal_of(answer)
                if refusal is None:
                    return answer
                raise refusal
            except (Lost, OSError, *AGAIN) as error:
                if isinstance(error, HoldfastError) and not isinstance(error, AGAIN):
                    raise
                if self._closed:
                    raise Closed(f"the client of {self.url} was closed") from None
                why = str(error)
            if time.monotonic() + pause_s >= deadline:
                if not sent:
                    raise Timeout(
                        f"no connection in {self._timeout} s: {why}; {name} was not sent. Start the server "
                        "(`holdfast serve`), or check host and port"
                    )
                raise Timeout(
                    f"{self.url} did not carry out {name} in {self._timeout} s ({why}); its outcome is "
                    "unknown, and the call may be repeated"
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)

    def _after_fork(self) -> None:
        """In a child, drop the connection and the lock: they are the parent's."""
        if self._pid != os.getpid():
            link, self._link = self._link, None
            self._pid, self._lock = os.getpid(), threading.Lock()
            if link is not None:
                link.forget()

    def _connection(self, deadline: float) -> tuple[int, Link]:
        """A number for a request, and where to send it."""
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise Lost("another thread is still connecting")
        try:
            self._requests += 1
            return self._requests, self._connected(deadline)
        finally:
            self._lock.release()

    def _require_fitting(self, entries: Sequence[bytes]) -> None:
        link, largest = self._link, max(map(len, entries))
        if link is not None and largest > link.message_bytes_max + ENTRY_PADDING_BYTES:
            raise Misuse(
                f"a message of {largest} bytes; the largest is {link.message_bytes_max}: "
                "send large data in pieces, or its place"
            )

    def _connected(self, deadline: float) -> Link:
        """Return the connection, or a new one if it has broken."""
        if self._closed:
            raise Closed(f"the client of {self.url} was closed")
        if self._link is None or self._link.broken is not None:
            self._link = self._reached(deadline)
        return self._link

    def link(self, timeout: float) -> Link:
        """Make a connection on which no thread listens: for one thread alone, which closes it."""
        return self._reached(time.monotonic() + timeout, listen=False)

    def _reached(self, deadline: float, listen: bool = True) -> Link:
        """Connect, first to the address that answered last."""
        failed: list[Exception] = []
        for turn in range(len(self._addresses)):
            at = (self._best + turn) % len(self._addresses)
            # One that is silent must leave some time for the others.
            share_s = (deadline - time.monotonic()) / (len(self._addresses) - turn)
            try:
                until = time.monotonic() + min(CONNECT_S, share_s)
                link = self._connect(*self._addresses[at], until, listen)
                self._best = at
                return link
            except HoldfastError as error:
                if not isinstance(error, Timeout):  # it answers, and refuses
                    raise
                failed.append(error)
            except OSError as error:
                failed.append(error)
        if all(isinstance(each, ssl.SSLCertVerificationError) for each in failed):
            raise AuthenticationFailed(
                f"{self.url} cannot prove its identity: {failed[-1]}; is the name in the address that of its "
                "certificate, and is its authority known here? Say Client(…, tls=CONTEXT)"
            ) from failed[-1]
        why = failed[-1].strerror if isinstance(failed[-1], OSError) else None
        raise ConnectionError(f"{self.url}: {why or failed[-1]}") from failed[-1]

    def _connect(self, host: str, port: int, deadline: float, listen: bool) -> Link:
        sock = socket.create_connection((host, port), max(0.001, deadline - time.monotonic()))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = Channel(sock, self._tls, host)
            channel.greet(deadline)
            link = Link(channel, self._token)
            link.greet(deadline, listen)
        except TimeoutError as error:
            sock.close()
            raise ConnectionError(f"{host}:{port} does not answer") from error
        except BaseException:
            sock.close()
            raise
        return link


class Stage:
    """Made by `Client.stage`: append, close, and commit the receipt. For one thread."""

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
        """Add messages for a topic, durable and invisible; returns the number of entries.

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
        for piece in _pieces(entries, 1, self._client.message_bytes_max):
            self._client._require_fitting(piece)
            _, count, digest = self._parts.get(topic, (0, 0, 0))
            command = pb.CommandStageAppend(stage=self.id, topic=topic, at=count, entries=piece)
            told = self._client._call("stage_append", command).stage_appended
            wanted = (count + len(piece), stage_digest(piece, digest))
            if (told.count, told.digest) != wanted:
                raise Corrupt(
                    f"stage {self.id.hex()} has {plural(told.count, 'entry')} for {topic}, should have "
                    f"{wanted[0]}, or has others than were sent; drop it, and stage the batch again"
                )
            self._parts[topic] = (told.topic_id, *wanted)
            made += len(piece)
        return made

    def close(self) -> StageReceipt:
        """End the stage, and return its receipt, which can be pickled for the committer.

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


def _pieces(data: Iterable[bytes], batch: int, most: int | None = None) -> Iterator[list[bytes]]:
    """Yield pieces of at most a megabyte, or what a broker takes; whole batches."""
    piece, size = list[bytes](), 0
    limit = min(APPEND_BYTES, most or APPEND_BYTES)
    for each in data:
        full = size + len(each) > limit or len(piece) >= APPEND_COUNT
        if piece and full and len(piece) % batch == 0:
            yield piece
            piece, size = [], 0
        piece.append(each)
        size += len(each)
    if piece:
        yield piece


def _counted(number: int, name: str) -> int:
    """Check a number that a command carries in 64 bits.

    Raises:
        Misuse: it does not fit.
    """
    if not 0 <= number < 1 << 64:
        raise Misuse(f"{name} is {number}; a command carries 0 to 2^64-1")
    return number


def _progress(answer: pb.BaseCommand) -> Progress:
    told = answer.progress_response
    return Progress(
        told.incarnation, told.reset_number, told.acked_to, told.first, told.visible, told.log_time
    )


def _addresses(url: str) -> tuple[list[tuple[str, int]], bool]:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.netloc or parts.path not in ("", "/"):
        raise Misuse(f"{url!r} is not a broker's address; write holdfast://host:port")
    found = []
    try:
        for each in parts.netloc.split(","):
            one = urlsplit(f"//{each}")
            if not one.hostname:
                raise ValueError("no host")
            found.append((one.hostname, one.port or _PORTS[parts.scheme]))
    except ValueError as error:
        raise Misuse(f"{url!r} is not a broker's address: {error}; write holdfast://host:port") from None
    return found, parts.scheme.endswith("+ssl")


__all__ = ["Client", "Progress", "Stage", "StageReceipt"]
