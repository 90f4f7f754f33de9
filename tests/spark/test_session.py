"""Which Java runs Spark, and what a session is set to."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_of_ones_own(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.pipeline import register, session

    monkeypatch.delenv("PYSPARK_PYTHON")  # `make test` has chosen one
    register(spark)
    register(spark)
    assert session() is spark, "the one that runs"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


class Session:
    """As much of one as is asked."""

    def __init__(self, master: str, parallelism: int, **settings: str) -> None:
        self.sparkContext, self.master, self.defaultParallelism = self, master, parallelism
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}

    def getConf(self) -> dict[str, str]:  # noqa: N802  # as Spark calls it
        return self._settings


def test_how_many_tasks_run_at_once(spark: SparkSession) -> None:
    """Of the cluster, and not of the driver's machine."""
    from holdfast.pipeline.source.format import tasks_at_once

    asked: Any = tasks_at_once
    assert asked(Session("local[7]", 7)) == 7
    assert asked(Session("spark://host:7077", 2, spark_cores_max="24")) == 24, "they are on their way"
    assert asked(Session("k8s://host", 2, spark_executor_instances="5", spark_executor_cores="4")) == 20
    assert asked(Session("yarn", 64)) == 64
    assert asked(spark) == spark.sparkContext.defaultParallelism


def test_one_topic_gives_work_to_all_of_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.pipeline import register
    from holdfast.pipeline.source import format as source

    with Broker.open(tmp_path / "data") as broker, broker.producer("orders") as producer:
        producer.send_many([b"x" * 100_000] * 30)
    rows = spark.read.format("holdfast").option("path", str(tmp_path / "data")).option("topic", "orders")
    monkeypatch.setattr(source, "tasks_at_once", lambda _: 5)
    register(spark)
    assert rows.schema("position bigint").load().rdd.getNumPartitions() == 5
    monkeypatch.undo()
    register(spark)
    assert rows.schema("position bigint").load().rdd.getNumPartitions() == 2
