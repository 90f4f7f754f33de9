"""Run one life of a driver: Spark copies numbered lines, one entry per batch.

    python -m tests.kit.spark.sink_kill_driver WORLD URL MUTANT KIND

KIND is `stream`; or `batches`: writes with a number, one after another, as of a job that is run again.
Ends with status 0 when all is written; with 3 when the query failed, as it may when something was killed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from holdfast.pipeline import session
from tests.kit.spark.sink_hooks import Hooked

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # A task that is computed again gets its rows in another order, and other rows than before.
    "spark.sql.execution.sortBeforeRepartition": "false",
}


def main() -> int:
    directory, url, mutant, kind = Path(sys.argv[1]), *sys.argv[2:5]
    (directory / "driver.pid").write_text(str(os.getpid()))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # A failed task is tried again, in another process.
    spark = session("sink", master="local[2, 8]", settings=SETTINGS)
    spark.dataSource.register(Hooked)
    return (copy_batches if kind == "batches" else copy)(spark, directory, url, mutant)


def copy(spark: SparkSession, directory: Path, url: str, mutant: str) -> int:
    """The query, until there is nothing more to read: what a life is for."""
    lines = (
        spark.readStream.format("holdfast")
        .schema("value binary")
        .option("path", str(directory / "data"))
        .option("service.url", url)
        .option("topic", "input")
        .option("predefinedSubscription", "copy")
        .option("maxOffsetsPerTrigger", 1)
        .load()
        .selectExpr("cast(value as string) as value")
    )
    query = (
        routed(lines)
        .writeStream.format("hooked")
        .option("world", str(directory))
        .option("mutant", mutant)
        .option("service.url", url)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception as error:  # on any error, the next life continues
        print(error, file=sys.stderr)
        return 3
    return 0


def copy_batches(spark: SparkSession, directory: Path, url: str, mutant: str) -> int:
    """Do the same by `df.write`: a file lists the finished batches; others are written again."""
    done = directory / "done"
    for batch in range(int(done.read_text()) if done.exists() else 0, len(list(directory.glob("input/*")))):
        lines = spark.read.format("holdfast").schema("value binary").option("path", str(directory / "data"))
        lines = lines.option("topic", "input").option("startingOffsets", json.dumps({"input": {"0": batch}}))
        lines = lines.option("endingOffsets", json.dumps({"input": {"0": batch + 1}}))
        to = routed(lines.load().selectExpr("cast(value as string) as value")).write.format("hooked")
        to = to.option("world", str(directory)).option("mutant", mutant).option("service.url", url)
        try:
            to.option("sinkName", "copy").option("batchId", batch).mode("append").save()
        except Exception as error:  # on any error, the next life continues
            print(error, file=sys.stderr)
            return 3
        (directory / "done.new").write_text(str(batch + 1))
        (directory / "done.new").rename(done)
    return 0


def routed(lines: DataFrame) -> DataFrame:
    """Each line to its topic, by two tasks, at random."""
    columns = ("value", "split(value, ' ')[0] as topic", "split(value, ' ')[1] as key", "rand() as r")
    return lines.selectExpr(*columns).repartition(2, "r").drop("r")


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # the JVM ends by itself
