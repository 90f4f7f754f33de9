"""The interface of a measured transport: one direction between two processes, and its hot loops.

The parent creates a `Transport` for one payload size and sends it to both workers. There, `sender()` and
`receiver()` return the two ends. The throughput loops belong to the ends. Each is the plain loop that a user
of that transport would write, without a call between loop and transport. Every loop returns the last payload,
so that the worker can compare it with the one sent.
"""

from __future__ import annotations

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
        """Receive `count` batches of `length` messages; return those of the last call."""

    def prepare(self, spinning: bool) -> None:
        """Set up for round trips with `spin` or with `wait`."""

    def spin(self) -> bytes:
        """Receive one message by polling, without sleep."""

    def wait(self) -> bytes:
        """Receive one message with the call that blocks."""

    def close(self) -> None: ...


class Transport(Protocol):
    """Created in the parent, sent to the workers by pickle, opened there."""

    def sender(self) -> Sender: ...

    def receiver(self) -> Receiver: ...

    def destroy(self) -> None:
        """Clean up in the parent, after both workers ended."""


@dataclass(frozen=True)
class Setting:
    """The settings of a transport."""

    size: int  # bytes of one payload
    capacity: int  # bytes of the ring, where the transport lets the user choose
    context: SpawnContext


@dataclass(frozen=True)
class Kind:
    """A row of the table."""

    name: str
    make: Callable[[Setting], Transport]
    module: str | None = None  # the module that it needs
    batches: bool = True  # can send many messages with one call
    readings: tuple[str, ...] = ("copy",)
