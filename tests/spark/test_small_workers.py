"""Test too small workers: the command says so and gives up; the archive is unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from holdfast.pipeline.java import ensure_java
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory
from tests.kit.processes import until
from tests.kit.spark.pipeline_world import publish

# Three Javas. In `make test`: tests/unit/pipeline/test_starved.py has the words and the end with a played
# session, and tests/mutants/test_ways.py breaks them.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Start a master with a worker of 900 MB; executors need 1 GB by default."""
    ensure_java()
    spark_class = Path(pyspark.__file__).parent / "bin/spark-class"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / "work")}
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = tmp_path / f"{name}.log"
        with log.open("wb") as out:
            command = [str(spark_class), *arguments, "--webui-port", "0"]
            started.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment))
        return log

    try:
        log = start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
        until(lambda: "Starting Spark master at spark://" in log.read_text(), 200)
        url = log.read_text().partition("Starting Spark master at ")[2].split()[0]
        worker = start("worker", "org.apache.spark.deploy.worker.Worker", "-m", "900m", "-c", "1", url)
        until(lambda: "Successfully registered with master" in worker.read_text(), 200)
        yield url
    finally:
        for each in reversed(started):
            each.terminate()
            each.wait()


def archive(master: str, data: Path, to: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli", "pipeline", "archive", "t", "--data", str(data)]
    command += ["--to", str(to), "--master", master, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=500)


def test_it_does_not_hang_without_a_word(master: str, tmp_path: Path) -> None:
    publish(tmp_path / "data", "t", [b"%d" % number for number in range(50)])
    done = archive(master, tmp_path / "data", tmp_path / "a", "--worker-wait", "30")
    assert done.returncode == 1, done.stderr
    word, end = [line for line in done.stderr.splitlines() if "no worker of" in line]
    assert "an executor wants 1g of memory" in word
    assert "--conf spark.executor.memory=512m" in word
    assert "waiting until 30 s are over" in word
    assert "an executor wants 1g of memory" in end
    assert ArchiveDirectory(tmp_path / "a").runs() == []
    # As it says: less is enough.
    done = archive(master, tmp_path / "data", tmp_path / "a", "--conf", "spark.executor.memory=512m")
    assert done.returncode == 0, done.stderr
    assert "run 1: 50 rows" in done.stdout
    assert "no worker of" not in done.stderr
