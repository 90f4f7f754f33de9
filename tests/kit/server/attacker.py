"""A hostile client in its own process, so that only the server is slowed.

`python -m tests.kit.server.attacker BINARY_URL HTTP_PORT` reads names of attacks, one a line. It answers
`ready` when the attack is under way, and continues until the next line; an empty line is a pause.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.server.http.routing import Route
from holdfast.server.http.server import ROUTES
from tests.kit.server.asymmetry import (
    COMMANDS,
    LARGEST,
    Known,
    Make,
    Row,
    texts_of,
    with_long_texts,
)
from tests.kit.server.asymmetry_routes import ROUTES_PIPELINED, route_request
from tests.kit.server.definitions import definition
from tests.kit.server.wire_raw import Raw, Type, frame_of, full, stuffed

STUFFED_BYTES = 60_000
BURST_BYTES = 1 << 20
"""Size of a burst, if the attack has that many bytes."""
PACED_BYTES_S = 100 << 20
"""Bytes a second of a client whose messages are stored, because disks are finite."""


@dataclass(frozen=True)
class Attack:
    """Requests without end."""

    make: Make
    prepare: Callable[[Raw], Any] | None = None
    at_once: int = 500
    before: Make | None = None
    after: Make | None = None
    route: Route | None = None
    """The route of an attack over HTTP."""
    paced: bool = False

    def burst(self, at: Known) -> bytes:
        """Return the bytes that are sent at once."""
        data = bytearray()
        for number in range(self.at_once):
            for make in (self.before, self.make, self.after):
                if make is not None:
                    data += make(at, number)
            if len(data) >= BURST_BYTES:
                break
        return bytes(data)


def schema(raw: Raw) -> None:
    raw.ask(
        Type.GET_OR_CREATE_SCHEMA,
        Type.GET_OR_CREATE_SCHEMA_RESPONSE,
        topic=full("attacked"),
        schema={"name": "x", "schema_data": definition(400_000), "type": 2},
    )


def consumers(raw: Raw) -> None:
    for number in range(200):
        raw.subscribe("attacked", number, sub_type=1)


NAMESPACE = {"namespace": "public/default"}

CROWDS: dict[str, Attack] = {
    "topic lists": Attack(
        lambda at, n: frame_of(Type.GET_TOPICS_OF_NAMESPACE, b"", request_id=n, **NAMESPACE)
    ),
    "topic lists by patterns": Attack(
        lambda at, n: frame_of(
            Type.GET_TOPICS_OF_NAMESPACE, b"", request_id=n, topics_pattern=f".*{n}", **NAMESPACE
        )
    ),
    "stats": Attack(
        lambda at, n: frame_of(Type.CONSUMER_STATS, b"", request_id=n, consumer_id=n % 200), consumers
    ),
    "producers": Attack(
        lambda at, n: frame_of(Type.PRODUCER, b"", request_id=n, topic=full("attacked"), producer_id=n)
    ),
    "refusals": Attack(
        lambda at, n: frame_of(Type.LOOKUP, b"", request_id=n, topic="!/" * 30_000), at_once=20
    ),
    "schemas": Attack(
        lambda at, n: frame_of(Type.GET_SCHEMA, b"", request_id=n, topic=full("attacked")), schema
    ),
}
"""Attacks beside the table of asymmetry: many requests of one kind."""


def of_row(row: Row) -> Attack:
    return Attack(row.make, row.prepare, row.pipelined, row.before, row.after, paced=row.kind == Type.SEND)


def of_stuffed(row: Row) -> Attack:
    return Attack(lambda at, n: stuffed(row.make(at, n), STUFFED_BYTES), row.prepare, at_once=20)


def of_route(route: Route, body: bytes) -> Attack:
    made = route_request(route, body)
    return Attack(lambda at, n: made, at_once=ROUTES_PIPELINED, route=route)


def table() -> dict[str, Attack]:
    """Return all attacks by name.

    Every command is sent as it is, at its largest, stuffed, and with long texts. Every route is requested.
    """
    plain = [row for row in COMMANDS if not row.words]
    attacks = {f"crowd: {name}": attack for name, attack in CROWDS.items()}
    attacks |= {f"command: {row}": of_row(row) for row in COMMANDS}
    attacks |= {f"largest: {row}": of_row(row) for row in LARGEST}
    attacks |= {f"stuffed: {row}": of_stuffed(row) for row in plain}
    attacks |= {f"long texts: {row}": of_row(with_long_texts(row)) for row in plain if texts_of(row.kind)}
    for route in ROUTES:
        words = f"{route.method} {route.path}"
        small = b"" if route.body is None or route.body_optional else b"{}"
        attacks[f"route: {words}"] = of_route(route, small)
        attacks[f"largest body: {words}"] = of_route(route, b"{" + b" " * ((1 << 20) - 2) + b"}")
    return attacks


ATTACKS = table()


class Ids:
    """The ids of messages in the topic `t`."""

    def __init__(self, url: str) -> None:
        with Raw(url) as raw:
            raw.subscribe("t", 1, subscription=f"ids-{os.getpid()}", durable=False)
            raw.flow(500)
            self.ids: list[Any] = [each.message_id for each in raw.messages(500)]


class Attacker:
    """Runs attacks by name, one after the other."""

    def __init__(self, url: str, http_port: int) -> None:
        self._url, self._http_port = url, http_port
        self._known = Ids(url)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, name: str) -> None:
        """Start an attack; return when it is under way."""
        begun = threading.Event()
        self._ended = threading.Event()
        work = functools.partial(self._attack, ATTACKS[name], begun, self._ended)
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        assert begun.wait(30), f"{name} does not begin"

    def end(self) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join(30)
            assert not self._thread.is_alive(), "the attack does not end"
            self._thread = None

    def _attack(self, attack: Attack, begun: threading.Event, ended: threading.Event) -> None:
        data = attack.burst(self._known)
        while not ended.is_set():  # some attacks cost their connection
            with contextlib.suppress(OSError, EOFError, AssertionError), self._connected(attack) as channel:
                threading.Thread(target=drain, args=(channel, ended), daemon=True).start()
                while not ended.is_set():
                    push(channel, data, ended)
                    begun.set()
                    if attack.paced:
                        ended.wait(len(data) / PACED_BYTES_S)
            begun.set()

    @contextlib.contextmanager
    def _connected(self, attack: Attack) -> Any:
        if attack.route is not None:
            with socket.create_connection(("127.0.0.1", self._http_port), timeout=10) as channel:
                yield channel
            return
        with Raw(self._url) as raw:
            if attack.prepare is not None:
                with contextlib.suppress(AssertionError):  # another client has what only one can have
                    attack.prepare(raw)
            yield raw.socket


def push(channel: socket.socket, data: bytes, ended: threading.Event) -> None:
    """Send all bytes, unless the attack ends."""
    channel.settimeout(0.2)
    rest = memoryview(data)
    while rest and not ended.is_set():
        with contextlib.suppress(TimeoutError):
            rest = rest[channel.send(rest) :]


def drain(channel: socket.socket, ended: threading.Event) -> None:
    with contextlib.suppress(OSError, ValueError):
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                if not channel.recv(1 << 20):
                    channel.shutdown(socket.SHUT_RDWR)
                    return


def main(url: str, http_port: str) -> None:
    os.nice(19)  # the attack is on the server, not on the machine
    attacker = Attacker(url, int(http_port))
    for line in sys.stdin:
        attacker.end()
        if line.strip():
            attacker.begin(line.strip())
        print("ready", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
