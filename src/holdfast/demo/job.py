"""The Spark job of the rig: measurements, calibrated, into another topic, exactly once.

`python -m holdfast.demo.job DIRECTORY URL` runs until SIGTERM, or until the rig has come to rest. Then the
stream takes the rest, and the account is made in the same session. After a kill it continues from the same
checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.demo.closing import close, say
from holdfast.demo.settings import CALIBRATED, JAVA, TOPIC, Places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TRIGGER = "1 second"
FIELDS = "producer STRING, number BIGINT, sent_ns BIGINT, key STRING, value DOUBLE"


def calibrated(messages: DataFrame) -> DataFrame:
    """Convert readings to kelvin; producers and numbers stay the same."""
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


def main() -> None:
    places, url, parent = Places(Path(sys.argv[1])), sys.argv[2], os.getppid()
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    from holdfast.pipeline import session

    spark = session("holdfast demo", settings=JAVA)
    query: StreamingQuery | None = None
    done = False
    while not done and not leaving.is_set() and os.getppid() == parent:
        if query is None or not query.isActive:  # it ends while the broker is away: again, where it was
            if query is not None and query.exception() is not None:
                print(query.exception(), flush=True)
            query = stream(spark, places, url).trigger(processingTime=TRIGGER).start()
        elif places.ending.exists():
            done = all_of_it(query, places)
        elif query.lastProgress is not None and query.lastProgress.numInputRows:
            places.sign.touch()
        leaving.wait(0.0 if done else 0.5)
    if query is not None:
        query.stop()
    if done:
        close(spark, places)
    spark.stop()


def all_of_it(query: StreamingQuery, places: Places) -> bool:
    """The stream has taken everything that is there; False: it ended before that."""
    from pyspark.errors import StreamingQueryException

    say(places, "Spark's stream takes what is left")
    try:
        query.processAllAvailable()
    except StreamingQueryException as error:
        print(error, flush=True)
        return False
    return True


if __name__ == "__main__":
    main()
