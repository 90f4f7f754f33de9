"""A `holdfast serve` that a test can inspect: `python -m tests.kit.growth.watched serve …`.

Through a Unix socket (`$HOLDFAST_WATCHED`) a test asks for counts of the process. They are objects, entries
of all containers, allocated blocks and bytes, the broker's tables, its snapshot, and Python calls between
requests. `$HOLDFAST_LEAKS` plants leaks, which the judgement must notice. Times that a client waits for are
short here: a reply of local ingest stays a moment, not a minute.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import os
import socket
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import holdfast.local.intake as ingest_module
from holdfast.broker.broker import Broker
from holdfast.broker.housekeeping import Housekeeping
from holdfast.cli import main
from holdfast.ledger.files.table import Publications
from holdfast.local.intake import Ingest
from holdfast.server.http.connection import HttpConnection
from holdfast.server.pulsar.connection import Connection
from holdfast.server.pulsar.listener import Server
from holdfast.server.pulsar.producers import Producers
from tests.kit.growth.allocated import LIBC, allocated_bytes

DOOR = "HOLDFAST_WATCHED"
LEAKS_PLANTED = "HOLDFAST_LEAKS"
IDLE_S = 0.2
"""A queue of local ingest that is idle for this long is deleted."""
CONTAINERS = (dict, list, set, deque)

_START = Broker.start


# -- counts of objects ---------------------------------------------------------------------------------


def is_bounded_cache(each: object) -> bool:
    return type(each) is functools._lru_cache_wrapper and each.cache_parameters()["maxsize"] is not None


class Held:
    """Counts the objects that this process holds beyond those at the start."""

    def __init__(self) -> None:
        gc.unfreeze()  # frozen objects of the server count, too
        gc.collect()
        found = gc.get_objects()
        self._containers = [each for each in found if issubclass(type(each), CONTAINERS)]
        """Exclude the objects that exist now; what is added to them counts."""
        self._caches = [each for each in found if is_bounded_cache(each)]
        del found
        gc.freeze()  # so that each count of the others is fast

    def look(self) -> dict[str, int]:
        """Empty bounded caches; then count."""
        for each in (*self._caches, *filter(is_bounded_cache, gc.get_objects())):
            each.cache_clear()
        gc.collect()
        blocks, allocated = sys.getallocatedblocks(), allocated_bytes()
        objects = gc.get_objects()
        entries = sum(map(len, self._containers))
        entries += sum(len(each) for each in objects if issubclass(type(each), CONTAINERS))
        return {
            "objects": len(objects),
            "entries of containers": entries - len(objects),
            "allocated blocks": blocks,
            "allocated bytes": allocated,
        }


class Calls:
    """Counts the Python calls of this thread."""

    def __init__(self) -> None:
        self.count = 0

    def begin(self) -> None:
        self.count = 0
        sys.setprofile(self._seen)

    def end(self) -> int:
        sys.setprofile(None)
        return self.count

    def _seen(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event == "call"


class Door:
    """Answers the requests of a test, in the server's event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._calls = Calls()
        self._held: Held | None = None

    async def answer(self, question: str) -> Any:
        found = getattr(self, question)()
        return await found if asyncio.iscoroutine(found) else found

    async def tidy(self) -> None:
        """Take snapshots, behind which unneeded files are closed and deleted."""
        for _ in range(2):
            await self._broker.admin.snapshot()

    def rest(self) -> None:
        """Start to count objects from here on."""
        self._held = Held()

    def held(self) -> dict[str, int]:
        assert self._held is not None
        return self._held.look()

    def snapshot(self) -> int:
        return sum(map(len, self._broker.machine.capture().parts))

    def begin(self) -> None:
        self._calls.begin()

    def end(self) -> int:
        return self._calls.end()

    def tables(self) -> dict[str, int]:
        """Count what must be gone soon after the last client."""
        state, broker = self._broker.machine.state, self._broker
        server, ingest = PARTS[Server], PARTS[Ingest]
        return {
            "topics": len(state.topics),
            "subscriptions": len(state.subscriptions),
            "sessions": len(state.sessions),
            "stages": len(state.stages),
            "sinks": len(state.sinks.last),
            "producer names": sum(len(broker.machine.log.sequences(each)) for each in state.topics),
            "dispatchers": sum(len(each.dispatchers) for each in broker.topics.values()),
            "places of readers": sum(len(each.volatile) for each in broker.topics.values()),
            "connections": len(server.connections),
            "wire producers": len(server.producers),
            "wire consumers": len(server.attached),
            "watched lists": sum(map(len, server.watching.subjects.values())),
            "ingest queues": len(ingest._segments),
            "ledgers": sum(len(each.ledgers) for each in state.topics.values()),
        }


