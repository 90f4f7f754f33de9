"""What a transport must offer to be measured: one direction between two processes, and its hot loops.

A `Transport` is made in the parent for one payload size and is sent to both workers; there, `sender()` and
`receiver()` give the two ends. The throughput loops belong to the ends: each is the plain loop that a user of
that transport would write, without a call between the loop and the transport. Every loop returns the last
payload it received, so that the worker can check that what arrived is what was sent.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from typing import Protocol


class Sender(Protocol):
    """The end that puts."""

    def put(self, data: bytes, count: int) -> None:
        """Send `data` `count` times, one call each."""

    def put_many(self, batch: list[bytes], count: int) -> None:
        """Send the whole batch `count` times."""

    def send(self, data: bytes) -> None:
        """Send one message to a receiver that spins."""

    def rouse(self, data: bytes) -> None:
        """Send one message to a receiver that may be asleep in `wait`."""

    def close(self) -> None: ...


class Receiver(Protocol):
    """The end that gets. `reading` names how the payload is read: "copy", "iterate" or "view"."""

    def get(self, count: int, reading: str) -> bytes:
        """Receive `count` messages one by one, each as bytes; return the last."""

    def get_many(self, length: int, count: int, reading: str) -> list[bytes]:
        """Receive `count` batches of `length` messages; return the last ones that came together."""

    def prepare(self, spinning: bool) -> None:
        """Round trips follow, with `spin` or with `wait`: the moment to set what can be set for that."""

    def spin(self) -> bytes:
        """One message, polled for without ever sleeping."""

    def wait(self) -> bytes:
        """One message, through the call that blocks."""

    def close(self) -> None: ...


class Transport(Protocol):
    """Made in the parent, picklable, opened by the workers."""

    def sender(self) -> Sender: ...

    def receiver(self) -> Receiver: ...

    def destroy(self) -> None:
        """In the parent, after both workers are gone."""


@dataclass(frozen=True)
class Setting:
    """What a transport is made for."""

    size: int  # bytes of one payload
    capacity: int  # bytes of the ring, where the transport lets one choose
    context: SpawnContext


@dataclass(frozen=True)
class Kind:
    """A row of the table."""

    name: str
    make: Callable[[Setting], Transport]
    module: str | None = None  # what must be importable for it
    batches: bool = True  # has a way to send many messages at once
    readings: tuple[str, ...] = ("copy",)

    def missing(self) -> str | None:
        """Why it cannot be measured here, or None."""
        if self.module is None or importlib.util.find_spec(self.module) is not None:
            return None
        return f"{self.module} is not installed: pip install 'holdfast[bench]'"
