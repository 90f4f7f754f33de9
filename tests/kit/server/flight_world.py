"""A server that is read over Flight: topics, its Flight process, readers by path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast import Broker
from holdfast.client import Client
from holdfast.columns import remote
from holdfast.columns.decoding import Wish
from holdfast.columns.files import FilePlace, TopicReader
from holdfast.columns.remote import RemotePlace
from holdfast.columns.schema import COLUMNS
from tests.kit.ledger.topic_bytes import Maker
from tests.kit.processes import process_state, until
from tests.kit.served import Served

PREFIX = "persistent://public/default"
LARGE = 32_000
"""Entries of the topic whose read takes a while."""


def fill(directory: Path) -> None:
    """Fill topics of several ledgers: `orders`, `open-news` with batches, `large`."""
    small: dict[str, Any] = {"reserve_bytes": 1 << 20, "journal_bytes": 1 << 20, "sync": "os"}
    with Broker.open(str(directory), roll_entries=4000, retention_s=-1, **small) as broker:
        with broker.producer("orders", name="shop") as producer:
            for number in range(10):
                data = [b"%d %d" % (number, i) for i in range(900)]
                producer.send_many(data, key=f"k{number}", properties={"n": str(number)}, event_time=10**15)
        with broker.producer("open-news", batch=50) as producer:
            producer.send_many([b"news %d" % i for i in range(1000)])
        with broker.producer("large") as producer:
            for number in range(LARGE // 1000):
                producer.send_many([b"%06d.." % (number * 1000 + i) * 128 for i in range(1000)])


def publish_all_kinds(server: Served, token: str | None = None) -> None:
    """Fill the topic `kinds` as clients do: batches, chunks, compressed and encrypted messages."""
    made = Maker(5)
    made.any(400)
    with Client(server.url.replace("pulsar", "holdfast"), token=token) as client:
        stage = client.stage()
        stage.append_entries("kinds", made.entries)
        client.sink_commit("fill", 1, [stage.close()])


def table(topic: TopicReader, start: int, stop: int, wish: Wish | None = None) -> pa.Table:
    wish = wish or Wish(list(COLUMNS))
    schema = pa.record_batch(wish.decoder(topic.name).finish()).schema
    return pa.Table.from_batches(topic.decoding(start, stop, wish).batches(), schema)


def by_path(directory: Path, name: str) -> TopicReader:
    return FilePlace(str(directory)).open(f"{PREFIX}/{name}")


def by_url(server: Served, name: str, token: str | None = None, timeout_s: float = 20.0) -> TopicReader:
    return RemotePlace(server.http_url, token, timeout_s=timeout_s).open(f"{PREFIX}/{name}")


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found]


def flight_pid(server: Served) -> int:
    """Return the process id of the one Flight process, as soon as it runs."""

    def one() -> int:
        found = [each for each in children(server.process.pid) if process_state(each) not in ("", "Z")]
        return found[0] if len(found) == 1 else 0

    return until(one)


def gone(pid: int) -> bool:
    return process_state(pid) in ("", "Z")


def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep little data on the way, so that a read takes long."""
    channel = [*remote._CHANNEL, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16)]
    monkeypatch.setattr(remote, "_CHANNEL", channel)


class Cut:
    """Reads a range, and calls `interrupt` when the first rows have arrived."""

    def __init__(self, topic: TopicReader, start: int, stop: int, interrupt: Callable[[], object]) -> None:
        self.rows = topic.decoding(start, stop, Wish(["value", "position"]))
        self._interrupt = interrupt
        self.found: list[pa.RecordBatch] = []

    def read(self) -> pa.Table:
        for batch in self.rows.batches():
            self.found.append(batch)
            if len(self.found) == 1:
                self._interrupt()
        return pa.Table.from_batches(self.found)
