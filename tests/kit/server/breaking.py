"""Flight's answers without a connection, and a way to them that breaks."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from holdfast.columns.remote import RemotePlace, _Away
from holdfast.columns.tickets import Mark, Read
from holdfast.server.flight import service
from holdfast.server.flight.link import Setup, Told


class Everybody:
    """Instead of the link to a server: all may."""

    def ask(self, header: str | None, topics: list[str]) -> Told:
        return Told(1, "anybody", [True] * len(topics))


def open_to_all(directory: Path) -> service.Reads:
    """Return what the Flight process answers from a directory."""
    link: Any = Everybody()
    setup = Setup(str(directory), "127.0.0.1", None, None, "", "", "", 4, 60.0, 1 << 30, "info", "text")
    return service.Reads(directory, link, service.Service(setup, link).places)


class Breaking(RemotePlace):
    """A way that breaks after some batches, at random."""

    def __init__(self, there: service.Reads, seed: int) -> None:
        super().__init__("http://nowhere", timeout_s=60.0)
        self._there = there
        self._random = random.Random(seed)
        self.breaks = 0

    def rows(self, ticket: Read) -> Iterator[tuple[pa.RecordBatch, Mark]]:
        _, found = self._there.rows(None, msgspec.json.encode(ticket))
        with contextlib.closing(found):  # type: ignore[type-var]
            for number, (batch, mark) in enumerate(found):
                if (number and not self.breaks) or self._random.random() < 0.3:
                    self.breaks += 1
                    raise _Away("broken for the test")
                yield batch, msgspec.msgpack.decode(mark, type=Mark)
        if self._random.random() < 0.3:
            self.breaks += 1
            raise _Away("broken at the end")

    def call(self, action: str, body: msgspec.Struct, kind: Any) -> Any:
        answer = self._there.act(None, flight.Action(action, msgspec.json.encode(body)))
        return msgspec.json.decode(msgspec.json.encode(answer), type=kind)


__all__ = ["Breaking", "open_to_all"]
