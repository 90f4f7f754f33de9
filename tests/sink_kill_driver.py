"""One life of a driver: Spark reads numbered lines from a topic, an entry for each batch, and writes them.

    python tests/sink_kill_driver.py WORLD URL MUTANT

Ends with status 0 when all is written; with 3 when the query failed, as it may when something was killed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.pipeline import session
from sink_hooks import Hooked

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # A task that is computed again gets its rows in another order, and other rows than before.
    "spark.sql.execution.sortBeforeRepartition": "false",
}


def main() -> int:
    directory, url, mutant = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    (directory / "driver.pid").write_text(str(os.getpid()))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # for workers
    # A failed task is tried once more, in another process.
    spark = session("sink", master="local[2, 2]", settings=SETTINGS)
    spark.dataSource.register(Hooked)
    return copy(spark, directory, url, mutant)


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
    rows = (
        lines.selectExpr(
            "value", "split(value, ' ')[0] as topic", "split(value, ' ')[1] as key", "rand() as r"
        )
        .repartition(2, "r")
        .drop("r")
    )
    query = (
        rows.writeStream.format("hooked")
        .option("world", str(directory))
        .option("mutant", mutant)
        .option("service.url", url)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception as error:  # whatever it is, the next life goes on
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # the JVM ends by itself; nobody waits for it
