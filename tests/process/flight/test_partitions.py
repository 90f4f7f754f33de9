"""Streams by URL alone, of topics whose partitions and delivery times come while they run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast._core import encode_messages
from holdfast.client import Client
from holdfast.columns.decoding import Wish
from holdfast.columns.files import FilePlace
from holdfast.columns.remote import RemotePlace
from holdfast.columns.schema import COLUMNS
from tests.kit.pipeline.streams import Stream
from tests.kit.served import Served, served
from tests.kit.server.flight_world import PREFIX, by_path, by_url, table


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("partitions") / "data"


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Served]:
    with served(data, http=True) as running:
        yield running


def send(server: Served, topic: str, values: list[bytes], due_ms: int = 0) -> None:
    """Publish, with a delivery time if one is given; return when it is durable."""
    entries = encode_messages(values, "shop", 0, int(time.time() * 1000), deliver_at_ms=due_ms)
    with Client(server.url) as client:
        stage = client.stage()
        stage.append_entries(topic, entries)
        client.sink_commit(stage.id.hex(), 1, [stage.close()])


@pytest.mark.parametrize("by_name", [True, False])
def test_a_stream_by_url_alone_learns_partitions(server: Served, data: Path, by_name: bool) -> None:
    """I284: new partitions are read from their first message on."""
    one, two = ("orders", "bills") if by_name else ("cars", "bikes")
    options = {"topic": one} if by_name else {"topicsPattern": f"{one}|{two}"}
    server.set_partitions(one, 1)
    send(server, f"{one}-partition-0", [b"a0", b"b0"])
    stream = Stream(None, columns=("value",), **{"service.url": server.http_url, **options})
    assert stream.batch() == [b"a0", b"b0"]
    server.set_partitions(one, 3, grow=True)
    assert stream.batch() == []
    send(server, f"{one}-partition-2", [b"a2"])
    send(server, f"{one}-partition-0", [b"c0"])
    assert sorted(stream.batch()) == [b"a2", b"c0"]
    send(server, f"{one}-partition-1", [b"a1", b"b1"])
    send(server, f"{one}-partition-2", [b"b2"])
    assert sorted(stream.batch()) == [b"a1", b"b1", b"b2"]
    assert sorted(stream.offset[f"{PREFIX}/{one}"]) == ["0", "1", "2"]
    server.set_partitions(two, 2)
    send(server, f"{two}-partition-1", [b"late"])
    assert stream.batch() == ([] if by_name else [b"late"])
    assert RemotePlace(server.http_url).topics() == FilePlace(str(data)).topics()


def test_delivery_times_by_path_and_by_url(server: Served, data: Path) -> None:
    """Messages that are not due are there at once; a column tells their time."""
    due_ms = (int(time.time()) + 86_400) * 1000 + 7
    send(server, "later", [b"now"])
    send(server, "later", [b"tomorrow", b"as well"], due_ms)
    wish = Wish([*COLUMNS, "deliverAt"])
    far, near = by_url(server, "later"), by_path(data, "later")
    found = table(far, *far.plan(), wish)
    assert found.equals(table(near, *near.plan(), wish), check_metadata=True)
    due = datetime.fromtimestamp(due_ms / 1000, UTC)
    assert found["value"].to_pylist() == [b"now", b"tomorrow", b"as well"]
    assert found["deliverAt"].to_pylist() == [None, due, due]
