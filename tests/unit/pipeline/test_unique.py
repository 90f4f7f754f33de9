"""Test that `uniqueId` differs where `position` does not: batches, topics, stages, incarnations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.columns.decoding import Wish
from holdfast.columns.files import FilePlace
from tests.kit.ledger.entry_bytes import METADATA, SINGLE, batch_payload, entry
from tests.kit.spark.pipeline_world import append_entries

PREFIX = "persistent://public/default/"
SMALL: dict[str, Any] = {"sync": "os", "reserve_bytes": 1 << 20, "journal_bytes": 1 << 20}


def rows(data: Path, *topics: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in topics:
        topic = FilePlace(str(data)).open(f"{PREFIX}{name}")
        wish = Wish(["topic", "partition", "position", "uniqueId", "storedTime"])
        for batch in topic.decoding(*topic.plan(), wish).batches():
            found += batch.to_pylist()
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unique") / "data"
    with holdfast.Broker.open(path, roll_entries=3, **SMALL) as broker:
        for name in ("a", "b"):
            with broker.producer(name, batch=4) as producer:
                producer.send_many([b"%d" % number for number in range(20)])
            with broker.producer(name) as producer:
                producer.send_many([b"alone", b"alone too"])
    fields = [(METADATA["producer_name"], b"p"), (METADATA["sequence_id"], 1), (METADATA["publish_time"], 1)]
    staged = [*fields, (METADATA["num_messages_in_batch"], 3)]
    parts = [([(SINGLE["sequence_id"], number)], b"x") for number in range(3)]
    append_entries(path, "a", [entry(staged, batch_payload(parts))], **SMALL)  # type: ignore[arg-type]
    return path


def test_no_two_messages_of_a_broker_share_one(data: Path) -> None:
    found = rows(data, "a", "b")
    assert len(found) == 22 + 3 + 22
    assert len({row["uniqueId"] for row in found}) == len(found)
    places = {(row["topic"], row["partition"], row["position"]) for row in found}
    assert len(places) < len(found), "positions are no names of messages"
    # In a join, position squares each batch; uniqueId does not.
    by_position = sum(one["position"] == two["position"] and one["topic"] == two["topic"]
                      for one in found for two in found)  # fmt: skip
    assert by_position > len(found)
    assert sum(one["uniqueId"] == two["uniqueId"] for one in found for two in found) == len(found)


def test_a_topic_that_was_made_again_repeats_none(data: Path) -> None:
    before = {row["uniqueId"]: row for row in rows(data, "b")}
    with holdfast.Broker.open(data, **SMALL) as broker:
        broker.admin.delete_topic("b")
        with broker.producer("b", batch=4) as producer:
            producer.send_many([b"%d" % number for number in range(20)])
    after = rows(data, "b")
    assert min(row["position"] for row in after) == 0, "positions begin again"
    assert not before.keys() & {row["uniqueId"] for row in after}


def test_log_time_does_not_go_back(data: Path) -> None:
    for name in ("a", "b"):
        times = [row["storedTime"] for row in rows(data, name)]
        assert None not in times
        assert times == sorted(times)
