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
    from pyspark.sql import SparkSession

    from holdfast.pipeline.audit import AuditReport


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


def close(spark: SparkSession, places: Places, url: str) -> Account:
    """All that happens after the rig has come to rest."""
    from holdfast.pipeline.archive import archive
    from holdfast.pipeline.audit import audit
    from holdfast.pipeline.measure import measure
    from holdfast.pipeline.report import write_report
    from holdfast.rig import job

    say("Spark's stream takes what is left")
    job.finish(spark, places, url)
    topics, path = [TOPIC, CALIBRATED], str(places.data)
    say("archive: both topics to Parquet, read back and compared")
    archive(spark, topics=topics, to=places.archive, path=path)
    say("measure: windows of 10 seconds, by key")
    measure(spark, to=places.windows, topics=[TOPIC], path=path)
    say("audit: every number of every producer, in both topics and in their archive")
    sent = confirmed(places.records)
    expected = dict.fromkeys(topics, sent)
    live = audit(spark, topics=topics, path=path, expected=expected)
    kept = audit(spark, topics=topics, archive=places.archive, expected=expected)
    write_report(live, places.report, "holdfast demo")
    return account(live, kept, sent)


def account(live: AuditReport, kept: AuditReport, sent: dict[str, int]) -> Account:
    """From the two audits."""
    rows = [each for each in live.producers if each.topic == TOPIC]
    return Account(
        confirmed=sum(sent.values()),
        unconfirmed=sum(each.unconfirmed for each in rows),
        stored=sum(each.messages for each in rows),
        calibrated=sum(each.messages for each in live.producers if each.topic == CALIBRATED),
        archived=kept.messages,
        lost=live.lost + kept.lost,
        duplicated=live.duplicated + kept.duplicated,
    )


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