async def serve_door(broker: Broker, path: str) -> None:
    door = Door(broker)

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while question := await reader.readline():
            writer.write(json.dumps(await door.answer(question.decode().strip())).encode() + b"\n")
        writer.close()

    await asyncio.start_unix_server(visit, path)


class Watch:
    """The control socket, with one connection for all requests."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(str(path))
        self._answers = self._socket.makefile()

    def ask(self, question: str) -> Any:
        self._socket.sendall(question.encode() + b"\n")
        return json.loads(self._answers.readline())

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


# -- leaks ---------------------------------------------------------------------------------------------

PARTS: dict[type, Any] = {}
"""The server and its local ingest."""
KEPT: list[Any] = []
"""Objects that planted leaks keep."""


def _after(cls: type, name: str, keep: Callable[[Any], object]) -> None:
    """Call `keep` with the object after each call of a method."""
    real = getattr(cls, name)

    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        answer = real(self, *arguments, **keywords)
        keep(self)
        return answer

    setattr(cls, name, method)


def _note(kind: Any) -> None:
    """Remember the object of this type that is created."""
    _after(kind, "__init__", lambda made: PARTS.__setitem__(kind, made))


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _walk(_: object) -> None:
    KEPT.append(None)
    for _ in range(len(KEPT)):
        _nothing()


LEAKS: dict[str, tuple[str, Callable[[], None]]] = {
    "names of producers stay": (
        "producer names",
        lambda: setattr(Housekeeping, "_forget_producers", _nothing),
    ),
    "stages and sinks stay": ("sinks", lambda: setattr(Housekeeping, "_old", lambda _: ())),
    "a descriptor stays with each connection": (
        "descriptors",
        lambda: _after(Connection, "connection_lost", lambda _: os.open("/dev/null", os.O_RDONLY)),
    ),
    "closed connections are kept in a list": (
        "objects",
        lambda: _after(Connection, "connection_lost", KEPT.append),
    ),
    "replies that are not read stay": (
        "files of the runtime directory",
        lambda: setattr(ingest_module, "_remove_own", _nothing),
    ),
    "a number stays with each HTTP connection": (
        "entries of containers",
        lambda: _after(HttpConnection, "connection_lost", lambda _: KEPT.append(0)),
    ),
    "memory of C stays with each producer": (
        "allocated bytes",
        lambda: _after(Producers, "gone", lambda _: LIBC.malloc(600)),
    ),
    "each request walks through all before it": (
        "calls of a probe",
        lambda: _after(Connection, "send", _walk),
    ),
    "files of deleted topics stay": (
        "files of the data directory",
        lambda: setattr(Publications, "gone", _nothing),
    ),
}
"""Leaks by name: the figure that must show it, and the code that plants it."""


def run(arguments: list[str]) -> int:
    for leak in filter(None, os.environ.get(LEAKS_PLANTED, "").split("|")):
        LEAKS[leak][1]()
    Ingest.__init__.__kwdefaults__["idle_s"] = IDLE_S  # type: ignore[index]
    for kind in (Server, Ingest):
        _note(kind)
    ingest_module.REPLY_S = 0.1

    async def start(*given: Any, **named: Any) -> Broker:
        broker = await _START(*given, **named)
        await serve_door(broker, os.environ[DOOR])
        return broker

    Broker.start = start  # type: ignore[method-assign]
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
