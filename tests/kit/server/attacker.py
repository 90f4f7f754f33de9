"""A client that does its worst: `python -m tests.kit.server.attacker URL ATTACK` until it is killed.

It is a process of its own, so that it holds nobody up but the server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.kit.server.wire_raw import Raw, Type, frame_of, full


@dataclass(frozen=True)
class Attack:
    """Requests without end."""

    make: Callable[[int], bytes]
    prepare: Callable[[Raw], Any] | None = None
    at_once: int = 500


def schema(raw: Raw) -> None:
    raw.ask(
        Type.GET_OR_CREATE_SCHEMA,
        Type.GET_OR_CREATE_SCHEMA_RESPONSE,
        topic=full("attacked"),
        schema={"name": "x", "schema_data": bytes(400_000), "type": 2},
    )


def consumers(raw: Raw) -> None:
    for number in range(200):
        raw.subscribe("attacked", number, sub_type=1)


NAMESPACE = {"namespace": "public/default"}

ATTACKS: dict[str, Attack] = {
    "topic lists": Attack(lambda n: frame_of(Type.GET_TOPICS_OF_NAMESPACE, b"", request_id=n, **NAMESPACE)),
    "topic lists by patterns": Attack(
        lambda n: frame_of(
            Type.GET_TOPICS_OF_NAMESPACE, b"", request_id=n, topics_pattern=f".*{n}", **NAMESPACE
        )
    ),
    "stats": Attack(
        lambda n: frame_of(Type.CONSUMER_STATS, b"", request_id=n, consumer_id=n % 200), consumers
    ),
    "producers": Attack(
        lambda n: frame_of(Type.PRODUCER, b"", request_id=n, topic=full("attacked"), producer_id=n % 500)
    ),
    "refusals": Attack(lambda n: frame_of(Type.LOOKUP, b"", request_id=n, topic="!/" * 30_000), at_once=20),
    "schemas": Attack(lambda n: frame_of(Type.GET_SCHEMA, b"", request_id=n, topic=full("attacked")), schema),
}
BUSY = Attack(lambda n: frame_of(Type.LOOKUP, b"", request_id=n, topic=full("busy")))
"""Small questions, as many as an attack has: the load that attacks are compared with."""


def attack(url: str, name: str) -> None:
    """Send without end, and read the answers as they come."""
    os.nice(19)  # the server is to be held up, and not the machine
    chosen = ATTACKS.get(name, BUSY)
    with Raw(url) as raw:
        if chosen.prepare is not None:
            chosen.prepare(raw)
        frames = b"".join(chosen.make(number) for number in range(chosen.at_once))
        threading.Thread(target=drain, args=(raw.socket,), daemon=True).start()
        raw.socket.settimeout(60)
        while True:
            raw.socket.sendall(frames)


def drain(channel: socket.socket) -> None:
    """Read all answers; the first of them shows that the server is being attacked."""
    with contextlib.suppress(OSError):
        answered = channel.recv(1)
        print("ready", flush=True)
        while answered:
            answered = channel.recv(1 << 20)


if __name__ == "__main__":
    attack(*sys.argv[1:])
