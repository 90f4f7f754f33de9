"""Test streams of Spark beside a running broker: resets, trims and new topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.client import Client
from holdfast.pipeline import behind_latest
from tests.kit.pipeline.streams import mixed, reset, until
from tests.kit.served import Served, served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)


class Live:
    """A query that keeps its batches; a test can act in the middle of one."""

    def __init__(self, spark: SparkSession, server: Served, data: Path, folder: Path, **options: Any) -> None:
        given = {"path": data, "service.url": server.url, "predefinedSubscription": "billing", **options}
        reader = spark.readStream.format("holdfast").option("startingOffsets", "earliest")
        for name, value in given.items():
            reader = reader.option(name, str(value))
        self._frame = reader.schema("topic string, partition int, value binary, position bigint").load()
        self._folder = folder
        self.batches: dict[int, list[Any]] = {}
        """By number: a batch without a commit at the end of a query is repeated, unchanged (I155)."""
        self.meanwhile: dict[int, Any] = {}
        """By the number of a batch: what is done when it was planned and not read yet."""

    def start(self, **trigger: Any) -> Any:
        writer = self._frame.writeStream.foreachBatch(self._batch).trigger(**trigger)
        return writer.option("checkpointLocation", str(self._folder)).start()

    def _batch(self, frame: DataFrame, number: int) -> None:
        self.meanwhile.pop(number, lambda: None)()
        found = frame.orderBy("topic", "partition", "position").collect()
        assert self.batches.setdefault(number, found) == found

    def positions(self) -> list[list[int]]:
        return [[row.position for row in batch] for batch in self.batches.values() if batch]


def fill(client: Client, entries: list[bytes], topic: str = "orders") -> None:
    """Each in a commit of its own."""
    for each in entries:
        stage = client.stage()
        stage.append_entries(topic, [each])
        client.sink_commit(stage.id.hex(), 1, [stage.close()])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "data", "--set", "broker.roll_entries=1", http=True) as it:
        yield it


def test_a_reset_in_the_middle_of_a_batch(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    """I156: the batch stays as planned; the next one begins at the reset.

    The reset is not undone by batches that finished before it.
    """
    with Client(server.url) as client:
        for name in ("billing", "keeper"):  # for whom nothing is trimmed
            client.progress("orders", name, create=True, start="earliest")
        stage = client.stage()
        stage.append("orders", [b"%d" % i for i in range(30)])
        client.sink_commit("k", 1, [stage.close()])
        live = Live(
            spark, server, tmp_path / "data", tmp_path / "check", topic="orders", maxOffsetsPerTrigger=10
        )
        seen = []
        live.meanwhile[1] = lambda: reset(server.url, "orders", "billing")
        live.meanwhile[2] = lambda: seen.append(client.progress("orders", "billing").acked_to)
        query = live.start(processingTime="0 seconds")
        try:
            until(lambda: not query.isActive or client.progress("orders", "billing").acked_to == 30)
        finally:
            query.stop()
        assert query.exception() is None
        tens = [list(range(at, at + 10)) for at in (0, 10, 20)]
        assert live.positions() == [tens[0], tens[1], tens[0], tens[1], tens[2]]
        assert seen == [0], "what was done under the old number does not move it under the new one"


def test_chunks_trims_and_topics_that_come(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    """I157, and every message once, while the broker trims and the stream restarts.

    The broker trims all released entries. Topics and partitions are created while the stream runs.
    """
    entries, wanted = mixed(7, 8)
    with Client(server.url) as client:
        fill(client, entries[:10])
        options = {"topicsPattern": "orders|bills", "maxOffsetsPerTrigger": 4}
        live = Live(spark, server, tmp_path / "data", tmp_path / "check", **options)
        query = live.start(processingTime="0 seconds")
        try:
            until(lambda: not query.isActive or len(live.batches) > 1)
            fill(client, entries[10:13])
            server.set_partitions("bills", 1)
            fill(client, entries[:3], "bills-partition-0")
            until(lambda: not query.isActive or len(bills(live, 0)) > 0)
            server.set_partitions("bills", 2, grow=True)
            fill(client, entries[:3], "bills-partition-1")
            until(lambda: not query.isActive or len(bills(live, 1)) > 0)
        finally:
            query.stop()
        assert query.exception() is None
        behind = [behind_latest(each)["maxOffsetsBehindLatest"] for each in query.recentProgress]
        assert max(behind) >= 6, "four of ten were read"
        fill(client, entries[13:])
        for number in range(2):
            fill(client, entries[3:], f"bills-partition-{number}")
        query = live.start(availableNow=True)
        query.awaitTermination(300)
        assert behind_latest(query.lastProgress)["maxOffsetsBehindLatest"] == 0
        assert [row.value.decode() for row in rows(live) if row.topic.endswith("orders")] == wanted
        for number in range(2):
            assert [row.value.decode() for row in bills(live, number)] == wanted
        live.start(availableNow=True).awaitTermination(300)
        for name in ("orders", "bills-partition-0", "bills-partition-1"):
            at = client.progress(name, "billing")
            assert at.acked_to == at.visible == len(entries)
            until(lambda name=name: client.progress(name, "billing").first > len(entries) - 3)  # type: ignore[misc]
        assert len(rows(live)) == 3 * len(wanted)


def bills(live: Live, partition: int) -> list[Any]:
    return [row for row in rows(live) if row.topic.endswith("bills") and row.partition == partition]


def rows(live: Live) -> list[Any]:
    return [row for batch in list(live.batches.values()) for row in batch]
