"""Run a Spark cluster on this machine, as a user's program, with executors as processes.

    python -m tests.kit.spark.cluster_program HTTP_URL BROKER_URL FOLDER

Writes numbered messages as a batch, copies them as a stream while an executor is killed, reads both back.
All of it by address: executors know nothing of the broker's files. Prints what it found, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.pipeline import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 12_000
SETTINGS = {
    "spark.executor.memory": "600m",
    "spark.log.level": "OFF",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def executors() -> list[int]:
    """Those below this process."""
    parents, named = {}, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                    named.append(int(entry.name))
            except OSError:
                continue  # it has ended
    return [pid for pid in named if _below(pid, parents)]


def _below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        if pid == os.getpid():
            return True
        pid = parents[pid]
    return False


class Strike(threading.Thread):
    """Kills an executor once the stream has written something."""

    def __init__(self, spark: SparkSession, http: str) -> None:
        super().__init__(daemon=True)
        self._spark, self._http = spark, http
        self.before, self.killed = executors(), 0

    def run(self) -> None:
        while not self.killed:
            active = self._spark.streams.active
            if active and (active[0].lastProgress or {"batchId": -1})["batchId"] >= 0:
                self.killed = self.before[0]
                os.kill(self.killed, signal.SIGKILL)
            time.sleep(0.02)


def told(spark: SparkSession, http: str, topic: str) -> list[int]:
    """Of a topic: messages, different ones, and their sum."""
    rows = spark.read.format("holdfast").option("service.url", http).option("topic", topic)
    numbers = rows.option("minPartitions", 4).load().selectExpr("cast(cast(value as string) as bigint) as n")
    found = numbers.selectExpr("count(n)", "count(distinct n)", "sum(n)").collect()[0]
    return [int(each) for each in found]


def main() -> None:
    http, broker, folder = sys.argv[1:]
    spark = session("cluster", master="local-cluster[2,1,700]", settings=SETTINGS)
    rows = spark.range(0, ROWS, 1, 4).selectExpr(
        "cast(id as string) as value", "cast(id % 7 as string) as key"
    )
    sink = {"service.url": broker, "topic": "numbers"}
    rows.write.format("holdfast").options(**sink).mode("append").save()
    strike = Strike(spark, http)
    strike.start()
    stream = spark.readStream.format("holdfast").option("service.url", http).option("topic", "numbers")
    query = (
        stream.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS // 6)
        .load()
        .repartition(4)
        .select("key", "value")
        .writeStream.format("holdfast")
        .options(**{**sink, "topic": "copy"})
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = query.lastProgress["batchId"] if query.lastProgress else -1
    found = {
        "executors": strike.before,
        "killed": strike.killed,
        "batches": batches,
        "numbers": told(spark, http, "numbers"),
        "copy": told(spark, http, "copy"),
    }
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
