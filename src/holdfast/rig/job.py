"""The Spark job of the rig: measurements, calibrated, into another topic, exactly once.

`python -m holdfast.rig.job DIRECTORY URL` runs until SIGTERM; `finish` takes what is left, and ends. Both go
on from the same checkpoint, whoever was killed before.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.rig.settings import CALIBRATED, TOPIC, Places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TRIGGER = "1 second"
FIELDS = "producer STRING, number BIGINT, sent_ns BIGINT, key STRING, value DOUBLE"


def calibrated(messages: DataFrame) -> DataFrame:
    """The readings in kelvin; who sent them, and their numbers, stay as they are."""
    from pyspark.sql import functions as F  # noqa: N812

    found = F.from_json(F.col("value").cast("string"), FIELDS)
    rows = messages.select("key", "eventTime", found.alias("found"))
    kelvin = F.round(F.col("found.value") + 273.15, 3).alias("value")
    return rows.select(
        "key",
        "eventTime",
        F.to_json(F.struct("found.producer", "found.number", "found.sent_ns", "found.key", kelvin)).alias(
            "value"
        ),
    )


def stream(spark: SparkSession, places: Places, url: str) -> DataStreamWriter:
    messages = (
        spark.readStream.format("holdfast")
        .option("path", str(places.data))
        .option("topic", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        calibrated(messages)
        .writeStream.format("holdfast")
        .option("service.url", url)
        .option("topic", CALIBRATED)
        .option("checkpointLocation", str(places.checkpoint))
        .queryName("calibrate")
    )


def finish(spark: SparkSession, places: Places, url: str) -> None:
    """Everything that is there now."""
    query = stream(spark, places, url).trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    places, url, parent = Places(Path(sys.argv[1])), sys.argv[2], os.getppid()
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    from holdfast.pipeline import session

    spark = session("holdfast rig")
    query: StreamingQuery | None = None
    while not leaving.is_set() and os.getppid() == parent:
        if query is None or not query.isActive:  # it ends while the broker is away: again, where it was
            if query is not None and query.exception() is not None:
                print(query.exception(), flush=True)
            query = stream(spark, places, url).trigger(processingTime=TRIGGER).start()
        elif query.lastProgress is not None and query.lastProgress.numInputRows:
            places.sign.touch()
        leaving.wait(0.5)
    if query is not None:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
