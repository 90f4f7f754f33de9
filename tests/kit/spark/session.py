"""One Spark session for all tests of a process: starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kit.slices import pick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}
QUICK = {
    # A query of a test has few rows, and runs once: neither code that is made for it nor plans that are
    # changed while it runs earn what they cost.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Not in `make nightly`, which has what users have."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, little memory; it ends with the run."""
    from holdfast.pipeline import session

    quick = pick(test=QUICK, nightly={})
    settings = {**SETTINGS, **quick, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    made = session("holdfast-tests", master="local[2]", settings=settings)
    yield made
    made.stop()
