"""Messages of all kinds, by path and by address: what filters choose from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Client
from tests.kit.ledger.entry_bytes import METADATA, SINGLE, Fields, batch_payload, entry
from tests.kit.ledger.topic_bytes import Maker
from tests.kit.served import served

YEAR_10000_MS = 253_402_300_800_000


def edges() -> list[bytes]:
    """Publish messages that filters could get wrong: key absent, empty or null, no time."""

    def fields(time: int) -> Fields:
        return [
            (METADATA["producer_name"], b"p"),
            (METADATA["sequence_id"], 1),
            (METADATA["publish_time"], time),
        ]

    key, null = METADATA["partition_key"], METADATA["null_partition_key"]
    own, own_null = SINGLE["partition_key"], SINGLE["null_partition_key"]
    parts: list[tuple[Fields, bytes]] = [
        ([], b"no key"),
        ([(own, b"")], b"empty"),
        ([(own, b"a")], b"a"),
        ([(own, b"a"), (own_null, 1)], b"null"),
        ([(own, b"a" * 300)], b"long"),
    ]
    batch: Fields = [(METADATA["num_messages_in_batch"], len(parts)), (key, b"a")]
    return [
        entry([*fields(5000), (key, b"a")], b"a"),
        entry([*fields(5001), (key, b"")], b"empty"),
        entry([*fields(5000), (key, b"a"), (null, 1)], b"null"),
        entry(fields(4999), b"no key"),
        entry([*fields(YEAR_10000_MS), (key, b"a")], b"no time"),
        entry([*fields(YEAR_10000_MS - 1), (key, b"a")], b"the last time"),
        entry([*fields(5000), *batch], batch_payload(parts)),
    ]


@contextlib.contextmanager
def filled(data: Path) -> Iterator[dict[str, dict[str, str]]]:
    """A server with them; options of the source, by path and by address."""
    made = Maker(17)
    made.any(250)
    with served(data, http=True) as server:
        with Client(server.url.replace("pulsar", "holdfast")) as client:
            stage = client.stage()
            stage.append_entries("orders", [*made.entries, *edges()])
            client.sink_commit("fill", 1, [stage.close()])
        yield {"path": {"path": str(data)}, "url": {"service.url": server.http_url}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    with filled(tmp_path_factory.mktemp("filters") / "data") as made:
        yield made
