"""Answers of measured processes to their parent, and the error when one fails."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any


class BenchError(Exception):
    """A measured process failed or hung; the text names the process and the cause."""


@dataclass(frozen=True)
class Failure:
    """The answer of a process whose work raised."""

    text: str


def answer(control: Connection, name: str, limit_s: float) -> Any:
    """Wait for the next answer of the process `name`.

    Raises:
        BenchError: the process failed, died, or did not answer in time.
    """
    if not control.poll(limit_s):
        raise BenchError(f"{name}: no answer within {limit_s:.0f} s")
    try:
        received = control.recv()
    except EOFError:
        raise BenchError(f"{name}: its process died") from None
    if isinstance(received, Failure):
        raise BenchError(f"{name}: {received.text}")
    return received
