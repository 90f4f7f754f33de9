"""Test `spark.readStream.format("holdfast")`: every row once, while the broker changes."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Broker
from holdfast.client import Client
from tests.kit.pipeline.streams import ORDERS, reset, until
from tests.kit.served import served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)


class Running:
    """A query with a checkpoint, into Parquet."""

    def __init__(self, spark: SparkSession, data: str, folder: Path, **options: Any) -> None:
        self._spark = spark
        self._folder = folder
        reader = spark.readStream.format("holdfast").option("path", data)
        for name, value in options.items():
            reader = reader.option(name, value)
        self._frame = reader.schema("value binary, position bigint").load()
        self._seen: set[int] = set()

    def start(self, **trigger: Any) -> Any:
        writer = self._frame.writeStream.format("parquet").option("path", str(self._folder / "out"))
        return writer.option("checkpointLocation", str(self._folder / "check")).trigger(**trigger).start()

    def available_now(self) -> list[int]:
        """Return the new rows of one run."""
        query = self.start(availableNow=True)
        query.awaitTermination(300)
        found = [row.position for row in self.rows().collect()]
        assert len(found) == len(set(found)), "a row came twice"
        new = sorted(set(found) - self._seen)
        self._seen |= set(found)
        return new

    def rows(self) -> DataFrame:
        return self._spark.read.schema("value binary, position bigint").parquet(str(self._folder / "out"))


def test_a_named_subscription_moves_behind_what_is_done(spark: SparkSession, tmp_path: Path) -> None:
    """With a real broker and Spark: starts at its cursor, advances at the next start."""
    data = tmp_path / "data"
    with served(data, http=False) as server, Client(server.url) as client:
        stage = client.stage()
        stage.append("orders", [b"%d" % i for i in range(20)])
        client.sink_commit("k", 1, [stage.close()])
        options = {"service.url": server.url, "predefinedSubscription": "billing", "topic": "orders"}
        run = Running(spark, str(data), tmp_path / "done", startingOffsets="earliest", **options)
        assert run.available_now() == list(range(20))
        assert client.progress("orders", "billing").acked_to in (0, 20)
        assert run.available_now() == []
        at = client.progress("orders", "billing")
        assert at.acked_to == 20, "the next start knows that it is done"
        reset(server.url, "orders", "billing")
        assert client.progress("orders", "billing").acked_to == 0
        for _ in range(2):
            run.start(availableNow=True).awaitTermination(300)
            again = [int(row["value"]) for row in spark.read.parquet(str(tmp_path / "done/out")).collect()]
            assert sorted(again) == sorted([*range(20), *range(20)]), "all of it once more, as was asked for"
        assert client.progress("orders", "billing").acked_to == 20, "and it is done under the new number"


def test_reading_while_the_broker_appends_rolls_and_trims(spark: SparkSession, tmp_path: Path) -> None:
    """I153, I155: every row once, and in no batch one that was not there."""
    total, data = 2000, str(tmp_path / "data")
    with Broker.open(data, roll_entries=10, housekeeping_s=3600) as broker:
        broker.admin.create_topic("orders")
        broker.admin.create_subscription("orders", "spark", "earliest")

        def publish() -> None:
            with broker.producer("orders") as producer:
                for at in range(0, total, 10):
                    producer.send_many([b"%d" % i for i in range(at, at + 10)])
                    time.sleep(0.002)

        publishing = threading.Thread(target=publish)
        publishing.start()
        run = Running(
            spark, data, tmp_path, topic="orders", startingOffsets="earliest", maxOffsetsPerTrigger=300
        )
        query = run.start(processingTime="0 seconds")
        try:
            trimmed = 0

            def done() -> bool:
                nonlocal trimmed
                assert query.isActive, query.exception()
                progress = query.lastProgress
                end = json.loads(progress["sources"][0]["endOffset"] or "{}") if progress else {}
                position = end.get(ORDERS, {}).get("0", {}).get("position", 0)
                if position > trimmed + 200:  # what is done may go
                    broker.admin.skip("orders", "spark", position - 100 - trimmed)
                    broker.admin.trim("orders")
                    trimmed = position - 100
                return bool(position == total)

            until(done)
            query.processAllAvailable()
        finally:
            query.stop()
            publishing.join()
        rows = run.rows().orderBy("position").collect()
        assert [(row.position, row.value) for row in rows] == [(i, b"%d" % i) for i in range(total)]
        assert trimmed > 0
