"""The source sees, row by row, what the official client reads: random streams of all that clients publish."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.pipeline.batch import cut
from holdfast.pipeline.columns import COLUMNS
from holdfast.pipeline.decoding import Decoding, Wish
from holdfast.pipeline.reading import FilePlace
from served import Served, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

PROGRAM = Path(__file__).parent / "source_client.py"
TOPIC = "persistent://public/default/orders"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SETTINGS = ["--set", "limits.message_bytes=65536", "--set", "broker.roll_entries=60"]


def run_client(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def client_rows(server: Served, topic: str) -> list[dict[str, Any]]:
    lines = run_client("read", server.url, topic).splitlines()
    assert not [line for line in lines if "ERROR" in line]
    return [json.loads(line) for line in lines if line.startswith("{")]  # the client logs there, too


def source_row(row: dict[str, Any]) -> dict[str, Any]:
    """As `source_client.py` prints one."""
    event = row["eventTime"]
    return {
        "id": [row["messageId"][name] for name in ("ledger", "entry", "batchIndex")],
        "size": len(row["value"]),
        "digest": hashlib.sha256(row["value"]).hexdigest(),
        "key": base64.b64encode(row["key"] or b"").decode(),
        "properties": dict(row["properties"]),
        "published": (row["publishTime"].astimezone(UTC) - EPOCH) // timedelta(milliseconds=1),
        "event": 0 if event is None else (event.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1),
        "producer": row["producer"],
    }


def decoded(data: Path, ranges: int) -> list[dict[str, Any]]:
    topic = FilePlace(str(data)).open(TOPIC)
    out = []
    for split in cut([(topic, *topic.plan())], ranges):
        for batch in Decoding(topic, split.start, split.stop, Wish(list(COLUMNS))).batches():
            out += [source_row(row) for row in batch.to_pylist()]
    return out


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_rows_as_the_client(tmp_path: Path, seed: int) -> None:
    """I150, I153: batches, chunks, compressions and roll-overs; one range, and many."""
    with served(tmp_path / "data", *SETTINGS) as server:
        run_client("publish", server.url, TOPIC, str(seed), "600")
        expected = client_rows(server, TOPIC)
        assert len(expected) >= 600
        assert len({row["id"][0] for row in expected}) > 2, "no ledger was rolled over"
        for ranges in (1, 5, 40):
            assert decoded(tmp_path / "data", ranges) == expected
    assert decoded(tmp_path / "data", 3) == expected, "it is the same without a server"


def test_the_same_rows_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    with served(tmp_path / "data", *SETTINGS) as server:
        run_client("publish", server.url, TOPIC, "9", "800")
        expected = client_rows(server, TOPIC)
        frame = spark.read.format("holdfast").option("path", str(tmp_path / "data")).option("topic", "orders")
        rows = frame.option("minPartitions", 7).load().collect()
    found = [source_row(row.asDict(recursive=True)) for row in rows]
    assert sorted(found, key=lambda row: row["id"]) == expected
