"""Topics as data: a Spark source, a Spark sink, and jobs that use them.

Promises upward: `format("holdfast")` reads topics exactly as they are, and writes to them exactly once.
Needs from below: the broker's files (`holdfast.ledger.files.table`) and the core's columns
(`holdfast._core.Columns`) to read; the client (`holdfast.client`) to write and to advance a subscription.

Spark is imported at the first use, not with this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.pipeline.session import session
from holdfast.pipeline.source.offsets import behind_latest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("holdfast")` in a session that `session` did not create. Repeating it is harmless."""
    from holdfast.pipeline.source.format import source_of

    spark.dataSource.register(source_of(spark))


__all__ = ["behind_latest", "register", "session"]
