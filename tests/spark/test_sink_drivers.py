"""Kill drivers of Spark with their Java: the sink's account is exact (I141 to I144)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.spark.sink_kill import FEW, sequence, spark_driver


# In `make test`: tests/process/pipeline/test_sink_kill.py kills a driver at every step without Spark, and
# tests/spark/test_sink.py the processes in which Spark runs tasks and commits.
@pytest.mark.nightly
@pytest.mark.timeout(2000)  # five drivers, each of which has LIFE_S
def test_drivers_of_spark_are_killed(tmp_path: Path, counts: Callable[[str], None]) -> None:
    """With real Spark: kills before and after the commit, and in `abort`.

    On the way, workers and the broker are killed, too.
    """
    account = sequence(tmp_path, spark_driver, FEW)
    assert not account.faults, account.faults
    assert account.lives == len(FEW) + 1
    assert account.kills.total() == sum(map(len, FEW))
    counts(account.words())
