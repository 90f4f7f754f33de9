"""The end of a run: archive, measure and audit on Spark, and the account.

It leaves in the directory what it is doing, a line for each step, then the report page and the account.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from holdfast.demo.records import confirmed
from holdfast.demo.settings import CALIBRATED, TOPIC, Places
from holdfast.formatting import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.pipeline.audit import AuditReport


@dataclass(frozen=True)
class Account:
    """The messages of each step. Faults must be 0, and the rest must agree."""

    confirmed: int
    """Messages that were confirmed to their producers."""
    unconfirmed: int
    """Stored, and their producers were killed before they knew."""
    stored: int
    calibrated: int
    """Messages that Spark's stream wrote."""
    archived: int
    """Rows of Parquet."""
    lost: int
    """Confirmed, and missing in one of the three."""
    duplicated: int
    """In one of the three more than once."""
    out_of_order: int
    """In one of the three behind a later one of its producer and key."""
    strange: int
    """Damaged, not numbered, or of a producer that the demo did not start."""

    @property
    def balanced(self) -> bool:
        agree = self.stored == self.calibrated and self.archived == self.stored + self.calibrated
        agree = agree and self.stored == self.confirmed + self.unconfirmed
        return agree and self.lost == self.duplicated == self.out_of_order == self.strange == 0


def say(places: Places, words: str) -> None:
    with places.said.open("a") as file:
        file.write(f"{words}\n")


def close(spark: SparkSession, places: Places) -> None:
    """All that happens after the rig has come to rest."""
    from holdfast.pipeline.archive import archive
    from holdfast.pipeline.audit import audit
    from holdfast.pipeline.jobs.audit_page import write_report
    from holdfast.pipeline.measure import measure

    topics, path = [TOPIC, CALIBRATED], str(places.data)
    say(places, "archive: both topics to Parquet, read back and compared")
    archive(spark, topics=topics, to=places.archive, path=path)
    say(places, "measure: windows of 10 seconds, by key")
    measure(spark, to=places.windows, topics=[TOPIC], path=path)
    say(places, "audit: every number of every producer, in both topics and in their archive")
    sent = confirmed(places.records)
    expected = dict.fromkeys(topics, sent)
    live = audit(spark, topics=topics, path=path, expected=expected)
    kept = audit(spark, topics=topics, archive=places.archive, expected=expected)
    write_report(of_both(live, kept), places.report, "holdfast demo")
    places.account.write_text(json.dumps(asdict(account(live, kept, sent))))


def of_both(live: AuditReport, kept: AuditReport) -> AuditReport:
    """Choose the page's audit: the topics, or the archive if only that has faults."""
    words = ", ".join(kept.faults()) or "sound"
    note = f"The same audit of the archive, {plural(kept.messages, 'row')} of Parquet: {words}."
    return replace(kept if live.sound and not kept.sound else live, notes=[note])


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
        out_of_order=live.out_of_order + kept.out_of_order,
        strange=sum(each.damaged + each.foreign + each.unexpected for each in (live, kept)),
    )
