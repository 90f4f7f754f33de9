"""`make declarative`: the declared pipeline of `pipeline init`, run twice by the real `spark-pipelines`.

Not part of `make test`: it starts a server of Spark's for each run, and needs packages that nothing else here
needs. It judges by the tables: `spark-pipelines` ends with 1 behind a complete run when Python workers ran.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

import holdfast
from holdfast.pipeline.init import write_project
from holdfast.pipeline.java import ensure_java
from holdfast.pipeline.numbered import encode_json

NOON_NS = 1_794_744_000 * 10**9
LIMIT_S = 1800.0


def publish(data: Path, first: int, celsius: list[float]) -> None:
    values = [
        encode_json("rig-1", first + at, "boiler", sent_ns=NOON_NS + (first + at) * 10**9, value=value)
        for at, value in enumerate(celsius)
    ]
    with holdfast.Broker.open(data) as broker, broker.producer("measurements") as producer:
        producer.send_many(values)


def command(project: Path) -> list[str]:
    """As the project's own README has it, so that is tried, too."""
    text = (project / "README.md").read_text()
    found = re.search(r"spark-pipelines run.*?(?=\n```)", text, re.DOTALL)
    assert found is not None, "README.md does not say how to run it"
    return ["bash", "-c", found[0]]


def run(project: Path, data: Path) -> tuple[str, float]:
    began = time.monotonic()
    done = subprocess.run(
        command(project),
        cwd=project / "declarative",
        env={
            **os.environ,
            "HOLDFAST_DATA": str(data),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert "Run is COMPLETED." in done.stdout, done.stdout[-4000:]
    assert "Run is FAILED" not in done.stdout, done.stdout[-4000:]
    return done.stdout, time.monotonic() - began


def rows(project: Path, table: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = pq.read_table(
        project / "declarative/spark-warehouse" / table
    ).to_pylist()
    return found


def main() -> int:
    ensure_java()
    with tempfile.TemporaryDirectory(prefix="holdfast-declarative.") as name:
        project, data = Path(name) / "project", Path(name) / "data"
        write_project(project)
        publish(data, 0, [20.0, 85.0, 21.0])
        _, first_s = run(project, data)
        assert sorted(row["celsius"] for row in rows(project, "readings")) == [20.0, 21.0, 85.0]  # type: ignore[type-var]
        assert [(row["sensor"], row["celsius"], row["readings"]) for row in rows(project, "alarms")] == [
            ("boiler", 85.0, 3)
        ]
        publish(data, 3, [99.0, 9999.0])
        _, second_s = run(project, data)  # the tables of the first run are known, and made anew
        assert len(rows(project, "readings")) == 4
        assert [(row["celsius"], row["readings"]) for row in rows(project, "alarms")] == [(99.0, 4)]
    print(f"the declared pipeline ran twice, {first_s:.0f} s and {second_s:.0f} s, and its tables are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
