"""The interface of what carries messages: Corosync, or a simulation of it.

A carrier gives the messages of all processes in one order, and lists of the processes in the same order.
Processes that go together from one list to the next got the same messages between them. Nothing more is
promised: a process that goes another way may have got others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple


class Process(NamedTuple):
    """A process of the group, as the carrier knows it."""

    node: int
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} of node {self.node}"


class Message(NamedTuple):
    """A message in the one order."""

    sender: Process
    data: bytes


class Listed(NamedTuple):
    """The processes of the group from here on."""

    processes: frozenset[Process]


Item = Message | Listed


class CarrierLost(Exception):
    """The carrier is gone, and this process is out of its group."""


class Carrier(ABC):
    """A process's connection to the carrier. After `close` make another."""

    @abstractmethod
    async def join(self, arrived: Callable[[], None]) -> Process:
        """Join the group; `arrived` is called on the loop whenever there may be items."""

    @abstractmethod
    def take(self) -> Item | None:
        """Return the next item, or None if nothing has come.

        Raises:
            CarrierLost: no item will come any more.
        """

    @abstractmethod
    def send(self, data: bytes) -> bool:
        """Send a message to all processes, also this one; return False if busy.

        Raises:
            CarrierLost: nothing can be sent any more.
        """

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group, and return when the carrier knows it."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection up at once, without waiting."""
