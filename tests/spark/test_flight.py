"""Test Spark by `service.url`: rows, offsets and errors as by `path`, also while Flight dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._core import encode_messages
from holdfast.client import Client
from tests.kit.pipeline.streams import until
from tests.kit.served import Served, served
from tests.kit.server.flight_world import LARGE, children, fill, gone, publish_all_kinds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART = '{"orders": {"0": 5000}}'
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spark-flight") / "data"
    fill(path)
    return path


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Served]:
    with served(data, http=True) as server:
        publish_all_kinds(server)
        yield server


def load(spark: SparkSession, schema: str = "", **options: Any) -> DataFrame:
    reader = spark.read.format("holdfast")
    reader = reader.schema(schema) if schema else reader
    for name, value in options.items():
        reader = reader.option(name.replace("url", "service.url"), value)
    return reader.load()


def test_a_batch_by_url_is_the_batch_by_path(spark: SparkSession, server: Served, data: Path) -> None:
    choices: list[dict[str, Any]] = [
        {"topicsPattern": "open-.*|kinds", "minPartitions": 3},
        {"topic": "orders", "startingOffsets": '{"orders": {"0": 17}}', "endingOffsets": PART},
    ]
    for url, more in zip((server.url, server.http_url), choices, strict=True):
        far = load(spark, url=url, **more)
        near = load(spark, path=data, **more)
        assert far.schema == near.schema
        assert sorted(map(repr, far.collect())) == sorted(map(repr, near.collect()))


class Killer(threading.Thread):
    """Kills the first processes that serve Flight, each soon after it came."""

    def __init__(self, server: Served, times: int) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._times = times
        self.killed: list[int] = []
        self.ended = threading.Event()

    def run(self) -> None:
        while len(self.killed) < self._times and not self.ended.wait(0.05):
            for pid in children(self._server.process.pid):
                if pid not in self.killed and not gone(pid):
                    self.ended.wait(0.5 * len(self.killed))
                    os.kill(pid, signal.SIGKILL)
                    self.killed.append(pid)


def test_a_stream_by_url_goes_on_when_flight_dies(spark: SparkSession, tmp_path: Path) -> None:
    """Every row comes once, whichever process it comes from."""
    data = tmp_path / "data"
    fill(data)
    with served(data, http=True) as first:
        killer = Killer(first, 2)
        killer.start()
        query = (
            spark.readStream.format("holdfast")
            .options(**{"service.url": first.http_url, "topic": "large", "startingOffsets": "earliest"})
            .option("maxOffsetsPerTrigger", LARGE // 2)
            .schema("position bigint, value binary")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        try:
            assert query.awaitTermination(200)
        finally:
            query.stop()
            killer.ended.set()
            killer.join()
        assert killer.killed
        found = spark.read.parquet(str(tmp_path / "out"))
        assert found.count() == found.select("position").distinct().count() == LARGE


def test_what_is_wrong_is_said_in_sparks_words_too(spark: SparkSession, server: Served) -> None:
    with pytest.raises(Exception, match=r"shows no topic persistent://public/default/nope.*orders"):
        load(spark, url=server.http_url, topic="nope").count()
    with pytest.raises(
        Exception, match=r"it must be the broker's HTTP address, such as http://127\.0\.0\.1:8080"
    ):
        load(spark, url="ftp://127.0.0.1", topic="orders").count()


def test_partitions_that_come_and_delivery_times(spark: SparkSession, tmp_path: Path) -> None:
    """A stream by URL alone learns partitions; `deliverAt` tells messages that are not due."""
    due_ms = (int(time.time()) + 86_400) * 1000 + 7
    found: list[Any] = []
    with served(tmp_path / "data", http=True) as server:

        def send(number: int, value: bytes, due_ms: int = 0) -> None:
            entries = encode_messages([value], "shop", 0, due_ms or 1, deliver_at_ms=due_ms)
            with Client(server.url) as client:
                stage = client.stage()
                stage.append_entries(f"orders-partition-{number}", entries)
                client.sink_commit(stage.id.hex(), 1, [stage.close()])

        server.set_partitions("orders", 1)
        send(0, b"first")
        columns = "topic string, partition int, value binary, deliverAt timestamp"
        query = (
            spark.readStream.format("holdfast")
            .options(**{"service.url": server.http_url, "topic": "orders", "startingOffsets": "earliest"})
            .schema(columns)
            .load()
            .writeStream.foreachBatch(lambda frame, _: found.extend(frame.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            until(lambda: not query.isActive or len(found) == 1)
            server.set_partitions("orders", 3, grow=True)
            send(2, b"later", due_ms)
            until(lambda: not query.isActive or len(found) == 2)
        finally:
            query.stop()
        assert query.exception() is None
        assert [(row.partition, bytes(row.value)) for row in found] == [(0, b"first"), (2, b"later")]
        options: list[dict[str, Any]] = [{"url": server.http_url}, {"path": tmp_path / "data"}]
        for each in options:
            frame = load(spark, topic="orders", **each, schema=columns).orderBy("partition")
            times = frame.selectExpr("partition", "unix_millis(deliverAt) as due").collect()
            assert [(row.partition, row.due) for row in times] == [(0, None), (2, due_ms)]
