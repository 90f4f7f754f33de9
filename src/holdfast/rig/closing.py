"""The end of a run: what is left goes through Spark, then archive, measure and audit, and the account.

`python -m holdfast.rig.closing DIRECTORY URL`, while the broker still serves. It says on its standard output
what it is doing, and leaves the account and the report page in the directory.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.rig.records import confirmed
from holdfast.rig.settings import CALIBRATED, TOPIC, Places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Account:
    """Who sent what, and what is there. `lost` and `duplicated` must be 0, and the rest must agree."""

    confirmed: int
    """Messages that were confirmed to their producers."""
    unconfirmed: int
    """Stored, and their producers were killed before they knew."""
    stored: int
    calibrated: int
    """What Spark's stream wrote."""
    archived: int
    """Rows of Parquet."""
    lost: int
    """Confirmed, and missing in one of the three."""
    duplicated: int
    """In one of the three more than once."""

    @property
    def balanced(self) -> bool:
        agree = self.stored == self.calibrated and self.archived == self.stored + self.calibrated
        return agree and self.lost == 0 and self.duplicated == 0


@dataclass(frozen=True)
class Count:
    """Of one place: a topic, or its archive."""

    rows: int
    distinct: int
    there: int
    """Distinct ones that were confirmed."""


def count(spark: SparkSession, messages: DataFrame, sent: dict[str, int]) -> Count:
    """What is there, by producer and number."""
    from pyspark.sql import functions as F  # noqa: N812

    from holdfast.pipeline.numbered import decoded

    expected = spark.createDataFrame(list(sent.items()) or [("", 0)], "producer string, confirmed bigint")
    found = messages.select(decoded("value").alias("found")).select("found.producer", "found.number")
    times = found.groupBy("producer", "number").agg(F.count("*").alias("times"))
    known = times.join(F.broadcast(expected), "producer", "left")
    is_confirmed = F.col("number") < F.coalesce(F.col("confirmed"), F.lit(0))
    row = known.agg(
        F.coalesce(F.sum("times"), F.lit(0)).alias("rows"),
        F.count("*").alias("distinct"),
        F.count(F.when(is_confirmed, 1)).alias("there"),
    ).first()
    assert row is not None
    return Count(row["rows"], row["distinct"], row["there"])


def close(spark: SparkSession, places: Places, url: str) -> Account:
    """All that happens after the rig has come to rest."""
    from pyspark.sql import functions as F  # noqa: N812

    from holdfast.pipeline.archive import archive, read_archive
    from holdfast.rig import job

    say("Spark's stream takes what is left")
    job.finish(spark, places, url)
    say("archive: both topics to Parquet, read back and compared")
    archive(spark, topics=[TOPIC, CALIBRATED], to=places.archive, path=str(places.data))
    say("audit: every number of every producer, in both topics and in the archive")
    sent = confirmed(places.records)
    rows = read_archive(spark, places.archive)
    stored, written = (count(spark, live(spark, places, topic), sent) for topic in (TOPIC, CALIBRATED))
    kept = [count(spark, rows.where(F.col("topic") == topic), sent) for topic in (TOPIC, CALIBRATED)]
    total = sum(sent.values())
    each = [stored, written, *kept]
    return Account(
        confirmed=total,
        unconfirmed=stored.distinct - stored.there,
        stored=stored.rows,
        calibrated=written.rows,
        archived=sum(part.rows for part in kept),
        lost=sum(total - place.there for place in each),
        duplicated=sum(place.rows - place.distinct for place in each),
    )


def live(spark: SparkSession, places: Places, topic: str) -> DataFrame:
    """What the broker holds, by its files."""
    reader = spark.read.format("holdfast").option("path", str(places.data)).option("topic", topic)
    return reader.load()


def say(words: str) -> None:
    print(words, flush=True)


def main() -> None:
    from holdfast.pipeline import session

    places = Places(Path(sys.argv[1]))
    spark = session("holdfast demo", memory="2g")
    account = close(spark, places, sys.argv[2])
    places.account.write_text(json.dumps(asdict(account)))
    spark.stop()


if __name__ == "__main__":
    main()
